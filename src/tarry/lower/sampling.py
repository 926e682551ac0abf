"""Reading an image at the points of a grid (`grid_sampler`), in two and three
dimensions: the image is (N, C, *size), the grid (N, *out, rank) with x last in memory
order and first in its vectors. Gradients are those of the lowered forward."""

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from tarry.lower.activation import zero_unless
from tarry.lower.precision import const, scale, shift, widen
from tarry.lower.table import Call, convert, row
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


def _bounded(at: Any, n: int, padding: int, align: bool) -> Any:
    """A place inside the image, for every padding but zeros."""
    if padding == _REFLECT:
        at = _reflected(at, n, align)
    return lax.clamp(const(at, 0), at, const(at, n - 1)) if padding else at


def _read(x: Any, places: Sequence[Any]) -> Any:
    """x[:, :, *places], 0 outside; `x` is (N, C, *size), places are (N, points)."""
    size = x.shape[2:]
    flat = lax.full(places[0].shape, 0, _I64)
    inside = lax.full(places[0].shape, True, np.dtype(np.bool_))
    for at, n in zip(places, size):
        ok = lax.bitwise_and(at >= 0, at <= n - 1)
        inside = lax.bitwise_and(inside, ok)
        at = convert(zero_unless(ok, at), _I64)
        flat = flat * n + at
    x = lax.reshape(x, (*x.shape[:2], math.prod(size)))
    values = jnp.take_along_axis(x, flat[:, None, :], 2, mode="clip")
    keep = jnp.broadcast_to(inside[:, None, :], values.shape)
    return zero_unless(keep, values)


def _linear(x: Any, places: Sequence[Any]) -> Any:
    total = None
    lows = [lax.floor(at) for at in places]
    for corner in product((0, 1), repeat=len(places)):
        value = _read(x, [shift(v, b) for v, b in zip(lows, corner)])
        for at, low, high in zip(places, lows, corner):
            weight = at - low if high else shift(low, 1) - at
            value = value * weight[:, None, :]
        total = value if total is None else total + value
    return total


def _cubic_weights(t: Any) -> list[Any]:
    """Of the four taps around a place, `t` behind the second (a = -0.75)."""
    a = -0.75

    def near(x: Any) -> Any:
        return shift(shift(scale(x, a + 2), -(a + 3)) * x * x, 1)

    def far(x: Any) -> Any:
        return shift(shift(shift(scale(x, a), -5 * a) * x, 8 * a) * x, -4 * a)

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _cubic(x: Any, places: Sequence[Any], padding: int, align: bool) -> Any:
    lows = [lax.floor(at) for at in places]
    weights = [_cubic_weights(at - low) for at, low in zip(places, lows)]
    total = None
    for taps in product(range(4), repeat=len(places)):
        at = [
            _bounded(shift(low, k - 1), n, padding, align)
            for low, k, n in zip(lows, taps, x.shape[2:])
        ]
        value = _read(x, at)
        for w, k in zip(weights, taps):
            value = value * w[k][:, None, :]
        total = value if total is None else total + value
    return total


def _sample(x: Any, grid: Any, how: int, padding: int, align: bool) -> Any:
    rank = x.ndim - 2
    points = lax.reshape(
        grid, (grid.shape[0], grid.size // (grid.shape[0] * rank), rank)
    )
    places = [
        _unnormalized(points[..., rank - 1 - d], n, align)
        for d, n in enumerate(x.shape[2:])
    ]
    if how == _CUBIC:
        y = _cubic(x, places, padding, align)
    else:
        places = [_bounded(at, n, padding, align) for at, n in zip(places, x.shape[2:])]
        if how == _LINEAR:
            y = _linear(x, places)
        else:
            even = lax.RoundingMethod.TO_NEAREST_EVEN
            y = _read(x, [lax.round(at, even) for at in places])
    return lax.reshape(y, (*x.shape[:2], *grid.shape[1:-1]))


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
