"""Calls of a compiled graph: buffers in, program, tensors out, and nothing recorded.

A `Device` holds a recording for each geometry of the arguments it has seen; a call
compares them with the last one's, takes the buffers off the arguments' slots, launches,
and wraps the results. An argument that the graph writes to gives its buffer away where
nothing else holds it, and so do activations saved for a backward pass that is not to be
repeated. Pending arguments are cut first.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from sys import getrefcount
from time import perf_counter
from typing import Any

import torch
from torch.fx import GraphModule

from tarry import dtypes
from tarry.config import config
from tarry.cut.cause import Cause
from tarry.cut.guard import Event, guards
from tarry.cut.program import (
    Holders,
    compile_error,
    compiling,
    first_line,
    found_again,
    program_of,
    run,
)
from tarry.dispatch import seam
from tarry.dispatch.storage import (
    Lazy,
    is_lazy,
    is_ours,
    new_tensor,
    restride,
    slot_of,
)
from tarry.dynamo.arguments import make_ready, taken_numbers
from tarry.dynamo.tracing import (
    Alias,
    Draw,
    Given,
    New,
    Recording,
    Same,
    Taken,
    output_nodes,
    run_singly,
    trace,
)
from tarry.errors import (
    DonatedError,
    RunError,
)
from tarry.ledger import Cut, ledger
from tarry.lower.build import LoweringError
from tarry.record.lines import user_line
from tarry.record.slot import (
    DEVICE,
    POISONED,
    Failure,
    Slot,
    Spec,
    geometry_number,
)
from tarry.record.trie import recorder, token
from tarry.region import with_options
from tarry.run.compile import Executable
from tarry.run.execute import Constant, block, constant
from tarry.run.options import custom

MOST_VARIANTS = 256
CAUSE = Cause.DYNAMO.value


@dataclass(slots=True)
class Saved:
    """What a forward graph saves for its backward graph: the names of outputs that
    only the latter will see (None: not known yet). `kept`: hooks may keep them.
    `unused`: others take the place of the gradients, which need not be computed.
    `watched`: the buffers of the arguments of a forward call are to be in `buffers`."""

    names: set[str] | None = None
    kept: bool = False
    unused: bool = False
    watched: bool = False
    buffers: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Origin:
    """What a graph is of: `detail`, in words; `options`, XLA's, that the user set;
    `saved`: shared by a forward graph and its backward graph."""

    detail: str
    options: Mapping[str, str]
    saved: Saved
    backward: bool = False


@dataclass(slots=True)
class Variant:
    """A recording and its programs, for one geometry of the arguments.

    `wants`: base and geometry of each tensor; `others`: what the other arguments are;
    `groups`: which tensors share a storage. `needs`: sources whose value a call takes;
    `own`: those whose buffer it may give away.
    """

    wants: list[tuple[Spec, Any]]
    others: tuple
    groups: tuple[int, ...]
    recording: Recording
    needs: tuple[int, ...]
    own: tuple[int, ...]
    careful: bool  # aliases among the arguments make a difference
    fixed: bool  # all run-time numbers are constants
    programs: dict[Any, tuple[Executable, Constant | None]] = field(
        default_factory=dict
    )


def number_of(t: torch.Tensor) -> Any:
    """The geometry of a tensor, as something to compare."""
    number = geometry_number((t.shape, t.stride(), t.storage_offset(), t.dtype))
    if Lazy.seen and is_lazy(t):
        return number, t.is_conj(), t.is_neg()
    return number


def _is_retyped(t: torch.Tensor) -> bool:
    return t.dtype is not slot_of(t).spec.dtype


def groups_of(slots: list[Slot]) -> tuple[int, ...]:
    """For each slot the place of its first appearance; () where all are different."""
    first: dict[int, int] = {}
    found = [first.setdefault(id(s), i) for i, s in enumerate(slots)]
    return tuple(found) if len(first) < len(slots) else ()


class Device:
    """A graph whose operations all run on the device."""

    def __init__(self, module: GraphModule, origin: Origin) -> None:
        self.module, self.origin = module, origin
        self.variants: dict[tuple, Variant] = {}
        self.last: Variant | None = None
        self.picks: list[int] | None = None  # places of the device's tensors
        self.rest: list[int] = []

    def run(self, args: list[Any]) -> Any:
        """Call the graph. Raises NeedsHost at the first call, if an operation cannot be
        a part of a program; a ProgramError if it cannot be compiled or run."""
        with recorder.lock:
            if self.picks is None:
                picks = [i for i, a in enumerate(args) if is_ours(a)]
                self.rest = [i for i in range(len(args)) if i not in picks]
                self.picks = picks
            tensors = [args[i] for i in self.picks] if self.rest else args
            try:
                slots = [t.untyped_storage().slot for t in tensors]
            except NotImplementedError:  # a batch of `vmap`
                return run_singly(self.module, args)
            variant = self.last
            if variant is None or not self._fits(variant, args, tensors, slots):
                if any(_is_retyped(args[i]) for i in self.picks):
                    return run_singly(self.module, args)
                variant = self._variant(args, tensors, slots)
            return self._replay(variant, args, tensors, slots)

    def _fits(self, variant: Variant, args: list, tensors: list, slots: list) -> bool:
        for t, s, (spec, number) in zip(tensors, slots, variant.wants):
            if s.spec is not spec:
                return False
            if (number_of(t) if s.viewed else spec.geometry) != number:
                return False
        if self.rest and self._others(args) != variant.others:
            return False
        return not variant.careful or groups_of(slots) == variant.groups

    def _others(self, args: list[Any]) -> tuple:
        found = [args[i] for i in self.rest]
        return tuple(
            [a.dtype if isinstance(a, torch.Tensor) else token(a) for a in found]
        )

    def _variant(self, args: list, tensors: list, slots: list) -> Variant:
        """The recording for arguments like these, which becomes the last one."""
        wants = [(s.spec, number_of(t)) for t, s in zip(tensors, slots)]
        others, groups = self._others(args), groups_of(slots)
        key = (tuple([(id(s), n) for s, n in wants]), others, groups)
        found = self.variants.get(key)
        if found is None:
            try:
                recording = trace(self.module, args)
            except LoweringError as error:
                raise compile_error(error) from error
            found = self._new(recording, wants, others, groups)
            while len(self.variants) >= MOST_VARIANTS:
                self.variants.pop(next(iter(self.variants)))
            self.variants[key] = found
        self.last = found
        return found

    def _new(
        self, recording: Recording, wants: list, others: tuple, groups: tuple
    ) -> Variant:
        new = [o for o in recording.outputs if isinstance(o, New)]
        passed = {o for _, r, o in recording.writes if r < 0}  # on, as they are
        passed |= {o.source for o in new if o.result < 0}
        needs = {*recording.sources, *passed}
        written = {source for source, _, _ in recording.writes}
        own = [i for i in sorted({*written, *self._spent()}) if i not in passed]
        own = [i for i in own if i in recording.sources]
        fixed = not any(isinstance(n, Taken | Draw) for n in recording.numbers)
        careful = bool(recording.writes) or bool(groups)
        if not self.origin.backward:
            self._note_saved(recording)
        return Variant(
            wants, others, groups, recording, tuple(sorted(needs)), tuple(own),
            careful, fixed,
        )  # fmt: skip

    def _note_saved(self, recording: Recording) -> None:
        """Keep the names of outputs that are values of their own."""
        names = [str(n) for n in output_nodes(self.module)]
        results = [o.result if isinstance(o, New) else -1 for o in recording.outputs]
        private = {
            name
            for name, o, r in zip(names, recording.outputs, results)
            if r >= 0 and results.count(r) == 1 and names.count(name) == 1
        }
        saved = self.origin.saved
        saved.names = private if saved.names is None else saved.names & private

    def _spent(self) -> list[int]:
        """Sources of activations that nothing but this backward graph will look at."""
        if not self.origin.backward or self.picks is None:
            return []
        nodes = [n for n in self.module.graph.nodes if n.op == "placeholder"]
        names = self.origin.saved.names or ()
        return [j for j, i in enumerate(self.picks) if nodes[i].name in names]

    def _replay(
        self, variant: Variant, args: list, tensors: list, slots: list
    ) -> list[Any] | Any:
        recording = variant.recording
        places = slots + recording.extra if recording.extra else slots
        for i in variant.needs:
            if places[i].state is not DEVICE:
                make_ready([places[i] for i in variant.needs], self.origin.detail)
                break
        line = user_line()
        record = Cut(CAUSE, self.origin.detail, str(line), 0, 0)
        donated = self._donated(variant, places) if variant.own else ()
        program, fixed = self._program(variant, donated, places, record)
        begun = perf_counter()
        numbers = taken_numbers(recording.numbers, args) if fixed is None else fixed
        inputs = [places[i].data for i in recording.sources]
        if self.origin.saved.watched and not self.origin.backward:
            own = zip(recording.sources, inputs)
            self.origin.saved.buffers = tuple([b for i, b in own if i < len(slots)])
        _took("RunCachedGraphInputData", begun)
        try:
            results = run(program, inputs, numbers, record)
        except Exception as error:
            failure = RunError(CAUSE, str(line), first_line(error))
            _poison([s for s in places if _is_gone(s)], failure)
            raise failure from error
        del inputs
        begun = perf_counter()
        made = _settled(recording, args, tensors, places, results, donated)
        _took("RunCachedGraphOutputData", begun)
        record.outputs = len(results)
        ledger.add_cut(record)
        # What is pending was not recorded meanwhile.
        recorder.trace.started += record.lookup_s + record.compile_s + record.run_s
        if config.sync_wait:
            block()
        if self.origin.saved.names and seam.saves_through_hooks():
            self.origin.saved.kept = True
        return made[0] if recording.single else made

    def _donated(self, variant: Variant, places: list[Slot]) -> tuple[int, ...]:
        """Sources whose buffer nothing else holds, nor will look at again."""
        own = variant.own
        if self.origin.backward and (self.origin.saved.kept or seam.keeps_graph()):
            written = {i for i, _, _ in variant.recording.writes}
            own = tuple([i for i in own if i in written])
        return tuple([i for i in own if getrefcount(places[i].data) <= 2])

    def _program(
        self, variant: Variant, donated: tuple, places: list[Slot], record: Cut
    ) -> tuple[Executable, Constant | None]:
        precision = dtypes.product_precision()
        place = donated, precision, tuple(custom.items()) if custom else ()
        found = variant.programs.get(place)
        if found is not None and not guards and found[0].call is not None:
            found_again(found[0], record)
            return found
        event = Event(Cause.DYNAMO, record.detail, record.line)
        for guard in guards:
            guard.cut(event)
        if found is not None and found[0].call is not None:
            found_again(found[0], record)
        else:
            with with_options(self.origin.options):
                found = self._found(variant, donated, precision, places, event, record)
            variant.programs[place] = found
        for guard in guards:
            guard.run(event, found[0].number, found[0].why)
        return found

    def _found(
        self, variant: Variant, donated: tuple, precision: str, places: list[Slot],
        event: Event, record: Cut,
    ) -> tuple[Executable, Constant | None]:  # fmt: skip
        recording = variant.recording
        bound = recording.bound
        value_of = dict(zip(recording.sources, bound.inputs))

        def holders() -> tuple[Holders, Holders, tuple[int, ...]]:
            written: dict[int, list[Slot | None]] = {}
            for source, result, _ in recording.writes:
                written.setdefault(result, []).append(places[source])
            inputs = [list[Slot | None]([places[i]]) for i in recording.sources]
            return inputs, [written.get(r, []) for r in range(len(bound.outputs))], ()

        with compiling("a function compiled by torch.compile", event.line):
            program = program_of(
                bound, recording.last, tuple([value_of[i] for i in donated]),
                precision, holders, event, record,
            )  # fmt: skip
        fixed = constant(program, recording.numbers) if variant.fixed else None
        return program, fixed


def _took(metric: str, begun: float) -> None:
    ledger.sample(metric, (perf_counter() - begun) * 1e9, "time")


def _is_gone(slot: Slot) -> bool:
    return slot.state is DEVICE and slot.data.is_deleted()


def _poison(slots: list[Slot], error: Exception) -> None:
    for s in slots:
        s.move(POISONED, Failure(error))


def _write(
    recording: Recording, places: list[Slot], results: list[Any], donated: tuple
) -> None:
    """The arguments that the graph wrote to take their new values."""
    written = recording.writes
    if donated:
        taken = set(donated) - {source for source, _, _ in written}
        _poison([places[i] for i in taken], DonatedError())
    values = [
        results[result] if result >= 0 else places[other].data
        for _, result, other in written
    ]
    for (source, result, _), value in zip(written, values):
        slot = places[source]
        slot.move(DEVICE, value)
        if result >= 0:
            slot.made = recording.last, recording.bound.outputs[result]


def _settled(
    recording: Recording, args: list[Any], tensors: list, places: list[Slot],
    results: list[Any], donated: tuple,
) -> list[Any]:  # fmt: skip
    """The graph's outputs as tensors, and its arguments with their new values."""
    before = [  # an output may be the old value of an argument
        places[o.source].data if isinstance(o, New) and o.result < 0 else None
        for o in recording.outputs
    ]
    _write(recording, places, results, donated)
    made: list[Any] = []
    for o, old in zip(recording.outputs, before):
        kind = o.__class__
        if kind is New and o.holder < 0:
            made.append(_new_tensor(o, recording, old, results))
        elif kind is New:
            holder = made[o.holder]
            slot_of(holder).mark_viewed()
            made.append(restride(holder, o.shape, o.strides, o.offset))
        elif kind is Alias:
            made.append(_view(tensors[o.argument], o))
        elif kind is Same:
            made.append(made[o.output])
        elif kind is Given:
            made.append(args[o.argument])
        else:
            value = o.value
            made.append(value.clone() if isinstance(value, torch.Tensor) else value)
    return made


def _new_tensor(
    o: New, recording: Recording, old: Any, results: list[Any]
) -> torch.Tensor:
    """A tensor on a storage of its own: a result, else the buffer `old`."""
    slot = Slot(-1, o.spec)
    slot.state = DEVICE
    if o.result >= 0:
        slot.data = results[o.result]
        slot.made = recording.last, recording.bound.outputs[o.result]
    else:
        slot.data = old
    tensor = new_tensor(slot)
    if o.shape is None:
        return tensor
    slot.mark_viewed()
    return restride(tensor, o.shape, o.strides, o.offset)


def _view(tensor: torch.Tensor, o: Alias) -> torch.Tensor:
    if o.shape is None:
        return tensor
    with torch.no_grad():
        return tensor.as_strided(o.shape, o.strides, o.offset)
