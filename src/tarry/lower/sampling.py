"""Reading an image at the points of a grid (`grid_sampler`), in two and three
dimensions: the image is (N, C, *size), the grid (N, *out, rank), whose vectors begin
with the image's last dimension. Gradients are JAX's of the lowered forward."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tarry.lower.activation import zero_unless
from tarry.lower.precision import const, scale, shift, widen
from tarry.lower.table import Call, broadcast, convert, row
from tarry.lower.xla import jax, jnp, lax

_LINEAR, _NEAREST, _CUBIC = 0, 1, 2
_ZEROS, _BORDER, _REFLECT = 0, 1, 2
_I64 = np.dtype(np.int64)


def _unnormalized(at: Any, n: int, align: bool) -> Any:
    """[-1, 1] to places of elements along a dimension of size `n`."""
    if align:
        return scale(shift(at, 1), (n - 1) / 2)
    return scale(shift(scale(shift(at, 1), n), -1), 0.5)


def _reflected(at: Any, n: int, align: bool) -> Any:
    low, high = (0.0, n - 1.0) if align else (-0.5, n - 0.5)
    span = high - low
    if span <= 0:
        return lax.full_like(at, 0)
    at = lax.abs(shift(at, -low))
    extra, flips = lax.rem(at, const(at, span)), lax.floor(scale(at, 1 / span))
    odd = lax.rem(flips, const(at, 2)) == 1
    return lax.select(odd, high - extra, shift(extra, low))


def _bounded(at: Any, n: int, padding: int, align: bool, lost: int) -> Any:
    """A place inside the image, for every padding but zeros; `lost` for NaN."""
    if padding == _REFLECT:
        at = _reflected(at, n, align)
    if not padding:
        return at
    at = lax.select(lax.eq(at, at), at, lax.full_like(at, lost))
    return lax.clamp(const(at, 0), at, const(at, n - 1))


def _cubic_weights(t: Any) -> list[Any]:
    """Of the four taps around a place, `t` behind the second (a = -0.75)."""
    a = -0.75

    def near(x: Any) -> Any:
        return shift(shift(scale(x, a + 2), -(a + 3)) * x * x, 1)

    def far(x: Any) -> Any:
        return shift(shift(shift(scale(x, a), -5 * a) * x, 8 * a) * x, -4 * a)

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _taps(
    at: Any, n: int, how: int, padding: int, align: bool, lost: int
) -> tuple[Any, Any]:
    """Places in one dimension that a point reads, and their weights: (N, taps, P)."""
    if how != _CUBIC:
        at = _bounded(at, n, padding, align, lost)
    if how == _NEAREST:
        at = lax.round(at, lax.RoundingMethod.TO_NEAREST_EVEN)
        places, weights = [at], [lax.full_like(at, 1)]
    else:
        low = lax.floor(at)
        part = at - low
        if how == _LINEAR:
            places, weights = [low, shift(low, 1)], [1 - part, part]
        else:
            weights = _cubic_weights(part)
            places = [
                _bounded(shift(low, k), n, padding, align, lost) for k in (-1, 0, 1, 2)
            ]
    return jnp.stack(places, 1), jnp.stack(weights, 1)


def _along(v: Any, d: int, rank: int) -> Any:
    """(N, taps, P) with the taps at dimension `d` of `rank` dimensions of taps."""
    n, taps, points = v.shape
    shape = [n, *[1] * rank, points]
    shape[1 + d] = taps
    return lax.reshape(v, shape)


def _sample(x: Any, grid: Any, how: int, padding: int, align: bool) -> Any:
    size = x.shape[2:]
    rank, (batch, channels) = len(size), x.shape[:2]
    points = lax.reshape(grid, (batch, math.prod(grid.shape[1:-1]), rank))
    index: Any = 0
    inside: Any = True
    weight: Any = 1
    for d, n in enumerate(size):
        at = _unnormalized(points[..., rank - 1 - d], n, align)
        # PyTorch leads NaN to the first element in 2-d, else to the last.
        lost = 0 if rank == 2 else n - 1
        places, weights = _taps(at, n, how, padding, align, lost)
        ok = (places >= 0) & (places <= n - 1)
        places = convert(zero_unless(ok, places), _I64)
        index = index * n + _along(places, d, rank)
        inside = inside & _along(ok, d, rank)
        weight = weight * _along(weights, d, rank)
    flat = (batch, 1, math.prod(index.shape[1:]))
    x = lax.reshape(x, (batch, channels, math.prod(size)))
    values = jnp.take_along_axis(x, lax.reshape(index, flat), 2, mode="clip")
    inside = broadcast(lax.reshape(inside, flat), values.shape)
    values = zero_unless(inside, values) * lax.reshape(weight, flat)
    if rank == 3:  # where, unlike in 2-d, PyTorch skips what is outside
        values = zero_unless(inside, values)
    taps = math.prod(index.shape[1:-1])
    values = lax.reshape(values, (batch, channels, taps, points.shape[1]))
    return lax.reshape(values.sum(2), (batch, channels, *grid.shape[1:-1]))


@row("grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(
    call: Call, x: Any, grid: Any, how: int, padding: int, align: bool
) -> Any:
    if not x.size or not call.out.shape[0]:
        return lax.full(call.out.shape, 0, call.out.dtype)
    y = _sample(widen(x), widen(grid), how, padding, align)
    return convert(y, call.out.dtype)


@row("grid_sampler_2d_backward", "grid_sampler_3d_backward")
def grid_sampler_backward(
    call: Call,
    g: Any,
    x: Any,
    grid: Any,
    how: int,
    padding: int,
    align: bool,
    mask: Sequence[bool],
) -> tuple[Any, ...]:
    def sample(x: Any, grid: Any) -> Any:
        return _sample(x, grid, how, padding, align)

    _, back = jax.vjp(sample, widen(x), widen(grid))
    grads = back(widen(g))
    return tuple(
        convert(v, o.dtype) if wanted else None
        for v, o, wanted in zip(grads, call.outs, mask)
    )
