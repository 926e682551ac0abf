"""Matrix products. Each is one `dot_general` on operands as they come: one that is a
transposed view arrives as `Transposed` and is contracted over its own dimension, so
that no transposed copy is made. Halves accumulate in f32, and the result is rounded
once, after the bias has been added."""

from typing import Any

import numpy as np

from tarry.lower.activation import gelu_erf
from tarry.lower.doubt import unequal_dtypes
from tarry.lower.precision import const, wide_dtype
from tarry.lower.table import (
    Call,
    Scalar,
    Transposed,
    broadcast,
    convert,
    row,
)
from tarry.lower.xla import lax

_MM = (((1,), (0,)), ((), ()))
_BMM = (((2,), (1,)), ((0,), (0,)))
_MV = (((1,), (0,)), ((), ()))
_DOT = (((0,), (0,)), ((), ()))


def untransposed(x: Any, over: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
    """The array behind a `Transposed` operand, and the dimensions `over` become."""
    if not isinstance(x, Transposed):
        return x, over
    last = x.value.ndim - 1
    swap = {last: last - 1, last - 1: last}
    return x.value, tuple([swap.get(d, d) for d in over])


def contract(x: Any, y: Any, dims: Any, dtype: np.dtype) -> Any:
    """`dot_general` of operands of one dtype, in the compute dtype of `dtype`."""
    wide = wide_dtype(dtype)
    (over_x, over_y), batch = dims
    x, over_x = untransposed(x, over_x)
    y, over_y = untransposed(y, over_y)
    x, y = convert(x, dtype), convert(y, dtype)
    return lax.dot_general(x, y, ((over_x, over_y), batch), preferred_element_type=wide)


def _scaled(x: Any, by: Any, dtype: np.dtype) -> Any:
    """`by * x` in `dtype`; a zero `by` drops NaN and infinity, as BLAS does."""
    x = convert(x, dtype)
    if by is None or (not isinstance(by, Scalar) and by == 1):
        return x
    if not isinstance(by, Scalar):
        return lax.mul(x, const(x, by)) if by else lax.full_like(x, 0)
    by = by.to(dtype)
    product = lax.mul(x, by)
    return lax.select(lax.eq(by, const(x, 0)), lax.full_like(x, 0), product)


def _times(x: Any, by: Any) -> Any:
    if by is None or (not isinstance(by, Scalar) and by == 1):
        return x
    return lax.mul(x, by.to(x.dtype) if isinstance(by, Scalar) else const(x, by))


def _plus(call: Call, bias: Any, product: Any, beta: Any, alpha: Any) -> Any:
    if isinstance(bias, Transposed):
        order = list(range(bias.value.ndim))
        bias = lax.transpose(bias.value, [*order[:-2], order[-1], order[-2]])
    bias = broadcast(_scaled(bias, beta, product.dtype), call.out.shape)
    return lax.add(bias, _times(product, alpha))


@row("mm", transposes=True, doubts=unequal_dtypes)
def mm(call: Call, x: Any, y: Any) -> Any:
    return convert(contract(x, y, _MM, call.out.dtype), call.out.dtype)


@row("bmm", transposes=True, doubts=unequal_dtypes)
def bmm(call: Call, x: Any, y: Any) -> Any:
    return convert(contract(x, y, _BMM, call.out.dtype), call.out.dtype)


@row("mv", doubts=unequal_dtypes)
def mv(call: Call, x: Any, y: Any) -> Any:
    return convert(contract(x, y, _MV, call.out.dtype), call.out.dtype)


@row("dot", doubts=unequal_dtypes)
def dot(call: Call, x: Any, y: Any) -> Any:
    return convert(contract(x, y, _DOT, call.out.dtype), call.out.dtype)


@row("vdot")
def vdot(call: Call, x: Any, y: Any) -> Any:
    return dot(call, lax.conj(x) if x.dtype.kind == "c" else x, y)


@row("addmm", transposes=True, doubts=unequal_dtypes)
def addmm(call: Call, bias: Any, x: Any, y: Any, beta: Any, alpha: Any) -> Any:
    product = contract(x, y, _MM, call.out.dtype)
    return convert(_plus(call, bias, product, beta, alpha), call.out.dtype)


@row("baddbmm", transposes=True, doubts=unequal_dtypes)
def baddbmm(call: Call, bias: Any, x: Any, y: Any, beta: Any, alpha: Any) -> Any:
    product = contract(x, y, _BMM, call.out.dtype)
    return convert(_plus(call, bias, product, beta, alpha), call.out.dtype)


@row("addbmm", doubts=unequal_dtypes)
def addbmm(call: Call, bias: Any, x: Any, y: Any, beta: Any, alpha: Any) -> Any:
    product = contract(x, y, (((0, 2), (0, 1)), ((), ())), call.out.dtype)
    return convert(_plus(call, bias, product, beta, alpha), call.out.dtype)


@row("addmv", doubts=unequal_dtypes)
def addmv(call: Call, bias: Any, x: Any, y: Any, beta: Any, alpha: Any) -> Any:
    product = contract(x, y, _MV, call.out.dtype)
    return convert(_plus(call, bias, product, beta, alpha), call.out.dtype)


@row("addr")
def addr(call: Call, bias: Any, x: Any, y: Any, beta: Any, alpha: Any) -> Any:
    dtype = call.out.dtype
    shape = (x.shape[0], y.shape[0])
    counts = np.dtype(np.int32) if dtype == np.bool_ else wide_dtype(dtype)
    x, y = (convert(convert(v, dtype), counts) for v in (x, y))
    outer = lax.broadcast_in_dim(x, shape, (0,))
    outer = lax.mul(outer, lax.broadcast_in_dim(y, shape, (1,)))
    return convert(_plus(call, bias, outer, beta, alpha), dtype)


@row("_addmm_activation")
def addmm_activation(
    call: Call, bias: Any, x: Any, y: Any, beta: Any, alpha: Any, use_gelu: bool
) -> Any:
    product = contract(x, y, _MM, call.out.dtype)
    total = _plus(call, bias, product, beta, alpha)
    if use_gelu:
        return convert(gelu_erf(total), call.out.dtype)
    return convert(lax.max(total, const(total, 0)), call.out.dtype)
