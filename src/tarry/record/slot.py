"""The identity of a tensor: one slot per storage, in exactly one of four states.

A slot hangs on the storage's Python object, which lives exactly as long as the
storage: a slot that nothing but the recording refers to belongs to a dead tensor.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any


class State(Enum):
    """`data` holds: nothing · a device buffer · a host tensor · a `Failure`."""

    IR = "IR"
    DEVICE = "DEVICE"
    HOST = "HOST"
    POISONED = "POISONED"


IR, DEVICE, HOST, POISONED = State.IR, State.DEVICE, State.HOST, State.POISONED

# IR -> IR is an overwrite; DEVICE/HOST/POISONED -> IR one that drops the old value.
# POISONED -> HOST and DEVICE -> HOST are host data copied over the whole storage.
_ALLOWED = {
    (IR, IR), (IR, DEVICE), (IR, POISONED), (IR, HOST),
    (DEVICE, IR), (DEVICE, HOST), (DEVICE, DEVICE), (DEVICE, POISONED),
    (HOST, IR), (HOST, DEVICE), (HOST, HOST), (HOST, POISONED),
    (POISONED, IR), (POISONED, HOST), (POISONED, POISONED),
}  # fmt: skip


_geometries: dict[tuple, int] = {}
_geometries_made = 0


def geometry_number(geometry: tuple) -> int:
    """A small number for (shape, strides, offset, dtype), never used for another.

    The same geometry may get a second number once the table was emptied.
    """
    global _geometries_made
    found = _geometries.get(geometry)
    if found is None:
        if len(_geometries) > 50_000:
            _geometries.clear()
        _geometries_made += 1
        found = _geometries[geometry] = _geometries_made
    return found


class Spec:
    """Logical shape, strides (elements) and dtype of a value; interned.

    `plain`: a new tensor of this shape has these strides without being told (one
    without elements gets strides of 0, where PyTorch's kernels count 0 as 1).
    """

    __slots__ = (
        "contiguous", "dtype", "geometry", "numel", "plain", "shape", "strides",
    )  # fmt: skip

    def __init__(self, shape: tuple, strides: tuple, dtype: Any) -> None:
        self.shape, self.strides, self.dtype = shape, strides, dtype
        numel = 1
        for n in shape:
            numel *= n
        self.numel = numel
        self.contiguous = numel < 2 or strides == contiguous_strides(shape)
        self.plain = self.contiguous and (numel > 0 or len(shape) < 2)
        self.geometry = geometry_number((shape, strides, 0, dtype))

    def __repr__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')}{list(self.shape)}"


def contiguous_strides(shape: tuple) -> tuple:
    """Row-major strides as PyTorch gives them (a size of 0 counts as 1)."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


_specs: dict[tuple, Spec] = {}


def spec(shape: tuple, strides: tuple, dtype: Any) -> Spec:
    """The interned spec; the table is emptied when it has grown large."""
    key = (shape, strides, dtype)
    found = _specs.get(key)
    if found is None:
        if len(_specs) > 50_000:
            _specs.clear()
        found = _specs[key] = Spec(tuple(shape), tuple(strides), dtype)
    return found


def contiguous_spec(shape: Any, dtype: Any) -> Spec:
    """The spec of a row-major value."""
    shape = tuple(shape)
    return spec(shape, contiguous_strides(shape), dtype)


ABSENT = Spec((), (), None)  # a result that PyTorch leaves undefined


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a slot is poisoned."""

    error: BaseException


class Slot:
    """Where the current base value of one storage is.

    `pos`: its value number in the current trace, or -1. `at` equals `pos` while every
    tensor on the storage is known to have the base value's own geometry, else -1.
    `listed`: the number of the last trace that counts it among its results. `made`:
    where its value comes from, a line, or the end of a trace and the value's number;
    unset while it has none.
    """

    __slots__ = (
        "__weakref__", "at", "data", "listed", "made", "pos", "spec", "state", "viewed",
    )  # fmt: skip

    made: Any

    def __init__(self, pos: int, spec: Spec) -> None:
        self.at = self.pos = pos
        self.state = IR
        self.spec = spec
        self.data: Any = None
        self.viewed = False
        self.listed = 0

    def move(self, state: State, data: Any = None) -> None:
        """Leave the trace and take a value (or a failure) of its own."""
        assert (self.state, state) in _ALLOWED, (self.state, state)
        self.state, self.data = state, data
        self.pos = self.at = -1

    def write(self, pos: int) -> None:
        """Take the value number `pos` of the current trace."""
        self.state, self.data = IR, None
        self.pos = pos
        self.at = -1 if self.viewed else pos

    def mark_viewed(self) -> None:
        self.viewed = True
        self.at = -1
