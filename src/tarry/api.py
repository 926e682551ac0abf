"""The public functions of `tarry`."""

from dataclasses import dataclass
from typing import Any

import torch

from tarry.cut.cause import Cause
from tarry.cut.sync import cut
from tarry.dispatch import seam
from tarry.dispatch.device import StepCuts
from tarry.ledger import Compile, Cut, ledger
from tarry.report.live import compile_block, cut_block


def device(index: int | None = None) -> torch.device:
    """The device tensors are moved to: `x.to(tarry.device())`.

    Raises ValueError for an index other than 0.
    """
    if index not in (None, 0):
        raise ValueError(f"tarry has one device, index 0; got {index}")
    return torch.device(seam.DEVICE, 0)


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
    end_step(Cause.SYNC, wait)


def end_step(cause: Cause, wait: bool = False) -> None:
    """`sync` for another cause: the program cuts for itself from now on."""
    StepCuts.enabled = False
    ledger.count("MarkStep")
    cut(cause, wait=wait)


@dataclass(frozen=True, slots=True)
class Explanation:
    """What was compiled and cut so far, oldest first (the last 20,000 of each); as text
    a block each."""

    compiles: list[Compile]
    cuts: list[Cut]

    def __str__(self) -> str:
        blocks = [*map(compile_block, self.compiles), *map(cut_block, self.cuts)]
        return "".join(blocks)


def explain() -> Explanation:
    """Why each program was compiled and each recording cut, as records."""
    return Explanation(list(ledger.compiles), list(ledger.cuts))


def manual_seed(seed: int, device: Any = None) -> None:
    """Set the seed of the device's random numbers; `torch.manual_seed` does so too."""
    from tarry.dispatch.random import stream

    stream.set(seed)
