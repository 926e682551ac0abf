"""Comparisons, logic, tests for special values, choices and clamps.

Comparisons cast both operands to PyTorch's common dtype and compare there (no
wider dtype for halves: a Python number is rounded to the tensor's dtype first).
"""

import numpy as np

from tarry.dtypes import to_numpy
from tarry.lower.layout import row_major
from tarry.lower.table import (
    Call,
    broadcast,
    compute_dtype,
    convert,
    pointwise,
    row,
)
from tarry.lower.xla import jnp, lax

BOOL = np.dtype(np.bool_)


@pointwise("eq.Tensor", "eq.Scalar", opmath=False)
def eq(x, y):
    return lax.eq(x, y)


@pointwise("ne.Tensor", "ne.Scalar", opmath=False)
def ne(x, y):
    return lax.ne(x, y)


@pointwise("lt.Tensor", "lt.Scalar", opmath=False)
def lt(x, y):
    return lax.lt(x, y)


@pointwise("le.Tensor", "le.Scalar", opmath=False)
def le(x, y):
    return lax.le(x, y)


@pointwise("gt.Tensor", "gt.Scalar", opmath=False)
def gt(x, y):
    return lax.gt(x, y)


@pointwise("ge.Tensor", "ge.Scalar", opmath=False)
def ge(x, y):
    return lax.ge(x, y)


def truth(x):
    """Where `x` is not zero."""
    return x if x.dtype == BOOL else lax.ne(x, lax.full_like(x, 0))


@pointwise("logical_and", opmath=False)
def logical_and(x, y):
    return lax.bitwise_and(truth(x), truth(y))


@pointwise("logical_or", opmath=False)
def logical_or(x, y):
    return lax.bitwise_or(truth(x), truth(y))


@pointwise("logical_xor", opmath=False)
def logical_xor(x, y):
    return lax.bitwise_xor(truth(x), truth(y))


@pointwise("logical_not", opmath=False)
def logical_not(x):
    return lax.bitwise_not(truth(x))


@pointwise("isnan", opmath=False)
def isnan(x):
    return lax.ne(x, x)


def _is_inf(x, sign: float):
    if x.dtype.kind in "iub":
        return lax.full_like(x, False, dtype=BOOL)
    return lax.eq(x, lax.full_like(x, sign * np.inf))


@pointwise("isinf", opmath=False)
def isinf(x):
    if x.dtype.kind == "c":
        return lax.bitwise_or(isinf(lax.real(x)), isinf(lax.imag(x)))
    return lax.bitwise_or(_is_inf(x, 1), _is_inf(x, -1))


@pointwise("isposinf", opmath=False)
def isposinf(x):
    return _is_inf(x, 1)


@pointwise("isneginf", opmath=False)
def isneginf(x):
    return _is_inf(x, -1)


@pointwise("signbit", opmath=False)
def signbit(x):
    if x.dtype.kind in "iub":
        return lax.lt(x, lax.full_like(x, 0))
    return jnp.signbit(x)


@row("where.self")
def where(call: Call, condition, x, y):
    dtype, shape = to_numpy(compute_dtype([x, y])), call.out.shape
    values = [broadcast(convert(v, dtype), shape) for v in (x, y)]
    choose = broadcast(convert(condition, BOOL), shape)
    return convert(lax.select(choose, *values), call.out.dtype)


@row("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(call: Call, x, mask, value):
    out = call.out
    x, value = (broadcast(convert(v, out.dtype), out.shape) for v in (x, value))
    return lax.select(broadcast(convert(mask, BOOL), out.shape), value, x)


@pointwise("clamp", "clamp.Tensor", opmath=False)
def clamp(x, low=None, high=None):
    x = x if low is None else lax.max(x, low)
    return x if high is None else lax.min(x, high)


@pointwise("clamp_min", "clamp_min.Tensor", opmath=False)
def clamp_min(x, low):
    return lax.max(x, low)


@pointwise("clamp_max", "clamp_max.Tensor", opmath=False)
def clamp_max(x, high):
    return lax.min(x, high)


@row(
    "isin.Tensor_Tensor",
    "isin.Tensor_Scalar",
    "isin.Scalar_Tensor",
    strides=row_major,
)
def isin(call: Call, elements, tests, assume_unique: bool, invert: bool):
    """Every element against every test value: O(n m), one fused reduction."""
    dtype, shape = to_numpy(compute_dtype([elements, tests])), call.out.shape
    elements, tests = convert(elements, dtype), convert(tests, dtype)
    tests = lax.reshape(tests, (tests.size,))
    wide = (*shape, tests.size)
    left = lax.broadcast_in_dim(elements, wide, range(len(shape)))
    same = lax.eq(left, lax.broadcast_in_dim(tests, wide, (len(shape),)))
    found = lax.reduce_or(same, (len(shape),))
    return lax.bitwise_not(found) if invert else found
