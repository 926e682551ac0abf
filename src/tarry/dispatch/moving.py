"""Modules that move: a parameter stays the object it is, tied, named, with its
attributes and hooks; lazy ones stay lazy, and whatever has nothing to do with the
device is left to PyTorch's default.

Where a parameter changes its kind of memory, `Module.to` puts a new one in its place.
A flag of torch's says to swap the contents of the two instead, and is asked for every
parameter: `KeepOnMove` stands there, and sees to it that the assignment of the new one
gives its contents to the old one. PyTorch's own swap loses attributes and hooks,
refuses parameters that something refers to weakly, as `torch.compile` does, and would
serve `load_state_dict`, too.
"""

import sys
from types import FrameType
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch.nn.parameter import UninitializedParameter

from tarry.dispatch import names, seam
from tarry.dispatch.storage import is_ours


class KeepOnMove:
    """Asked by `Module._apply` whether to swap; always answers no."""

    def __init__(self) -> None:
        self.replaced = WeakValueDictionary[int, Any]()

    def __bool__(self) -> bool:
        frame = sys._getframe(1)
        if frame.f_code is not seam.APPLY_CODE:
            return False
        found: list[Any] = [frame.f_locals.get(n) for n in seam.APPLY_NAMES]
        module, key, convert, old, new = found
        if is_ours(new):
            _remember_root(frame)
        moves = is_ours(old) != is_ours(new) and not seam.wraps_tensors(new)
        if moves and old.is_leaf:  # PyTorch refuses others
            if isinstance(module._parameters, dict):
                vars(module)["_parameters"] = _Kept(module, key, convert, old)
            else:
                self._replace(key, old)
        return False

    def _replace(self, key: str, old: Any) -> None:
        """A module of TorchScript, which knows its parameters by their contents, gets a
        new one."""
        if self.replaced.get(id(old)) is old:
            raise RuntimeError(
                f"The parameter {key!r} of a TorchScript module is tied to another "
                "one, which it would not be after the move. Move the module before "
                "torch.jit.script or torch.jit.trace."
            )
        self.replaced[id(old)] = old


class _Kept(dict):
    """A module's parameters until one of them is assigned: then they are as before, and
    the old parameter has the contents of the new one."""

    def __init__(self, module: Any, key: str, convert: Any, old: Any) -> None:
        super().__init__(module._parameters)
        self.module, self.parameters = module, module._parameters
        self.key, self.convert, self.old = key, convert, old
        # PyTorch would give the gradient to the new parameter.
        self.grad, old.grad = old.grad, None

    def __setitem__(self, key: str, new: Any) -> None:
        vars(self.module)["_parameters"] = self.parameters
        if key != self.key:
            self.parameters[key] = new
            return
        seam.take_contents(self.old, new)
        if self.grad is not None:
            with torch.no_grad():
                moved = self.convert(self.grad)
            seam.take_contents(self.grad, moved.requires_grad_(self.grad.requires_grad))
            self.old.grad = self.grad


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
