"""Elementwise activations and their gradients, by the formulas of PyTorch's CPU
kernels. Operands arrive promoted, broadcast and in the compute dtype."""

import math
from typing import Any

from tarry.lower.layout import iterated, like
from tarry.lower.precision import const, factor, quotient, scale, shift
from tarry.lower.table import pointwise
from tarry.lower.xla import lax

_SQRT_HALF = math.sqrt(0.5)
_DENSITY = math.sqrt(0.5 / math.pi)
_TANH_BETA, _TANH_CUBE = math.sqrt(2 / math.pi), 0.044715


def zero_unless(keep: Any, x: Any) -> Any:
    return lax.select(keep, x, lax.full_like(x, 0))


def positive(x: Any) -> Any:
    """`x` where it is above zero, and zero elsewhere and for NaN."""
    return zero_unless(lax.gt(x, const(x, 0)), x)


def _within(x: Any, low: float, high: float) -> Any:
    return lax.bitwise_and(lax.gt(x, const(x, low)), lax.lt(x, const(x, high)))


@pointwise("relu")
def relu(x):
    return lax.max(x, const(x, 0))


@pointwise("threshold")
def threshold(x, limit, value):
    return lax.select(lax.le(x, limit), value, x)


@pointwise("threshold_backward", strides=iterated(1, 0))
def threshold_backward(grad, x, limit):
    return lax.select(lax.le(x, limit), lax.full_like(grad, 0), grad)


@pointwise("leaky_relu")
def leaky_relu(x, slope):
    return lax.select(lax.gt(x, const(x, 0)), x, lax.mul(x, slope))


@pointwise("leaky_relu_backward", strides=iterated(1, 0))
def leaky_relu_backward(grad, x, slope, self_is_result):
    return lax.select(lax.gt(x, const(x, 0)), grad, lax.mul(grad, slope))


@pointwise("_prelu_kernel", strides=like(0))
def prelu(x, weight):
    return lax.select(lax.gt(x, const(x, 0)), x, lax.mul(x, weight))


@pointwise("elu")
def elu(x, alpha, scale_, input_scale):
    alpha, gain, slope = (factor(x, f) for f in (alpha, scale_, input_scale))
    below = lax.mul(lax.expm1(lax.mul(x, slope)), lax.mul(alpha, gain))
    return lax.select(lax.lt(x, const(x, 0)), below, lax.mul(x, gain))


@pointwise("elu_backward")
def elu_backward(grad, alpha, scale_, input_scale, is_result, x):
    alpha, gain, slope = (factor(x, f) for f in (alpha, scale_, input_scale))
    bottom = lax.mul(alpha, gain)
    if is_result:
        below = lax.mul(slope, lax.add(x, bottom))
    else:
        below = lax.mul(lax.mul(slope, bottom), lax.exp(lax.mul(x, slope)))
    below = lax.mul(grad, below)
    return lax.select(lax.le(x, const(x, 0)), below, lax.mul(grad, gain))


def gelu_erf(x: Any) -> Any:
    return lax.mul(scale(x, 0.5), shift(lax.erf(scale(x, _SQRT_HALF)), 1))


def _tanh_of(x: Any) -> Any:
    cube = lax.mul(lax.mul(x, x), x)
    return lax.tanh(scale(lax.add(x, scale(cube, _TANH_CUBE)), _TANH_BETA))


@pointwise("gelu")
def gelu(x, approximate="none"):
    if approximate == "tanh":
        return lax.mul(scale(x, 0.5), shift(_tanh_of(x), 1))
    return gelu_erf(x)


@pointwise("gelu_backward")
def gelu_backward(grad, x, approximate="none"):
    square = lax.mul(x, x)
    if approximate == "tanh":
        t = _tanh_of(x)
        inner = shift(scale(square, 3 * _TANH_CUBE * _TANH_BETA), _TANH_BETA)
        slope = lax.mul(lax.sub(const(x, 1), lax.mul(t, t)), inner)
        left = shift(t, 1)
        return lax.mul(grad, scale(lax.add(left, lax.mul(x, slope)), 0.5))
    cdf = scale(shift(lax.erf(scale(x, _SQRT_HALF)), 1), 0.5)
    pdf = scale(lax.exp(scale(square, -0.5)), _DENSITY)
    return lax.mul(grad, lax.add(cdf, lax.mul(x, pdf)))


@pointwise("silu")
def silu(x):
    return lax.mul(x, lax.logistic(x))


@pointwise("silu_backward")
def silu_backward(grad, x):
    s = lax.logistic(x)
    inner = shift(lax.mul(x, lax.sub(const(x, 1), s)), 1)
    return lax.mul(lax.mul(grad, s), inner)


def _softplus(x: Any) -> Any:
    """log(1 + exp(x)) without overflow."""
    return lax.add(lax.max(x, const(x, 0)), lax.log1p(lax.exp(lax.neg(lax.abs(x)))))


@pointwise("mish")
def mish(x):
    return lax.mul(x, lax.tanh(_softplus(x)))


@pointwise("mish_backward")
def mish_backward(grad, x):
    t, s = lax.tanh(_softplus(x)), lax.logistic(x)
    slope = lax.mul(lax.mul(x, s), lax.sub(const(x, 1), lax.mul(t, t)))
    return lax.mul(grad, lax.add(t, slope))


@pointwise("hardtanh")
def hardtanh(x, low, high):
    low, high = factor(x, low), factor(x, high)
    return lax.min(lax.max(x, low), high)


@pointwise("hardtanh_backward")
def hardtanh_backward(grad, x, low, high):
    outside = lax.bitwise_or(lax.le(x, low), lax.ge(x, high))
    return lax.select(outside, lax.full_like(grad, 0), grad)


def _relu6_plus3(x: Any) -> Any:
    return lax.min(lax.max(shift(x, 3), const(x, 0)), const(x, 6))


@pointwise("hardsigmoid")
def hardsigmoid(x):
    return quotient(_relu6_plus3(x), const(x, 6))


@pointwise("hardsigmoid_backward")
def hardsigmoid_backward(grad, x):
    sixth = 0.16666667163372040  # PyTorch's constant is a float, for f64 too
    return zero_unless(_within(x, -3, 3), scale(grad, sixth))


@pointwise("hardswish")
def hardswish(x):
    return quotient(lax.mul(x, _relu6_plus3(x)), const(x, 6))


@pointwise("hardswish_backward")
def hardswish_backward(grad, x):
    middle = lax.mul(grad, shift(quotient(x, const(x, 3)), 0.5))
    upper = lax.select(lax.lt(x, const(x, 3)), middle, grad)
    return zero_unless(lax.gt(x, const(x, -3)), upper)


@pointwise("softplus")
def softplus(x, beta, limit):
    beta, limit = factor(x, beta), factor(x, limit)
    scaled = lax.mul(x, beta)
    soft = quotient(lax.log1p(lax.exp(scaled)), beta)
    return lax.select(lax.gt(scaled, limit), x, soft)


@pointwise("softplus_backward")
def softplus_backward(grad, x, beta, limit):
    beta, limit = factor(x, beta), factor(x, limit)
    scaled = lax.mul(x, beta)
    soft = lax.mul(grad, lax.logistic(scaled))
    return lax.select(lax.gt(scaled, limit), grad, soft)


@pointwise("hardshrink", rounds=(1,))
def hardshrink(x, limit):
    inside = lax.bitwise_and(lax.ge(x, lax.neg(limit)), lax.le(x, limit))
    return lax.select(inside, lax.full_like(x, 0), x)


@pointwise("hardshrink_backward", "softshrink_backward", rounds=(2,))
def shrink_backward(grad, x, limit):
    inside = lax.bitwise_and(lax.ge(x, lax.neg(limit)), lax.le(x, limit))
    return lax.select(inside, lax.full_like(grad, 0), grad)


@pointwise("softshrink")
def softshrink(x, limit):
    below = lax.lt(x, lax.neg(limit))
    low = lax.select(below, lax.add(x, limit), lax.mul(x, const(x, 0)))
    return lax.select(lax.gt(x, limit), lax.sub(x, limit), low)


@pointwise("sigmoid_backward")
def sigmoid_backward(grad, y):
    one = const(y, 1)
    return lax.mul(grad, _conj(lax.mul(lax.sub(one, y), y)))


@pointwise("tanh_backward")
def tanh_backward(grad, y):
    return lax.mul(grad, _conj(lax.sub(const(y, 1), lax.mul(y, y))))


@pointwise("logit_backward")
def logit_backward(grad, x, eps=None):
    low, high = (0.0, 1.0) if eps is None else (eps, 1 - eps)
    slope = lax.div(grad, lax.mul(x, lax.sub(const(x, 1), x)))
    inside = lax.bitwise_and(lax.ge(x, const(x, low)), lax.le(x, const(x, high)))
    outside = math.nan if eps is None else 0.0
    return lax.select(inside, slope, lax.full_like(x, outside))


def _conj(x: Any) -> Any:
    return lax.conj(x) if x.dtype.kind == "c" else x
