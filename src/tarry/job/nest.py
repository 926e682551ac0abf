"""Tensors inside of containers and objects: found, moved to a device and back.

Walks go through dicts (keys, too), lists, tuples, sets, `DataWrapper`s and the
attributes of other objects; what occurs twice is taken once. The names in torch_xla:
`utils.utils.for_each_instance`, `for_each_instance_rewrite`, `ToXlaTensorArena`.
"""

import copy
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

import torch

from tarry.dispatch.storage import is_ours, slot_of

Chooses = Callable[[Any], bool]


class DataWrapper:
    """Base of classes that say themselves which tensors of theirs a device needs."""

    def get_tensors(self) -> list[torch.Tensor]:
        """The CPU tensors to be sent to the device."""
        raise NotImplementedError(f"{type(self).__name__} has no get_tensors()")

    def from_tensors(self, tensors: list[torch.Tensor]) -> Any:
        """This object with these, on the device, for those of `get_tensors()`."""
        raise NotImplementedError(f"{type(self).__name__} has no from_tensors()")


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for pair in value.items():
            yield from pair
    elif isinstance(value, list | tuple | set):
        yield from value
    elif isinstance(value, DataWrapper):
        yield from value.get_tensors()
    elif _has_parts(value):
        yield from vars(value).values()


_WHOLE = (torch.Tensor, type, FunctionType, ModuleType)


def _has_parts(value: Any) -> bool:
    return hasattr(value, "__dict__") and not isinstance(value, _WHOLE)


def each(value: Any, chooses: Chooses, visit: Callable[[Any], Any]) -> None:
    """`visit` every object inside `value` that `chooses` says yes to."""
    seen: set[int] = set()
    todo = [value]
    while todo:
        found = todo.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        if chooses(found):
            visit(found)
        else:
            todo.extend(reversed(list(_parts(found))))


def rewrite(value: Any, chooses: Chooses, change: Callable[[Any], Any]) -> Any:
    """`value` with `change(x)` for every x that `chooses` says yes to.

    Containers are new, and those that hold themselves hold the new ones; named tuples
    and subclasses of dict stay what they are.
    """
    return _Rewriting(chooses, change).of(value)


class _Rewriting:
    def __init__(self, chooses: Chooses, change: Callable[[Any], Any]) -> None:
        self.chooses, self.change = chooses, change
        self.done: dict[int, Any] = {}
        self.kept: list[Any] = []  # so that no `id` is used twice

    def of(self, value: Any) -> Any:
        if id(value) in self.done:
            return self.done[id(value)]
        self.kept.append(value)
        if self.chooses(value):
            return self._note(value, self.change(value))
        if isinstance(value, dict):
            return self._dict(value)
        if isinstance(value, list):
            new = self._note(value, [])
            new.extend(map(self.of, value))
            return new
        if isinstance(value, tuple):
            parts = list(map(self.of, value))
            named = hasattr(value, "_fields")
            return self._note(value, type(value)(*parts) if named else tuple(parts))
        if isinstance(value, set):
            return self._note(value, set(map(self.of, value)))
        if isinstance(value, DataWrapper):
            moved = list(map(self.of, value.get_tensors()))
            return self._note(value, value.from_tensors(moved))
        if _has_parts(value):
            new = self._note(value, copy.copy(value))
            for name, part in vars(value).items():
                new.__dict__[name] = self.of(part)
            return new
        return self._note(value, value)

    def _dict(self, value: dict) -> dict:
        new = copy.copy(value)
        new.clear()
        self._note(value, new)
        for name, part in value.items():
            key = self.of(name)  # before the value, in the order of `each`
            new[key] = self.of(part)
        return new

    def _note(self, old: Any, new: Any) -> Any:
        self.done[id(old)] = new
        return new


class TensorArena:
    """Converts all chosen objects inside of a structure by one call.

    `convert`: of the list of them, the list of what takes their places.
    """

    def __init__(self, convert: Callable[[list], list], chooses: Chooses) -> None:
        self.convert, self.chooses = convert, chooses

    def transform(self, inputs: Any) -> Any:
        found: list[Any] = []
        each(inputs, self.chooses, found.append)
        new = {
            id(old): x for old, x in zip(found, self.convert(found) if found else [])
        }
        return rewrite(inputs, self.chooses, lambda old: new[id(old)])


def send(data: Any, device: Any, input_sharding: Any = None) -> Any:
    """`data` with its CPU tensors copied to the device; of one tensor, a list."""
    data = [data] if type(data) is torch.Tensor else data
    return rewrite(
        data,
        lambda x: type(x) is torch.Tensor and x.device.type == "cpu",
        lambda t: t.to(device),
    )


def send_all(tensors: list, devices: Any, shardings: Any = None) -> list:
    """The CPU tensors, each copied to its device."""
    return [t.to(d) for t, d in zip(tensors, devices)]


def check_view_sharing(value: Any) -> None:
    """Raises RuntimeError if two tensors inside `value` share memory."""
    seen: dict[int, torch.Tensor] = {}

    def check(t: torch.Tensor) -> None:
        place = id(slot_of(t)) if is_ours(t) else t.untyped_storage().data_ptr()
        other = seen.setdefault(place, t)
        if other is not t and place:
            raise RuntimeError(
                f"a tensor of {t.dtype}{list(t.shape)} is sharing a view with one of "
                f"{other.dtype}{list(other.shape)}"
            )

    each(value, lambda x: type(x) is torch.Tensor, check)
