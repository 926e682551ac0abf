"""Recording aside: operations go to a recording of their own, which is never cut.

    with aside() as side:
        x = side.argument(spec)         # a tensor without a value, of this spec
        y = side.value(function(x))     # the value number of a result
        side.captured(), side.written(), side.numbers, side.last

The pending recording neither notices nor is noticed: tensors from outside enter as
inputs (`captured`), what is written to them inside (`written`) is undone afterwards,
and tensors made inside that outlive the block raise EscapedError when they are read.
Inside, the host has no values: reads and cuts raise AsideError with the user's line.
Equal recordings share their instructions, so recording a function again is cheap.
Other threads' operations wait until the block ends; the backward passes of this thread
run on it. Blocks nest.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from tarry.cut.guard import Event, Guard, guarded
from tarry.dispatch.operands import enter, host_slot, read
from tarry.dispatch.random import stream
from tarry.dispatch.storage import new_tensor, slot_of
from tarry.errors import AsideError, EscapedError
from tarry.record.lines import user_line
from tarry.record.slot import DEVICE, HOST, IR, POISONED, Failure, Slot, Spec
from tarry.record.trie import Instr, Line, Trace, recorder


@dataclass(slots=True)
class _Kept:
    """A slot as it was before the block."""

    state: Any
    data: Any
    spec: Spec
    pos: int
    listed: int

    @staticmethod
    def of(slot: Slot) -> "_Kept":
        return _Kept(slot.state, slot.data, slot.spec, slot.pos, slot.listed)

    def restore(self, slot: Slot) -> None:
        slot.state, slot.data, slot.spec = self.state, self.data, self.spec
        slot.pos, slot.listed = self.pos, self.listed
        slot.at = -1 if slot.viewed else self.pos


class PrivateTrace(Trace):
    """A recording made aside. `kept`: slots from outside, as they were: all that hold a
    value of the recording outside, and those that are written to in here; `born`: the
    slots made in here that hold no value of this recording."""

    private = True

    def __init__(self, outside: Trace) -> None:
        recorder.epoch += 1
        super().__init__(recorder.private_root, recorder.epoch)
        self.kept: dict[Slot, _Kept] = {}
        self.born: set[Slot] = set()
        owners = [entry.slot() for entry in outside.inputs.values()]
        for slot in [*outside.results, *owners]:
            if slot is not None and slot.pos >= 0:
                self.kept[slot] = _Kept.of(slot)
                slot.pos = slot.at = -1

    def add_result(self, slot: Slot) -> None:
        if slot.listed != self.epoch:
            if self.is_outer(slot):
                if slot.pos < 0:  # what it held is an input, read or not
                    enter(slot)
                if slot not in self.kept:  # so it is not in the recording outside
                    self.kept[slot] = _Kept.of(slot)
                    self.kept[slot].pos = -1
            super().add_result(slot)

    def bear(self, slot: Slot) -> None:
        self.born.add(slot)

    def is_outer(self, slot: Slot) -> bool:
        """True of a slot from outside."""
        if slot in self.kept:
            return True
        made_here = slot.listed == self.epoch or slot in self.born
        return not (made_here or slot.state is IR)

    def end(self, line: Line) -> None:
        """Give everything from outside back; what was made here has no value."""
        failure = Failure(EscapedError(str(line)))
        for entry in self.inputs.values():
            owner = entry.slot()
            if owner is not None:
                owner.pos = owner.at = -1
        for slot, kept in self.kept.items():
            kept.restore(slot)
        for slot in [*self.results, *self.born]:
            if slot not in self.kept and slot.state is not HOST:
                slot.move(POISONED, failure)


@dataclass(slots=True, eq=False)
class Constant:
    """A value that nothing outside holds: one of the host that was made inside."""

    data: Any
    spec: Spec
    host: bool

    def slot(self) -> Slot:
        slot = host_slot(self.data, self.spec)
        slot.state = HOST if self.host else DEVICE
        return slot


Source = Slot | Constant


class Aside:
    """What was recorded: `last`, its last instruction; `numbers`, its run-time numbers
    by the base number of their instruction; `draws`, how many draws of random numbers
    it made; and what `settle` finds."""

    def __init__(self, trace: PrivateTrace, line: Line) -> None:
        self._trace, self.line = trace, line
        self._arguments: set[Slot] = set()
        self._first_draw = stream.draws

    @property
    def last(self) -> Instr:
        return self._trace.node

    @property
    def numbers(self) -> dict[int, Any]:
        return self._trace.numbers

    @property
    def draws(self) -> int:
        return stream.draws - self._first_draw

    def argument(self, spec: Spec) -> torch.Tensor:
        """A tensor of this spec that stands for a value given later."""
        slot = Slot(-1, spec)
        slot.state = DEVICE
        self._trace.bear(slot)
        self._arguments.add(slot)
        enter(slot)
        return new_tensor(slot)

    def value(self, tensor: torch.Tensor) -> int:
        """The value number of a tensor of the device."""
        with recorder.lock:
            return read(tensor)

    def is_outer(self, tensor: torch.Tensor) -> bool:
        """True of a tensor whose memory is from outside."""
        return self._trace.is_outer(slot_of(tensor))

    def written(self) -> list[tuple[Slot, int]]:
        """The slots from outside that hold another value now, and its number."""
        trace = self._trace
        slots = [s for s in trace.results if s in trace.kept]
        found = [(s, s.pos if s.pos >= 0 else enter(s)) for s in slots]
        return [(s, pos) for s, pos in found if self._source(pos) is not s]

    def captured(self) -> list[tuple[int, Source]]:
        """Value numbers of the inputs that are no arguments, and where they come from:
        a slot (its value before the block) or a constant."""
        values = [(pos, self._source(pos)) for pos in self._trace.inputs]
        return [(pos, source) for pos, source in values if source is not None]

    def _source(self, pos: int) -> Source | None:
        entry = self._trace.inputs.get(pos)
        if entry is None:
            return None
        owner = entry.slot()
        if owner is not None:
            if owner in self._arguments:
                return None
            before = self._trace.kept.get(owner)
            data = owner.data if before is None else before.data
            if self._trace.is_outer(owner) and entry.data is data:
                return owner
        return Constant(entry.data, entry.spec, entry.host)


class _NoValues(Guard):
    def read(self, event: Event) -> None:
        if recorder.aside == threading.get_ident():
            raise AsideError(str(event), event.line)


@contextmanager
def aside() -> Iterator[Aside]:
    """A block whose operations are recorded aside; see the module's first paragraph."""
    with recorder.lock, torch.autograd.set_multithreading_enabled(False):
        outside, thread = recorder.trace, recorder.aside
        trace = PrivateTrace(outside)
        line = user_line()
        recorder.trace, recorder.aside = trace, threading.get_ident()
        try:
            with guarded(_NoValues()):
                yield Aside(trace, line)
        finally:
            recorder.trace, recorder.aside = outside, thread
            trace.end(line)
