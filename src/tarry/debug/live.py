"""The tensors that are alive on the device, by the line that made them."""

import gc
import sys
from collections import Counter
from dataclasses import dataclass, field

from tarry.dispatch.names import made_at
from tarry.record.slot import IR, Slot
from tarry.record.trie import NOWHERE, recorder


@dataclass(slots=True)
class LiveTensors:
    """Tensors (storages) that one line made: how many, bytes, and how many in which
    state: DEVICE, HOST, IR (pending) or POISONED."""

    line: str
    tensors: int = 0
    bytes: int = 0
    states: Counter[str] = field(default_factory=Counter)


def live_tensors() -> list[LiveTensors]:
    """All live tensors of the device, those with most bytes first.

    Pending ones stand under the line that recorded them. Walks Python's garbage
    collector, so it is for looking, not for every step.
    """
    found: dict[str, LiveTensors] = {}
    with recorder.lock:
        end = recorder.trace.node
        for slot in _alive():
            line = made_at(slot)
            if slot.state is IR:
                node = end
                while node.parent is not None and node.base > slot.pos:
                    node = node.parent
                line = node.line
            name = "unknown" if line is NOWHERE else str(line)
            entry = found.setdefault(name, LiveTensors(name))
            entry.tensors += 1
            entry.bytes += slot.spec.numel * slot.spec.dtype.itemsize
            entry.states[slot.state.value] += 1
    return sorted(found.values(), key=lambda entry: -entry.bytes)


def _alive() -> list[Slot]:
    """Slots that a tensor holds, and not the recording alone."""
    listed = {id(s) for s in recorder.trace.results}
    slots = [o for o in gc.get_objects() if type(o) is Slot]
    kept = []
    for slot in slots:
        # Held by `slots`, by the loop and by the call; and by the recording.
        if sys.getrefcount(slot) > 3 + (id(slot) in listed):
            kept.append(slot)
    return kept
