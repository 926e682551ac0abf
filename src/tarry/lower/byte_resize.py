"""Resizing bytes as PyTorch's CPU kernels do: weights in 16-bit fixed point, and every
dimension that changes its size rounded to a byte before the next. A dimension's taps
are the first input of each output and its weights (all computed in double).

PyTorch's own result is wrong for more than four channels that become one pixel wide.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tarry.lower.filters import Filter
from tarry.lower.xla import lax

FEW = 8  # taps that are gathered one by one; more are a product with a matrix


@dataclass(frozen=True, slots=True)
class Bytes:
    """Output i is the sum over k of input first[i] + k times weight[i, k], divided by
    2 ** precision and rounded."""

    first: np.ndarray
    weight: np.ndarray
    precision: int


def _fixed(first: np.ndarray, weight: np.ndarray, largest: float) -> Bytes:
    precision = 0
    while precision < 22 and int(0.5 + largest * 2 ** (precision + 1)) < 2**15:
        precision += 1
    scaled = weight * 2**precision + np.where(weight < 0, -0.5, 0.5)
    return Bytes(first, np.trunc(scaled).astype(np.int32), precision)


def _scale(n: int, m: int, align: bool, factor: float | None) -> float:
    if align:
        return (n - 1) / (m - 1) if m > 1 else 0.0
    return 1 / factor if factor and factor > 0 else n / m


def plain(
    n: int, m: int, align: bool, factor: float | None, shape: Filter, width: int
) -> Bytes:
    """`width` taps around the place; those outside are added to the border's."""
    scale, at = _scale(n, m, align, factor), np.arange(m)
    place = scale * at if align else scale * (at + 0.5) - 0.5
    place = place if align or width > 2 else np.maximum(place, 0)
    low = np.minimum(np.floor(place).astype(np.int64), n - 1)
    part = np.clip(place - low, 0, 1)
    start = low - width // 2 + 1
    first = np.maximum(start, 0)
    size = np.minimum(start + width, n) - first
    weight, largest, k = np.zeros((m, width)), 0.0, np.zeros(m, np.int64)
    for j in range(width):
        k = np.where(start + j <= 0, 0, np.where(start + j >= n - 1, size - 1, k))
        weight[at, k] += shape(np.abs(j + 1 - width // 2 - part))
        largest = max(largest, float(weight[at, k].max()))
        k = k + 1
    return _fixed(first, weight, largest)


def smoothed(
    n: int, m: int, align: bool, factor: float | None, shape: Filter, width: int
) -> Bytes:
    """As many taps as the filter covers, whose weights add to 1."""
    scale = _scale(n, m, align, factor)
    wide = max(scale, 1.0)
    support = width * 0.5 * wide
    most = math.ceil(support) * 2 + 1
    center = scale * (np.arange(m) + 0.5)
    first = np.maximum((center - support + 0.5).astype(np.int64), 0)
    last = np.minimum((center + support + 0.5).astype(np.int64), n)
    size = np.clip(last - first, 0, most)
    weight, total = np.zeros((m, most)), np.zeros(m)
    for j in range(most):
        value = shape(np.abs((j + first - center + 0.5) * (1 / wide)))
        weight[:, j] = np.where(j < size, value, 0)
        total += weight[:, j]
    weight /= np.where(total == 0, 1, total)[:, None]
    return _fixed(first, weight, float(weight.max()))


def _sum(x: Any, d: int, taps: Bytes) -> Any:
    if taps.weight.shape[1] > FEW:
        return _product(x, d, taps)
    x, total = lax.convert_element_type(x, np.int32), None
    rest = tuple(a for a in range(x.ndim) if a != d)
    dims = lax.GatherDimensionNumbers(rest, (d,), (d,))
    sizes = [1 if a == d else k for a, k in enumerate(x.shape)]
    for k in range(taps.weight.shape[1]):
        index = np.minimum(taps.first + k, x.shape[d] - 1).astype(np.int32)
        part = lax.gather(x, index[:, None], dims, sizes)
        by = lax.broadcast_in_dim(taps.weight[:, k], part.shape, (d,))
        part = lax.mul(part, by)
        total = part if total is None else lax.add(total, part)
    return total


def _product(x: Any, d: int, taps: Bytes) -> Any:
    """The same sum as a matrix product; doubles hold it exactly."""
    m, most = taps.weight.shape
    matrix = np.zeros((m, x.shape[d] + most))
    matrix[np.arange(m)[:, None], taps.first[:, None] + np.arange(most)] = taps.weight
    x = lax.convert_element_type(x, np.float64)
    dims = (((d,), (1,)), ((), ()))
    y = lax.dot_general(
        x, matrix[:, : x.shape[d]], dims, precision=lax.Precision.HIGHEST
    )
    order = list(range(y.ndim - 1))
    order.insert(d, y.ndim - 1)
    return lax.convert_element_type(lax.transpose(y, order), np.int32)


def resize_bytes(x: Any, d: int, taps: Bytes) -> Any:
    """`x` with its dimension `d` resized."""
    total = lax.add(_sum(x, d, taps), np.int32(2**taps.precision // 2))
    total = lax.shift_right_arithmetic(total, np.int32(taps.precision))
    return lax.convert_element_type(
        lax.clamp(np.int32(0), total, np.int32(255)), np.uint8
    )
