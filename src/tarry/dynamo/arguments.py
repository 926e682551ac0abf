"""The arguments of a call become buffers and run-time numbers.

Pending tensors are cut first, those of the host uploaded, draws and numbers taken.
"""

from typing import Any

from tarry import dtypes
from tarry.cut.cause import Cause
from tarry.cut.sync import cut
from tarry.dispatch.random import stream
from tarry.dynamo.tracing import Draw, Taken
from tarry.errors import PoisonedError
from tarry.ledger import ledger
from tarry.record.slot import DEVICE, HOST, IR, POISONED, Slot
from tarry.record.trie import recorder
from tarry.run.transfer import upload


def make_ready(slots: list[Slot], detail: str) -> None:
    """Every slot gets a buffer: pending ones are cut, those of the host uploaded."""
    inputs = recorder.trace.inputs
    if any(s.state is IR and s.pos not in inputs for s in slots):
        ledger.count("DynamoSyncInputExecuteTime")
        cut(Cause.DYNAMO_INPUT, detail)
    for s in slots:
        if s.state is POISONED:
            raise PoisonedError(s.data.error) from s.data.error
        if s.state is IR:  # a copy of a value that is there
            source = recorder.trace.inputs[s.pos]
            s.move(HOST if source.host else DEVICE, source.data)
    hosted = list({id(s): s for s in slots if s.state is HOST}.values())
    if hosted:
        buffers = upload([dtypes.host_array(s.data) for s in hosted])
        for s, buffer in zip(hosted, buffers):
            entry = recorder.trace.inputs.get(s.pos)
            if entry is not None and entry.data is s.data:
                entry.data, entry.host = buffer, False
            s.state, s.data = DEVICE, buffer


def taken_numbers(numbers: list[Any], args: list[Any]) -> list[Any]:
    """The run-time numbers of one call."""
    found: list[Any] = []
    for n in numbers:
        if n.__class__ is Draw:
            found += stream.next()
        elif n.__class__ is Taken:
            found.append(args[n.argument].item())
        else:
            found.append(n)
    return found
