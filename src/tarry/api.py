"""The public functions of `tarry`."""

from typing import Any

import torch

from tarry.cut.cause import Cause
from tarry.cut.sync import cut
from tarry.dispatch.device import StepCuts
from tarry.ledger import ledger


def device(index: int | None = None) -> torch.device:
    """The device tensors are moved to: `x.to(tarry.device())`.

    Raises ValueError for an index other than 0.
    """
    if index not in (None, 0):
        raise ValueError(f"tarry has one device, index 0; got {index}")
    return torch.device("tarry", 0)


def device_count() -> int:
    """How many devices there are: 1."""
    return 1


def devices() -> list[torch.device]:
    return [device()]


def sync(wait: bool = False, reset_scope: bool = True) -> None:
    """Cut: compute every live pending tensor of the device, asynchronously.

    A program that calls this gets exactly the cuts it asks for: `optimizer.step()`
    stops ending with one. `wait=True` returns when the values are there.

    Raises tarry.errors.ProgramError if the program cannot be compiled or run.
    """
    StepCuts.enabled = False
    ledger.count("MarkStep")
    cut(Cause.SYNC, wait=wait)


def manual_seed(seed: int, device: Any = None) -> None:
    """Set the seed of the device's random numbers; `torch.manual_seed` does so too."""
    from tarry.dispatch.random import stream

    stream.set(seed)
