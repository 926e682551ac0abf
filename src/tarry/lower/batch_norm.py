"""Batch normalization over all dimensions but the second. Statistics take two passes
in f32 for halves; running statistics are results, which the dispatcher writes back."""

from collections.abc import Sequence
from typing import Any

from tarry.lower.layout import channels_last
from tarry.lower.norm import affine, center, masked
from tarry.lower.precision import const, rest, scale, shift, spread, widen
from tarry.lower.saved_stats import (
    functional_outs,
    no_training_outs,
    no_update_outs,
    with_update_outs,
)
from tarry.lower.table import Call, Out, convert, row
from tarry.lower.xla import lax


def _like(x: Any, value: Any) -> Any:
    return None if value is None else convert(value, x.dtype)


def _empty(out: Out) -> Any:
    return lax.full(out.shape, 0, out.dtype)


def _moved(running: Any, batch: Any, momentum: float) -> Any:
    """The running statistic after this batch, in its own dtype."""
    if running is None:
        return None
    old = scale(widen(running), 1 - momentum)
    return convert(
        lax.add(old, scale(convert(batch, old.dtype), momentum)), running.dtype
    )


def _normalize(x: Any, mean: Any, invstd: Any, weight: Any, bias: Any) -> Any:
    """(x - mean) * (invstd * weight) + bias, one product over the array."""
    gain = invstd if weight is None else lax.mul(invstd, _like(x, weight))
    x = lax.sub(x, spread(mean, x.shape, (1,)))
    return affine(x, gain, _like(x, bias), (1,))


def _train(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float
) -> tuple[Any, ...]:
    """(y, mean, invstd, new running mean, new running variance)."""
    x = widen(x)
    axes = rest(x.ndim, 1)
    _, batch_mean, batch_var = center(x, axes)
    invstd = lax.rsqrt(shift(batch_var, eps))
    y = _normalize(x, batch_mean, invstd, weight, bias)
    count = x.size // max(x.shape[1], 1)
    unbiased = scale(batch_var, count / max(count - 1, 1))
    new_mean = _moved(mean, batch_mean, momentum)
    return y, batch_mean, invstd, new_mean, _moved(var, unbiased, momentum)


def _eval(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, eps: float
) -> tuple[Any, Any, Any]:
    x = widen(x)
    mean, var = _like(x, mean), _like(x, var)
    invstd = lax.rsqrt(shift(var, eps))
    return _normalize(x, mean, invstd, weight, bias), mean, invstd


def _saved(out: Out, value: Any) -> Any:
    """What evaluation saves: nothing on the CPU, where the results have no elements."""
    return convert(value, out.dtype) if out.shape == value.shape else _empty(out)


@row(
    "tarry::batch_norm",
    "_native_batch_norm_legit_functional",
    strides=channels_last(0, 0),
    outs=functional_outs,
)
def batch_norm(
    call: Call,
    x: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Any, ...]:
    outs = call.outs
    if not training:
        y, mean, invstd = _eval(x, weight, bias, running_mean, running_var, eps)
        saved = _saved(outs[1], mean), _saved(outs[2], invstd)
        return convert(y, call.out.dtype), *saved, running_mean, running_var
    y, mean, invstd, *new = _train(
        x, weight, bias, running_mean, running_var, momentum, eps
    )
    saved = convert(mean, outs[1].dtype), convert(invstd, outs[2].dtype)
    return convert(y, call.out.dtype), *saved, *new


@row(
    "_batch_norm_with_update_functional",
    strides=channels_last(0, 0),
    outs=with_update_outs,
)
def batch_norm_with_update(
    call: Call,
    x: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    momentum: float,
    eps: float,
) -> tuple[Any, ...]:
    y, mean, invstd, *new = batch_norm(
        call, x, weight, bias, running_mean, running_var, True, momentum, eps
    )
    return y, mean, invstd, _empty(call.outs[3]), *new


@row("_batch_norm_no_update", strides=channels_last(0, 0), outs=no_update_outs)
def batch_norm_no_update(
    call: Call,
    x: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    momentum: float,
    eps: float,
) -> tuple[Any, ...]:
    y, mean, invstd, *_ = batch_norm(
        call, x, weight, bias, running_mean, running_var, False, momentum, eps
    )
    return y, mean, invstd, _empty(call.outs[3])


@row("_native_batch_norm_legit.no_stats", strides=channels_last(0, 0))
def batch_norm_no_stats(
    call: Call,
    x: Any,
    weight: Any,
    bias: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Any, ...]:
    return batch_norm(call, x, weight, bias, None, None, True, momentum, eps)[:3]


@row(
    "_native_batch_norm_legit_no_training",
    strides=channels_last(0, 0),
    outs=no_training_outs,
)
def batch_norm_no_training(
    call: Call,
    x: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    momentum: float,
    eps: float,
) -> tuple[Any, ...]:
    return batch_norm(
        call, x, weight, bias, running_mean, running_var, False, momentum, eps
    )[:3]


@row("native_batch_norm_backward", strides=channels_last(1, 0))
def batch_norm_backward(
    call: Call,
    grad: Any,
    x: Any,
    weight: Any,
    running_mean: Any,
    running_var: Any,
    save_mean: Any,
    save_invstd: Any,
    train: bool,
    eps: float,
    mask: Sequence[bool],
) -> tuple[Any, ...]:
    x, grad = widen(x), widen(grad)
    axes = rest(x.ndim, 1)
    if train:
        mean, invstd = _like(x, save_mean), _like(x, save_invstd)
    else:
        mean = _like(x, running_mean)
        invstd = lax.rsqrt(shift(_like(x, running_var), eps))
    gain = invstd if weight is None else lax.mul(invstd, _like(x, weight))
    xc = lax.sub(x, spread(mean, x.shape, (1,)))
    total = lax.reduce_sum(grad, axes)
    along = lax.mul(lax.reduce_sum(lax.mul(grad, xc), axes), invstd)

    def of_input() -> Any:
        g = grad
        if train:
            count = const(x, x.size // max(x.shape[1], 1))
            tilt = lax.div(lax.mul(along, invstd), count)
            g = lax.sub(g, spread(lax.div(total, count), x.shape, (1,)))
            g = lax.sub(g, lax.mul(xc, spread(tilt, x.shape, (1,))))
        return lax.mul(g, spread(gain, x.shape, (1,)))

    return masked(call, mask, of_input, lambda: along, lambda: total)


@row("batch_norm_backward", strides=channels_last(1, 0))
def batch_norm_backward_reserved(
    call: Call,
    grad: Any,
    x: Any,
    weight: Any,
    running_mean: Any,
    running_var: Any,
    save_mean: Any,
    save_var: Any,
    update: bool,
    eps: float,
    mask: Sequence[bool],
    reserve: Any,
) -> tuple[Any, ...]:
    saved = running_mean, running_var, save_mean, save_var
    return batch_norm_backward(call, grad, x, weight, *saved, update, eps, mask)
