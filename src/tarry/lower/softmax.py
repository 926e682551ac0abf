"""Softmax and log-softmax over one dimension, with their gradients. Halves compute
in f32 and round once."""

from typing import Any

import torch

from tarry.lower.layout import row_major
from tarry.lower.precision import const, rest, spread, widen
from tarry.lower.table import Call, convert, row
from tarry.lower.xla import lax


def _over(reduce: Any, x: Any, dim: int) -> Any:
    """`reduce` over `dim`, broadcast back to the shape of `x`."""
    return spread(reduce(x, (dim,)), x.shape, rest(x.ndim, dim))


def _line(x: Any, dim: int) -> tuple[Any, int]:
    """A 0-d operand counts as one of length 1."""
    return (lax.reshape(x, (1,)), 0) if x.ndim == 0 else (x, dim % x.ndim)


def _finish(call: Call, y: Any) -> Any:
    return convert(lax.reshape(y, call.out.shape), call.out.dtype)


def _softmax(x: Any, dim: int) -> Any:
    e = lax.exp(lax.sub(x, _over(lax.reduce_max, x, dim)))
    return lax.div(e, _over(lax.reduce_sum, e, dim))


@row("_softmax")
def softmax(call: Call, x: Any, dim: int, half_to_float: bool) -> Any:
    x, dim = _line(widen(x), dim)
    return _finish(call, _softmax(x, dim))


@row("_safe_softmax")
def safe_softmax(call: Call, x: Any, dim: int, dtype: torch.dtype | None) -> Any:
    """Softmax that gives zeros where all of a line is -inf."""
    x, dim = _line(widen(convert(x, call.out.dtype)), dim)
    void = lax.eq(_over(lax.reduce_max, x, dim), const(x, -float("inf")))
    return _finish(call, lax.select(void, lax.full_like(x, 0), _softmax(x, dim)))


@row("_log_softmax")
def log_softmax(call: Call, x: Any, dim: int, half_to_float: bool) -> Any:
    x, dim = _line(widen(x), dim)
    x = lax.sub(x, _over(lax.reduce_max, x, dim))
    total = lax.log(lax.reduce_sum(lax.exp(x), (dim,)))
    return _finish(call, lax.sub(x, spread(total, x.shape, rest(x.ndim, dim))))


@row("_softmax_backward_data")
def softmax_backward(
    call: Call, grad: Any, y: Any, dim: int, input_dtype: torch.dtype
) -> Any:
    (grad, _), (y, dim) = _line(widen(grad), dim), _line(widen(y), dim)
    total = _over(lax.reduce_sum, lax.mul(grad, y), dim)
    return _finish(call, lax.mul(lax.sub(grad, total), y))


@row("_log_softmax_backward_data", strides=row_major)
def log_softmax_backward(
    call: Call, grad: Any, y: Any, dim: int, input_dtype: torch.dtype
) -> Any:
    (grad, _), (y, dim) = _line(widen(grad), dim), _line(widen(y), dim)
    total = _over(lax.reduce_sum, grad, dim)
    return _finish(call, lax.sub(grad, lax.mul(lax.exp(y), total)))
