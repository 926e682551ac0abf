"""Activations with more than one result or with halves of a dimension: `glu`,
`log_sigmoid`'s forward, and the gradient of `prelu`."""

from typing import Any

import numpy as np

from tarry.lower.activation import zero_unless
from tarry.lower.layout import iterated, like, row_major
from tarry.lower.precision import const, factor, widen
from tarry.lower.table import Call, Out, broadcast, convert, row
from tarry.lower.xla import lax


def _halves(x: Any, dim: int) -> tuple[Any, Any, int]:
    dim %= x.ndim
    half = x.shape[dim] // 2
    first = lax.slice_in_dim(x, 0, half, axis=dim)
    return first, lax.slice_in_dim(x, half, 2 * half, axis=dim), dim


@row("glu")
def glu(call: Call, x: Any, dim: int) -> Any:
    a, b, _ = _halves(widen(x), dim)
    return convert(lax.mul(a, lax.logistic(b)), call.out.dtype)


@row("glu_backward", strides=row_major)
def glu_backward(call: Call, grad: Any, x: Any, dim: int) -> Any:
    a, b, dim = _halves(widen(x), dim)
    gate = lax.logistic(b)
    left = lax.mul(widen(grad), gate)
    right = lax.mul(lax.mul(left, a), lax.sub(const(gate, 1), gate))
    return convert(lax.concatenate([left, right], dim), call.out.dtype)


def _jvp_outs(y: Any, *rest: Any) -> list[Out]:
    return [Out(tuple(y.shape), y.dtype)]


@row("glu_jvp", outs=_jvp_outs, strides=like(0))
def glu_jvp(call: Call, y: Any, x: Any, dx: Any, dim: int) -> Any:
    _, b, dim = _halves(widen(x), dim)
    da, db, _ = _halves(widen(dx), dim)
    gate = lax.logistic(b)
    tilt = lax.mul(lax.mul(widen(y), db), lax.sub(const(gate, 1), gate))
    return convert(lax.add(lax.mul(da, gate), tilt), call.out.dtype)


@row("log_sigmoid_forward", strides=row_major)
def log_sigmoid_forward(call: Call, x: Any) -> tuple[Any, Any]:
    """The buffer is what PyTorch's CPU kernel keeps; the gradient does not read it."""
    x = widen(x)
    z = lax.exp(lax.neg(lax.abs(x)))
    y = lax.sub(lax.min(x, const(x, 0)), lax.log1p(z))
    kept = call.outs[1]
    if kept.shape != x.shape:
        z = lax.full(kept.shape, 0, x.dtype)
    return convert(y, call.out.dtype), convert(z, kept.dtype)


@row("log_sigmoid_backward", ignores=("buffer",))
def log_sigmoid_backward(call: Call, grad: Any, x: Any, buffer: Any) -> Any:
    return convert(
        lax.mul(widen(grad), lax.logistic(lax.neg(widen(x)))), call.out.dtype
    )


@row("_prelu_kernel_backward")
def prelu_backward(call: Call, grad: Any, x: Any, weight: Any) -> tuple[Any, Any]:
    grad, x, weight = widen(grad), widen(x), widen(weight)
    weight = broadcast(weight, x.shape)
    above = lax.gt(x, const(x, 0))
    gx = lax.select(above, grad, lax.mul(grad, weight))
    gw = zero_unless(lax.le(x, const(x, 0)), lax.mul(grad, x))
    return convert(gx, call.outs[0].dtype), convert(gw, call.outs[1].dtype)


@row("native_dropout_backward", scalars=("scale",), strides=iterated())
def dropout_backward(call: Call, grad: Any, kept: Any, scale: Any) -> Any:
    y = convert(grad, np.dtype(np.float32)) if grad.dtype == np.bool_ else widen(grad)
    y = lax.mul(lax.mul(y, convert(kept, y.dtype)), factor(y, scale))
    return convert(y, call.out.dtype)
