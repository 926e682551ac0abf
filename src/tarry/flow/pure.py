"""`assume_pure`: a function recorded once and then called as one operation."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from operator import index
from typing import Any

import torch

from tarry.dispatch import seam
from tarry.dispatch.operands import read, record_op
from tarry.dispatch.random import stream
from tarry.dispatch.storage import is_ours, slot_of
from tarry.flow.body import (
    Tensors,
    once,
    operand,
    record,
    recorded_as,
    value_tensor,
    write_state,
)
from tarry.flow.outside import inside
from tarry.flow.trees import Tree, check_on_device, flatten
from tarry.record.body import number_args
from tarry.record.slot import Slot, Spec, contiguous_spec
from tarry.record.trie import recorder, token

MOST = 256  # forms of arguments that a function is kept recorded for


def assume_pure(
    fn: Callable[..., Any], *, add_rng_seed_argument: bool = False
) -> Callable[..., Any]:
    """`fn`, which runs once for every form of its arguments and is replayed from then
    on, as one operation with gradients, without running its Python code.

    Promise that `fn` does nothing but compute results from its arguments by operations
    of the device. A form is the containers of the arguments, the shapes, dtypes and
    needs of gradients of their tensors, and their other values, which are compared by
    value. Tensors from outside (a module's parameters, for example) are read, changed
    and given gradients at every call, as far as they are the same objects; anything
    else from outside stays as it was when `fn` was recorded. Random numbers are drawn
    anew at every call. `add_rng_seed_argument`: they depend on the call's keyword
    `rng_seed`, a 64-bit integer, alone, and the device's random state is left alone.

    Raises TypeError for arguments that cannot be hashed, ValueError for tensors of
    other devices; AssertionError, as torch_xla does, where `rng_seed` is missing;
    AsideError where `fn` reads a value on the host.
    """
    kept: dict[Any, _Call] = {}

    def run(*args: Any, **kwargs: Any) -> Any:
        tensors, tree = flatten((args, kwargs))
        check_on_device(tensors, "assume_pure: an argument")
        key = _form(fn, tensors, tree)
        call = kept.get(key)
        if call is None or not call.fits():
            if len(kept) >= MOST:
                kept.pop(next(iter(kept)))
            call = kept[key] = _Call(fn, tensors, tree)
        return call.recorded.result.filled(call.run(tensors))

    def seeded(*args: Any, rng_seed: int | None = None, **kwargs: Any) -> Any:
        if rng_seed is None:
            raise AssertionError("assume_pure: the keyword rng_seed is missing")
        with stream.at(index(rng_seed), 0):
            return run(*args, **kwargs)

    return functools.wraps(fn, updated=())(seeded if add_rng_seed_argument else run)


def _form(fn: Any, tensors: Tensors, tree: Tree) -> Any:
    try:
        others = tuple(map(token, tree.others))
        hash(others)
    except TypeError as error:
        raise TypeError(
            f"assume_pure: arguments must be tensors or have a hash ({error})"
        ) from None
    grad = torch.is_grad_enabled()
    specs = [(tuple(t.shape), t.dtype, grad and t.requires_grad) for t in tensors]
    autocast = torch.is_autocast_enabled(seam.DEVICE) and torch.get_autocast_dtype(
        seam.DEVICE
    )
    owner = getattr(fn, "__self__", fn)
    training = getattr(owner, "training", None)
    return (tree.shape, others, tuple(specs), grad, autocast, training,
            torch.get_default_dtype())  # fmt: skip


@dataclass(slots=True)
class _Taken:
    """Memory from outside: a tensor on it, the slot it was recorded with, its spec."""

    tensor: torch.Tensor | None
    slot: Any
    spec: Spec

    def now(self) -> Any:
        return self.slot if self.tensor is None else slot_of(self.tensor)


class _Call:
    """A function, recorded for one form of arguments."""

    def __init__(self, fn: Callable, tensors: Tensors, tree: Tree) -> None:
        def flat(inputs: Tensors) -> tuple[Tensors, Tree]:
            args, kwargs = tree.filled(inputs)
            found, result = flatten(fn(*args, **kwargs))
            for t in found:
                if not is_ours(t):
                    raise ValueError(f"assume_pure: a result is on {t.device}")
            return found, result

        specs = [contiguous_spec(t.shape, t.dtype) for t in tensors]
        self.first = stream.draws
        self.recorded = r = record(
            flat, specs, [t.requires_grad for t in tensors], sums=False
        )
        stream.skip(-r.draws)
        slots = [s if isinstance(s, Slot) else s.slot() for s in r.sources]
        self.taken = [_Taken(r.by_slot.get(s), s, s.spec) for s in slots]
        self.changed = [_Taken(c.tensor, c.slot, c.slot.spec) for c in r.state]
        self._plan()

    def fits(self) -> bool:
        """False where memory from outside has another form now."""
        return all(t.now().spec is t.spec for t in (*self.taken, *self.changed))

    def _plan(self) -> None:
        r, g = self.recorded, self.recorded.gradient
        self.kept: list[int] = []
        self.at_hand: list[int] = []
        before, after = [c.before for c in r.state], [c.after for c in r.state]
        if g is not None:
            wanted = self._wanted()
            own = r.arguments + r.same
            self.kept = r.to_keep([*g.given, *own], wanted, False)
            used = r.used([*g.given, *own, *self.kept], wanted)
            self.at_hand = [v for v in own if v in used]
            given = g.given + self.kept + self.at_hand
            self.back, self.back_numbers = r.part(given, wanted)
        given = r.arguments + before + r.same
        self.body, self.numbers = r.part(given, r.outputs + after + self.kept)
        self.specs = [*r.out_specs, *[c.slot.spec for c in r.state],
                      *map(r.spec_of, self.kept)]  # fmt: skip

    def _wanted(self) -> list[int]:
        g = self.recorded.gradient
        assert g is not None
        return [v for v in g.of_arguments if v is not None] + g.totals

    def run(self, tensors: Tensors) -> Tensors:
        g = self.recorded.gradient
        if g is None:
            with torch.no_grad():
                return self.forward(tensors)[0]
        every = inside([*tensors, *g.tensors])
        return list(_Differentiable.apply(self, len(tensors), *every))

    def forward(self, tensors: Tensors) -> tuple[Tensors, Tensors, tuple[int, int]]:
        """Results; what the backward pass takes; and the random state before."""
        r, n = self.recorded, len(self.recorded.outputs)
        before = stream.seed, stream.draws
        numbers = stream.renumbered(self.numbers, self.body.numbers, self.first)
        with recorder.lock:
            inputs = [read(t) for t in tensors]
            state = [operand(t.now()) for t in self.changed]
            same = [operand(t.now()) for t in self.taken]
            args = (
                self.body.const(), (*inputs, *state, *same), number_args(self.body)
            )  # fmt: skip
            outs = record_op("tarry::call", args, tuple(self.specs), numbers)
            known = dict(zip(r.arguments + r.same, inputs + same))
            saved = [value_tensor(known[v], r.spec_of(v)) for v in self.at_hand]
        stream.skip(r.draws)
        for change, taken in zip(r.state, self.changed):
            change.slot = taken.now()
        write_state(r.state, outs[n : n + len(r.state)])
        recorded_as("tarry::call")
        return outs[:n], outs[n + len(r.state) :] + saved, before

    def backward(self, grads: Tensors, saved: Tensors, before: tuple) -> list:
        g = self.recorded.gradient
        assert g is not None
        with stream.at(*before):
            numbers = stream.renumbered(
                self.back_numbers, self.back.numbers, self.first
            )
        specs = tuple([self.recorded.spec_of(v) for v in self._wanted()])
        with recorder.lock:
            inputs = tuple([read(t) for t in (*grads, *saved)])
            args = (self.back.const(), inputs, number_args(self.back))
            outs = iter(record_op("tarry::call", args, specs, numbers))
        recorded_as("tarry::call")
        found = [None if v is None else next(outs) for v in g.of_arguments]
        found = [None if i in g.idle else t for i, t in enumerate(found)]
        return [*found, *g.of_tensors(list(outs))]


class _Differentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: _Call, n: int, *tensors: torch.Tensor) -> tuple:
        outs, saved, ctx.before = call.forward(list(tensors[:n]))
        ctx.call = call
        ctx.save_for_backward(*saved)
        pairs = zip(outs, call.recorded.gives)
        ctx.mark_non_differentiable(*[t for t, has in pairs if not has])
        return tuple(outs)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple:
        saved = list(ctx.saved_tensors)
        with torch.no_grad():
            found = ctx.call.backward(list(grads), saved, ctx.before)
        return None, None, *once("a function under assume_pure", found)
