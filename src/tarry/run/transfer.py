"""Host memory to device buffers and back, in batches, as NumPy arrays."""

import time
from typing import Any

import numpy as np

from tarry.ledger import ledger
from tarry.lower.xla import jax
from tarry.run.platform import device, x64


def upload(arrays: list[np.ndarray]) -> list[Any]:
    """Device buffers of host arrays, one batched transfer.

    The arrays must not change afterwards: on the CPU the buffer is their memory.
    """
    started = time.perf_counter()
    with ledger.span("tarry::transfer"), x64():
        buffers = jax.device_put(arrays, device())
    ledger.sample("TransferToDeviceTime", (time.perf_counter() - started) * 1e9, "time")
    ledger.sample("OutboundData", sum(a.nbytes for a in arrays), "bytes")
    ledger.count("CreateDataHandles", len(arrays))
    return buffers


def fetch(buffer: Any, beside: bool = False) -> np.ndarray:
    """The value of a buffer; waits for the program that makes it. `beside`: on a
    thread of its own, so that no step waits."""
    started = time.perf_counter()
    with ledger.span("tarry::wait"):
        array = np.asarray(buffer)
    waited = time.perf_counter() - started
    ledger.sample("TransferFromDeviceTime", waited * 1e9, "time")
    if not beside:
        ledger.add_blocked(waited)
    ledger.sample("InboundData", array.nbytes, "bytes")
    return array
