"""Optimization barriers: values as they are, and XLA moves and merges nothing across.

What is computed from a barrier's results is computed after all of its operands, and is
not recognised as something that was computed from the operands before.
"""

from collections.abc import Sequence
from typing import Any

import torch

from tarry.dispatch import seam
from tarry.dispatch.operands import read, record_op, store, tensor_spec
from tarry.dispatch.storage import is_ours, slot_of
from tarry.lower.barrier import BARRIER
from tarry.record.slot import contiguous_spec
from tarry.record.trie import recorder
from tarry.record.views import is_dense


def optimization_barrier_(tensors: Sequence[torch.Tensor]) -> None:
    """Put one barrier on these tensors, in place: what reads them from now on is
    computed after all of them, and apart from what has read them so far.

    Values, gradients and what autograd has saved stay as they are. Raises TypeError for
    what is no tensor of the device.
    """
    tensors = list(tensors)
    for t in tensors:
        if not is_ours(t):
            where = t.device if isinstance(t, torch.Tensor) else type(t).__name__
            raise TypeError(
                f"an optimization barrier takes tensors on {seam.DEVICE}, got {where}"
            )
    if not tensors:
        return
    with recorder.lock:
        for t, new in zip(tensors, _record(tensors), strict=True):
            store(slot_of(t), t, slot_of(new).pos)


def optimization_barrier(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """New tensors with the values of these, behind one barrier; gradients pass."""
    return list(_Barrier.apply(*tensors)) if tensors else []


def _record(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    outs = tuple(
        tensor_spec(t)
        if is_dense(tuple(t.shape), t.stride())
        else contiguous_spec(t.shape, t.dtype)
        for t in tensors
    )
    with recorder.lock:
        values = tuple([read(t) for t in tensors])
        return record_op(BARRIER, (values,), outs)


class _Barrier(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.set_materialize_grads(False)
        return tuple(_record(tensors))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads
