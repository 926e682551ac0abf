"""Kernels whose schema hides or bundles writes: fused optimizers, batch norm, AMP.

Each records one functional instruction and stores its results into the tensors that
PyTorch's kernel would have written.
"""

from collections.abc import Callable
from typing import Any

import torch

from tarry.dispatch.exits import write_result
from tarry.dispatch.growth import infer
from tarry.dispatch.lists import MAP
from tarry.dispatch.operands import (
    append,
    number_arg,
    read,
    record_op,
    store,
)
from tarry.dispatch.storage import slot_of
from tarry.lower.layout import channels_last
from tarry.lower.saved_stats import saved_dtype
from tarry.record.slot import contiguous_spec, spec
from tarry.record.trie import const, recorder


def _operand(value: Any) -> tuple[Any, tuple]:
    """A tensor, number, or None as an instruction argument, and its numbers."""
    if isinstance(value, torch.Tensor) and value.device.type != "cpu":
        return read(value), ()
    return (None, ()) if value is None else number_arg(value)


def _map_into(
    row: str, layout: str, shared: list, elements: list[list], targets: list[list]
) -> None:
    """Record `row` over `elements` and store its results into `targets`; one after the
    other where the same memory is there twice."""
    with recorder.lock:
        slots = [slot_of(t) for group in targets for t in group]
        if len(elements) > 1 and len(set(map(id, slots))) < len(slots):
            for element, group in zip(elements, targets):
                _map_into(row, layout, shared, [element], [group])
            return
        numbers: list[Any] = []
        parts = [_arguments(shared, numbers), []]
        parts[1] = tuple([_arguments(e, numbers) for e in elements])
        flat = [t for group in targets for t in group]
        specs = tuple([contiguous_spec(t.shape, t.dtype) for t in flat])
        args = (const(row), const(layout), *parts)
        node = append((MAP, args), MAP, args, specs)
        if numbers:
            recorder.trace.numbers[node.base] = tuple(numbers)
        for i, (slot, t) in enumerate(zip(slots, flat)):
            store(slot, t, node.base + i)


def _arguments(values: list[Any], numbers: list[Any]) -> tuple:
    args = []
    for value in values:
        arg, brought = (
            (const(value), ()) if isinstance(value, bool) else _operand(value)
        )
        args.append(arg)
        numbers += brought
    return tuple(args)


def _adam(decoupled: bool) -> Callable[..., None]:
    def kernel(
        self: list, grads: list, exp_avgs: list, exp_avg_sqs: list,
        max_exp_avg_sqs: list, state_steps: list, *, lr: Any, beta1: float,
        beta2: float, weight_decay: float, eps: float, amsgrad: bool, maximize: bool,
        grad_scale: Any = None, found_inf: Any = None,
    ) -> None:  # fmt: skip
        elements, targets = [], []
        for i, p in enumerate(self):
            most = [max_exp_avg_sqs[i]] if amsgrad else []
            state = [exp_avgs[i], exp_avg_sqs[i], *most]
            absent = [] if amsgrad else [None]
            elements.append([p, grads[i], *state, *absent, state_steps[i]])
            targets.append([p, *state, *_unscaled(grads[i], grad_scale)])
        shared = [
            _as_float(lr), float(beta1), float(beta2), float(weight_decay), float(eps),
            amsgrad, maximize, decoupled, grad_scale, found_inf,
        ]  # fmt: skip
        _map_into("tarry::adam", "e" * 6 + "s" * 10, shared, elements, targets)

    return kernel


def _unscaled(grad: torch.Tensor, grad_scale: Any) -> list[torch.Tensor]:
    """A gradient that the step is to divide by its scale."""
    return [] if grad_scale is None else [grad]


def _as_float(value: Any) -> Any:
    return value if isinstance(value, torch.Tensor) else float(value)


def fused_sgd(
    self: list, grads: list, momentum_buffer_list: list, *, weight_decay: float,
    momentum: float, lr: Any, dampening: float, nesterov: bool, maximize: bool,
    is_first_step: bool, grad_scale: Any = None, found_inf: Any = None,
) -> None:  # fmt: skip
    elements, targets = [], []
    for i, p in enumerate(self):
        buffer = momentum_buffer_list[i] if momentum_buffer_list else None
        elements.append([p, grads[i], buffer])
        state = [] if buffer is None else [buffer]
        targets.append([p, *state, *_unscaled(grads[i], grad_scale)])
    shared = [
        _as_float(lr), float(weight_decay), float(momentum), float(dampening), nesterov,
        maximize, is_first_step, grad_scale, found_inf,
    ]  # fmt: skip
    _map_into("tarry::sgd", "eee" + "s" * 9, shared, elements, targets)


def fused_adagrad(
    self: list, grads: list, state_sums: list, state_steps: list, *, lr: Any,
    lr_decay: float, weight_decay: float, eps: float, maximize: bool,
    grad_scale: Any = None, found_inf: Any = None,
) -> None:  # fmt: skip
    elements = [list(e) for e in zip(self, grads, state_sums, state_steps)]
    shared = [
        _as_float(lr), float(lr_decay), float(weight_decay), float(eps), maximize,
        grad_scale, found_inf,
    ]  # fmt: skip
    targets = [
        [p, total, *_unscaled(grad, grad_scale)]
        for p, grad, total in zip(self, grads, state_sums)
    ]
    _map_into("tarry::adagrad", "eeee" + "s" * 7, shared, elements, targets)


BATCH_NORM_STRIDES = channels_last(0, 0)


def native_batch_norm(
    input: torch.Tensor, weight: Any = None, bias: Any = None, running_mean: Any = None,
    running_var: Any = None, training: bool = False, momentum: float = 0.1,
    eps: float = 1e-5,
) -> tuple:  # fmt: skip
    """Batch norm; in training the running statistics are written, as PyTorch does."""
    meta = infer_batch_norm(input, weight, bias, running_mean, running_var, training)
    outs = [spec(tuple(m.shape), m.stride(), m.dtype) for m in meta]
    if not input.is_contiguous():
        strides = BATCH_NORM_STRIDES(meta, input)[0] or outs[0].strides
        outs[0] = spec(outs[0].shape, strides, outs[0].dtype)
    running = [running_mean, running_var]
    saved = saved_dtype(input, weight, bias, *running)
    # In evaluation nothing is saved.
    outs[1:] = [contiguous_spec(o.shape if training else (0,), saved) for o in outs[1:]]
    update = training and running_mean is not None
    with recorder.lock:
        tensors = (input, weight, bias, *running)
        args = tuple([None if t is None else read(t) for t in tensors])
        static = (const(training), const(float(momentum)), const(float(eps)))
        news = [
            contiguous_spec(t.shape, t.dtype)
            if t is not None
            else spec((), (), input.dtype)
            for t in running
        ]
        results = record_op("tarry::batch_norm", (*args, *static), (*outs, *news))
        if update:
            for target, value in zip(running, results[3:]):
                store(slot_of(target), target, slot_of(value).pos)
    return tuple(results[:3])


def infer_batch_norm(
    input: torch.Tensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool
) -> tuple:
    """Result shapes by PyTorch's meta kernel, which also checks the arguments."""

    class Arg:
        def __init__(self, name: str) -> None:
            self.name, self.kwarg_only = name, False

    op = torch.ops.aten.native_batch_norm.default
    names = ("input", "weight", "bias", "mean", "var", "training", "momentum", "eps")
    values = (input, weight, bias, mean, var, training, 0.1, 1e-5)
    return infer(op, [Arg(n) for n in names], values)  # type: ignore[misc]


def batch_norm_legit(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any,
    training: bool, momentum: float, eps: float,
) -> tuple:  # fmt: skip
    return native_batch_norm(
        input, weight, bias, running_mean, running_var, training, momentum, eps
    )


def _written(kernel: Callable[..., tuple]) -> Callable[..., tuple]:
    """The `out=` form of a batch norm."""

    def into(
        *args: Any, out: torch.Tensor, save_mean: torch.Tensor,
        save_invstd: torch.Tensor,
    ) -> tuple:  # fmt: skip
        targets = (out, save_mean, save_invstd)
        for target, value in zip(targets, kernel(*args)):
            write_result(target, value)
        return targets

    return into


def batch_norm_with_update(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any,
    momentum: float, eps: float,
) -> tuple:  # fmt: skip
    results = native_batch_norm(
        input, weight, bias, running_mean, running_var, True, momentum, eps
    )
    return *results, torch.empty(0, dtype=torch.uint8, device=input.device)


def batch_norm_legit_no_stats(
    input: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> tuple:
    return native_batch_norm(input, weight, bias, None, None, training, momentum, eps)


def unscale_(scaled: list, found_inf: torch.Tensor, inv_scale: torch.Tensor) -> None:
    """`_amp_foreach_non_finite_check_and_unscale_`, without a read."""
    for t in scaled:
        bad = torch.logical_not(torch.isfinite(t)).any().to(found_inf.dtype)
        found_inf.copy_(torch.maximum(found_inf, bad.reshape(found_inf.shape)))
        t.mul_(inv_scale.to(t.dtype))


def update_scale_(
    self: Any, growth_tracker: Any, found_inf: Any, growth_factor: float,
    backoff_factor: float, growth_interval: int,
) -> Any:  # fmt: skip
    """`_amp_update_scale_`: back off on inf, grow after enough good steps."""
    bad = found_inf > 0
    grown = growth_tracker + 1
    due = grown == growth_interval
    scale = torch.where(due, self * growth_factor, self)
    scale = torch.where(torch.isfinite(scale), scale, self)
    self.copy_(torch.where(bad, self * backoff_factor, scale))
    tracker = torch.where(due, torch.zeros_like(grown), grown)
    growth_tracker.copy_(torch.where(bad, torch.zeros_like(grown), tracker))
    return self


_adamw = _adam(decoupled=True)
_plain_adam = _adam(decoupled=False)

KERNELS = {
    "_fused_adamw_": _adamw,
    "_fused_adamw_.tensor_lr": _adamw,
    "_fused_adam_": _plain_adam,
    "_fused_adam_.tensor_lr": _plain_adam,
    "_fused_adagrad_": fused_adagrad,
    "_fused_adagrad_.tensor_lr": fused_adagrad,
    "_fused_sgd_": fused_sgd,
    "_fused_sgd_.tensor_lr": fused_sgd,
    "native_batch_norm": native_batch_norm,
    "_native_batch_norm_legit": batch_norm_legit,
    "_native_batch_norm_legit.out": _written(batch_norm_legit),
    "_native_batch_norm_legit.no_stats_out": _written(batch_norm_legit_no_stats),
    "_batch_norm_with_update": batch_norm_with_update,
    "_native_batch_norm_legit.no_stats": batch_norm_legit_no_stats,
    "_amp_foreach_non_finite_check_and_unscale_": unscale_,
    "_amp_update_scale_": update_scale_,
}
