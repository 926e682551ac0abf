"""What the user calls a tensor: a parameter or buffer of a module that was moved to the
device, its gradient, an optimizer's state; else the line that made its value.

Asked only where a program is compiled.
"""

from collections.abc import Iterator, Sequence
from typing import Any
from weakref import WeakSet

import torch

from tarry.dispatch.storage import is_ours, slot_of
from tarry.record.slot import Slot
from tarry.record.trie import NOWHERE, Instr, Line
from tarry.report.why import Named

modules: WeakSet[torch.nn.Module] = WeakSet()
optimizers: WeakSet[torch.optim.Optimizer] = WeakSet()


def names_of(slots: Sequence[list[Slot | None]]) -> tuple[Named, ...]:
    """For each list of slots that hold one value, a name and where it was made."""
    known: dict[int, str] = {}
    for name, tensor in _named():
        if is_ours(tensor):
            known.setdefault(id(slot_of(tensor)), name)
    return tuple(
        [
            Named(next((known[id(s)] for s in of if id(s) in known), ""), _place(of))
            for of in slots
        ]
    )


def _place(of: list[Slot | None]) -> str:
    lines = (made_at(s) for s in of if s is not None)
    return next((str(line) for line in lines if line is not NOWHERE), "")


def made_at(slot: Slot) -> Line:
    """The line that made the value of a slot."""
    made = getattr(slot, "made", None)
    if isinstance(made, Line):
        return made
    if made is None:
        return NOWHERE
    node: Instr | None
    node, pos = made
    while node is not None and node.base > pos:
        node = node.parent
    return node.line if node is not None else NOWHERE


def _named() -> Iterator[tuple[str, Any]]:
    parameters: dict[int, str] = {}
    for module in list(modules):
        for path, p in module.named_parameters(remove_duplicate=False):
            name = parameters[id(p)] = f"{type(module).__name__}.{path}"
            yield name, p
            if p.grad is not None:
                yield f"{name}.grad", p.grad
        for path, b in module.named_buffers(remove_duplicate=False):
            yield f"{type(module).__name__}.{path}", b
    for optimizer in list(optimizers):
        for p, state in optimizer.state.items():
            of = parameters.get(id(p), "a parameter")
            for key, value in state.items():
                yield f"{type(optimizer).__name__}'s {key} of {of}", value
