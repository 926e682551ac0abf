"""`scan`: a function over the leading dimension of tensors, as one operation.

Its body is recorded once. Going backward is a second scan, from the last iteration to
the first, over what the first one kept of each iteration.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tarry.dispatch import seam
from tarry.dispatch.operands import read, record_op
from tarry.dispatch.random import stream
from tarry.flow.body import (
    Gradient,
    Recorded,
    Tensors,
    once,
    operand,
    record,
    recorded_as,
    value_tensor,
    write_state,
)
from tarry.flow.outside import inside
from tarry.flow.trees import only_tensors, same_form
from tarry.record.body import number_args
from tarry.record.slot import Spec, contiguous_spec
from tarry.record.trie import const, recorder


def scan(
    fn: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any,
    partition_fn: Any = None, is_fn_pure: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """`carry, y = fn(carry, x)` for every slice `x` of `xs` along dimension 0, as one
    operation: `(the last carry, all y stacked)`.

    `init`, `xs` and the results are tensors of the device in any containers; `carry`
    keeps its structure, shapes and dtypes. `fn` is recorded once for each call, however
    long `xs` is, and may use tensors from outside, which get gradients, too. Random
    numbers are those that a Python loop would draw. What `fn` writes to `carry` or `x`
    in place, no one else sees; what it writes to other tensors, it does.

    `partition_fn`: what the backward pass gets of an iteration. By default all that it
    needs is kept; a function with "remat" in its name (functorch's
    `min_cut_rematerialization_partition`) keeps only the carries and computes the rest
    again. `is_fn_pure`: taken for torch_xla's sake; recording again is cheap.

    Raises ValueError for an `fn` that cannot be called, for `xs` without tensors or of
    unequal lengths, and for a carry that changes its form; AsideError where `fn` reads
    a value on the host.
    """
    if not callable(fn):
        raise ValueError(f"scan: `fn` must be callable, got {type(fn).__name__}")
    state, state_tree = only_tensors(init, "scan: `init`")
    slices, slices_tree = only_tensors(xs, "scan: `xs`")
    length = _length(slices)

    def flat(tensors: Tensors) -> tuple[Tensors, Any]:
        found = fn(
            state_tree.filled(tensors[: len(state)]),
            slices_tree.filled(tensors[len(state) :]),
        )
        if not isinstance(found, tuple) or len(found) != 2:
            raise ValueError("scan: `fn` must return a tuple: (carry, y)")
        carry, tree = only_tensors(found[0], "scan: the carry that `fn` returns")
        same_form(state, carry, (state_tree, tree), "scan: the carry")
        ys, ys_tree = only_tensors(found[1], "scan: the `y` that `fn` returns")
        return carry + ys, ys_tree

    again = "remat" in getattr(partition_fn, "__name__", "")
    outs, ys_tree = scan_flat(flat, state, slices, length, again)
    return state_tree.filled(outs[: len(state)]), ys_tree.filled(outs[len(state) :])


def _length(slices: Tensors) -> int:
    if not slices:
        raise ValueError("scan: `xs` holds no tensor, so its length is unknown")
    for t in slices:
        if t.dim() == 0:
            raise ValueError("scan: `xs` holds a 0-d tensor, which has no slices")
    lengths = {t.shape[0] for t in slices}
    if len(lengths) > 1:
        shapes = ", ".join(str(list(t.shape)) for t in slices)
        raise ValueError(
            f"scan: the tensors in `xs` must have one length, the size of dimension 0; "
            f"got shapes {shapes}"
        )
    return lengths.pop()


def scan_flat(
    fn: Callable[[Tensors], tuple[Tensors, Any]], state: Tensors, slices: Tensors,
    length: int, again: bool = False,
) -> tuple[Tensors, Any]:  # fmt: skip
    """`scan` of a function of lists: it takes state and slices, and returns the state
    and what is stacked. Also what it gave as its result."""
    specs = [contiguous_spec(t.shape, t.dtype) for t in state]
    specs += [contiguous_spec(t.shape[1:], t.dtype) for t in slices]
    wants = [t.requires_grad for t in (*state, *slices)]
    recorded = record(fn, specs, wants, carried=len(state))
    return scan_recorded(recorded, state, slices, length, again), recorded.result


def scan_recorded(
    recorded: Recorded, state: Tensors, slices: Tensors, length: int,
    again: bool = False,
) -> Tensors:  # fmt: skip
    """The scan of a recorded body."""
    stream.skip((length - 1) * recorded.draws)
    loop = _Loop(recorded, state, slices, length, again)
    if recorded.gradient is None:
        with torch.no_grad():
            return loop.forward()[: len(recorded.outputs)]
    tensors = inside([*state, *slices, *recorded.gradient.tensors])
    return list(_Differentiable.apply(loop, *tensors))


class _Differentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, loop: "_Loop", *tensors: torch.Tensor) -> tuple:
        outs = loop.forward()
        n = len(loop.recorded.outputs)
        loop.forget_tensors()
        ctx.loop = loop
        ctx.save_for_backward(*outs[n:])
        pairs = zip(outs, loop.recorded.gives)
        ctx.mark_non_differentiable(*[t for t, has in pairs if not has])
        return tuple(outs[:n])

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple:
        with torch.no_grad():
            found = ctx.loop.backward(list(grads), list(ctx.saved_tensors))
        return None, *once("scan", found)


@dataclass(slots=True)
class _Kept:
    """Value numbers of the body that the backward pass takes: kept of each iteration,
    slices of the scan's own, and equal in all iterations."""

    stacked: list[int]
    slices: list[int]
    same: list[int]


class _Loop:
    """One scan: its body, what it takes, and what its backward pass needs."""

    def __init__(
        self, recorded: Recorded, state: Tensors, slices: Tensors, length: int,
        again: bool,
    ) -> None:  # fmt: skip
        self.recorded, self.length = recorded, length
        self.state, self.slices = state, slices
        self.carried = len(state)
        self.kept = self._what_to_keep(again)

    def forget_tensors(self) -> None:
        """Hold nothing from outside: that would keep it alive until the backward."""
        self.state, self.slices = [], []
        self.recorded.release()

    def _what_to_keep(self, again: bool) -> _Kept:
        r, n = self.recorded, self.carried
        if r.gradient is None:
            return _Kept([], [], [])
        own = r.arguments[n:]
        g = r.gradient
        at_hand = [*g.given, *g.sums, *own, *r.same]
        stacked = r.to_keep(at_hand, self._wanted(), again)
        used = r.used(at_hand + stacked, self._wanted())
        return _Kept(
            stacked, [v for v in own if v in used], [v for v in r.same if v in used]
        )

    def forward(self) -> Tensors:
        """State, stacked results, and then what the backward pass takes."""
        r, n = self.recorded, self.carried
        before = [c.before for c in r.state]
        after = [c.after for c in r.state]
        given = r.arguments[:n] + before + r.arguments[n:] + r.same
        wanted = r.outputs[:n] + after + r.outputs[n:] + self.kept.stacked
        body, numbers = r.part(given, wanted)
        stacked = [*r.out_specs[n:], *map(r.spec_of, self.kept.stacked)]
        specs = r.out_specs[:n] + [c.slot.spec for c in r.state]
        with recorder.lock:
            state = [read(t) for t in self.state]
            state += [operand(c.slot) for c in r.state]
            slices = [read(t) for t in self.slices]
            same = [operand(s) for s in r.sources]
            args = (
                body.const(), const(self.length), const(False), tuple(state),
                tuple(slices), tuple(same), number_args(body),
            )  # fmt: skip
            outs = record_op(
                "tarry::scan",
                args,
                (*specs, *[_stacked(s, self.length) for s in stacked]),
                numbers,
            )
            saved = self._snapshots(slices, same)
        write_state(r.state, outs[n : n + len(r.state)])
        recorded_as("tarry::scan")
        return outs[:n] + outs[n + len(r.state) :] + saved

    def _snapshots(self, slices: list[int], same: list[int]) -> Tensors:
        """Tensors of their own with the values that the backward pass takes."""
        r, n = self.recorded, self.carried
        own = dict(zip(r.arguments[n:], slices))
        known = dict(zip(r.same, same))
        found = [
            value_tensor(own[v], _stacked(r.spec_of(v), self.length))
            for v in self.kept.slices
        ]
        return found + [value_tensor(known[v], r.spec_of(v)) for v in self.kept.same]

    def _wanted(self) -> list[int]:
        """What the backward body gives: gradients of the state, sums, of slices."""
        g, n = self.recorded.gradient, self.carried
        assert g is not None
        found = [*g.of_arguments[:n], *g.totals, *g.of_arguments[n:]]
        return [v for v in found if v is not None]

    def backward(self, grads: Tensors, saved: Tensors) -> Tensors:
        """Gradients of the state, the slices and the tensors from outside."""
        r, n, g = self.recorded, self.carried, self.recorded.gradient
        assert g is not None
        kept = self.kept
        moving = [i for i, v in enumerate(g.of_arguments[:n]) if v is not None]
        given = [g.given[i] for i in moving] + g.sums + g.given[n:]
        given += [*kept.stacked, *kept.slices, *kept.same]
        body, numbers = r.part(given, self._wanted())
        sums = [_zeros(r.spec_of(v)) for v in g.sums]
        first = [grads[i] for i in moving] + sums
        split = len(kept.stacked) + len(kept.slices)
        each = grads[n:] + saved[:split]
        specs = [r.spec_of(v) for v in self._wanted()]
        specs[len(first) :] = [_stacked(s, self.length) for s in specs[len(first) :]]
        with recorder.lock:
            state, slices, same = (
                tuple([read(t) for t in ts]) for ts in (first, each, saved[split:])
            )
            args = (
                body.const(), const(self.length), const(True), state, slices, same,
                number_args(body),
            )  # fmt: skip
            outs = record_op("tarry::scan", args, tuple(specs), numbers)
        recorded_as("tarry::scan")
        return self._arranged(outs, moving, g)

    def _arranged(self, outs: Tensors, moving: list[int], g: Gradient) -> list:
        """Gradients in the order of state, slices and tensors from outside."""
        n, of_sums = self.carried, len(g.sums)
        found: list[Any] = [None] * len(g.of_arguments)
        for i, out in zip(moving, outs):
            found[i] = out
        rest = iter(outs[len(moving) + of_sums :])
        for i, v in enumerate(g.of_arguments[n:], n):
            found[i] = None if v is None else next(rest)
        return found + g.of_tensors(outs[len(moving) : len(moving) + of_sums])


def _stacked(spec: Spec, length: int) -> Spec:
    return contiguous_spec((length, *spec.shape), spec.dtype)


def _zeros(spec: Spec) -> torch.Tensor:
    return torch.zeros(spec.shape, dtype=spec.dtype, device=seam.DEVICE)
