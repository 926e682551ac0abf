"""Depthwise convolution as sums of shifted products, one a kernel position. XLA:CPU
fuses them into one loop, where its grouped convolution is some 50 times slower
(96 channels, 28x28, 3x3, batch 8: 0.74 against 38 ms)."""

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from tarry.lower.precision import rest, spread, widen
from tarry.lower.xla import lax

_LARGEST = 64


def fits(channels: int, kernel: Sequence[int], groups: int) -> bool:
    """One input channel a group, and a kernel small enough to be unrolled."""
    return groups == channels > 1 and math.prod(kernel) <= _LARGEST


def _views(
    x: Any, kernel: Sequence[int], size: Sequence[int], stride: Any, dilation: Any
) -> Any:
    """(position, what the output elements see of x at that kernel position)."""
    for at in np.ndindex(*kernel):
        start = [a * t for a, t in zip(at, dilation)]
        stop = [a + (m - 1) * s + 1 for a, m, s in zip(start, size, stride)]
        lead = x.shape[:2]
        yield at, lax.slice(x, (0, 0, *start), (*lead, *stop), (1, 1, *stride))


def _repeat(x: Any, times: int) -> Any:
    """Every channel `times` times in a row."""
    if times == 1:
        return x
    n, c, *size = x.shape
    x = lax.broadcast_in_dim(x, (n, c, times, *size), (0, 1, *range(3, x.ndim + 1)))
    return lax.reshape(x, (n, c * times, *size))


def _padded(x: Any, low_high: Any, inner: Any) -> Any:
    edges = [(*edge, s - 1) for edge, s in zip(low_high, inner)]
    return lax.pad(x, x.dtype.type(0), [(0, 0, 0)] * 2 + edges)


def _tap(w: Any, at: tuple[int, ...], like: Any) -> Any:
    """The weights of one kernel position, a channel each, spread over `like`."""
    index = tuple(slice(a, a + 1) for a in at)
    start, stop = [s.start for s in index], [s.stop for s in index]
    w = lax.slice(w, (0, 0, *start), (w.shape[0], 1, *stop))
    return spread(lax.reshape(w, (w.shape[0],)), like.shape, (1,))


def _sum(terms: Any) -> Any:
    return reduce(lax.add, terms)


def forward(x: Any, w: Any, size: Sequence[int], window: Any) -> Any:
    x, w = widen(x), widen(w)
    x = _repeat(x, w.shape[0] // x.shape[1])
    x = _padded(x, [(p, p) for p in window.padding], (1,) * len(size))
    views = _views(x, w.shape[2:], size, window.stride, window.dilation)
    return _sum(lax.mul(v, _tap(w, at, v)) for at, v in views)


def input_grad(g: Any, w: Any, size: Sequence[int], window: Any) -> Any:
    g, w = widen(g), widen(w)
    kernel, edges = w.shape[2:], []
    for d, (n, s, p, t, k) in enumerate(
        zip(size, window.stride, window.padding, window.dilation, kernel), start=2
    ):
        edges.append((t * (k - 1) - p, n - (g.shape[d] - 1) * s - 1 + p))
    channels, times = window.groups, g.shape[1] // window.groups
    g = _padded(g, edges, window.stride)
    w = lax.rev(w, tuple(range(2, w.ndim)))
    ones = (1,) * len(size)
    views = _views(g, kernel, size, ones, window.dilation)
    x = _sum(lax.mul(v, _tap(w, at, v)) for at, v in views)
    x = lax.reshape(x, (x.shape[0], channels, times, *size))
    return lax.reduce_sum(x, (2,))


def weight_grad(x: Any, g: Any, kernel: Sequence[int], window: Any) -> Any:
    x, g = widen(x), widen(g)
    x = _repeat(x, g.shape[1] // x.shape[1])
    x = _padded(x, [(p, p) for p in window.padding], (1,) * len(kernel))
    axes, taps = rest(g.ndim, 1), []
    for _, v in _views(x, kernel, g.shape[2:], window.stride, window.dilation):
        taps.append(lax.expand_dims(lax.reduce_sum(lax.mul(v, g), axes), (1,)))
    return lax.reshape(lax.concatenate(taps, 1), (g.shape[1], 1, *kernel))
