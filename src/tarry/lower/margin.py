"""`multilabel_margin_loss`, whose targets are the class indices of a sample up to its
first negative one. Each (target, class) pair is compared at once. PyTorch's
decomposition counts what stands behind that negative one, so it is not used."""

from typing import Any

import numpy as np

from tarry.lower.activation import positive, zero_unless
from tarry.lower.precision import const, quotient, scale, shift, spread, widen
from tarry.lower.table import Call, Out, convert, row
from tarry.lower.xla import jnp, lax


def _check(x: Any, target: Any) -> None:
    """Raises where PyTorch's CPU kernel does; the words are taken from there."""
    size, wanted = list(x.shape), list(target.shape)
    if len(size) > 2 or 0 in size[-1:] or (size or [1]) != (wanted or [1]):
        raise RuntimeError(f"inconsistent target size: {wanted} for {size}")


def _outs(x: Any, target: Any, reduction: int) -> list[Out]:
    _check(x, target)
    shape = () if reduction or x.ndim < 2 else tuple(x.shape[:1])
    return [Out(shape, x.dtype), Out(tuple(target.shape), x.dtype)]


def _backward_outs(grad: Any, x: Any, target: Any, *rest: Any) -> list[Out]:
    _check(x, target)
    return [Out(tuple(x.shape), x.dtype)]


def _samples(x: Any, target: Any) -> tuple[Any, Any]:
    shape = x.shape if x.ndim == 2 else (1, x.size)
    return lax.reshape(widen(x), shape), lax.reshape(target, shape)


def _pairs(x: Any, target: Any) -> tuple[Any, Any, Any]:
    """1 + x[class] - x[target] where it counts, and the classes that a target names:
    both (samples, targets, classes); which classes are targets at all."""
    shape = (*x.shape, x.shape[1])
    given = lax.cummin(convert(lax.ge(target, const(target, 0)), np.dtype(np.int32)), 1)
    given = spread(lax.ne(given, const(given, 0)), shape, (0, 1))
    named = lax.eq(
        lax.broadcasted_iota(target.dtype, shape, 2), spread(target, shape, (0, 1))
    )
    named = lax.bitwise_and(named, given)
    is_target = lax.reduce_or(named, (1,))
    index = lax.max(target, const(target, 0))
    at_target = jnp.take_along_axis(x, index, 1, mode="fill")
    z = lax.sub(spread(x, shape, (0, 2)), spread(at_target, shape, (0, 1)))
    counts = lax.bitwise_not(spread(is_target, shape, (0, 2)))
    counts = lax.bitwise_and(counts, given)
    return zero_unless(counts, positive(shift(z, 1))), named, is_target


@row("multilabel_margin_loss_forward", outs=_outs)
def multilabel_margin_loss(
    call: Call, x: Any, target: Any, reduction: int
) -> tuple[Any, Any]:
    loss, kept = call.outs
    x, target = _samples(x, target)
    z, _, is_target = _pairs(x, target)
    total = scale(lax.reduce_sum(z, (1, 2)), 1 / x.shape[1])
    if reduction:
        total = lax.reduce_sum(total, (0,))
        total = quotient(total, const(total, x.shape[0])) if reduction == 1 else total
    total = convert(lax.reshape(total, loss.shape), loss.dtype)
    return total, convert(lax.reshape(is_target, kept.shape), kept.dtype)


@row("multilabel_margin_loss_backward", ignores=("is_target",), outs=_backward_outs)
def multilabel_margin_loss_backward(
    call: Call, grad: Any, x: Any, target: Any, reduction: int, is_target: Any
) -> Any:
    x, target = _samples(x, target)
    z, named, _ = _pairs(x, target)
    over = convert(lax.gt(z, const(z, 0)), x.dtype)
    away = spread(lax.reduce_sum(over, (2,)), named.shape, (0, 1))
    slope = lax.sub(over, zero_unless(named, away))
    slope = scale(lax.reduce_sum(slope, (1,)), 1 / x.shape[1])
    if reduction == 1:
        slope = quotient(slope, const(slope, x.shape[0]))
    grad = lax.reshape(widen(grad), (grad.size,))
    grad = lax.broadcast_in_dim(grad, x.shape[:1], (0,))
    slope = lax.mul(slope, spread(grad, x.shape, (0,)))
    return convert(lax.reshape(slope, call.out.shape), call.out.dtype)
