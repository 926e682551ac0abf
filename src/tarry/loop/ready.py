"""Waiting for one tensor's value beside the program, under torch_xla's names."""

import threading
from collections.abc import Callable
from typing import Any

import torch

from tarry.cut.cause import Cause
from tarry.cut.sync import cut
from tarry.dispatch.storage import slot_of
from tarry.loop.later import later
from tarry.record.slot import IR


def on_ready_callback(
    tensor: torch.Tensor, callback: Callable[[torch.Tensor], Any]
) -> None:
    """Call `callback(tensor)` on a worker thread once its value is there; cuts, if it
    is pending."""
    if slot_of(tensor).state is IR:
        cut(Cause.UNLAZY)
    later(tensor, lambda value: callback(tensor))


def on_ready_event(tensor: torch.Tensor) -> threading.Event:
    """An event that is set once the value is there; cuts, if it is pending."""
    event = threading.Event()
    on_ready_callback(tensor, lambda tensor: event.set())
    return event


def sync_tensors(
    tensors: Any, devices: Any = (), wait: bool = True, sync_xla_data: bool = True
) -> None:
    """Compute these tensors, and with them all that is pending; wait for it if asked
    to. `devices` and `sync_xla_data` change nothing."""
    if any(slot_of(t).state is IR for t in tensors):
        cut(Cause.UNLAZY, wait=wait)
