"""Layer, group and RMS normalization with their gradients. Statistics take two passes
(mean, then mean of squared differences) in f32 for halves."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from tarry.lower.precision import const, mean_over, rest, shift, spread, widen
from tarry.lower.saved_stats import group_norm_outs, layer_norm_outs
from tarry.lower.table import Call, convert, row
from tarry.lower.xla import lax


def center(x: Any, axes: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """(x - mean, mean, variance), the variance of the population, over `axes`."""
    keep = rest(x.ndim, *axes)
    mean = mean_over(x, axes)
    xc = lax.sub(x, spread(mean, x.shape, keep))
    return xc, mean, mean_over(lax.square(xc), axes)


def affine(x: Any, weight: Any, bias: Any, axes: Sequence[int]) -> Any:
    """x * weight + bias, both over the dimensions `axes` of x; either may be None."""
    if weight is not None:
        x = lax.mul(x, spread(weight, x.shape, axes))
    return x if bias is None else lax.add(x, spread(bias, x.shape, axes))


def normalized_grad(g: Any, xhat: Any, rstd: Any, axes: tuple[int, ...]) -> Any:
    """The gradient of x given `g`, the one of xhat = (x - mean) * rstd."""
    keep = rest(g.ndim, *axes)
    inner = lax.sub(g, spread(mean_over(g, axes), g.shape, keep))
    along = spread(mean_over(lax.mul(g, xhat), axes), g.shape, keep)
    inner = lax.sub(inner, lax.mul(xhat, along))
    return lax.mul(inner, spread(rstd, g.shape, keep))


def masked(call: Call, mask: Sequence[bool], *grads: Any) -> tuple[Any, ...]:
    """The gradients that are wanted, at the spec of their results; None elsewhere."""
    return tuple(
        convert(lax.reshape(make(), out.shape), out.dtype) if wanted and make else None
        for make, wanted, out in zip(grads, mask, call.outs)
    )


def _rows(x: Any, normalized: Sequence[int]) -> Any:
    """`x` as (samples, elements to normalize): as many of the last dimensions as
    `normalized` has, whose sizes PyTorch may pass on unread where they are symbolic."""
    first = x.ndim - len(normalized)
    return lax.reshape(x, (math.prod(x.shape[:first]), math.prod(x.shape[first:])))


def _flat(x: Any, like: Any) -> Any:
    return None if x is None else convert(lax.reshape(x, (x.size,)), like.dtype)


def _results(call: Call, *values: Any) -> tuple[Any, ...]:
    return tuple(
        convert(lax.reshape(v, out.shape), out.dtype)
        for v, out in zip(values, call.outs)
    )


@row("native_layer_norm", outs=layer_norm_outs)
def layer_norm(
    call: Call, x: Any, normalized: Sequence[int], weight: Any, bias: Any, eps: float
) -> tuple[Any, ...]:
    x = _rows(widen(x), normalized)
    xc, mean, var = center(x, (1,))
    rstd = lax.rsqrt(shift(var, eps))
    y = lax.mul(xc, spread(rstd, x.shape, (0,)))
    y = affine(y, _flat(weight, x), _flat(bias, x), (1,))
    return _results(call, y, mean, rstd)


@row("native_layer_norm_backward")
def layer_norm_backward(
    call: Call,
    grad: Any,
    x: Any,
    normalized: Sequence[int],
    mean: Any,
    rstd: Any,
    weight: Any,
    bias: Any,
    mask: Sequence[bool],
) -> tuple[Any, ...]:
    x, grad = _rows(widen(x), normalized), _rows(widen(grad), normalized)
    mean, rstd, weight = _flat(mean, x), _flat(rstd, x), _flat(weight, x)
    xhat = lax.sub(x, spread(mean, x.shape, (0,)))
    xhat = lax.mul(xhat, spread(rstd, x.shape, (0,)))
    return masked(
        call,
        mask,
        lambda: normalized_grad(affine(grad, weight, None, (1,)), xhat, rstd, (1,)),
        None if weight is None else lambda: lax.reduce_sum(lax.mul(grad, xhat), (0,)),
        None if bias is None else lambda: lax.reduce_sum(grad, (0,)),
    )


@row("_fused_rms_norm")
def rms_norm(
    call: Call, x: Any, normalized: Sequence[int], weight: Any, eps: float | None
) -> tuple[Any, ...]:
    if eps is None:
        eps = torch.finfo(call.out.torch_dtype).eps
    x = _rows(widen(x), normalized)
    rstd = lax.rsqrt(shift(mean_over(lax.square(x), (1,)), eps))
    y = lax.mul(x, spread(rstd, x.shape, (0,)))
    return _results(call, affine(y, _flat(weight, x), None, (1,)), rstd)


@row("_fused_rms_norm_backward")
def rms_norm_backward(
    call: Call,
    grad: Any,
    x: Any,
    normalized: Sequence[int],
    rstd: Any,
    weight: Any,
    mask: Sequence[bool],
) -> tuple[Any, ...]:
    x, grad = _rows(widen(x), normalized), _rows(widen(grad), normalized)
    rstd, weight = _flat(rstd, x), _flat(weight, x)
    xhat = lax.mul(x, spread(rstd, x.shape, (0,)))

    def of_input() -> Any:
        g = affine(grad, weight, None, (1,))
        along = spread(mean_over(lax.mul(g, xhat), (1,)), g.shape, (0,))
        inner = lax.sub(g, lax.mul(xhat, along))
        return lax.mul(inner, spread(rstd, g.shape, (0,)))

    return masked(
        call,
        mask,
        of_input,
        None if weight is None else lambda: lax.reduce_sum(lax.mul(grad, xhat), (0,)),
    )


def _groups(x: Any, n: int, group: int) -> Any:
    """(N, C, …) as (N, group, channels of a group, positions)."""
    c = x.shape[1]
    return lax.reshape(x, (n, group, c // group, x.size // max(n * c, 1)))


def _per_group(x: Any, like: Any, group: int) -> Any:
    if x is None:
        return None
    return convert(lax.reshape(x, (group, x.size // group)), like.dtype)


@row("native_group_norm", outs=group_norm_outs)
def group_norm(
    call: Call,
    x: Any,
    weight: Any,
    bias: Any,
    n: int,
    c: int,
    hxw: int,
    group: int,
    eps: float,
) -> tuple[Any, ...]:
    x = _groups(widen(x), n, group)
    xc, mean, var = center(x, (2, 3))
    rstd = lax.rsqrt(shift(var, eps))
    y = lax.mul(xc, spread(rstd, x.shape, (0, 1)))
    weight, bias = _per_group(weight, x, group), _per_group(bias, x, group)
    return _results(call, affine(y, weight, bias, (1, 2)), mean, rstd)


@row("native_group_norm_backward")
def group_norm_backward(
    call: Call,
    grad: Any,
    x: Any,
    mean: Any,
    rstd: Any,
    weight: Any,
    n: int,
    c: int,
    hxw: int,
    group: int,
    mask: Sequence[bool],
) -> tuple[Any, ...]:
    x, grad = _groups(widen(x), n, group), _groups(widen(grad), n, group)
    mean, rstd = convert(mean, x.dtype), convert(rstd, x.dtype)
    weight = _per_group(weight, x, group)
    xhat = lax.sub(x, spread(mean, x.shape, (0, 1)))
    xhat = lax.mul(xhat, spread(rstd, x.shape, (0, 1)))
    return masked(
        call,
        mask,
        lambda: normalized_grad(affine(grad, weight, None, (1, 2)), xhat, rstd, (2, 3)),
        lambda: lax.reduce_sum(lax.mul(grad, xhat), (0, 3)),
        lambda: lax.reduce_sum(grad, (0, 3)),
    )


@row("renorm", static=("p",))
def renorm(call: Call, x: Any, p: float, dim: int, limit: Any) -> Any:
    dim %= x.ndim
    x = widen(x)
    axes = rest(x.ndim, dim)
    size = lax.abs(x)
    if p == 2:
        norm = lax.sqrt(lax.reduce_sum(lax.square(size), axes))
    elif p == math.inf:
        norm = lax.reduce_max(size, axes)
    else:
        total = lax.reduce_sum(lax.pow(size, const(size, p)), axes)
        norm = lax.pow(total, const(total, 1 / p))
    limit = limit.to(norm.dtype)
    shrink = lax.div(limit, shift(norm, 1e-7))
    shrink = lax.select(lax.gt(norm, limit), shrink, lax.full_like(norm, 1))
    shrink = spread(convert(shrink, x.dtype), x.shape, (dim,))
    return convert(lax.mul(x, shrink), call.out.dtype)
