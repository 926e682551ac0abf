"""Elementwise arithmetic of two and three operands, powers and bit operations.

Operands arrive in PyTorch's common dtype (f32 for halves) and broadcast. Integer
division and remainder follow PyTorch: `remainder` and floor division take the
divisor's sign, `fmod` and truncating division the dividend's.
"""

import numpy as np
import torch

from tarry.dtypes import to_numpy
from tarry.lower.doubt import inexact, no_integers
from tarry.lower.layout import iterated, row_major
from tarry.lower.precision import quotient
from tarry.lower.table import Call, convert, pointwise, row
from tarry.lower.xla import jnp, lax


def _is_bool(x) -> bool:
    return x.dtype == np.bool_


def _is_int(x) -> bool:
    return x.dtype.kind in "iub"


def _fill(x, value):
    return lax.full_like(x, value)


@pointwise("add.Tensor", "add.Scalar", rounds=(0, 1, 2))
def add(x, y, alpha=None):
    if alpha is not None:
        y = lax.bitwise_and(y, alpha) if _is_bool(y) else lax.mul(y, alpha)
    return lax.bitwise_or(x, y) if _is_bool(x) else lax.add(x, y)


@pointwise("mul.Tensor", "mul.Scalar")
def mul(x, y):
    return lax.bitwise_and(x, y) if _is_bool(x) else lax.mul(x, y)


@pointwise("sub.Tensor", "sub.Scalar", rounds=(0, 1, 2))
def sub(x, y, alpha=None):
    return lax.sub(x, y if alpha is None else lax.mul(y, alpha))


@pointwise("rsub.Tensor", rounds=(0, 1, 2), strides=iterated(1, 0))
@pointwise("rsub.Scalar", rounds=(0, 1, 2))
def rsub(x, y, alpha=None):
    return lax.sub(y, x if alpha is None else lax.mul(x, alpha))


@pointwise("div.Tensor", "div.Scalar", floats=True, rounds=(0,))
def div(x, y):
    return quotient(x, y)


def _div_strides(metas, x, y, rounding_mode):
    return iterated(floats=rounding_mode is None)(metas, x, y)


@pointwise("div.Tensor_mode", "div.Scalar_mode", rounds=(0,), strides=_div_strides)
def div_mode(x, y, rounding_mode: str | None):
    if rounding_mode is None:
        return quotient(*(convert(v, true_dtype(v.dtype)) for v in (x, y)))
    if rounding_mode == "floor":
        return floor_divide(x, y)
    return lax.div(x, y) if _is_int(x) else _trunc(quotient(x, y))


def true_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype true division computes in: the default float for integers."""
    default = to_numpy(torch.get_default_dtype())
    return default if dtype.kind in "iub" else dtype


def _trunc(x):
    return lax.select(lax.lt(x, _fill(x, 0)), lax.ceil(x), lax.floor(x))


@pointwise("floor_divide", "floor_divide.Scalar", rounds=(0,))
def floor_divide(x, y):
    return _floor_int(x, y) if _is_int(x) else _floor_float(x, y)


def _floor_int(x, y):
    whole, rest = lax.div(x, y), lax.rem(x, y)
    return lax.sub(whole, convert(_wrong_sign(rest, y), x.dtype))


def _wrong_sign(rest, y):
    """Where a truncating remainder differs from the flooring one."""
    zero = _fill(rest, 0)
    apart = lax.ne(lax.lt(rest, zero), lax.lt(y, zero))
    return lax.bitwise_and(lax.ne(rest, zero), apart)


def _floor_float(x, y):
    """C10's `div_floor_floating`: exact where `floor(x / y)` is off by one."""
    rest, ratio, zero = lax.rem(x, y), quotient(x, y), _fill(x, 0)
    whole = quotient(lax.sub(x, rest), y)
    whole = lax.sub(whole, convert(_wrong_sign(rest, y), x.dtype))
    floor = lax.floor(whole)
    up = convert(lax.gt(lax.sub(whole, floor), _fill(x, 0.5)), x.dtype)
    signed_zero = jnp.copysign(zero, ratio)
    result = lax.select(lax.eq(whole, zero), signed_zero, lax.add(floor, up))
    return lax.select(lax.eq(y, zero), ratio, result)


@pointwise(
    "remainder.Tensor",
    "remainder.Scalar",
    "remainder.Scalar_Tensor",
    rounds=(0, 1),
)
def remainder(x, y):
    rest = lax.rem(x, y)
    return lax.select(_wrong_sign(rest, y), lax.add(rest, y), rest)


@pointwise("fmod.Tensor", "fmod.Scalar", rounds=(0, 1))
def fmod(x, y):
    return lax.rem(x, y)


@pointwise("addcmul")
def addcmul(x, a, b, value):
    return lax.add(x, lax.mul(lax.mul(value, a), b))


@pointwise("addcdiv")
def addcdiv(x, a, b, value):
    return lax.add(x, quotient(lax.mul(value, a), b))


@pointwise("lerp.Scalar")
@pointwise("lerp.Tensor", rounds=(0, 1, 2))
def lerp(start, end, weight):
    gap, one = lax.sub(end, start), _fill(weight, 1)
    near = lax.lt(lax.abs(weight), lax.full_like(lax.abs(weight), 0.5))
    low = lax.add(start, lax.mul(weight, gap))
    return lax.select(near, low, lax.sub(end, lax.mul(gap, lax.sub(one, weight))))


@pointwise("pow.Scalar", rounds=(0, 1), strides=row_major)
@pointwise("pow.Tensor_Tensor", rounds=(0, 1))
def power(x, y):
    if not _is_int(x):
        return lax.pow(x, y)
    if x.dtype.kind != "i":
        return _int_power(x, y)
    zero, one = _fill(x, 0), _fill(x, 1)
    odd = lax.eq(lax.bitwise_and(y, one), one)
    sign = lax.select(odd, x, one)
    inverse = lax.select(lax.eq(lax.abs(x), one), sign, zero)
    return lax.select(lax.lt(y, zero), inverse, _int_power(x, lax.max(y, zero)))


def _int_power(x, y):
    """x ** y for y >= 0, with wrap-around: squares while exponent bits are left."""
    one, zero = _fill(x, 1), _fill(x, 0)

    def step(state):
        result, square, left = state
        odd = lax.eq(lax.bitwise_and(left, one), one)
        result = lax.select(odd, lax.mul(result, square), result)
        return result, lax.mul(square, square), lax.shift_right_logical(left, one)

    def more(state):
        return lax.reduce_or(lax.ne(state[2], zero), range(x.ndim))

    return lax.while_loop(more, step, (one, x, y))[0]


@row("pow.Tensor_Scalar", static=("exponent",))
def power_static(call: Call, x, exponent: complex):
    """x ** exponent, written out for the exponents that have a shorter form."""
    out = call.out.dtype
    wide = np.dtype(np.float32) if out.kind in "fV" and out.itemsize == 2 else out
    if out.itemsize == 2 and isinstance(exponent, float):
        exponent = float(np.array(exponent, out))  # as the CPU takes it
    x = convert(x, wide)
    return convert(_power(x, exponent), out)


def _power(x, exponent: complex):
    if isinstance(exponent, complex):
        return power(x, _fill(x, exponent))
    whole = np.isfinite(exponent) and exponent == int(exponent)
    if _is_int(x):
        short = exponent >= 0
        return lax.integer_pow(x, int(exponent)) if short else power(x, _fill(x, -1))
    if exponent == 0.5:
        return lax.sqrt(x)
    if exponent == -0.5:
        return lax.rsqrt(x)
    if whole and abs(exponent) <= 16:
        return lax.integer_pow(x, int(exponent))
    return power(x, _fill(x, exponent))


@pointwise("atan2", floats=True, rounds=(0, 1))
def atan2(x, y):
    return lax.atan2(x, y)


@pointwise("maximum")
def maximum(x, y):
    return lax.max(x, y)


@pointwise("minimum")
def minimum(x, y):
    return lax.min(x, y)


def _skip_nan(x, y, choose):
    if _is_int(x):
        return choose(x, y)
    return lax.select(lax.ne(x, x), y, lax.select(lax.ne(y, y), x, choose(x, y)))


@pointwise("fmax")
def fmax(x, y):
    return _skip_nan(x, y, lax.max)


@pointwise("fmin")
def fmin(x, y):
    return _skip_nan(x, y, lax.min)


@pointwise("hypot", rounds=(0, 1))
def hypot(x, y):
    return jnp.hypot(x, y)


@pointwise("copysign.Tensor", "copysign.Scalar", floats=True)
def copysign(x, y):
    return jnp.copysign(x, y)


@pointwise("nextafter", opmath=False)
def nextafter(x, y):
    return lax.nextafter(x, y)


@pointwise("gcd", doubts=no_integers)
def gcd(x, y):
    return jnp.gcd(x, y)


@pointwise("lcm", doubts=no_integers)
def lcm(x, y):
    return jnp.lcm(x, y)


@pointwise(
    "xlogy.Tensor",
    "xlogy.Scalar_Self",
    "xlogy.Scalar_Other",
    floats=True,
    rounds=(0, 1),
)
def xlogy(x, y):
    return _times_log(x, y, lax.log(y))


@pointwise(
    "special_xlog1py",
    "special_xlog1py.self_scalar",
    "special_xlog1py.other_scalar",
    floats=True,
    rounds=(0, 1),
)
def xlog1py(x, y):
    return _times_log(x, y, lax.log1p(y))


def _times_log(x, y, log):
    """x * log, where zero times a log of no NaN is zero."""
    zero = _fill(x, 0)
    empty = lax.bitwise_and(lax.eq(x, zero), lax.eq(y, y))
    return lax.select(empty, zero, lax.mul(x, log))


def complex_logaddexp(x, y):
    """log(exp(x) + exp(y)), the larger by its real part plus a small rest: the branch
    of PyTorch's kernel."""
    below = lax.lt(lax.real(x), lax.real(y))
    low, high = lax.select(below, x, y), lax.select(below, y, x)
    near = lax.add(lax.log1p(lax.exp(lax.sub(low, high))), high)
    endless = lax.bitwise_not(lax.is_finite(lax.real(high)))
    same = lax.bitwise_and(endless, lax.eq(lax.real(low), lax.real(high)))
    down = lax.lt(lax.real(low), lax.full_like(lax.real(low), 0))
    far = lax.select(down, low, lax.log(lax.add(lax.exp(low), lax.exp(high))))
    y = lax.select(same, far, near)
    nan = lax.ne(lax.real(low), lax.real(low)) | lax.ne(lax.real(high), lax.real(high))
    return lax.select(nan, lax.full_like(y, complex(np.nan, np.nan)), y)


@pointwise("logaddexp")
def logaddexp(x, y):
    return complex_logaddexp(x, y) if x.dtype.kind == "c" else jnp.logaddexp(x, y)


@pointwise("logaddexp2")
def logaddexp2(x, y):
    return jnp.logaddexp2(x, y)


@pointwise("heaviside")
def heaviside(x, values):
    zero = _fill(x, 0)
    step = convert(lax.gt(x, zero), x.dtype)
    return lax.select(lax.eq(x, zero), values, step)


@pointwise("igamma")
def igamma(a, x):
    return _at_edges(a, x, lax.igamma(a, x), 0, 1)


@pointwise("igammac")
def igammac(a, x):
    return _at_edges(a, x, lax.igammac(a, x), 1, 0)


def _at_edges(a, x, inside, at_zero: int, at_infinity: int):
    """`inside`, but the limits at x = 0 and x = ∞, and at a = ∞ the one of x = 0, even
    where the other argument is NaN, as PyTorch's kernel has them."""
    zero, infinity = lax.full_like(x, 0), lax.full_like(x, np.inf)
    low, high = lax.full_like(x, at_zero), lax.full_like(x, at_infinity)
    far = lax.select(lax.eq(x, infinity), lax.full_like(x, np.nan), low)
    y = lax.select(lax.eq(x, infinity), high, inside)
    y = lax.select(lax.eq(a, infinity), far, y)
    y = lax.select(lax.eq(x, zero), low, y)
    refused = lax.bitwise_or(lax.lt(x, zero), lax.lt(a, zero))
    at_none = lax.bitwise_and(lax.eq(a, zero), lax.ne(lax.gt(x, zero), True))
    y = lax.select(lax.bitwise_or(refused, at_none), lax.full_like(x, np.nan), y)
    settled = lax.bitwise_and(lax.eq(a, zero), lax.gt(x, zero))
    return lax.select(settled, high, y)


def _overloads(name: str) -> tuple[str, ...]:
    return tuple(f"{name}.{which}" for which in ("Tensor", "Scalar", "Scalar_Tensor"))


@pointwise(*_overloads("bitwise_and"), doubts=inexact)
def bitwise_and(x, y):
    return lax.bitwise_and(x, y)


@pointwise(*_overloads("bitwise_or"), doubts=inexact)
def bitwise_or(x, y):
    return lax.bitwise_or(x, y)


@pointwise(*_overloads("bitwise_xor"), doubts=inexact)
def bitwise_xor(x, y):
    return lax.bitwise_xor(x, y)


@pointwise(
    "bitwise_left_shift.Tensor",
    "bitwise_left_shift.Tensor_Scalar",
    "bitwise_left_shift.Scalar_Tensor",
    "__lshift__.Tensor",
    "__lshift__.Scalar",
    doubts=no_integers,
)
def left_shift(x, y):
    return lax.shift_left(x, y)


@pointwise(
    "bitwise_right_shift.Tensor",
    "bitwise_right_shift.Tensor_Scalar",
    "bitwise_right_shift.Scalar_Tensor",
    "__rshift__.Tensor",
    "__rshift__.Scalar",
    doubts=no_integers,
)
def right_shift(x, y):
    if x.dtype.kind == "u":
        return lax.shift_right_logical(x, y)
    return lax.shift_right_arithmetic(x, y)
