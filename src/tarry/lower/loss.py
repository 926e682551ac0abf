"""Losses of matching shapes, with their gradients: squared, Huber, cross-entropy of
probabilities and of logits. Halves compute in f32 and round once; `reduction` is 0
(none), 1 (mean) or 2 (sum)."""

from typing import Any

import numpy as np

from tarry.lower.layout import like, row_major
from tarry.lower.precision import const, mean_over, scale, wide_dtype
from tarry.lower.table import Call, broadcast, convert, row
from tarry.lower.xla import lax


def _aligned(call: Call, *xs: Any) -> list[Any]:
    """Operands in the compute dtype, broadcast against each other."""
    dtype = wide_dtype(call.out.dtype)
    shape = np.broadcast_shapes(*(x.shape for x in xs if x is not None))
    return [None if x is None else broadcast(convert(x, dtype), shape) for x in xs]


def _reduced(call: Call, loss: Any, reduction: int) -> Any:
    axes = tuple(range(loss.ndim))
    if reduction == 1:
        loss = mean_over(loss, axes)
    elif reduction == 2:
        loss = lax.reduce_sum(loss, axes)
    return convert(loss, call.out.dtype)


def _share(reduction: int, x: Any) -> float:
    """The factor of each element's gradient."""
    return 1 / max(x.size, 1) if reduction == 1 else 1.0


def _weighted(x: Any, weight: Any) -> Any:
    return x if weight is None else lax.mul(x, weight)


@row("mse_loss")
def mse_loss(call: Call, x: Any, y: Any, reduction: int) -> Any:
    x, y = _aligned(call, x, y)
    return _reduced(call, lax.square(lax.sub(x, y)), reduction)


@row("mse_loss_backward", strides=row_major)
def mse_loss_backward(call: Call, grad: Any, x: Any, y: Any, reduction: int) -> Any:
    grad, x, y = _aligned(call, grad, x, y)
    slope = scale(lax.sub(x, y), 2 * _share(reduction, x))
    return convert(lax.mul(slope, grad), call.out.dtype)


@row("smooth_l1_loss")
def smooth_l1_loss(call: Call, x: Any, y: Any, reduction: int, beta: float) -> Any:
    x, y = _aligned(call, x, y)
    far = lax.abs(lax.sub(x, y))
    if beta == 0:
        return _reduced(call, far, reduction)
    near = scale(lax.square(far), 0.5 / beta)
    outer = lax.sub(far, const(far, 0.5 * beta))
    inside = lax.lt(far, const(far, beta))
    return _reduced(call, lax.select(inside, near, outer), reduction)


def _clipped_backward(
    call: Call, grad: Any, x: Any, y: Any, reduction: int, bound: float, top: float
) -> Any:
    """The slope `top * d / bound` of d = x - y, clipped to [-top, top]."""
    grad, x, y = _aligned(call, grad, x, y)
    d = lax.sub(x, y)
    norm = _share(reduction, x)
    inside = lax.lt(lax.abs(d), const(d, bound))
    inner = scale(d, norm * top / bound) if bound else lax.full_like(d, 0)
    slope = lax.select(inside, inner, scale(lax.sign(d), norm * top))
    return convert(lax.mul(slope, grad), call.out.dtype)


@row("smooth_l1_loss_backward", strides=row_major)
def smooth_l1_loss_backward(
    call: Call, grad: Any, x: Any, y: Any, reduction: int, beta: float
) -> Any:
    return _clipped_backward(call, grad, x, y, reduction, beta, 1.0)


@row("huber_loss")
def huber_loss(call: Call, x: Any, y: Any, reduction: int, delta: float) -> Any:
    x, y = _aligned(call, x, y)
    far = lax.abs(lax.sub(x, y))
    near = scale(lax.square(far), 0.5)
    outer = scale(lax.sub(far, const(far, 0.5 * delta)), delta)
    inside = lax.le(far, const(far, delta))
    return _reduced(call, lax.select(inside, near, outer), reduction)


@row("huber_loss_backward", strides=row_major)
def huber_loss_backward(
    call: Call, grad: Any, x: Any, y: Any, reduction: int, delta: float
) -> Any:
    return _clipped_backward(call, grad, x, y, reduction, delta, delta)


@row("binary_cross_entropy")
def binary_cross_entropy(
    call: Call, x: Any, y: Any, weight: Any, reduction: int
) -> Any:
    x, y, weight = _aligned(call, x, y, weight)
    floor = const(x, -100)
    hit = lax.mul(y, lax.max(lax.log(x), floor))
    miss = lax.max(lax.log1p(lax.neg(x)), floor)
    loss = lax.sub(lax.mul(lax.sub(y, const(y, 1)), miss), hit)
    return _reduced(call, _weighted(loss, weight), reduction)


@row("binary_cross_entropy_backward", strides=like(1))
def binary_cross_entropy_backward(
    call: Call, grad: Any, x: Any, y: Any, weight: Any, reduction: int
) -> Any:
    grad, x, y, weight = _aligned(call, grad, x, y, weight)
    spread = lax.max(lax.mul(lax.sub(const(x, 1), x), x), const(x, 1e-12))
    slope = lax.mul(grad, lax.div(lax.sub(x, y), spread))
    slope = scale(_weighted(slope, weight), _share(reduction, x))
    return convert(slope, call.out.dtype)


@row("binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    call: Call, x: Any, y: Any, weight: Any, pos_weight: Any, reduction: int
) -> Any:
    x, y, weight, pos_weight = _aligned(call, x, y, weight, pos_weight)
    low = lax.log1p(lax.exp(lax.neg(lax.abs(x))))
    low = lax.sub(lax.min(x, const(x, 0)), low)
    if pos_weight is not None:
        one = const(y, 1)
        low = lax.mul(low, lax.add(lax.mul(lax.sub(pos_weight, one), y), one))
    loss = lax.sub(lax.mul(lax.sub(const(y, 1), y), x), low)
    return _reduced(call, _weighted(loss, weight), reduction)


@row("soft_margin_loss")
def soft_margin_loss(call: Call, x: Any, y: Any, reduction: int) -> Any:
    x, y = _aligned(call, x, y)
    return _reduced(call, lax.log1p(lax.exp(lax.neg(lax.mul(x, y)))), reduction)


@row("soft_margin_loss_backward")
def soft_margin_loss_backward(
    call: Call, grad: Any, x: Any, y: Any, reduction: int
) -> Any:
    grad, x, y = _aligned(call, grad, x, y)
    slope = lax.mul(lax.neg(y), lax.logistic(lax.neg(lax.mul(x, y))))
    slope = scale(lax.mul(slope, grad), _share(reduction, x))
    return convert(slope, call.out.dtype)
