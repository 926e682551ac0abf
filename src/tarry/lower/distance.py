"""Pairwise distances (`cdist`) and the sliding-block rearrangements `im2col` and
`col2im`."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tarry.lower.activation import zero_unless
from tarry.lower.precision import const, scale, spread
from tarry.lower.table import Call, broadcast, convert, row
from tarry.lower.window import pad, views, windows
from tarry.lower.xla import lax

_BY_PRODUCT = 25


def _pairs(x: Any, y: Any) -> Any:
    """x[..., i, None, :] - y[..., None, j, :]."""
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    shape = (*batch, x.shape[-2], y.shape[-2], x.shape[-1])
    x = broadcast(lax.expand_dims(x, (x.ndim - 1,)), shape)
    return lax.sub(x, broadcast(lax.expand_dims(y, (y.ndim - 2,)), shape))


def _by_product(x: Any, y: Any) -> Any:
    """Euclidean distances as sqrt(x² + y² - 2 x y')."""
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    x, y = (broadcast(a, (*batch, *a.shape[-2:])) for a in (x, y))
    lead, n = tuple(range(len(batch))), len(batch)
    dims = (((n + 1,), (n + 1,)), (lead, lead))
    both = lax.dot_general(x, y, dims, precision=lax.Precision.HIGHEST)
    xx, yy = (lax.reduce_sum(lax.mul(a, a), (n + 1,)) for a in (x, y))
    total = spread(xx, both.shape, (*lead, n))
    total = lax.add(total, spread(yy, both.shape, (*lead, n + 1)))
    return lax.sqrt(lax.max(lax.sub(total, scale(both, 2)), const(both, 0)))


@row("_cdist_forward")
def cdist(call: Call, x: Any, y: Any, p: float, mode: int | None) -> Any:
    return distances(x, y, p, mode, skips=True)


def distances(x: Any, y: Any, p: float, mode: int | None, skips: bool) -> Any:
    """All distances of rows of `x` and rows of `y`. `skips`: the largest difference
    (p = ∞) is one of those that are numbers, as PyTorch's `cdist` has it."""
    large = x.shape[-2] > _BY_PRODUCT or y.shape[-2] > _BY_PRODUCT
    if p == 2 and (mode == 1 or (mode in (None, 0) and large)):
        return _by_product(x, y)
    d = lax.abs(_pairs(x, y))
    axis = (d.ndim - 1,)
    if p == 0:
        apart = convert(lax.ne(d, const(d, 0)), d.dtype)
        return lax.reduce_sum(lax.select(lax.ne(d, d), d, apart), axis)
    if p == 1:
        return lax.reduce_sum(d, axis)
    if p == 2:
        return lax.sqrt(lax.reduce_sum(lax.square(d), axis))
    if math.isinf(p):
        d = zero_unless(lax.eq(d, d), d) if skips else d
        return lax.max(lax.reduce_max(d, axis), const(d, 0))
    total = lax.reduce_sum(lax.pow(d, const(d, p)), axis)
    return lax.pow(total, const(total, 1 / p))


@row("_cdist_backward")
def cdist_backward(call: Call, g: Any, x: Any, y: Any, p: float, distance: Any) -> Any:
    """The gradient of `x`."""
    if not (g.size and x.size):
        return lax.full(call.out.shape, 0, call.out.dtype)
    d = _pairs(x, y)
    axes = tuple(range(d.ndim - 1))
    g, distance = (spread(a, d.shape, axes) for a in (g, distance))
    if p == 0:
        return lax.full(call.out.shape, 0, call.out.dtype)
    if p == 1:
        slope = lax.sign(d)
    elif math.isinf(p):
        slope = zero_unless(lax.eq(lax.abs(d), distance), lax.sign(d))
    else:
        size = d if p == 2 else lax.pow(lax.abs(d), const(d, p - 1))
        size = size if p == 2 else lax.mul(size, lax.sign(d))
        under = distance if p == 2 else lax.pow(distance, const(d, p - 1))
        apart = lax.ne(distance, const(d, 0))
        if p < 1:
            apart = lax.bitwise_and(apart, lax.ne(d, const(d, 0)))
        slope = zero_unless(apart, lax.div(size, under))
    total = lax.reduce_sum(lax.mul(g, slope), (d.ndim - 2,))
    return convert(lax.reshape(total, call.out.shape), call.out.dtype)


def _blocks(size: Sequence[int], kernel: Any, dilation: Any, padding: Any, stride: Any):
    out = [
        (n + 2 * p - t * (k - 1) - 1) // s + 1
        for n, k, t, p, s in zip(size, kernel, dilation, padding, stride)
    ]
    return windows(size, out, kernel, stride, padding, dilation, rank=2)


def _both(v: Sequence[int]) -> tuple[int, ...]:
    return tuple(v) * 2 if len(v) == 1 else tuple(v)


@row("im2col")
def im2col(call: Call, x: Any, *window: Any) -> Any:
    at = _blocks(x.shape[-2:], *map(_both, window))
    parts = [
        lax.expand_dims(v, (v.ndim - 2,)) for _, v in views(pad(x, at.edges(), 0), at)
    ]
    return lax.reshape(lax.concatenate(parts, x.ndim - 2), call.out.shape)


@row("col2im")
def col2im(call: Call, x: Any, size: Sequence[int], *window: Any) -> Any:
    at = _blocks(_both(size), *map(_both, window))
    lead = call.out.shape[:-2]
    x = lax.reshape(x, (*lead, at.volume, *at.out))
    total = None
    for i, position in enumerate(np.ndindex(*at.kernel)):
        part = lax.index_in_dim(x, i, axis=len(lead), keepdims=False)
        edges = []
        for d, (a, t, n) in enumerate(zip(position, at.dilation, at.size)):
            low = a * t - at.padding[d]
            edges.append((low, n - low - (at.out[d] - 1) * at.stride[d] - 1))
        part = pad(part, edges, 0, at.stride)
        total = part if total is None else lax.add(total, part)
    return total
