"""Buffers that the user gives away: a marked slot's buffer may be overwritten by the
next program that reads it, and the slot has no value after that."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from weakref import WeakSet

from tarry.cut.cause import STEP_ENDS, Cause
from tarry.errors import GivenAwayError
from tarry.record.slot import DEVICE, HOST, POISONED, Failure, Slot
from tarry.record.trie import Input, Trace

marked: WeakSet[Slot] = WeakSet()


class Marks:
    """`at_every_cut`: marks count at reads, too, and not only where a step ends."""

    at_every_cut = False


def given_away(
    trace: Trace, live: Mapping[int, list[Slot]], cause: Cause
) -> Iterator[int]:
    """Inputs that are still their marked slot's value, and no one else's."""
    if not Marks.at_every_cut and cause not in STEP_ENDS:
        return
    for pos, entry in trace.inputs.items():
        slot = entry.slot()
        if slot is None or slot not in marked or slot.data is not entry.data:
            continue
        alone = live.get(pos, [slot]) == [slot] and sys.getrefcount(entry.data) <= 3
        if alone and slot.state in (DEVICE, HOST):
            yield pos


def take_away(entries: Sequence[Input], line: str) -> None:
    """Marked slots whose buffers a program has overwritten have no value any more."""
    for entry in entries:
        slot = entry.slot()
        if slot is None or slot not in marked:
            continue
        if slot.state is DEVICE and slot.data.is_deleted():
            marked.discard(slot)
            slot.move(POISONED, Failure(GivenAwayError(line)))
