"""Losses over class indices: `nll_loss` (also per pixel) and `multi_margin_loss`.
The forward reads one element a sample by a gather; the backward compares an iota
with the targets, which XLA fuses into what comes after it."""

import math
from typing import Any

import numpy as np
import torch

from tarry.lower.activation import positive, zero_unless
from tarry.lower.layout import row_major
from tarry.lower.precision import (
    const,
    factor,
    quotient,
    rest,
    scale,
    spread,
    wide_dtype,
    widen,
)
from tarry.lower.table import Call, Out, Scalar, convert, row
from tarry.lower.xla import lax


def _pick(x: Any, target: Any, axis: int) -> Any:
    """x[..., target, ...] along `axis`; NaN where the index is out of bounds."""
    batch = rest(x.ndim, axis)
    dims = lax.GatherDimensionNumbers(
        offset_dims=(),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
        operand_batching_dims=batch,
        start_indices_batching_dims=tuple(range(target.ndim)),
    )
    index = lax.expand_dims(target, (target.ndim,))
    ones = (1,) * x.ndim
    return lax.gather(x, index, dims, ones, mode="fill", fill_value=math.nan)


def _take(x: Any, index: Any) -> Any:
    """x[index] of a 1-d array."""
    dims = lax.GatherDimensionNumbers((), (0,), (0,))
    index = lax.expand_dims(index, (index.ndim,))
    return lax.gather(x, index, dims, (1,), mode="fill", fill_value=math.nan)


def _is_target(x: Any, target: Any, axis: int) -> Any:
    """Whether an element of `x` is the one its target names along `axis`."""
    target = convert(target, np.dtype(np.int32))
    index = lax.broadcasted_iota(target.dtype, x.shape, axis)
    return lax.eq(index, spread(target, x.shape, rest(x.ndim, axis)))


@row("nll_loss_forward", "nll_loss2d_forward", strides=row_major)
def nll_loss(
    call: Call, x: Any, target: Any, weight: Any, reduction: int, ignore_index: int
) -> tuple[Any, Any]:
    axis = 1 if x.ndim > 1 else 0
    if x.ndim == 1:
        target = lax.reshape(target, ())
    kept = lax.ne(target, const(target, ignore_index))
    each = lax.neg(widen(_pick(x, target, axis)))
    if weight is None:
        mass = convert(kept, each.dtype)
    else:
        mass = zero_unless(kept, convert(_take(weight, target), each.dtype))
        each = lax.mul(each, mass)
    loss = zero_unless(kept, each)
    mass = lax.reduce_sum(mass, tuple(range(mass.ndim)))
    if reduction == 0 and x.ndim > 1:
        mass = lax.full_like(mass, 0)
    elif reduction:
        loss = lax.reduce_sum(loss, tuple(range(loss.ndim)))
        loss = quotient(loss, mass) if reduction == 1 else loss
    loss = lax.reshape(loss, call.outs[0].shape)
    return convert(loss, call.outs[0].dtype), convert(mass, call.outs[1].dtype)


@row("nll_loss_backward", "nll_loss2d_backward")
def nll_loss_backward(
    call: Call,
    grad: Any,
    x: Any,
    target: Any,
    weight: Any,
    reduction: int,
    ignore_index: int,
    total_weight: Any,
) -> Any:
    axis = 1 if x.ndim > 1 else 0
    grad = lax.neg(widen(grad))
    if reduction == 1:
        grad = quotient(grad, convert(total_weight, grad.dtype))
    target = lax.reshape(target, tuple(x.shape[d] for d in rest(x.ndim, axis)))
    grad = _per_sample(grad, target)
    grad = zero_unless(lax.ne(target, const(target, ignore_index)), grad)
    grad = spread(grad, x.shape, rest(x.ndim, axis))
    if weight is not None:
        grad = lax.mul(grad, spread(convert(weight, grad.dtype), x.shape, (axis,)))
    return convert(zero_unless(_is_target(x, target, axis), grad), call.out.dtype)


def _per_sample(grad: Any, target: Any) -> Any:
    """A scalar gradient (of a reduced loss) counts for every sample."""
    if grad.size == 1 and grad.shape != target.shape:
        return lax.broadcast(lax.reshape(grad, ()), target.shape)
    return lax.reshape(grad, target.shape)


def _margins(x: Any, target: Any, margin: Any) -> tuple[Any, Any]:
    """margin - x[target] + x, and which elements are targets."""
    picked = _pick(x, target, 1)
    z = lax.add(lax.sub(x, spread(picked, x.shape, (0,))), margin)
    return z, _is_target(x, target, 1)


def _class_weight(x: Any, target: Any, weight: Any) -> Any:
    if weight is None:
        return lax.full_like(x, 1)
    return spread(_take(convert(weight, x.dtype), target), x.shape, (0,))


def _batched(call: Call, x: Any, target: Any) -> tuple[Any, Any]:
    x = convert(x, wide_dtype(call.out.dtype))
    x = lax.reshape(x, (1, x.size)) if x.ndim < 2 else x
    return x, lax.reshape(target, (x.shape[0],))


def _margin_outs(x: Any, target: Any, p: Any, margin: Any, weight: Any, how: int):
    """PyTorch's meta kernel gives one number a dimension where the CPU gives none."""
    metas = [t if t is None else t.to("meta") for t in (x, target, weight)]
    x, target, weight = metas
    loss = torch.ops.aten.multi_margin_loss(x, target, p, margin, weight, how)
    return [Out(tuple(loss.shape) if target.dim() else (), loss.dtype)]


@row("multi_margin_loss", static=("p",), outs=_margin_outs)
def multi_margin_loss(
    call: Call, x: Any, target: Any, p: int, margin: Any, weight: Any, reduction: int
) -> Any:
    x, target = _batched(call, x, target)
    z, hit = _margins(x, target, factor(x, margin))
    loss = positive(z)
    loss = lax.square(loss) if p == 2 else loss
    loss = lax.mul(loss, _class_weight(x, target, weight))
    loss = zero_unless(lax.bitwise_not(hit), loss)
    loss = scale(lax.reduce_sum(loss, (1,)), 1 / x.shape[1])
    if reduction:
        loss = lax.reduce_sum(loss, (0,))
        loss = scale(loss, 1 / x.shape[0]) if reduction == 1 else loss
    return convert(lax.reshape(loss, call.out.shape), call.out.dtype)


def _backward_outs(grad: Any, x: Any, *rest: Any) -> list[Out]:
    return [Out(tuple(x.shape), x.dtype)]


@row("multi_margin_loss_backward", static=("p",), outs=_backward_outs)
def multi_margin_loss_backward(
    call: Call,
    grad: Any,
    x: Any,
    target: Any,
    p: int,
    margin: Scalar,
    weight: Any,
    reduction: int,
) -> Any:
    x, target = _batched(call, x, target)
    z, hit = _margins(x, target, factor(x, margin))
    slope = scale(_class_weight(x, target, weight), 1 / x.shape[1])
    slope = lax.mul(slope, scale(z, 2)) if p == 2 else slope
    active = lax.bitwise_and(lax.gt(z, const(z, 0)), lax.bitwise_not(hit))
    slope = zero_unless(active, slope)
    back = spread(lax.neg(lax.reduce_sum(slope, (1,))), x.shape, (0,))
    slope = lax.select(hit, back, slope)
    grad = _per_sample(convert(grad, x.dtype), target)
    slope = lax.mul(slope, spread(grad, x.shape, (0,)))
    slope = scale(slope, 1 / x.shape[0]) if reduction == 1 else slope
    return convert(lax.reshape(slope, call.out.shape), call.out.dtype)
