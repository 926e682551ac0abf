"""Nested containers of tensors as flat lists, and back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tarry.dispatch import seam
from tarry.dispatch.storage import is_ours


def check_on_device(tensors: Sequence[torch.Tensor], what: str) -> None:
    """Raises ValueError for a tensor elsewhere; `what`: whose tensor it is."""
    for t in tensors:
        if not is_ours(t):
            raise ValueError(
                f"{what} is on {t.device}: move it to the device first, with "
                f".to('{seam.DEVICE}')"
            )


@dataclass(frozen=True, slots=True)
class Tree:
    """A container without its tensors: its shape, and its other leaves in place."""

    shape: Any
    others: tuple  # per leaf: HOLE where a tensor belongs, or the leaf

    def filled(self, tensors: Sequence[Any]) -> Any:
        """The container with these in place of its tensors."""
        left = iter(tensors)
        leaves = [next(left) if o is HOLE else o for o in self.others]
        return seam.tree_unflatten(leaves, self.shape)


class _Hole:
    def __repr__(self) -> str:
        return "tensor"


HOLE = _Hole()


def flatten(value: Any) -> tuple[list[torch.Tensor], Tree]:
    """The tensors of a container, and the container without them."""
    leaves, shape = seam.tree_flatten(value)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    others = [HOLE if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    return tensors, Tree(shape, tuple(others))


def only_tensors(value: Any, what: str) -> tuple[list[torch.Tensor], Tree]:
    """`flatten` of a container whose leaves are tensors of the device, or None.

    Raises TypeError for any other leaf, ValueError for a tensor of another device.
    """
    tensors, tree = flatten(value)
    for other in tree.others:
        if other is not HOLE and other is not None:
            raise TypeError(
                f"{what} holds {other!r}, of type {type(other).__name__}: it may hold "
                f"tensors only. Make a tensor of it: torch.tensor(…, device='tarry')"
            )
    for tensor in tensors:
        if not is_ours(tensor):
            raise ValueError(
                f"{what} holds a tensor on {tensor.device}: move it to the device "
                f"first, with .to('{seam.DEVICE}')"
            )
    return tensors, tree


def describe(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def same_form(
    before: list[torch.Tensor], after: list[torch.Tensor], trees: tuple[Tree, Tree],
    what: str, error: Callable[[str], Exception] = ValueError,
) -> None:  # fmt: skip
    """Raise where the values that a body returns cannot take the place of its own."""
    if trees[0] != trees[1]:
        raise error(
            f"{what} must keep its structure: it went in as {trees[0].shape} and came "
            f"out as {trees[1].shape}"
        )
    for i, (old, new) in enumerate(zip(before, after, strict=True)):
        if old.shape != new.shape or old.dtype is not new.dtype:
            raise error(
                f"{what} must keep shapes and dtypes: tensor {i} went in as "
                f"{describe(old)} and came out as {describe(new)}. Convert it in the "
                f"body, or begin with a tensor of the form that the body returns"
            )
