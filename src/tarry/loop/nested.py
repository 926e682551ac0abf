"""Nested structures of tensors: lists, tuples, mappings, dataclasses, and objects that
have a `to` of their own, rebuilt as what they were."""

import copy
import dataclasses
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, TypeAlias

import torch
from torch.nn.utils.rnn import PackedSequence

Move: TypeAlias = Callable[[Any], Any]


def map_tensors(
    value: Any, move: Move, device: Any = None, kind: type = torch.Tensor
) -> Any:
    """`value` with `move(t)` in place of every tensor, types and keys kept.

    A tensor that occurs twice is moved once. Objects that are none of the known
    structures are moved by `to(device)`, if a device is given and they have it, else
    they stay as they are. `kind`: what is moved, if not tensors.
    """
    return _Mapper(move, device, kind).map(value)


class _Mapper:
    def __init__(self, move: Move, device: Any, kind: type) -> None:
        self.move, self.device, self.kind = move, device, kind
        self.moved: dict[int, tuple[Any, Any]] = {}

    def map(self, value: Any) -> Any:
        if isinstance(value, self.kind):
            return self._one(value)
        if isinstance(value, PackedSequence):  # its batch sizes stay on the CPU
            return value if self.device is None else value.to(self.device)
        if isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self.map, value))
        if isinstance(value, list | tuple | set | frozenset):
            return type(value)(map(self.map, value))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return self._dataclass(value)
        own = getattr(value, "to", None)
        if self.device is not None and callable(own) and not isinstance(value, type):
            return own(self.device)
        return value

    def _one(self, t: Any) -> Any:
        found = self.moved.get(id(t))
        if found is None:
            found = self.moved[id(t)] = t, self.move(t)  # held, so that its id stays
        return found[1]

    def _mapping(self, value: Mapping) -> Any:
        items = {k: self.map(v) for k, v in value.items()}
        if type(value) is dict:
            return items
        if not isinstance(value, MutableMapping):
            return type(value)(items)  # type: ignore[call-arg]
        made = copy.copy(value)
        for k, v in items.items():
            made[k] = v
        return made

    def _dataclass(self, value: Any) -> Any:
        made = copy.copy(value)
        for field in dataclasses.fields(value):
            if hasattr(value, field.name):
                object.__setattr__(
                    made, field.name, self.map(getattr(value, field.name))
                )
        return made


def leaves(value: Any) -> list[torch.Tensor]:
    """The tensors in `value`, each once, in order."""
    found: list[torch.Tensor] = []
    map_tensors(value, lambda t: found.append(t) or t)  # type: ignore[func-returns-value]
    return found
