"""Down-sampling with a filter as wide as an output pixel (`antialias=True`). A
dimension is resized by one static matrix of weights, its gradient by the transpose;
filters are those of Pillow: triangle, cubic (a = -0.5) and Lanczos."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tarry.lower.byte_resize import resize_bytes, smoothed
from tarry.lower.filters import Filter, cubic, lanczos, triangle
from tarry.lower.layout import channels_last
from tarry.lower.precision import widen
from tarry.lower.table import Call, Out, convert, row
from tarry.lower.xla import lax


def _weights(
    n: int, m: int, align: bool, factor: float | None, shape: Filter, width: int
) -> np.ndarray:
    """The (m, n) matrix that makes m samples of n; every row adds to 1."""
    if align:
        scale = (n - 1) / (m - 1) if m > 1 else 0.0
    else:
        scale = 1 / factor if factor and factor > 0 else n / m
    wide = max(scale, 1.0)
    support = width / 2 * wide
    center = scale * (np.arange(m) + 0.5)
    first = np.maximum((center - support + 0.5).astype(np.int64), 0)
    last = np.minimum((center + support + 0.5).astype(np.int64), n)
    place = np.arange(n)
    used = (place >= first[:, None]) & (place < last[:, None])
    weight = np.where(used, shape(np.abs(place - center[:, None] + 0.5) / wide), 0)
    total = weight.sum(1, keepdims=True)
    return weight / np.where(total == 0, 1, total)


def _apply(x: Any, d: int, matrix: np.ndarray) -> Any:
    """`x` with its dimension `d` multiplied by the matrix."""
    dims = (((d,), (1,)), ((), ()))
    matrix = matrix.astype(x.dtype)
    y = lax.dot_general(x, matrix, dims, precision=lax.Precision.HIGHEST)
    order = list(range(y.ndim - 1))
    order.insert(d, y.ndim - 1)
    return lax.transpose(y, order)


def _outs(x: Any, size: Sequence[int], *rest: Any) -> list[Out]:
    known = x.is_floating_point() or x.dtype is torch.uint8
    if x.ndim != 4 or not known or not x.numel() or min(size) < 1:
        raise NotImplementedError("antialiased resizing of what are no images")
    return [Out((*x.shape[:2], *size), x.dtype)]


def _backward_outs(
    g: Any, out: Sequence[int], size: Sequence[int], *rest: Any
) -> list[Out]:
    if g.ndim != 4 or tuple(g.shape) != (*size[:2], *out) or not g.numel():
        raise NotImplementedError("a gradient of another shape than the result's")
    return [Out(tuple(size), g.dtype)]


def _register(name: str, shape: Filter, width: int) -> None:
    @row(name, outs=_outs, strides=channels_last(0))
    def resize(
        call: Call, x: Any, size: Sequence[int], align: bool, *factors: float | None
    ) -> Any:
        y = widen(x)
        for d, factor in ((3, factors[1]), (2, factors[0])):
            n, m = x.shape[d], call.out.shape[d]
            if x.dtype == np.uint8:
                if n != m:
                    taps = smoothed(n, m, align, factor, shape, width)
                    y = resize_bytes(y, d, taps)
            elif n != m or factor is not None:
                y = _apply(y, d, _weights(n, m, align, factor, shape, width))
        return convert(y, call.out.dtype)

    @row(f"{name}_backward", outs=_backward_outs, strides=channels_last(0))
    def resize_backward(
        call: Call,
        g: Any,
        out: Sequence[int],
        size: Sequence[int],
        align: bool,
        *factors: float | None,
    ) -> Any:
        y = widen(g)
        for d, factor in ((2, factors[0]), (3, factors[1])):
            n, m = call.out.shape[d], g.shape[d]
            y = _apply(y, d, _weights(n, m, align, factor, shape, width).T)
        return convert(y, call.out.dtype)


_register("_upsample_bilinear2d_aa", triangle, 2)
_register("_upsample_bicubic2d_aa", cubic(-0.5), 4)
if hasattr(torch.ops.aten, "_upsample_lanczos2d_aa"):
    _register("_upsample_lanczos2d_aa", lanczos, 6)
