"""Recording a function aside, with its gradient, for operations that hold a body.

In: a function of tensors and the specs of its arguments. Out: a `Recorded`: which
values it takes, gives, and keeps for its gradient. The gradient is PyTorch's own: the
function runs under autograd once, and so does its backward pass, in the same recording.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch

from tarry.cut.cause import Cause
from tarry.cut.sync import cut
from tarry.dispatch import seam
from tarry.dispatch.aside import Aside, Source, aside
from tarry.dispatch.eager import is_eager_mode
from tarry.dispatch.operands import enter
from tarry.dispatch.random import stream
from tarry.dispatch.storage import new_tensor, slot_of
from tarry.errors import LostGradientError, NoSecondGradientError
from tarry.flow.outside import Outside
from tarry.record.body import Body, flat_numbers, part, to_keep, used
from tarry.record.lines import user_line
from tarry.record.slot import Slot, Spec, contiguous_spec
from tarry.record.trie import Instr, recorder

Tensors = list[torch.Tensor]


@dataclass(slots=True)
class Gradient:
    """The backward pass, as value numbers: `given`, per output, its gradient; per
    tensor in `tensors`, those from outside that want a gradient, `totals`, its gradient
    added to what was summed before, which is in `sums`; `of_arguments`, per argument,
    its gradient or None. No output depends on the tensors at the places `unused`, nor
    on the arguments at the places `idle`."""

    tensors: Tensors
    given: list[int]
    sums: list[int]
    totals: list[int]
    of_arguments: list[int | None]
    unused: set[int]
    idle: set[int]

    def of_tensors(self, totals: Tensors) -> list[torch.Tensor | None]:
        """The gradients of `tensors`: None for those that are unused."""
        return [None if i in self.unused else t for i, t in enumerate(totals)]


@dataclass(slots=True)
class _Change:
    """A slot from outside that the function changes: its value numbers before and
    after, and a tensor with that memory, if one was seen."""

    slot: Slot
    before: int
    after: int
    tensor: torch.Tensor | None


@dataclass(slots=True)
class Recorded:
    """A function, recorded; numbers of values are those of its recording.

    `end`: the first value of the backward pass; `state`: what it changes outside;
    `same` and `sources`: what else it takes from there; `by_slot`: tensors with memory
    from there; `gives`: which outputs have a
    gradient; `result`: what the function gave besides its outputs.
    """

    last: Instr
    end: int
    draws: int
    numbers: dict[int, Any]
    arguments: list[int]
    outputs: list[int]
    out_specs: list[Spec]
    result: Any
    same: list[int] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    state: list[_Change] = field(default_factory=list)
    by_slot: dict[Slot, torch.Tensor] = field(default_factory=dict)
    gives: list[bool] = field(default_factory=list)
    gradient: Gradient | None = None

    def part(self, given: Sequence[int], wanted: Sequence[int]) -> tuple[Body, tuple]:
        """What computes `wanted` from `given`, and the run-time numbers it takes."""
        body, bases = part(self.last, given, wanted, self.draws)
        return body, flat_numbers(self.numbers, bases)

    def used(self, given: Sequence[int], wanted: Sequence[int]) -> set[int]:
        """Those of `given` that `wanted` is computed from."""
        return used(self.last, given, wanted)

    def after(self, slots: list[Slot]) -> list[int]:
        """The values of slots from outside at the end, changed or not."""
        ends: dict[Any, int] = dict(zip(self.sources, self.same))
        ends.update((c.slot, c.after) for c in self.state)
        return [ends[slot] for slot in slots]

    def is_about(self, slots: list[Slot], tensors: Tensors) -> bool:
        """True where it changes these slots, and takes gradients to these tensors."""
        own = [] if self.gradient is None else self.gradient.tensors
        same = [c.slot for c in self.state] == slots
        return same and list(map(id, own)) == list(map(id, tensors))

    def release(self) -> None:
        """Let go of what is outside, once the operation is recorded."""
        self.sources, self.state, self.by_slot = [], [], {}
        if self.gradient is not None:
            self.gradient.tensors = []

    def to_keep(
        self, given: Sequence[int], wanted: Sequence[int], again: bool
    ) -> list[int]:
        return to_keep(self.last, self.end, given, self.same, wanted, again)

    def spec_of(self, value: int) -> Spec:
        node = self.last
        while node.base > value and node.parent is not None:
            node = node.parent
        found = node.specs[value - node.base]
        return contiguous_spec(found.shape, found.dtype)


Function = Callable[[Tensors], tuple[Tensors, Any]]


def record(
    function: Function, specs: Sequence[Spec], wants: Sequence[bool], carried: int = 0,
    slots: Sequence[Slot] = (), tensors: Sequence[torch.Tensor] = (),
    sums: bool = True,
) -> Recorded:  # fmt: skip
    """`function`, recorded for arguments of these specs.

    It takes a list of tensors and returns one, with anything else that is of interest
    (`result`). `wants`: the arguments that want a gradient; the first `carried` of
    `specs` are handed on from one iteration to the next, as are the first outputs: what
    has a gradient after an iteration wants one before the next (the function is then
    recorded again). `slots` and `tensors`: taken from outside in any case, those with a
    gradient. `sums`: gradients of tensors from outside are added up.
    """
    wanting = [
        w and torch.is_grad_enabled() and differentiable(s)
        for s, w in zip(specs, wants, strict=True)
    ]
    while True:
        found = _record(function, specs, wanting, carried, slots, tensors, sums)
        pairs = zip(wanting[:carried], found.gives)
        more = [
            i for i, (wants_one, has_one) in enumerate(pairs) if has_one > wants_one
        ]
        if not more:
            return found
        stream.skip(-found.draws)
        for i in more:
            wanting[i] = True


def _record(
    function: Function, specs: Sequence[Spec], wanting: list[bool], carried: int,
    slots: Sequence[Slot], tensors: Sequence[torch.Tensor], sums: bool,
) -> Recorded:  # fmt: skip
    with aside() as side, Outside(side).alone() as outside, _no_hooks():
        for slot in slots:
            operand(slot)
        for tensor in tensors:
            outside.stand_in(tensor)
        leaves = [
            side.argument(s).requires_grad_(w)
            for s, w in zip(specs, wanting, strict=True)
        ]
        places = [side.value(t) for t in leaves]
        inputs = [t.clone() if t.requires_grad else t for t in leaves]
        with outside:
            outputs, result = function(inputs)
        outputs = [outside.stand_in(t) for t in outputs]
        values = [side.value(t) for t in outputs]
        state = _state(side)
        gives = [t for t in outputs if t.requires_grad]
        outside.check(gives, leaves)
        if gives and any(slot_of(t) in state for t in outside.wanting):
            raise LostGradientError("a tensor that is changed in place", str(side.line))
        found = Recorded(
            side.last, side.last.end, side.draws, side.numbers, places,
            values, [contiguous_spec(t.shape, t.dtype) for t in outputs], result,
        )  # fmt: skip
        found.gives = [t.requires_grad for t in outputs]
        if gives:
            found.gradient = _differentiate(
                side, leaves, outputs, outside, carried, sums
            )
        found.last, found.by_slot = side.last, outside.by_slot
        found.state = [
            _Change(s, *at, outside.by_slot.get(s)) for s, at in state.items()
        ]
        for pos, source in side.captured():
            if not (isinstance(source, Slot) and source in state):
                found.same.append(pos)
                found.sources.append(source)
    return found


def _state(side: Aside) -> dict[Slot, tuple[int, int]]:
    """What is changed outside: the value numbers before and after."""
    before = {s: pos for pos, s in side.captured() if isinstance(s, Slot)}
    return {slot: (before[slot], after) for slot, after in side.written()}


def _no_hooks() -> AbstractContextManager:
    """Hooks of saved tensors are for those of the whole operation: inside, none has a
    value."""
    if not seam.saves_through_hooks():
        return nullcontext()
    return torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)


def differentiable(spec: Spec) -> bool:
    return spec.dtype.is_floating_point or spec.dtype.is_complex


class _Once(torch.autograd.Function):
    """Gradients that have no derivative: going backward through them raises."""

    @staticmethod
    def forward(ctx: Any, what: str, mark: torch.Tensor, *grads: Any) -> tuple:
        ctx.what, ctx.line = what, str(user_line())
        return tuple([None if g is None else g.view_as(g) for g in grads])

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple:
        raise NoSecondGradientError(ctx.what, ctx.line)


def once(what: str, grads: Sequence[Any]) -> Sequence[Any]:
    """The gradients that a backward pass gives; where it is itself to be
    differentiated (`create_graph=True`), that raises NoSecondGradientError."""
    if not torch.is_grad_enabled():
        return grads
    return _Once.apply(what, torch.zeros((), requires_grad=True), *grads)


def _differentiate(
    side: Aside, leaves: Tensors, outputs: Tensors, outside: Outside, carried: int,
    sum_up: bool,
) -> Gradient:  # fmt: skip
    wanting = list(outside.wanting)
    summed = wanting if sum_up else []
    sums = [side.argument(contiguous_spec(t.shape, t.dtype)) for t in summed]
    given = [side.argument(contiguous_spec(t.shape, t.dtype)) for t in outputs]
    places = [side.value(t) for t in given], [side.value(t) for t in sums]
    pairs = [(o, g) for o, g in zip(outputs, given) if o.requires_grad]
    inputs = [t for t in leaves if t.requires_grad]
    stand_ins = [t for ts in outside.wanting.values() for t in ts]
    found = torch.autograd.grad(
        [o for o, _ in pairs], inputs + stand_ins, [g for _, g in pairs],
        allow_unused=True,
    )  # fmt: skip
    with torch.no_grad():
        totals, unused = _totals(sums, outside, iter(found[len(inputs) :]))
        own = iter(found)
        grads = [next(own) if t.requires_grad else None for t in leaves]
        idle = {i for i, g in enumerate(grads) if g is None}
        for i, t in enumerate(leaves if not sum_up else leaves[:carried]):
            if t.requires_grad and grads[i] is None:
                grads[i] = torch.zeros_like(t, requires_grad=False)
    of_arguments = [None if g is None else side.value(g) for g in grads]
    at = [side.value(t) for t in totals]
    return Gradient(wanting, *places, at, of_arguments, unused, idle)


def _totals(
    sums: Tensors, outside: Outside, grads: Iterator[Any]
) -> tuple[Tensors, set[int]]:
    """Per tensor from outside what was summed before and its gradients; and which of
    them have none."""
    totals: Tensors = []
    unused = set()
    for i, (tensor, stand_ins) in enumerate(outside.wanting.items()):
        total = sums[i] if sums else None
        own = [g for g in islice(grads, len(stand_ins)) if g is not None]
        if not own:
            unused.add(i)
        for grad in own:
            total = grad if total is None else total + grad
        if total is None:
            total = torch.zeros_like(tensor, requires_grad=False)
        totals.append(total)
    return totals, unused


def operand(source: Source | Slot) -> int:
    """The value number, in the current recording, of a value from outside (the lock is
    held)."""
    slot = source if isinstance(source, Slot) else source.slot()
    return slot.pos if slot.pos >= 0 else enter(slot)


def value_tensor(value: int, spec: Spec) -> torch.Tensor:
    """A tensor that holds the value number `value` (the lock is held)."""
    slot = Slot(value, spec)
    recorder.trace.add_result(slot)
    return new_tensor(slot)


def recorded_as(op: str) -> None:
    """An operation with a body has been recorded: in eager mode it is run now."""
    if is_eager_mode() and not recorder.trace.private:
        cut(Cause.EAGER, op)


def write_state(changes: Sequence[_Change], tensors: Sequence[torch.Tensor]) -> None:
    """What a function changed outside takes the values of `tensors`."""
    with recorder.lock:
        for change, tensor in zip(changes, tensors, strict=True):
            value = operand(slot_of(tensor))
            recorder.trace.add_result(change.slot)
            change.slot.write(value)
            if change.tensor is not None:
                torch.autograd.graph.increment_version(change.tensor)
