"""Random numbers as internal rows. Each takes the `seed` and the number of the `draw`
as run-time integers; shape and dtype come from the result's spec. Halves are drawn
in f32 and rounded."""

from typing import Any

import numpy as np

from tarry.lower.bits import U32, U64, below, gaussian, open_unit, random_bits, unit
from tarry.lower.precision import const, factor, scale, wide_dtype, widen
from tarry.lower.table import Call, Out, Scalar, broadcast, convert, row
from tarry.lower.xla import lax

_F32 = np.dtype(np.float32)


def _real(dtype: np.dtype) -> np.dtype:
    """The float dtype to draw in for results of `dtype`."""
    if dtype.kind == "c":
        return np.dtype(f"f{dtype.itemsize // 2}")
    dtype = wide_dtype(dtype)
    return dtype if dtype in (_F32, np.float64) else _F32


def _drawn(call: Call, draw_from: Any, seed: Scalar, draw: Scalar) -> Any:
    return draw_from(seed, draw, call.out.shape, _real(call.out.dtype))


@row("tarry::uniform")
def uniform(call: Call, seed: Scalar, draw: Scalar, low: Scalar, high: Scalar) -> Any:
    """Uniform in [low, high), both parts of a complex number each; rounding up to
    `high` is undone."""
    if call.out.dtype.kind == "c":
        parts = Call((Out((2, *call.out.shape), call.out.torch_dtype.to_real()),))
        x = uniform(parts, seed, draw, low, high)
        return lax.complex(*(lax.index_in_dim(x, i, keepdims=False) for i in range(2)))
    u = _drawn(call, unit, seed, draw)
    low_, high_ = low.to(u.dtype), high.to(u.dtype)
    x = convert(lax.add(lax.mul(u, lax.sub(high_, low_)), low_), call.out.dtype)
    top = lax.nextafter(high.to(x.dtype), low.to(x.dtype))
    return lax.min(x, broadcast(top, x.shape))


def _normal(call: Call, seed: Scalar, draw: Scalar) -> Any:
    """Standard normal; a complex one has unit variance over both parts."""
    if call.out.dtype.kind != "c":
        return _drawn(call, gaussian, seed, draw)
    shape = (2, *call.out.shape)
    x = scale(gaussian(seed, draw, shape, _real(call.out.dtype)), 0.5**0.5)
    parts = (lax.index_in_dim(x, i, keepdims=False) for i in range(2))
    return lax.complex(*parts)


def _operand(x: Any, value: Any) -> Any:
    """A parameter (array, `Scalar` or number) at the dtype and shape of `x`."""
    if hasattr(value, "aval"):
        return broadcast(convert(value, x.dtype), x.shape)
    return factor(x, value)


@row("tarry::normal")
def normal(call: Call, seed: Scalar, draw: Scalar, mean: Scalar, std: Scalar) -> Any:
    return normal_tensor(call, mean, std, seed, draw)


@row("tarry::normal_tensor")
def normal_tensor(call: Call, mean: Any, std: Any, seed: Scalar, draw: Scalar) -> Any:
    """Normal with `mean` and `std` each an array, a scalar or None (0 and 1)."""
    x = _normal(call, seed, draw)
    x = x if std is None else lax.mul(x, _operand(x, std))
    x = x if mean is None else lax.add(x, _operand(x, mean))
    return convert(x, call.out.dtype)


@row("tarry::log_normal")
def log_normal(call: Call, seed: Scalar, draw: Scalar, mean: Any, std: Any) -> Any:
    x = _normal(call, seed, draw)
    x = lax.add(lax.mul(x, _operand(x, std)), _operand(x, mean))
    return convert(lax.exp(x), call.out.dtype)


@row("tarry::exponential")
def exponential(call: Call, seed: Scalar, draw: Scalar, rate: Scalar) -> Any:
    x = lax.neg(lax.log(_drawn(call, open_unit, seed, draw)))
    return convert(lax.div(x, rate.to(x.dtype)), call.out.dtype)


@row("tarry::geometric")
def geometric(call: Call, seed: Scalar, draw: Scalar, p: Scalar) -> Any:
    x = lax.log(_drawn(call, open_unit, seed, draw))
    x = lax.div(x, lax.log1p(lax.neg(p.to(x.dtype))))
    return convert(lax.max(lax.ceil(x), const(x, 1)), call.out.dtype)


@row("tarry::cauchy")
def cauchy(call: Call, seed: Scalar, draw: Scalar, median: Scalar, sigma: Any) -> Any:
    x = _drawn(call, open_unit, seed, draw)
    x = lax.tan(scale(lax.sub(x, const(x, 0.5)), np.pi))
    x = lax.add(lax.mul(x, sigma.to(x.dtype)), median.to(x.dtype))
    return convert(x, call.out.dtype)


def _chance(seed: Scalar, draw: Scalar, shape: tuple[int, ...], p: Scalar) -> Any:
    """True with probability `p`, to 24 bits; an integer comparison."""
    x = random_bits(seed, draw, shape, U32)
    limit = lax.round(scale(p.to(np.dtype(np.float64)), 2.0**24))
    limit = lax.convert_element_type(limit, U32)
    return lax.lt(lax.shift_right_logical(x, np.uint32(8)), limit)


@row("tarry::bernoulli")
def bernoulli(call: Call, seed: Scalar, draw: Scalar, p: Scalar) -> Any:
    return convert(_chance(seed, draw, call.out.shape, p), call.out.dtype)


@row("tarry::bernoulli_tensor")
def bernoulli_tensor(call: Call, p: Any, seed: Scalar, draw: Scalar) -> Any:
    p = convert(p, _real(p.dtype))
    u = unit(seed, draw, call.out.shape, p.dtype)
    return convert(lax.lt(u, broadcast(p, u.shape)), call.out.dtype)


@row("tarry::dropout")
def dropout(
    call: Call, x: Any, p: Scalar, seed: Scalar, draw: Scalar
) -> tuple[Any, Any]:
    """(x * kept / (1 - p), kept); all zeros at p = 1."""
    dropped = _chance(seed, draw, x.shape, p)
    y = widen(x)
    keep = lax.sub(const(y, 1), p.to(y.dtype))
    gain = lax.select(lax.gt(keep, const(y, 0)), lax.div(const(y, 1), keep), keep)
    y = lax.select(dropped, lax.full_like(y, 0), lax.mul(y, gain))
    return convert(y, call.out.dtype), lax.bitwise_not(dropped)


@row("tarry::randint")
def randint(call: Call, seed: Scalar, draw: Scalar, low: Scalar, high: Scalar) -> Any:
    """Integers in [low, high), both int64; equal bounds stand for all 2^64."""
    low_, high_ = low.to(np.dtype(np.int64)), high.to(np.dtype(np.int64))
    span = lax.bitcast_convert_type(lax.sub(high_, low_), U64)
    x = below(seed, draw, call.out.shape, span)
    x = lax.add(lax.bitcast_convert_type(x, low_.dtype), low_)
    return convert(x, call.out.dtype)


@row("tarry::randperm")
def randperm(call: Call, seed: Scalar, draw: Scalar) -> Any:
    key = random_bits(seed, draw, call.out.shape, U64)
    index = lax.iota(np.dtype(np.int64), call.out.shape[0])
    return convert(lax.sort((key, index), num_keys=1)[1], call.out.dtype)


@row("tarry::rrelu")
def rrelu(
    call: Call, x: Any, lower: Scalar, upper: Scalar, seed: Scalar, draw: Scalar
) -> tuple[Any, Any]:
    """Training form of `rrelu`: (result, the slope of every element)."""
    y = widen(x)
    u = unit(seed, draw, x.shape, _real(x.dtype))
    low, high = lower.to(u.dtype), upper.to(u.dtype)
    slope = convert(lax.add(lax.mul(u, lax.sub(high, low)), low), y.dtype)
    slope = lax.select(lax.le(y, const(y, 0)), slope, lax.full_like(y, 1))
    y = lax.mul(y, slope)
    return convert(y, call.outs[0].dtype), convert(slope, call.outs[1].dtype)


@row("tarry::multinomial")
def multinomial(
    call: Call, p: Any, count: int, replacement: bool, seed: Scalar, draw: Scalar
) -> Any:
    """Indices drawn from the rows of `p` in proportion to its elements."""
    p = convert(p, _real(p.dtype))
    if replacement and count > 1:
        x = _inverse_cdf(p, count, seed, draw)
    else:
        race = lax.div(p, lax.neg(lax.log(open_unit(seed, draw, p.shape, p.dtype))))
        x = lax.top_k(race, count)[1]
    return convert(x, call.out.dtype)


def _inverse_cdf(p: Any, count: int, seed: Scalar, draw: Scalar) -> Any:
    """Where uniform numbers fall among the cumulative sums, by binary search."""
    last = p.ndim - 1
    cdf = lax.cumsum(p, axis=last)
    total = lax.slice_in_dim(cdf, p.shape[last] - 1, None, axis=last)
    shape = (*p.shape[:last], count)
    u = lax.mul(unit(seed, draw, shape, p.dtype), broadcast(total, shape))
    u = lax.min(u, broadcast(lax.nextafter(total, lax.full_like(total, 0)), shape))
    found = lax.full(shape, 0, np.dtype(np.int64))
    step = 1 << (p.shape[last] - 1).bit_length()
    while step := step >> 1:
        found = _advance(cdf, u, found, step)
    return found


def _advance(cdf: Any, u: Any, found: Any, step: int) -> Any:
    """`found + step` where the cumulative sum before that index is not above u."""
    n, axis = cdf.shape[-1], cdf.ndim - 1
    batch = tuple(range(axis))
    dims = lax.GatherDimensionNumbers(
        (),
        (axis,),
        (axis,),
        operand_batching_dims=batch,
        start_indices_batching_dims=batch,
    )
    nearby = lax.add(found, const(found, step - 1))
    at = lax.expand_dims(lax.min(nearby, const(found, n - 1)), (found.ndim,))
    value = lax.gather(cdf, at, dims, (1,) * cdf.ndim, mode="clip")
    ahead = lax.bitwise_and(lax.le(value, u), lax.lt(nearby, const(found, n - 1)))
    return lax.select(ahead, lax.add(found, const(found, step)), found)
