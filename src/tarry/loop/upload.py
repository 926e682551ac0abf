"""Batches from the host to the device ahead of the step: every tensor of a batch in one
transfer, on the thread that asks for it."""

from typing import Any

import torch

from tarry import dtypes
from tarry.dispatch.operands import from_host
from tarry.dispatch.storage import is_ours, slot_of
from tarry.loop.nested import leaves, map_tensors
from tarry.record.slot import DEVICE
from tarry.record.trie import Line
from tarry.run.transfer import upload


def to_device(batch: Any, device: torch.device, made: Line) -> Any:
    """`batch` with its CPU tensors on the device: snapshots, uploaded already.

    Structures of `nested.map_tensors` are kept; `made`: what reports call the line that
    made these tensors. Raises what moving one of the tensors raises.
    """
    plain = [t for t in leaves(batch) if _is_plain(t)]
    moved = {id(t): from_host(t) for t in plain}
    slots = [slot_of(t) for t in moved.values()]
    if slots:
        buffers = upload([dtypes.host_array(s.data) for s in slots])
        for slot, buffer in zip(slots, buffers, strict=True):
            slot.move(DEVICE, buffer)
            slot.made = made

    def move(t: torch.Tensor) -> torch.Tensor:
        found = moved.get(id(t))
        if found is None:
            return t if is_ours(t) else t.to(device)
        return found.requires_grad_() if t.requires_grad else found

    return map_tensors(batch, move, device)


def _is_plain(t: torch.Tensor) -> bool:
    return (
        type(t) is torch.Tensor
        and t.device.type == "cpu"
        and t.layout is torch.strided
        and t.dtype in dtypes.SUPPORTED
        and t.is_leaf
    )
