"""Waiting for the device, and what it holds."""

from collections.abc import Sequence
from typing import Any

import torch

from tarry.cut.cause import Cause
from tarry.cut.partial import cut_only
from tarry.dispatch.storage import is_ours, slot_of
from tarry.errors import PoisonedError
from tarry.loop.worker import worker
from tarry.record.slot import POISONED
from tarry.run import memory
from tarry.run.execute import block


def wait_device_ops(devices: Sequence[Any] = ()) -> None:
    """Return when all programs that were launched have run, and the functions that run
    beside the steps (`add_step_closure(run_async=True)`, `later`) have too.

    Cuts nothing: what is only recorded stays recorded (`tarry.sync(wait=True)` cuts and
    waits). Raises the first error of such a function, as tarry.errors.ClosureError.
    """
    block()
    worker.wait()
    worker.check()


def unlazy(tensors: Sequence[torch.Tensor]) -> None:
    """Compute these tensors now, and wait for them; what else is pending stays so,
    except for tensors that lead to them. Nothing is computed twice.

    No step ends. `tarry.sync()` is the same for all that is pending, and costs less:
    here the rest is recorded again. Raises ProgramError, with the recording as it was,
    if it cannot be compiled or run; PoisonedError for a tensor whose program failed.
    """
    slots = [slot_of(t) for t in tensors if is_ours(t)]
    cut_only(slots, Cause.UNLAZY, wait=True)
    for slot in slots:
        if slot.state is POISONED:
            raise PoisonedError(slot.data.error) from slot.data.error


def get_memory_info(device: Any = None) -> dict[str, int]:
    """`bytes_used`, `bytes_limit` and `peak_bytes_used` of the device.

    XLA counts nothing on the CPU: there it is the sum of the live buffers (those of
    your own JAX arrays included), the memory of the machine or container, and the
    largest sum that a call of this function has seen.
    """
    found = memory.memory()
    return {
        "bytes_used": found.used,
        "bytes_limit": found.limit,
        "peak_bytes_used": found.peak,
    }
