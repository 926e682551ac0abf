"""Optimizer steps for one parameter, by the arithmetic of PyTorch's fused CPU kernels.
Hyperparameters are run-time values; what depends on them and the step alone is
computed on f64 scalars. A set `found_inf` leaves everything as it was."""

from typing import Any

import numpy as np

from tarry.lower.precision import const, factor, widen
from tarry.lower.table import Call, Scalar, convert, row
from tarry.lower.xla import lax

_F64 = np.dtype(np.float64)


def _number(value: Any) -> Any:
    """A hyperparameter (`Scalar`, number or 0-d array) in f64."""
    if isinstance(value, Scalar):
        return value.to(_F64)
    if hasattr(value, "aval"):
        return lax.reshape(convert(value, _F64), ())
    return _F64.type(value)


def _by(x: Any, value: Any) -> Any:
    """x * value, an f64 scalar rounded to x's dtype."""
    return lax.mul(x, lax.convert_element_type(value, x.dtype))


def _gradient(grad: Any, like: Any, maximize: bool, grad_scale: Any) -> Any:
    grad = convert(grad, like.dtype)
    if grad_scale is not None:
        grad = lax.div(grad, lax.reshape(convert(grad_scale, like.dtype), ()))
    return lax.neg(grad) if maximize else grad


def _settled(
    grad: Any, grad_scale: Any, found_inf: Any, old: tuple, new: tuple
) -> tuple[Any, ...]:
    """The new values, and the gradient without its scale if it has one; or the old ones
    where the gradients overflowed."""
    if grad_scale is not None:
        old = (*old, grad)
        new = (*new, _gradient(grad, widen(grad), False, grad_scale))

    def choose(a: Any, b: Any) -> Any:
        if a is None or b is None:
            return None
        b = convert(b, a.dtype)
        if found_inf is None:
            return b
        skip = lax.reshape(lax.ne(found_inf, const(found_inf, 0)), ())
        return lax.select(skip, a, b)

    return tuple(choose(a, b) for a, b in zip(old, new))


def _lerp(a: Any, b: Any, beta: Any) -> Any:
    """beta * a + (1 - beta) * b, rounded as a + (1 - beta) * (b - a)."""
    return lax.add(a, _by(lax.sub(b, a), lax.sub(const(beta, 1), beta)))


@row("tarry::adam")
def adam(
    call: Call,
    param: Any,
    grad: Any,
    exp_avg: Any,
    exp_avg_sq: Any,
    max_exp_avg_sq: Any,
    step: Any,
    lr: Any,
    beta1: Any,
    beta2: Any,
    weight_decay: Any,
    eps: Any,
    amsgrad: bool,
    maximize: bool,
    decoupled: bool,
    grad_scale: Any,
    found_inf: Any,
) -> tuple[Any, ...]:
    """Adam, or AdamW where `decoupled`; `step` counts this step already."""
    old = (param, exp_avg, exp_avg_sq, max_exp_avg_sq)
    lr, beta1, beta2, decay, step = map(_number, (lr, beta1, beta2, weight_decay, step))
    p, m, v, top = (widen(x) for x in old)
    g = _gradient(grad, p, maximize, grad_scale)
    if decoupled:
        p = lax.sub(p, _by(p, lax.mul(lr, decay)))
    else:
        g = lax.add(g, _by(p, decay))
    one = const(beta1, 1)
    m = _lerp(m, g, beta1)
    v = lax.add(_by(v, beta2), _by(lax.mul(g, g), lax.sub(one, beta2)))
    if amsgrad:
        top = lax.max(top, v)
    root = lax.sqrt(lax.sub(one, lax.pow(beta2, step)))
    root = lax.convert_element_type(root, p.dtype)
    spread = lax.div(lax.sqrt(top if amsgrad else v), root)
    spread = lax.add(spread, factor(p, eps))
    size = lax.div(lr, lax.sub(one, lax.pow(beta1, step)))
    p = lax.sub(p, lax.div(_by(m, size), spread))
    return _settled(grad, grad_scale, found_inf, old, (p, m, v, top))


@row("tarry::sgd")
def sgd(
    call: Call,
    param: Any,
    grad: Any,
    momentum_buffer: Any,
    lr: Any,
    weight_decay: Any,
    momentum: Any,
    dampening: Any,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: Any,
    found_inf: Any,
) -> tuple[Any, ...]:
    """SGD; the buffer's content is not read in the first step."""
    p, buffer = widen(param), widen(momentum_buffer)
    lr, momentum = _number(lr), _number(momentum)
    g = _gradient(grad, p, maximize, grad_scale)
    g = lax.add(g, _by(p, _number(weight_decay)))
    if buffer is not None:
        keep = lax.sub(const(lr, 1), _number(dampening))
        buffer = g if is_first_step else lax.add(_by(buffer, momentum), _by(g, keep))
        g = lax.add(g, _by(buffer, momentum)) if nesterov else buffer
    p = lax.sub(p, _by(g, lr))
    return _settled(grad, grad_scale, found_inf, (param, momentum_buffer), (p, buffer))


@row("tarry::adagrad")
def adagrad(
    call: Call,
    param: Any,
    grad: Any,
    state_sum: Any,
    step: Any,
    lr: Any,
    lr_decay: Any,
    weight_decay: Any,
    eps: Any,
    maximize: bool,
    grad_scale: Any,
    found_inf: Any,
) -> tuple[Any, ...]:
    p, total = widen(param), widen(state_sum)
    lr, step = _number(lr), _number(step)
    g = _gradient(grad, p, maximize, grad_scale)
    g = lax.add(g, _by(p, _number(weight_decay)))
    total = lax.add(total, lax.mul(g, g))
    before = lax.sub(step, const(step, 1))
    size = lax.div(lr, lax.add(const(lr, 1), lax.mul(before, _number(lr_decay))))
    spread = lax.add(lax.sqrt(total), factor(p, eps))
    p = lax.sub(p, lax.div(_by(g, size), spread))
    return _settled(grad, grad_scale, found_inf, (param, state_sum), (p, total))
