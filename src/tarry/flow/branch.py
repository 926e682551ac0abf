"""`cond`: one of two functions, chosen by a value on the device, as one operation."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tarry.dispatch import seam
from tarry.dispatch.operands import read, record_op
from tarry.dispatch.random import stream
from tarry.dispatch.storage import is_ours
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
from tarry.flow.trees import Tree, only_tensors, same_form
from tarry.record.body import Body, number_args
from tarry.record.slot import Spec, contiguous_spec
from tarry.record.trie import const, recorder


def cond(
    pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any],
    operands: Sequence[Any] = (),
) -> Any:  # fmt: skip
    """`true_fn(*operands) if pred else false_fn(*operands)`, as one operation.

    `pred`: a tensor of one element, or a bool, which decides at once. Both functions
    are recorded, and must return the same structure with the same shapes and dtypes;
    they may use tensors from outside. Gradients go through the one that was taken,
    which is computed again on the way back.

    Raises ValueError where the results differ in form or `pred` has several elements;
    AsideError where a function reads a value on the host.
    """
    if not isinstance(pred, torch.Tensor):
        return true_fn(*operands) if pred else false_fn(*operands)
    if pred.numel() != 1:
        raise ValueError(f"cond: `pred` must be one value, got {list(pred.shape)}")
    tensors, tree = only_tensors(tuple(operands), "cond: `operands`")
    first: list[tuple[Tensors, Tree]] = []

    def flat(branch: Callable[..., Any]) -> Any:
        def run(inputs: Tensors) -> tuple[Tensors, Any]:
            found = only_tensors(branch(*tree.filled(inputs)), "cond: a result")
            if first:
                trees = first[0][1], found[1]
                same_form(first[0][0], found[0], trees, "cond: the second function")
            else:
                first.append(found)
            return found

        return run

    branches = _Branches(flat(true_fn), flat(false_fn), tensors)
    return branches.yes.result.filled(branches.outputs(_on_device(pred)))


def _on_device(pred: torch.Tensor) -> torch.Tensor:
    return pred.detach() if is_ours(pred) else pred.detach().to(seam.DEVICE)


class _Branches:
    """Two recorded functions that give the same, change the same and take gradients to
    the same tensors."""

    def __init__(self, yes: Any, no: Any, operands: Tensors) -> None:
        specs = [contiguous_spec(t.shape, t.dtype) for t in operands]
        wants = [t.requires_grad for t in operands]
        begun = stream.draws
        found = [record(f, specs, wants, sums=False) for f in (yes, no)]
        slots = list(dict.fromkeys(c.slot for r in found for c in r.state))
        both = [t for r in found if r.gradient for t in r.gradient.tensors]
        tensors = list(dict.fromkeys(both))
        if any(not r.is_about(slots, tensors) for r in found):
            stream.skip(begun - stream.draws)
            found = [
                record(f, specs, wants, 0, slots, tensors, sums=False)
                for f in (yes, no)
            ]
        self.yes, self.no = found
        self.operands, self.slots, self.tensors = operands, slots, tensors
        pairs = zip(self.yes.gives, self.no.gives)
        self.gives = [a or b for a, b in pairs]

    def outputs(self, pred: torch.Tensor) -> Tensors:
        if not any(self.gives):
            with torch.no_grad():
                return self.forward(pred)
        tensors = inside([*self.operands, *self.tensors])
        return list(_Differentiable.apply(self, pred, *tensors))

    def forward(self, pred: torch.Tensor) -> Tensors:
        n = len(self.yes.outputs)
        parts, taken = [], []
        with recorder.lock:
            for r in (self.yes, self.no):
                given = r.arguments + r.same + [c.before for c in r.state]
                parts.append(r.part(given, r.outputs + r.after(self.slots)))
                own = [operand(s) for s in (*r.sources, *[c.slot for c in r.state])]
                taken.append((*[read(t) for t in self.operands], *own))
            specs = (*self.yes.out_specs, *[s.spec for s in self.slots])
            outs = _record(pred, parts, taken, specs)
        changes = {c.slot: c for r in (self.yes, self.no) for c in r.state}
        write_state([changes[s] for s in self.slots], outs[n:])
        recorded_as("tarry::cond")
        return outs[:n]

    def snapshots(self) -> tuple[Tensors, Tensors]:
        """Tensors of their own with what each branch takes from outside."""
        with recorder.lock:
            yes, no = (
                [
                    value_tensor(operand(s), r.spec_of(v))
                    for s, v in zip(r.sources, r.same)
                ]
                for r in (self.yes, self.no)
            )
        return yes, no

    def release(self) -> None:
        self.operands, self.slots, self.tensors = [], [], []
        self.yes.release()
        self.no.release()

    def backward(
        self, pred: torch.Tensor, grads: Tensors, given: Tensors, taken: list[Tensors]
    ) -> list:
        """Gradients of the operands and of the tensors from outside."""
        known = self.yes if self.yes.gradient is not None else self.no
        g = known.gradient
        assert g is not None
        wanted = [i for i, v in enumerate(g.of_arguments) if v is not None]
        specs = [known.spec_of(v) for v in g.of_arguments if v is not None]
        specs += [known.spec_of(v) for v in g.totals]
        parts: list[Any] = []
        inputs: list[tuple] = []
        for r, same in zip((self.yes, self.no), taken):
            h = r.gradient
            if h is None:
                parts.append((None, ()))
                inputs.append(())
                continue
            results = [v for v in h.of_arguments if v is not None] + h.totals
            parts.append(r.part(h.given + r.arguments + r.same, results))
            inputs.append((*grads, *given, *same))
        with recorder.lock:
            values = [tuple([read(t) for t in ts]) for ts in inputs]
            outs = _record(pred, parts, values, tuple(specs))
        recorded_as("tarry::cond")
        both = [r.gradient for r in (self.yes, self.no) if r.gradient is not None]
        idle = set.intersection(*[h.idle for h in both])
        unused = set.intersection(*[h.unused for h in both])
        found: list[Any] = [None] * len(g.of_arguments)
        for i, out in zip(wanted, outs):
            found[i] = None if i in idle else out
        rest = enumerate(outs[len(wanted) :])
        return found + [None if i in unused else t for i, t in rest]


def _record(
    pred: torch.Tensor, parts: Sequence[tuple[Body | None, tuple]], taken: list[tuple],
    specs: tuple[Spec, ...],
) -> Tensors:  # fmt: skip
    (yes, yes_numbers), (no, no_numbers) = parts
    args = (
        const(None) if yes is None else yes.const(),
        const(None) if no is None else no.const(),
        read(pred), *taken,
        () if yes is None else number_args(yes),
        () if no is None else number_args(no),
    )  # fmt: skip
    return record_op("tarry::cond", args, specs, yes_numbers + no_numbers)


class _Differentiable(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, branches: _Branches, pred: torch.Tensor, *tensors: torch.Tensor
    ) -> tuple:
        n = len(branches.operands)
        yes, no = branches.snapshots()
        saved = [t.detach().clone() for t in branches.operands]
        outs = branches.forward(pred)
        ctx.save_for_backward(pred.clone(), *saved, *yes, *no)
        branches.release()
        ctx.branches, ctx.splits = branches, (1, 1 + n, 1 + n + len(yes))
        pairs = zip(outs, branches.gives)
        ctx.mark_non_differentiable(*[t for t, has in pairs if not has])
        return tuple(outs)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple:
        a, b, c = ctx.splits
        pred, *rest = ctx.saved_tensors
        given, yes, no = rest[: b - a], rest[b - a : c - a], rest[c - a :]
        with torch.no_grad():
            found = ctx.branches.backward(pred, list(grads), given, [yes, no])
        return None, None, *once("cond", found)
