"""Values that are delivered when they are there: no step waits for them."""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tarry.cut.cause import Cause
from tarry.cut.sync import after_cut
from tarry.dispatch.exits import computed_value
from tarry.dispatch.snapshot import snapshot
from tarry.dispatch.storage import is_ours, slot_of
from tarry.loop.worker import worker
from tarry.record.lines import user_line
from tarry.record.slot import IR, POISONED


@dataclass(slots=True)
class _Delivery:
    held: torch.Tensor
    callback: Callable[[torch.Tensor], Any]
    line: str
    done: bool = False

    def deliver(self) -> None:
        try:
            self.callback(computed_value(self.held))
        finally:
            self.done = True


_lock = threading.Lock()
_waiting: deque[_Delivery] = deque()
# Held until a later cut than theirs: whether a buffer is donated must not depend on how
# fast the worker is.
_handed: list[_Delivery] = []


def later(tensor: torch.Tensor, callback: Callable[[torch.Tensor], Any]) -> None:
    """Call `callback(value)` with the value that `tensor` has now, on the CPU, once it
    has been computed; nothing is cut and nothing waits.

    Callbacks run on a worker thread, in the order of these calls, after the cut that
    computes the value; writes to `tensor` after this call do not show. An error of a
    callback, or of the program, is raised by the next end of a step or by
    `tarry.wait_device_ops()`, as tarry.errors.ClosureError. Where the cut itself fails,
    the cut raises, and the callback is not called. Raises TypeError for what is no
    tensor of the device.

    In a callback, keep to the value it gets: what reads a pending tensor there cuts the
    recording in the middle of a step.
    """
    if not is_ours(tensor):
        where = tensor.device if isinstance(tensor, torch.Tensor) else type(tensor)
        raise TypeError(f"tarry.later takes a tensor of the device, got {where}")
    made = _Delivery(snapshot(tensor), callback, str(user_line()))
    with _lock:
        _waiting.append(made)
        _hand_over()
    worker.make_room()


def _hand_over() -> None:
    """Give the worker what is computed, up to the first that is pending."""
    while _waiting:
        state = slot_of(_waiting[0].held).state
        if state is IR:
            return
        d = _waiting.popleft()
        if state is not POISONED:  # the cut that failed has said so
            _handed.append(d)
            worker.submit(d.deliver, "callback of tarry.later", d.line)


def _at_cut(cause: Cause) -> None:
    with _lock:
        _handed[:] = [d for d in _handed if not d.done]
        if not _waiting:
            return
        _hand_over()
    worker.make_room()


after_cut.append(_at_cut)
