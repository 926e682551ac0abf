"""Modules that move: tied weights stay tied, lazy ones stay lazy, and whatever has
nothing to do with the device is left to PyTorch's default.

`Module.to` replaces a parameter that changes its kind of memory by a new one, unless
a flag of torch says to swap the two contents, which keeps the object, and so the tie.
The flag would also make `load_state_dict` swap, which `nn.LSTM` and its kin cannot
(PyTorch holds weak references to their parameters): `SwapOnMove` is on for moves only.
"""

import sys
from types import FrameType
from typing import Any

import torch
from torch.nn.parameter import UninitializedParameter

from tarry.dispatch import names, seam
from tarry.dispatch.storage import is_ours


class SwapOnMove:
    """True while `Module._apply` replaces a parameter by one of the other device."""

    def __bool__(self) -> bool:
        frame = sys._getframe(1)
        if frame.f_code is not seam.APPLY_CODE:
            return False
        old, new = (frame.f_locals.get(name) for name in seam.APPLY_NAMES)
        if is_ours(new):
            _remember_root(frame)
        return is_ours(old) != is_ours(new)


def _remember_root(frame: FrameType) -> None:
    """Let the outermost module of this move name its parameters in reports."""
    while frame.f_back is not None and frame.f_back.f_code is seam.APPLY_CODE:
        frame = frame.f_back
    names.modules.add(frame.f_locals["self"])


class MovableParameter(UninitializedParameter):
    """An uninitialised parameter that is one after a move, too."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func in (torch.Tensor.detach, torch.Tensor.requires_grad_):
            with seam.without_torch_function():
                result = func(*args, **(kwargs or {}))
        else:
            result = super().__torch_function__(func, types, args, kwargs)
        if type(result) is torch.Tensor and not result.numel():
            return result.as_subclass(cls)
        return result

    def materialize(self, *args: Any, **kwargs: Any) -> None:
        super().materialize(*args, **kwargs)
        self.__dict__.pop("_is_param", None)

    def __repr__(self) -> str:
        return "<UninitializedParameter>"

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return UninitializedParameter, (self.requires_grad,)


def make_movable(module: torch.nn.Module, name: str, parameter: Any) -> None:
    """Hook of every parameter that a module registers."""
    if type(parameter) is UninitializedParameter:
        parameter.__class__ = MovableParameter
