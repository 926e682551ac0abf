"""Tensors from numbers: the internal rows behind the factory functions, and
triangles. The result's spec gives shape and dtype; the rows take the numbers only.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tarry.lower.precision import quotient
from tarry.lower.reduce import wide
from tarry.lower.table import Call, Scalar, convert, row
from tarry.lower.xla import lax

INT64, FLOAT64 = np.dtype(np.int64), np.dtype(np.float64)


def _iota(shape: Sequence[int], dim: int) -> Any:
    return lax.broadcasted_iota(INT64, shape, dim)


@row("tarry::full")
def full(call: Call, size: Sequence[int], fill_value: Scalar):
    return lax.broadcast(convert(fill_value, call.out.dtype), call.out.shape)


@row("tarry::iota")
def iota(call: Call, start: Scalar, step: Scalar):
    """start + i * step, in int64 or float64, as `torch.arange` computes it."""
    dtype = INT64 if call.out.dtype.kind in "iub" else FLOAT64
    shape = call.out.shape
    first, gap = (lax.broadcast(s.to(dtype), shape) for s in (start, step))
    steps = lax.mul(convert(_iota(shape, 0), dtype), gap)
    return convert(lax.add(first, steps), call.out.dtype)


def _whole(number: Scalar) -> Scalar:
    return Scalar("i", lambda dtype: convert(number.to(INT64), dtype))


def _line(call: Call, start: Scalar, end: Scalar) -> Any:
    """PyTorch's two halves: up from start, down from end; between truncated ends in
    float64 where the result is of integers."""
    dtype = _line_dtype(call.out.dtype)
    if call.out.dtype.kind in "iub":
        start, end = _whole(start), _whole(end)
    (count,) = call.out.shape
    shape = (count,)
    low, high = start.to(dtype), end.to(dtype)
    first = lax.broadcast(low, shape)
    if count <= 1:
        return first
    span = lax.sub(high, low)
    gap = lax.broadcast(quotient(span, lax.full_like(span, count - 1)), shape)
    last = lax.broadcast(high, shape)
    at = _iota(shape, 0)
    back = lax.sub(lax.full_like(at, count - 1), at)
    up = lax.add(first, lax.mul(gap, convert(at, dtype)))
    down = lax.sub(last, lax.mul(gap, convert(back, dtype)))
    return lax.select(lax.lt(at, lax.full_like(at, count // 2)), up, down)


def _line_dtype(dtype: np.dtype) -> np.dtype:
    return FLOAT64 if dtype.kind in "iub" else wide(dtype)


@row("tarry::linspace")
def linspace(call: Call, start: Scalar, end: Scalar):
    return convert(_line(call, start, end), call.out.dtype)


@row("tarry::logspace", static=("base",))
def logspace(call: Call, start: Scalar, end: Scalar, base: float):
    line = _line(call, start, end)
    return convert(lax.pow(lax.full_like(line, base), line), call.out.dtype)


@row("tarry::eye")
def eye(call: Call):
    shape = call.out.shape
    return convert(lax.eq(_iota(shape, 0), _iota(shape, 1)), call.out.dtype)


def _triangle(x: Any, diagonal: int, keep: Any) -> Any:
    rows, columns = x.ndim - 2, x.ndim - 1
    apart = lax.sub(_iota(x.shape, columns), _iota(x.shape, rows))
    inside = keep(apart, lax.full_like(apart, diagonal))
    return lax.select(inside, x, lax.full_like(x, 0))


@row("tril")
def tril(call: Call, x, diagonal: int):
    return _triangle(x, diagonal, lax.le)


@row("triu")
def triu(call: Call, x, diagonal: int):
    return _triangle(x, diagonal, lax.ge)


def _positions(call: Call, inside: np.ndarray) -> Any:
    return np.stack(np.nonzero(inside)).astype(call.out.dtype)


@row("tril_indices")
def tril_indices(call: Call, row: int, col: int, offset: int, *_):
    return _positions(call, np.tri(row, col, offset, dtype=bool))


@row("triu_indices")
def triu_indices(call: Call, row: int, col: int, offset: int, *_):
    return _positions(call, ~np.tri(row, col, offset - 1, dtype=bool))
