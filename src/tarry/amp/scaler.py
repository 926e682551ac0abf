"""Loss scaling that reads nothing in the step."""

from typing import Any

import torch

from tarry.dispatch import seam
from tarry.dispatch.storage import is_ours

_FUSED = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)


class GradScaler(torch.amp.GradScaler):
    """`torch.amp.GradScaler` for the device.

    PyTorch's own reads, at every step, whether the gradients overflowed, unless the
    optimizer decides that on the device, as its fused ones do. This one turns SGD, Adam
    and AdamW of `torch.optim` into their fused form at their first step: the same
    arithmetic, in one instruction. Other optimizers keep PyTorch's read. `get_scale()`
    and `state_dict()` read, too.
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__(
            seam.DEVICE, init_scale, growth_factor, backoff_factor, growth_interval,
            enabled,
        )  # fmt: skip

    def step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        """`optimizer.step(...)`, of no effect where the gradients overflowed."""
        if self.is_enabled() and type(optimizer) in _FUSED:
            _fuse(optimizer)
        return super().step(optimizer, *args, **kwargs)


def _fuse(optimizer: Any) -> None:
    """Switch to the fused form, the counts of steps moved to the device."""
    if getattr(optimizer, "_step_supports_amp_scaling", False):
        return
    groups = optimizer.param_groups
    params = [p for g in groups for p in g["params"]]
    if any(g.get("differentiable") for g in groups) or not all(map(is_ours, params)):
        return
    for group in groups:
        group["fused"], group["foreach"] = True, False
    for p, state in optimizer.state.items():
        if "step" in state:
            state["step"] = state["step"].to(p.device)
    optimizer._step_supports_amp_scaling = True
