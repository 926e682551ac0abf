"""Optimizers whose step leaves out, on the device, what an overflow has spoilt.

`step(found_inf=flag)`: where the tensor `flag` is not 0, parameters, state and the
count of steps stay as they are. The host never learns of it, so nothing is read.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch

from tarry.dispatch import seam

FoundInf: TypeAlias = torch.Tensor | float | None


@contextmanager
def _told(optimizer: Any, found_inf: FoundInf) -> Iterator[None]:
    """`found_inf` stands where PyTorch's fused optimizers look for it."""
    if found_inf is None:
        yield
        return
    flag = torch.as_tensor(found_inf, device=seam.DEVICE).reshape(()) != 0
    optimizer.found_inf = flag.to(torch.float32)  # counts of steps are made less by it
    try:
        yield
    finally:
        del optimizer.found_inf


class _SyncFree:
    """Before one of PyTorch's fused optimizers: `step(found_inf=...)`."""

    def __init__(self, params: Any, *args: Any, **options: Any) -> None:
        super().__init__(params, *args, **{"fused": True, **options})  # type: ignore[call-arg]

    def step(
        self, closure: Callable[[], Any] | None = None, found_inf: FoundInf = None
    ) -> Any:
        with _told(self, found_inf):
            return super().step(closure)  # type: ignore[misc]


class SGD(_SyncFree, torch.optim.SGD):
    """`torch.optim.SGD(fused=True)` with `step(found_inf=...)`."""


class Adam(_SyncFree, torch.optim.Adam):
    """`torch.optim.Adam(fused=True)` with `step(found_inf=...)`."""


class AdamW(_SyncFree, torch.optim.AdamW):
    """`torch.optim.AdamW(fused=True)` with `step(found_inf=...)`."""
