"""The precision rows compute in: halves widen to f32 on the way in and are rounded
once on the way out; constants take the dtype of the array they meet."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tarry import dtypes
from tarry.lower.table import Scalar, convert
from tarry.lower.xla import lax


def wide_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype to compute in for values of `dtype`: f32 for f16 and bf16."""
    return dtypes.to_numpy(dtypes.opmath(dtypes.from_numpy(dtype)))


def widen(x: Any, dtype: np.dtype | None = None) -> Any:
    """`x` in the compute dtype of `dtype` (default: its own); None stays None."""
    return None if x is None else convert(x, wide_dtype(dtype or x.dtype))


def const(x: Any, value: Any) -> Any:
    """A host constant of `x`'s dtype."""
    return x.dtype.type(value)


def factor(x: Any, value: Any) -> Any:
    """`value` as a factor of `x`: None stands for the schema's default, 1."""
    if isinstance(value, Scalar):
        return value.to(x.dtype)
    if hasattr(value, "aval") or isinstance(value, np.generic | np.ndarray):
        return value
    return const(x, 1 if value is None else value)


def scale(x: Any, by: Any) -> Any:
    return lax.mul(x, const(x, by))


def shift(x: Any, by: Any) -> Any:
    return lax.add(x, const(x, by))


def quotient(x: Any, y: Any) -> Any:
    """x / y, rounded once. XLA multiplies by the reciprocal of a divisor that is
    broadcast, which may be one bit off, and turns (a / b) / c into a / (b * c), where
    the product may overflow; behind a select it sees neither (unless all operands are
    one number everywhere)."""
    if x.dtype.kind not in "fV":
        return lax.div(x, y)
    y = y if y.shape == x.shape else lax.full_like(x, y)
    nan = lax.ne(x, x)
    return lax.select(nan, x, lax.div(x, lax.select(nan, lax.full_like(y, 1), y)))


def rest(ndim: int, *axes: int) -> tuple[int, ...]:
    """The axes of an array of rank `ndim` that are not among `axes`."""
    return tuple(d for d in range(ndim) if d not in axes)


def spread(x: Any, shape: Sequence[int], axes: Sequence[int]) -> Any:
    """`x`, whose dimensions are the dimensions `axes` of `shape`, at that shape."""
    return lax.broadcast_in_dim(x, tuple(shape), tuple(axes))


def mean_over(x: Any, axes: tuple[int, ...]) -> Any:
    """The mean over `axes`, which are removed."""
    count = int(np.prod([x.shape[a] for a in axes]))
    return quotient(lax.reduce_sum(x, axes), const(x, count))
