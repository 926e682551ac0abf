"""Waiting for the device, and what it holds."""

from collections.abc import Sequence
from typing import Any

from tarry.loop.worker import worker
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
