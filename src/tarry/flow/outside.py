"""Tensors that a recorded function takes from outside of it.

While the function runs, a tensor from outside that wants a gradient is replaced, in
every call of PyTorch, by a stand-in: a leaf with the same memory. So the function's
autograd graph ends at its border, and its backward pass gives the gradients that have
to go on from there.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch.overrides import TorchFunctionMode

from tarry.dispatch import seam
from tarry.dispatch.aside import Aside
from tarry.dispatch.storage import is_ours, slot_of
from tarry.errors import LostGradientError
from tarry.record.slot import Slot

# Attributes whose values are computed from the tensor's; others are asked of itself.
_COMPUTED = {
    vars(torch.Tensor).get(n) or getattr(torch.Tensor, n)
    for n in ("T", "mT", "H", "mH", "real", "imag")
}
_BACKWARD = {torch.Tensor.backward, torch.autograd.backward}
_OF_ITSELF = {
    torch.Tensor.untyped_storage, torch.Tensor.size, torch.Tensor.stride,
    torch.Tensor.dim, torch.Tensor.numel, torch.Tensor.storage_offset,
    torch.Tensor.is_floating_point, torch.Tensor.is_complex, torch.Tensor.is_contiguous,
    torch.Tensor.requires_grad_, torch.Tensor.retain_grad, torch.Tensor.register_hook,
    torch.Tensor.register_post_accumulate_grad_hook,
}  # fmt: skip


class Outside(TorchFunctionMode):
    """`wanting`: the tensors from outside that want a gradient, with what stands for
    each; `by_slot`: for every memory from outside that was used one tensor."""

    _open: ClassVar[list["Outside"]] = []

    def __init__(self, side: Aside) -> None:
        super().__init__()
        self._side = side
        self._first = seam.next_sequence_number()
        self._stand_ins: dict[int, torch.Tensor] = {}
        self.wanting: dict[torch.Tensor, list[torch.Tensor]] = {}
        self.by_slot: dict[Slot, torch.Tensor] = {}
        self._plain: dict[int, torch.Tensor] = {}

    @contextmanager
    def alone(self) -> Iterator["Outside"]:
        """A block in which the functions around this one are not looked at."""
        self._open.append(self)
        try:
            yield self
        finally:
            self._open.pop()

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._open[-1] is not self or not _computes(func):
            return func(*args, **kwargs)
        args = tuple([self._inside(a) for a in args])
        kwargs = {k: self._inside(v) for k, v in kwargs.items()}
        try:
            result = func(*args, **kwargs)
        except RuntimeError as error:
            if self._changes_other(error, args):
                what = "a change in place of a tensor that wants a gradient"
                raise LostGradientError(what, str(self._side.line)) from error
            raise
        if func in _BACKWARD:
            self._hand_on_gradients()
        return result

    def _changes_other(self, error: RuntimeError, args: tuple) -> bool:
        """True where PyTorch refuses a stand-in as a leaf, of a tensor that is none."""
        others = {id(s) for t, ts in self.wanting.items() if not t.is_leaf for s in ts}
        return "a leaf Variable" in str(error) and any(id(a) in others for a in args)

    def _inside(self, value: Any) -> Any:
        """`value` with stand-ins for the tensors from outside that want a gradient."""
        if isinstance(value, torch.Tensor):
            return self.stand_in(value)
        if type(value) in (list, tuple):
            return type(value)([self._inside(v) for v in value])
        return value

    def stand_in(self, tensor: torch.Tensor) -> torch.Tensor:
        found = self._stand_ins.get(id(tensor))
        if found is not None:
            return found
        if not is_ours(tensor) or not self._side.is_outer(tensor):
            return tensor
        self.by_slot.setdefault(slot_of(tensor), tensor)
        if not tensor.requires_grad:
            self._plain[id(tensor)] = tensor
        if not tensor.requires_grad or not self._is_older(tensor.grad_fn):
            return tensor
        found = tensor.detach().requires_grad_()
        self._stand_ins[id(tensor)] = self._stand_ins[id(found)] = found
        self.wanting.setdefault(tensor, []).append(found)
        return found

    def _is_older(self, step: Any) -> bool:
        """True of a leaf, and of a step of autograd's graph that was taken outside."""
        return step is None or seam.sequence_number(step) < self._first

    def _hand_on_gradients(self) -> None:
        """What a backward pass inside has added to stand-ins belongs to the tensors."""
        for tensor, stand_ins in self.wanting.items():
            for t in stand_ins:
                if t is not tensor and t.grad is not None and tensor.is_leaf:
                    grad, t.grad = t.grad, None
                    if tensor.grad is None:
                        tensor.grad = grad
                    else:
                        tensor.grad.add_(grad)

    def check(self, outputs: list[torch.Tensor], leaves: list[torch.Tensor]) -> None:
        """Add leaves that no call showed.

        Raises LostGradientError where the graph of `outputs` leads outside elsewhere,
        or where a tensor outside was given a gradient by a change in place.
        """
        changed = [t for t in self._plain.values() if t.requires_grad and not t.is_leaf]
        for t in changed:
            if not t._is_view():
                t.detach_()
        if changed:
            what = "a change in place, by values that want a gradient,"
            raise LostGradientError(what, str(self._side.line))
        known = {id(t) for ts in self.wanting.values() for t in ts}
        known.update(map(id, leaves))
        stack = [t.grad_fn for t in outputs if t.grad_fn is not None]
        seen = set(stack)
        while stack:
            step = stack.pop()
            leaf = getattr(step, "variable", None)
            if leaf is not None:
                if id(leaf) not in known and self._side.is_outer(leaf):
                    known.add(id(leaf))
                    self.wanting.setdefault(leaf, []).append(leaf)
                continue
            if self._is_older(step):
                raise LostGradientError(step.name(), str(self._side.line))
            for after, _ in step.next_functions:
                if after is not None and after not in seen:
                    seen.add(after)
                    stack.append(after)


def _computes(func: Callable) -> bool:
    """False of what is asked of a tensor object, and not computed from its values."""
    if getattr(func, "__name__", "") in ("__get__", "__set__", "__delete__"):
        return getattr(func, "__self__", None) in _COMPUTED
    return func not in _OF_ITSELF


def inside(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """`tensors`, as the function that is being recorded, if one is, has to use them
    where no call of PyTorch shows them."""
    if not Outside._open:
        return tensors
    return [Outside._open[-1].stand_in(t) for t in tensors]


def depth() -> int:
    """In how many functions that are being recorded this runs."""
    return len(Outside._open)
