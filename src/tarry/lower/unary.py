"""Functions of one tensor, element by element, in the tensor's dtype (halves in
f32, integers in the default float where the function asks for it)."""

import numpy as np

from tarry.lower.doubt import inexact, unequal_dtypes
from tarry.lower.layout import of_angle
from tarry.lower.precision import quotient, widen
from tarry.lower.table import Call, Scalar, convert, pointwise, row
from tarry.lower.xla import jnp, jsp, lax


def _full(x, value):
    return lax.full_like(x, value)


def _is_int(x) -> bool:
    return x.dtype.kind in "iub"


def _is_complex(x) -> bool:
    return x.dtype.kind == "c"


# ATen name -> jax.lax name, for functions that integers enter as floats.
_FLOAT_FUNCTIONS = {
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "exp": "exp",
    "exp2": "exp2",
    "expm1": "expm1",
    "log": "log",
    "log1p": "log1p",
    "sin": "sin",
    "cos": "cos",
    "tan": "tan",
    "asin": "asin",
    "acos": "acos",
    "atan": "atan",
    "sinh": "sinh",
    "cosh": "cosh",
    "tanh": "tanh",
    "asinh": "asinh",
    "acosh": "acosh",
    "atanh": "atanh",
    "sigmoid": "logistic",
    "erf": "erf",
    "erfc": "erfc",
    "erfinv": "erf_inv",
    "lgamma": "lgamma",
    "special_i0e": "bessel_i0e",
    "special_i1e": "bessel_i1e",
}
_SCIPY_FUNCTIONS = {
    "i0": "i0",
    "special_i1": "i1",
    "special_entr": "entr",
    "special_ndtri": "ndtri",
    "special_log_ndtr": "log_ndtr",
}


def _register(name: str, module, function: str) -> None:
    def apply(x):
        return getattr(module, function)(x)

    apply.__name__ = name
    pointwise(name, floats=True)(apply)


for _name, _function in _FLOAT_FUNCTIONS.items():
    _register(_name, lax, _function)
for _name, _function in _SCIPY_FUNCTIONS.items():
    _register(_name, jsp, _function)


@pointwise("abs", opmath=False)
def absolute(x):
    return x if x.dtype.kind in "ub" else lax.abs(x)


@pointwise("neg", opmath=False)
def neg(x):
    return lax.neg(x)


@pointwise("sign", opmath=False)
def sign(x):
    """NaN has sign 0, as in PyTorch."""
    return x if x.dtype == np.bool_ else _sign(x)


def _sign(x):
    zero = _full(x, 0)
    above, below = (convert(c, x.dtype) for c in (lax.gt(x, zero), lax.lt(x, zero)))
    return lax.sub(above, below)


@pointwise("sgn", opmath=False)
def sgn(x):
    if not _is_complex(x):
        return sign(x)
    size = lax.abs(x)
    zero = _full(x, 0)
    unit = lax.div(x, lax.complex(size, _full(size, 0)))
    return lax.select(lax.eq(size, _full(size, 0)), zero, unit)


@pointwise("reciprocal", floats=True)
def reciprocal(x):
    return lax.div(_full(x, 1), x)


@pointwise("log2", floats=True)
def log2(x):
    return _log_to(x, 2)


@pointwise("log10", floats=True)
def log10(x):
    return _log_to(x, 10)


def _log_to(x, base: int):
    """log(x) / log(base), exact where x is a power of the base: `floor(log10(x))`
    counts digits in many programs."""
    log, unit = lax.log(x), np.log(base)
    if _is_complex(x):
        parts = (lax.real(log), lax.imag(log))
        return lax.complex(*(lax.div(p, _full(p, unit)) for p in parts))
    log = lax.div(log, _full(x, unit))
    whole = _round_even(log)
    return lax.select(lax.eq(_whole_power(x, whole, base), x), whole, log)


def _whole_power(x, exponent, base: int):
    """base ** exponent from exact factors; the inverse is compared for x < 1."""
    n = convert(lax.abs(exponent), np.dtype(np.int32))
    power = _full(x, 1)
    for bit in range(5 if base == 10 else 7):
        factor = float(base) ** (1 << bit)
        if factor > float(jnp.finfo(x.dtype).max):
            break
        on = lax.ne(lax.bitwise_and(n, _full(n, 1 << bit)), _full(n, 0))
        power = lax.mul(power, lax.select(on, _full(x, factor), _full(x, 1)))
    below = lax.lt(exponent, _full(x, 0))
    return lax.select(below, lax.div(_full(x, 1), power), power)


@pointwise("digamma", floats=True)
def digamma(x):
    zero = _full(x, 0)
    pole = jnp.copysign(_full(x, np.inf), lax.neg(x))
    return lax.select(lax.eq(x, zero), pole, lax.digamma(x))


def _whole(x, function):
    return x if _is_int(x) else function(x)


@pointwise("ceil", opmath=False)
def ceil(x):
    return _whole(x, lax.ceil)


@pointwise("floor", opmath=False)
def floor(x):
    return _whole(x, lax.floor)


def _round_even(x):
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)


@pointwise("round", opmath=False)
def round_even(x):
    return _whole(x, _round_even)


@pointwise("round.decimals")
def round_decimals(x, decimals: int):
    if _is_int(x):
        return x
    ten = _full(x, 10.0 ** abs(decimals))
    if decimals >= 0:
        return quotient(_round_even(lax.mul(x, ten)), ten)
    return lax.mul(_round_even(quotient(x, ten)), ten)


def _trunc_float(x):
    return lax.select(lax.lt(x, _full(x, 0)), lax.ceil(x), lax.floor(x))


@pointwise("trunc", opmath=False)
def trunc(x):
    return _whole(x, _trunc_float)


@pointwise("frac", opmath=False)
def frac(x):
    return lax.sub(x, _trunc_float(x))


@pointwise("bitwise_not", doubts=inexact)
def bitwise_not(x):
    return lax.bitwise_not(x)


@pointwise("angle", floats=True, strides=of_angle)
def angle(x):
    if _is_complex(x):
        return lax.atan2(lax.imag(x), lax.real(x))
    zero = _full(x, 0)
    flat = lax.select(lax.lt(x, zero), _full(x, np.pi), zero)
    return lax.select(lax.ne(x, x), x, flat)


@pointwise("_conj_physical")
def conj_physical(x):
    return lax.conj(x) if _is_complex(x) else x


@row("frexp.Tensor")
def frexp(call: Call, x):
    mantissa, exponent = jnp.frexp(x)
    return convert(mantissa, call.outs[0].dtype), convert(exponent, call.outs[1].dtype)


@row("complex", doubts=unequal_dtypes)
def complex_of(call: Call, real, imag):
    shape = call.out.shape
    return lax.complex(*(jnp.broadcast_to(widen(v), shape) for v in (real, imag)))


@row("polar", doubts=unequal_dtypes)
def polar(call: Call, size, phase):
    shape = call.out.shape
    size, phase = (jnp.broadcast_to(v, shape) for v in (size, phase))
    return lax.complex(lax.mul(size, lax.cos(phase)), lax.mul(size, lax.sin(phase)))


@row("nan_to_num", scalars=("nan", "posinf", "neginf"))
def nan_to_num(call: Call, x, nan, posinf, neginf):
    if _is_int(x):
        return x
    if _is_complex(x):
        parts = (lax.real(x), lax.imag(x))
        return lax.complex(*(_replace(p, nan, posinf, neginf) for p in parts))
    return _replace(x, nan, posinf, neginf)


def _replace(x, nan: Scalar | None, posinf: Scalar | None, neginf: Scalar | None):
    limits = jnp.finfo(x.dtype)

    def value(given: Scalar | None, default: float):
        if given is None:
            return _full(x, default)
        return lax.broadcast(given.to(x.dtype), x.shape)

    x = lax.select(lax.ne(x, x), value(nan, 0), x)
    x = lax.select(lax.eq(x, _full(x, np.inf)), value(posinf, limits.max), x)
    return lax.select(lax.eq(x, _full(x, -np.inf)), value(neginf, limits.min), x)


@pointwise("logit", floats=True)
def logit(x, eps: float | None):
    if eps is not None:
        low, high = _full(x, eps), _full(x, 1 - eps)
        x = lax.select(lax.lt(x, low), low, lax.min(x, high))
    return lax.log(lax.div(x, lax.sub(_full(x, 1), x)))


@pointwise("sinc", floats=True)
def sinc(x):
    zero, angle_ = _full(x, 0), lax.mul(x, _full(x, np.pi))
    return lax.select(lax.eq(x, zero), _full(x, 1), lax.div(lax.sin(angle_), angle_))


# Chebyshev coefficients of log(erfc(x) / t) + x^2, t = 2 / (2 + x); Numerical
# Recipes (3rd ed.), section 6.2.2.
_ERFC_CHEBYSHEV = (
    -1.3026537197817094,
    6.4196979235649026e-1,
    1.9476473204185836e-2,
    -9.561514786808631e-3,
    -9.46595344482036e-4,
    3.66839497852761e-4,
    4.2523324806907e-5,
    -2.0278578112534e-5,
    -1.624290004647e-6,
    1.303655835580e-6,
    1.5626441722e-8,
    -8.5238095915e-8,
    6.529054439e-9,
    5.059343495e-9,
    -9.91364156e-10,
    -2.27365122e-10,
    9.6467911e-11,
    2.394038e-12,
    -6.886027e-12,
    8.94487e-13,
    3.13092e-13,
    -1.12708e-13,
    3.81e-16,
    7.106e-15,
    -1.523e-15,
    -9.4e-17,
    1.21e-16,
    -2.8e-17,
)


@pointwise("special_erfcx", floats=True)
def erfcx(x):
    """exp(x^2) erfc(x) without overflow: the series gives its logarithm."""
    z = lax.abs(x)
    t = 2 / (2 + z)
    t4 = 4 * t - 2
    d, dd = _full(x, 0), _full(x, 0)
    for c in _ERFC_CHEBYSHEV[:0:-1]:
        d, dd = t4 * d - dd + c, d
    right = t * lax.exp(0.5 * (_ERFC_CHEBYSHEV[0] + t4 * d) - dd)
    left = 2 * lax.exp(x * x) - right
    return lax.select(lax.lt(x, _full(x, 0)), left, right)
