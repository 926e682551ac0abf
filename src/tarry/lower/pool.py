"""Max and average pooling over 2 or 3 dimensions, with gradients. Max pooling compares
strided views, one a kernel position, which XLA fuses into one loop; NaN wins, and
indices count within a channel, as PyTorch's do."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tarry.lower.precision import const, quotient, widen
from tarry.lower.table import Call, convert, row
from tarry.lower.window import (
    Windows,
    flat_strides,
    grid,
    pad,
    scatter_add,
    views,
    windows,
)
from tarry.lower.xla import lax

_UNROLLED = 64
_I32 = np.dtype(np.int32)


def lowest(dtype: np.dtype) -> Any:
    """What no element of `dtype` is below."""
    return np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


def _first_valid(at: Windows) -> list[np.ndarray]:
    """Where each window's first element that is not padding lies, times its stride."""
    lines = []
    for d, (t, stride) in enumerate(zip(at.dilation, flat_strides(at.size))):
        start = at.starts(d)
        start = start + t * np.maximum(0, -(start // t))
        lines.append((start * stride).astype(_I32))
    return lines


def _index_of(at: Windows, shape: Sequence[int]) -> Any:
    """The flat index of every window's first element, padding counted."""
    strides = flat_strides(at.size)
    lines = [(at.starts(d) * s).astype(_I32) for d, s in enumerate(strides)]
    return grid(lines, shape, lax.add)


def _offset(at: Windows, position: tuple[int, ...]) -> np.int32:
    strides = flat_strides(at.size)
    return np.int32(sum(a * t * s for a, t, s in zip(position, at.dilation, strides)))


def wins(new: Any, old: Any) -> Any:
    """Whether `new` replaces the maximum `old`: it is larger, or NaN."""
    return lax.bitwise_or(lax.gt(new, old), lax.ne(new, new))


def _max_by_views(x: Any, at: Windows, shape: Sequence[int]) -> tuple[Any, Any]:
    base, best = _index_of(at, shape), lax.full(shape, lowest(x.dtype), x.dtype)
    index = grid(_first_valid(at), shape, lax.add)
    for position, view in views(pad(x, at.edges(), lowest(x.dtype)), at):
        better = wins(view, best)
        here = lax.add(base, _offset(at, position))
        best = lax.select(better, view, best)
        index = lax.select(better, here, index)
    return best, index


def _max_by_reduction(x: Any, at: Windows, shape: Sequence[int]) -> tuple[Any, Any]:
    lead = (1,) * (x.ndim - len(at.size))
    lines = [
        np.arange(n, dtype=_I32) * _I32.type(s)
        for n, s in zip(at.size, flat_strides(at.size))
    ]
    index = grid(lines, x.shape, lax.add)

    def larger(a: Any, b: Any) -> Any:
        take = wins(b[0], a[0])
        return tuple(lax.select(take, q, p) for p, q in zip(a, b))

    return lax.reduce_window(
        (x, index),
        (x.dtype.type(lowest(x.dtype)), _I32.type(0)),
        larger,
        (*lead, *at.kernel),
        (*lead, *at.stride),
        [(0, 0)] * len(lead) + at.edges(),
        window_dilation=(*lead, *at.dilation),
    )


def _max_pool(
    call: Call, x: Any, rank: int, kernel: Any, stride: Any, padding: Any, dilation: Any
) -> tuple[Any, Any]:
    shape = call.outs[0].shape
    at = windows(x.shape, shape, kernel, stride, padding, dilation, rank=rank)
    by = _max_by_views if at.volume <= _UNROLLED else _max_by_reduction
    best, index = by(x, at, shape)
    return best, convert(index, call.outs[1].dtype)


@row("max_pool2d_with_indices")
def max_pool2d(call: Call, x: Any, *args: Any) -> tuple[Any, Any]:
    return _max_pool(call, x, 2, *args[:4])


@row("max_pool3d_with_indices")
def max_pool3d(call: Call, x: Any, *args: Any) -> tuple[Any, Any]:
    return _max_pool(call, x, 3, *args[:4])


@row("max_pool2d_with_indices_backward", ignores=("self",))
def max_pool2d_backward(call: Call, g: Any, x: Any, *args: Any) -> Any:
    """A scatter: 4 ms where comparing every view takes 36 (32x64x32x32, 3x3/2)."""
    total = scatter_add(widen(g), args[5], call.out.shape[-2:])
    return convert(total, call.out.dtype)


@row("max_pool3d_with_indices_backward", ignores=("self",))
def max_pool3d_backward(call: Call, g: Any, x: Any, *args: Any) -> Any:
    total = scatter_add(widen(g), args[5], call.out.shape[-3:])
    return convert(total, call.out.dtype)


def _divisor(at: Windows, include: bool, override: int | None) -> list[np.ndarray]:
    """The factors, one a dimension, of what each window's sum is divided by."""
    if override is not None:
        return [np.asarray([float(override)])]
    lines = []
    for d, (n, k, p) in enumerate(zip(at.size, at.kernel, at.padding)):
        start = at.starts(d)
        stop = np.minimum(start + k, n + p)
        if not include:
            start, stop = np.maximum(start, 0), np.minimum(stop, n)
        lines.append((stop - start).astype(np.float64))
    return lines


def _divide(x: Any, lines: list[np.ndarray]) -> Any:
    if all((v == v[0]).all() for v in lines):
        return quotient(x, const(x, np.prod([v[0] for v in lines])))
    lines = [v.astype(x.dtype) for v in lines]
    return quotient(x, grid(lines, x.shape, lax.mul))


def _window_sum(x: Any, kernel: Any, stride: Any, edges: Any) -> Any:
    lead = (1,) * (x.ndim - len(kernel))
    x = pad(x, edges, 0)
    full = (*lead, *kernel), (*lead, *stride)
    return lax.reduce_window(x, const(x, 0), lax.add, *full, "VALID")


def _avg_pool(
    call: Call,
    x: Any,
    rank: int,
    kernel: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    include: bool,
    override: int | None,
) -> Any:
    at = windows(x.shape, call.out.shape, kernel, stride, padding, rank=rank)
    total = _window_sum(widen(x), at.kernel, at.stride, at.edges())
    return convert(_divide(total, _divisor(at, include, override)), call.out.dtype)


def _avg_pool_backward(
    call: Call,
    g: Any,
    rank: int,
    kernel: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    include: bool,
    override: int | None,
) -> Any:
    at = windows(call.out.shape, g.shape, kernel, stride, padding, rank=rank)
    g = _divide(widen(g), _divisor(at, include, override))
    edges = []
    for d, (n, k, p) in enumerate(zip(at.size, at.kernel, at.padding)):
        edges.append((k - 1 - p, n - (at.out[d] - 1) * at.stride[d] - 1 + p))
    g = pad(g, edges, 0, at.stride)
    ones = (1,) * rank
    return convert(_window_sum(g, at.kernel, ones, [(0, 0)] * rank), call.out.dtype)


@row("avg_pool2d")
def avg_pool2d(call: Call, x: Any, *args: Any) -> Any:
    return _avg_pool(call, x, 2, *args)


@row("avg_pool3d")
def avg_pool3d(call: Call, x: Any, *args: Any) -> Any:
    return _avg_pool(call, x, 3, *args)


@row("avg_pool2d_backward", ignores=("self",))
def avg_pool2d_backward(call: Call, g: Any, x: Any, *args: Any) -> Any:
    return _avg_pool_backward(call, g, 2, *args)


@row("avg_pool3d_backward", ignores=("self",))
def avg_pool3d_backward(call: Call, g: Any, x: Any, *args: Any) -> Any:
    return _avg_pool_backward(call, g, 3, *args)
