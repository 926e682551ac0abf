"""A cut of chosen values alone: they, and the live values that lead to them, are
computed; the rest of the recording goes on.

What both sides need is computed once: values of the part that the rest reads become
outputs here and inputs there. The rest is recorded again, instruction by instruction,
in a trace of its own. A failure leaves the recording as it was.
"""

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from weakref import ref

from tarry.config import config
from tarry.cut.cause import Cause
from tarry.cut.guard import Event, guards
from tarry.cut.program import compiling, first_line
from tarry.cut.sync import Live, after_cut, find_program, launch_trace
from tarry.errors import AsideError, RunError
from tarry.ledger import Cut, ledger
from tarry.record.graph import reached, renumber
from tarry.record.lines import user_line
from tarry.record.slot import DEVICE, HOST, IR, Slot, Spec, contiguous_spec
from tarry.record.trie import (
    INPUT,
    Input,
    Instr,
    Line,
    Trace,
    const,
    live_slots,
    operands,
    recorder,
)
from tarry.run.execute import block


@dataclass(slots=True)
class _Split:
    """The recording in two: `outputs` of the part that runs, and the nodes of the
    `rest`, which reads `needed` values of inputs and of the part."""

    outputs: tuple[int, ...]
    rest: list[Instr] = field(default_factory=list)
    needed: set[int] = field(default_factory=set)


def cut_only(slots: Iterable[Slot], cause: Cause, wait: bool = False) -> None:
    """Give these slots their values, and no others but those that lead to them.

    Raises ProgramError, the recording as it was, if that cannot be compiled or run.
    """
    if recorder.aside == threading.get_ident():
        raise AsideError(cause.value, str(user_line()))
    slots = list(slots)
    begun = time.perf_counter()
    with ledger.span("tarry::cut"), recorder.closed() as trace:
        wanted = {s.pos for s in slots if s.state is IR and s.pos not in trace.inputs}
        if wanted:
            live = live_slots(trace)
            split = _split(trace, live, wanted)
            results = _run(trace, live, split.outputs, cause, begun)
            _go_on(trace, live, split, dict(zip(split.outputs, results, strict=True)))
    if wait:
        block()
    for listener in after_cut:
        listener(cause)


def _split(trace: Trace, live: Live, wanted: set[int]) -> _Split:
    path = trace.node.path()
    part = {id(n) for n in reached(path, wanted)}
    own = {v for n in path if id(n) in part for v in range(n.base, n.end)}
    need = {v for v in live if v not in own and v not in trace.inputs}
    split = _Split(())
    for node in reversed(path):
        hit = need.intersection(range(node.base, node.end))
        if not hit:
            continue
        if id(node) in part or node.op == INPUT:
            split.needed |= hit
        else:
            split.rest.append(node)
            need.update(operands(node.args))
    split.rest.reverse()
    outputs = wanted | (own & live.keys()) | (own & split.needed)
    split.outputs = tuple(sorted(outputs - trace.inputs.keys()))
    return split


def _run(
    trace: Trace, live: Live, outputs: tuple, cause: Cause, begun: float
) -> list[Any]:
    line = str(user_line())
    event = Event(cause, "", line)
    for guard in guards:
        guard.cut(event)
    record = Cut(
        cause.value, "", line, trace.node.count, len(outputs),
        record_s=begun - trace.started,
    )  # fmt: skip
    with compiling("a program cut here", line):
        bound, program = find_program(trace, live, outputs, (), event, record)
        for guard in guards:
            guard.run(event, program.number, program.why)
    try:
        results = launch_trace(trace, bound, program, record)
    except Exception as error:
        raise RunError(cause.value, line, first_line(error)) from error
    ledger.add_cut(record)
    return results


def _go_on(trace: Trace, live: Live, split: _Split, results: dict[int, Any]) -> None:
    """Settle what was computed, and record the rest in a new trace."""
    specs = {
        v: s for n in trace.node.path() for v, s in zip(range(n.base, n.end), n.specs)
    }
    owners = _leave_inputs(trace)
    for pos, slots in live.items():
        entry = trace.inputs.get(pos)
        for slot in slots:
            if slot.state is IR and entry is not None:
                slot.move(HOST if entry.host else DEVICE, entry.data)
            elif slot.state is IR and pos in results:
                slot.move(DEVICE, results[pos])
                slot.made = trace.node, pos
                owners.setdefault(pos, slot)
    recorder.restart(config.trie_limit)
    again = _Again(recorder.trace)
    for pos, entry in trace.inputs.items():
        old = entry.slot()
        if pos in split.needed or (old is not None and old.state is IR):
            again.enter(pos, entry, owners.get(pos))
    for pos in sorted(split.needed & results.keys()):
        owner, made = owners.get(pos), specs[pos]
        base = contiguous_spec(made.shape, made.dtype)
        if owner is not None:
            base = owner.spec
        entry = Input(ref(owner or Slot(-1, base)), results[pos], base, False)
        again.enter(pos, entry, owner)
    for node in split.rest:
        again.record(node, trace.numbers.get(node.base))
    for pos, slots in live.items():
        for slot in slots:
            if slot.state is IR:
                again.trace.add_result(slot)
                slot.write(again.number[pos])


def _leave_inputs(trace: Trace) -> dict[int, Slot]:
    """Take the slots of inputs out of the trace; those that hold their input still."""
    found = {}
    for pos, entry in trace.inputs.items():
        owner = entry.slot()
        if owner is not None and owner.state is not IR:
            if owner.pos == pos:
                found[pos] = owner
            owner.pos = owner.at = -1
    return found


class _Again:
    """Instructions of an old trace, recorded in a new one; `number`: old -> new."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.number: dict[int, int] = {}

    def _append(
        self, key: tuple, op: str, args: tuple, specs: tuple[Spec, ...], line: Line
    ) -> Instr:
        last = self.trace.node
        found = last.next.get(key) or recorder.grow(last, key, op, args, specs, line)
        self.trace.node = found
        return found

    def enter(self, pos: int, entry: Input, owner: Slot | None) -> None:
        """Value `pos` of the old trace is an input of the new one."""
        key = INPUT, entry.spec.geometry
        shape = entry.spec.shape
        plain = contiguous_spec(shape, entry.spec.dtype)
        new = self._append(key, INPUT, (const(shape),), (plain,), user_line()).base
        self.trace.inputs[new] = entry
        self.number[pos] = new
        if owner is not None:
            owner.pos = new
            owner.at = -1 if owner.viewed else new

    def record(self, node: Instr, numbers: Any) -> None:
        args = renumber(node.args, self.number)
        key = (node.op, args, *[s.geometry for s in node.specs])
        new = self._append(key, node.op, args, node.specs, node.line)
        if numbers is not None:
            self.trace.numbers[new.base] = numbers
        for i in range(len(node.specs)):
            self.number[node.base + i] = new.base + i
