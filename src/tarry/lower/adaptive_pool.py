"""Adaptive pooling: window i of a dimension of n elements and m outputs covers
[floor(i n / m), ceil((i + 1) n / m)). Averages are one small matrix product a
dimension, or a plain reduction where m divides n."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tarry.lower.activation import zero_unless
from tarry.lower.layout import channels_last
from tarry.lower.pool import lowest, wins
from tarry.lower.precision import quotient, scale, spread, widen
from tarry.lower.table import Call, convert, row
from tarry.lower.window import flat_strides, scatter_add
from tarry.lower.xla import lax

_I32 = np.dtype(np.int32)


def _bounds(n: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    i = np.arange(m)
    return i * n // m, ((i + 1) * n + m - 1) // m


def _averages(n: int, m: int) -> np.ndarray:
    """The (m, n) matrix that averages each window."""
    start, stop = _bounds(n, m)
    k = np.arange(n)
    inside = (k >= start[:, None]) & (k < stop[:, None])
    return inside / inside.sum(1, keepdims=True)


def _product(x: Any, d: int, matrix: np.ndarray) -> Any:
    """`matrix` (outputs, inputs) applied along dimension `d`."""
    matrix = matrix.astype(x.dtype)
    dims = (((d,), (1,)), ((), ()))
    y = lax.dot_general(x, matrix, dims, precision=lax.Precision.HIGHEST)
    order = list(range(x.ndim - 1))
    order.insert(d, x.ndim - 1)
    return lax.transpose(y, order)


def _average(x: Any, d: int, m: int) -> Any:
    """Means over the windows; what lies outside (inf, NaN) has no part in them."""
    n = x.shape[d]
    if n % m == 0:
        x = lax.reshape(x, (*x.shape[:d], m, n // m, *x.shape[d + 1 :]))
        return scale(lax.reduce_sum(x, (d + 1,)), m / n)
    start, stop = _bounds(n, m)
    count = stop - start
    x, _ = _gather_windows(x, d, m)
    inside = np.arange(x.shape[d + 1]) < count[:, None]
    x = zero_unless(spread(inside, x.shape, (d, d + 1)), x)
    x = lax.reduce_sum(x, (d + 1,))
    return quotient(x, spread(count.astype(x.dtype), x.shape, (d,)))


def _average_backward(g: Any, d: int, n: int) -> Any:
    m = g.shape[d]
    if n % m:
        return _product(g, d, _averages(n, m).T)
    shape = (*g.shape[: d + 1], n // m, *g.shape[d + 1 :])
    g = spread(scale(g, m / n), shape, [a for a in range(len(shape)) if a != d + 1])
    return lax.reshape(g, (*g.shape[:d], n, *g.shape[d + 2 :]))


@row("_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
def adaptive_avg_pool(call: Call, x: Any, output_size: Sequence[int]) -> Any:
    x = widen(x)
    for d, m in zip(range(x.ndim - len(output_size), x.ndim), output_size):
        x = _average(x, d, m)
    return convert(x, call.out.dtype)


@row(
    "_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward", ignores=("self",)
)
def adaptive_avg_pool_backward(call: Call, g: Any, x: Any) -> Any:
    g = widen(g)
    for d, n in enumerate(call.out.shape):
        g = g if g.shape[d] == n else _average_backward(g, d, n)
    return convert(g, call.out.dtype)


def _gather_windows(x: Any, d: int, m: int) -> tuple[Any, np.ndarray]:
    """`x` with (window, element) in place of dimension `d`, and the elements' places.

    Windows of unequal length repeat their last element.
    """
    start, stop = _bounds(x.shape[d], m)
    width = int((stop - start).max())
    places = np.minimum(start[:, None] + np.arange(width), stop[:, None] - 1)
    if x.shape[d] % m:
        sizes = [n if a != d else 1 for a, n in enumerate(x.shape)]
        rest = tuple(a for a in range(x.ndim + 1) if a not in (d, d + 1))
        dims = lax.GatherDimensionNumbers(rest, (d,), (d,))
        x = lax.gather(x, places[..., None].astype(_I32), dims, sizes)
        return x, places
    return lax.reshape(x, (*x.shape[:d], m, width, *x.shape[d + 1 :])), places


@row("adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(call: Call, x: Any, size: Sequence[int]) -> tuple[Any, Any]:
    rank, lead = len(size), x.ndim - len(size)
    strides = flat_strides(x.shape[lead:])
    places = []
    for i, m in enumerate(size):
        x, where = _gather_windows(x, lead + 2 * i, m)
        places.append(where)
    index = lax.full(x.shape, 0, _I32)
    for i, (where, s) in enumerate(zip(places, strides)):
        where = (where * s).astype(_I32)
        at = lead + 2 * i
        index = lax.add(index, spread(where, x.shape, (at, at + 1)))
    best, index = _largest(x, index, [lead + 2 * i + 1 for i in range(rank)])
    return convert(best, call.outs[0].dtype), convert(index, call.outs[1].dtype)


def _largest(x: Any, index: Any, axes: Sequence[int]) -> tuple[Any, Any]:
    """The maximum (NaN wins) over `axes` and the lowest index where it is."""

    def larger(a: Any, b: Any) -> Any:
        tie = lax.bitwise_and(lax.eq(b[0], a[0]), lax.lt(b[1], a[1]))
        take = lax.bitwise_or(wins(b[0], a[0]), tie)
        return tuple(lax.select(take, q, p) for p, q in zip(a, b))

    start = (x.dtype.type(lowest(x.dtype)), _I32.type(np.iinfo(_I32).max))
    return lax.reduce((x, index), start, larger, axes)


@row("adaptive_max_pool2d_backward", ignores=("self",))
def adaptive_max_pool2d_backward(call: Call, g: Any, x: Any, indices: Any) -> Any:
    total = scatter_add(widen(g), indices, call.out.shape[-2:])
    return convert(total, call.out.dtype)


@row("adaptive_max_pool3d_backward", ignores=("self",))
def adaptive_max_pool3d_backward(call: Call, g: Any, x: Any, indices: Any) -> Any:
    total = scatter_add(widen(g), indices, call.out.shape[-3:])
    return convert(total, call.out.dtype)


@row("max_unpool3d")
@row("max_unpool2d", strides=channels_last(0))
def max_unpool(call: Call, x: Any, indices: Any, *_: Any) -> Any:
    """Each element at its index, zeros elsewhere; of equal indices one is kept."""
    rank = 3 if x.ndim == 5 else 2
    size = call.out.shape[-rank:]
    lead = x.shape[: x.ndim - rank]
    batch, count = math.prod(lead), math.prod(x.shape[x.ndim - rank :])
    dims = lax.ScatterDimensionNumbers(
        (), (1,), (1,), operand_batching_dims=(0,), scatter_indices_batching_dims=(0,)
    )
    zeros = lax.full((batch, math.prod(size)), 0, x.dtype)
    index = lax.reshape(indices, (batch, count, 1))
    y = lax.scatter(zeros, index, lax.reshape(x, (batch, count)), dims)
    return lax.reshape(y, call.out.shape)
