"""The pipeline of a cut, one line a stage: collect what is live, find or compile its
program, run it, give every slot its buffer.

A cut is a transaction. Where it fails, slots that existed before the recording keep
the value they had, and only what the recording created is poisoned; an interrupt
leaves the recording as it was, to be cut again.
"""

import sys
import threading
import time
from collections.abc import Callable
from itertools import chain
from typing import Any

from tarry import dtypes
from tarry.config import config
from tarry.cut.cause import BORDERS, STEP_ENDS, Cause
from tarry.cut.donation import given_away, marked, take_away
from tarry.cut.guard import Event, guards
from tarry.cut.program import (
    Holders,
    compile_error,
    first_line,
    found_again,
    program_of,
    run,
    store,
)
from tarry.errors import AsideError, CompileError, ProgramError, RunError, TarryError
from tarry.ledger import Cut, ledger
from tarry.lower.build import LoweringError
from tarry.record.graph import Bound, bind
from tarry.record.lines import user_line
from tarry.record.slot import DEVICE, HOST, IR, POISONED, Failure, Slot
from tarry.record.trie import Trace, live_slots, operands, recorder
from tarry.report.spell import spell_cause
from tarry.run.compile import Executable
from tarry.run.execute import block
from tarry.run.options import custom
from tarry.run.transfer import upload

__all__ = ["after_cut", "cut", "store"]

Live = dict[int, list[Slot]]

# Called after every cut that did not fail, with its cause, even if nothing was pending.
after_cut: list[Callable[[Cause], None]] = []


def cut(cause: Cause, detail: str = "", wait: bool = False) -> None:
    """End the recording: every live pending tensor of the device gets its value.

    Raises ProgramError if the program cannot be compiled or run.
    """
    if recorder.aside == threading.get_ident():
        if cause in BORDERS:
            return  # those around the whole hold
        raise AsideError(spell_cause(cause.value, detail), str(user_line()))
    begun = time.perf_counter()
    with ledger.span("tarry::cut"), recorder.closed() as trace:
        live = live_slots(trace)
        wanted = tuple(sorted([v for v in live if v not in trace.inputs]))
        if wanted:
            _run_pending(trace, live, wanted, cause, detail, begun)
        else:
            _settle(trace, live, {})
            trace.node.visits += 1
            recorder.restart(config.trie_limit)
    if wait or (config.sync_wait and wanted):
        block()
    for listener in after_cut:
        listener(cause)


def _run_pending(
    trace: Trace, live: Live, wanted: tuple, cause: Cause, detail: str, begun: float
) -> None:
    line = user_line()
    event = Event(cause, detail, str(line))
    for guard in guards:
        guard.cut(event)
    record = Cut(
        cause.value, detail, str(line), trace.node.count, len(wanted),
        record_s=begun - trace.started,
    )  # fmt: skip
    donated = _donatable(trace, live, cause)
    failure: ProgramError | None = None
    while True:
        try:
            bound, program = find_program(trace, live, wanted, donated, event, record)
            for guard in guards:
                guard.run(event, program.number, program.why)
            break
        except LoweringError as error:
            failure = compile_error(error)
            wanted, donated = _unaffected(trace, wanted, error), ()
            if not wanted:
                _fail(trace, live, failure)
        except (TarryError, KeyboardInterrupt, SystemExit):
            raise
        except Exception as error:
            what = "a program cut here"
            _fail(trace, live, CompileError(what, str(line), first_line(error)))
    try:
        results = launch_trace(trace, bound, program, record)
    except Exception as error:
        _fail(trace, live, RunError(cause.value, str(line), first_line(error)))
    if failure is not None:
        _revert(trace, live, set(wanted), failure)
    _settle(trace, live, dict(zip(wanted, results, strict=True)))
    if marked:
        take_away([trace.inputs[v] for v in donated], str(line))
    trace.node.visits += 1
    if cause in STEP_ENDS:
        ledger.steps += 1
    ledger.add_cut(record)
    recorder.restart(config.trie_limit)
    if failure is not None:
        raise failure


def _donatable(trace: Trace, live: Live, cause: Cause) -> tuple[int, ...]:
    """Inputs whose buffer nothing else holds: their slot took a new value, or its user
    gave it away."""
    found = [*given_away(trace, live, cause)] if marked else []
    for pos, entry in trace.inputs.items():
        slot = entry.slot()
        if slot is None or slot.state is not IR or slot.pos == pos or pos in live:
            continue
        if sys.getrefcount(entry.data) <= 2:
            found.append(pos)
    return tuple(found)


def find_program(
    trace: Trace, live: Live, wanted: tuple, donated: tuple, event: Event, record: Cut
) -> tuple[Bound, Executable]:
    """The program of this trace: by its path, else by its key, else compiled."""
    started = time.perf_counter()
    precision = dtypes.product_precision()
    place = wanted, donated, precision, tuple(custom.items())
    found = trace.node.programs.get(place)
    if found is not None and found[1].call is not None:
        found_again(found[1], record)
        record.lookup_s = time.perf_counter() - started
        return found
    bound = bind(trace.node, wanted)

    def holders() -> tuple[Holders, Holders, tuple[int, ...]]:
        entries = [trace.inputs[v] for v in bound.inputs]
        hosted = tuple([i for i, e in enumerate(entries) if e.host])
        outputs = [list[Slot | None](live.get(v, [])) for v in wanted]
        return [[e.slot()] for e in entries], outputs, hosted

    program = program_of(bound, trace.node, donated, precision, holders, event, record)
    trace.node.programs[place] = bound, program
    return bound, program


def launch_trace(
    trace: Trace, bound: Bound, program: Executable, record: Cut
) -> list[Any]:
    """What the program makes of the trace's inputs and numbers."""
    started = time.perf_counter()
    entries = [trace.inputs[v] for v in bound.inputs]
    _upload([e for e in entries if e.host])
    record.transfer_s = time.perf_counter() - started
    taken = map(trace.numbers.__getitem__, bound.numbers)
    numbers = list(chain.from_iterable(taken))
    ledger.sample("TensorsGraphSize", len(bound.graph.nodes))
    ledger.sample("ScalarInputs", len(numbers))
    return run(program, [e.data for e in entries], numbers, record)


def _upload(entries: list[Any]) -> None:
    if not entries:
        return
    buffers = upload([dtypes.host_array(e.data) for e in entries])
    for entry, buffer in zip(entries, buffers):
        slot = entry.slot()
        if slot is not None and slot.state is HOST and slot.data is entry.data:
            slot.state, slot.data = DEVICE, buffer
        entry.data, entry.host = buffer, False


def _settle(trace: Trace, live: Live, results: dict[int, Any]) -> None:
    """Every live slot leaves the trace with its buffer."""
    for pos, slots in live.items():
        entry = trace.inputs.get(pos)
        for slot in slots:
            if slot.state is not IR:
                continue
            if entry is not None:
                slot.move(HOST if entry.host else DEVICE, entry.data)
            elif pos in results:
                slot.move(DEVICE, results[pos])
                slot.made = trace.node, pos
    for each in trace.inputs.values():
        owner = each.slot()
        if owner is not None:
            owner.pos = owner.at = -1


def _fail(trace: Trace, live: Live, failure: ProgramError) -> None:
    """Undo the recording, end it, and raise `failure` from the active exception."""
    _revert(trace, live, set(), failure)
    _settle(trace, live, {})
    trace.node.visits += 1
    recorder.restart(config.trie_limit)
    raise failure


def _revert(trace: Trace, live: Live, kept: set, failure: ProgramError) -> None:
    """Old slots get the value they had before the recording; new ones the failure."""
    before = {}
    for entry in trace.inputs.values():
        slot = entry.slot()
        gone = not entry.host and getattr(entry.data, "is_deleted", bool)()
        if slot is not None and not gone:
            before[slot] = entry
    for pos, slots in live.items():
        if pos in kept or pos in trace.inputs:
            continue
        for slot in slots:
            old = before.get(slot)
            if slot.state is IR and old is None:
                slot.move(POISONED, Failure(failure))
            elif slot.state is IR and old is not None:
                slot.move(HOST if old.host else DEVICE, old.data)


def _unaffected(trace: Trace, wanted: tuple, error: LoweringError) -> tuple:
    """The wanted values that do not depend on the operation that failed."""
    spoilt: set[int] = set()
    for node in trace.node.path():
        same = node.op == error.node.op and node.line == error.node.line
        if same or any(v in spoilt for v in operands(node.args)):
            spoilt.update(range(node.base, node.end))
    return tuple([v for v in wanted if v not in spoilt])
