"""`gradient_accumulation`: several training steps' gradients in one loop."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tarry.dispatch import seam
from tarry.dispatch.storage import is_ours, slot_of
from tarry.flow.body import Tensors
from tarry.flow.scan import scan_flat


def gradient_accumulation(
    train_step: Callable[..., Any], iterable_tensors: Sequence[torch.Tensor],
    model: torch.nn.Module, *carried_tensors: torch.Tensor,
) -> Any:  # fmt: skip
    """`train_step` and its backward pass for every slice of `iterable_tensors` along
    dimension 0, as one operation; the gradients, divided by the number of slices, are
    added to those of the model's parameters.

    `train_step(*slices, *carried)` returns the loss, a tensor of one element, or a
    tuple of the loss and new carried tensors, of the same shapes and dtypes. Returns
    the mean loss, without a gradient, or a tuple of it and the last carried tensors.
    Parameters that the loss does not depend on get a gradient of zeros.

    Raises ValueError for iterable tensors that are none, empty, or not of one length,
    for a loss of several elements, and for carried tensors that change their form or
    that `train_step` changes in place (as it must not change its slices).
    """
    tensors = list(iterable_tensors)
    length = _length(tensors)
    params = [p for p in model.parameters() if p.requires_grad]
    carried = [t.detach() for t in carried_tensors]
    device = tensors[0].device

    def body(inputs: Tensors) -> tuple[Tensors, Any]:
        total, *rest = inputs
        grads, rest = rest[: len(params)], rest[len(params) :]
        old, slices = rest[: len(carried)], rest[len(carried) :]
        before = [slot_of(t).pos for t in rest]
        with torch.enable_grad():
            loss, new = _results(train_step(*slices, *old))
            loss = loss.reshape(()) / length
        if [slot_of(t).pos for t in rest] != before:
            raise ValueError(
                "gradient_accumulation: train_step changes one of its arguments in "
                "place; return a new tensor instead"
            )
        _check_carried(old, new)
        found: Any = [None] * len(params)
        if loss.requires_grad and params:
            found = torch.autograd.grad(loss, params, allow_unused=True)
        sums = [g if f is None else g + f for g, f in zip(grads, found)]
        return [total + loss.detach(), *sums, *[t.detach() for t in new]], None

    with torch.no_grad():
        state = [torch.zeros((), device=device)]
        state += [torch.zeros_like(p, requires_grad=False) for p in params]
        outs, _ = scan_flat(body, [*state, *carried], tensors, length)
        for p, grad in zip(params, outs[1:]):
            if p.grad is None:
                p.grad = grad
            else:
                p.grad.add_(grad)
    last = outs[1 + len(params) :]
    return (outs[0], *last) if last else outs[0]


def _length(tensors: Sequence[Any]) -> int:
    if not tensors:
        raise ValueError("gradient_accumulation: iterable_tensors cannot be empty")
    for i, t in enumerate(tensors):
        what = f"gradient_accumulation: element {i} of iterable_tensors"
        if not isinstance(t, torch.Tensor):
            raise ValueError(f"{what} is not a tensor, but a {type(t).__name__}")
        if not is_ours(t):
            raise ValueError(f"{what} is on {t.device}: move it to {seam.DEVICE}")
        if t.numel() == 0 or t.dim() == 0:
            raise ValueError(f"{what} is empty or has no dimension: {list(t.shape)}")
        if t.shape[0] != tensors[0].shape[0]:
            raise ValueError(
                f"{what} has {t.shape[0]} slices along dimension 0, and the first one "
                f"{tensors[0].shape[0]}"
            )
    return tensors[0].shape[0]


def _results(found: Any) -> tuple[torch.Tensor, Tensors]:
    loss, *new = found if isinstance(found, tuple | list) else (found,)
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        what = list(loss.shape) if isinstance(loss, torch.Tensor) else loss
        raise ValueError(
            f"gradient_accumulation: train_step must return the loss first, a tensor "
            f"of one element, got {what}"
        )
    return loss, new


def _check_carried(old: Tensors, new: Tensors) -> None:
    forms = [[(tuple(t.shape), t.dtype) for t in ts] for ts in (old, new)]
    if forms[0] != forms[1]:
        raise ValueError(
            f"gradient_accumulation: train_step was given carried tensors of shapes "
            f"and dtypes {forms[0]} and returned {forms[1]}; they must be the same"
        )
