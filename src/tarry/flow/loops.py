"""`while_loop` and `fori_loop`: loops as one operation, however long they are."""

from collections.abc import Callable
from typing import Any

import torch

from tarry.dispatch import seam
from tarry.dispatch.operands import read, record_op
from tarry.dispatch.random import stream
from tarry.errors import NoGradientError
from tarry.flow.body import (
    Recorded,
    Tensors,
    operand,
    record,
    recorded_as,
    write_state,
)
from tarry.flow.outside import depth, inside
from tarry.flow.scan import scan_recorded
from tarry.flow.trees import Tree, only_tensors, same_form
from tarry.record.body import number_args
from tarry.record.lines import user_line
from tarry.record.slot import contiguous_spec
from tarry.record.trie import const, recorder


def while_loop(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried: Any
) -> tuple:
    """`while cond_fn(*carried): carried = body_fn(*carried)`, as one operation.

    `carried`: a tuple or list of tensors of the device, in any containers, or of
    numbers, which become 0-d tensors. Structure, shapes and dtypes stay the same.
    `cond_fn` returns one boolean tensor. Both functions are recorded once for each
    call, and may use tensors from outside.

    No gradient goes through: how many iterations there are is not known (use `scan`, or
    `fori_loop` between two numbers). Random numbers differ from one iteration to the
    next, and after the loop as many count as drawn as one iteration draws.

    Raises ValueError where carried values change their form, or where `cond_fn` does
    not return one boolean; AsideError where a function reads a value on the host.
    """
    state, tree = only_tensors(_as_tensors(carried), "while_loop: `carried`")

    def body(tensors: Tensors) -> tuple[Tensors, Any]:
        return _stepped(tree, state, body_fn(*tree.filled(tensors))), None

    def goes_on(tensors: Tensors) -> tuple[Tensors, Any]:
        return [_boolean(cond_fn(*tree.filled(tensors)))], None

    specs = [contiguous_spec(t.shape, t.dtype) for t in state]
    wants = [t.requires_grad for t in state]
    test = record(goes_on, specs, [False] * len(specs))
    recorded = record(body, specs, wants, carried=len(specs))
    return tuple(tree.filled(while_recorded(test, recorded, state)))


def _as_tensors(carried: Any) -> Any:
    if not isinstance(carried, list | tuple):
        raise ValueError(
            f"while_loop: `carried` must be a tuple or a list, got "
            f"{type(carried).__name__}"
        )
    return tuple(
        torch.tensor(v, device=seam.DEVICE) if isinstance(v, int | float) else v
        for v in carried
    )


def _stepped(tree: Tree, state: Tensors, found: Any) -> Tensors:
    """The tensors of what a body returned, in place of `state`."""
    after = tuple(found) if isinstance(found, list | tuple) else (found,)
    tensors, after_tree = only_tensors(after, "while_loop: what `body_fn` returns")
    same_form(state, tensors, (tree, after_tree), "while_loop: the carried values")
    return tensors


def _boolean(found: Any) -> torch.Tensor:
    good = isinstance(found, torch.Tensor) and found.numel() == 1
    if not good or found.dtype is not torch.bool:
        what = found if not isinstance(found, torch.Tensor) else (
            f"{found.dtype} of shape {list(found.shape)}"
        )  # fmt: skip
        raise ValueError(
            f"while_loop: `cond_fn` must return a tensor of one boolean, got {what}"
        )
    return found


def while_recorded(test: Recorded, body: Recorded, state: Tensors) -> Tensors:
    """The loop of a recorded condition and a recorded body."""
    if body.gradient is None:
        with torch.no_grad():
            return _run(test, body, state)
    tensors = inside([*state, *body.gradient.tensors])
    return list(_OneWay.apply(lambda: _run(test, body, state), body.gives, *tensors))


class _OneWay(torch.autograd.Function):
    """A loop through which no gradient goes: going backward raises."""

    @staticmethod
    def forward(ctx: Any, run: Any, gives: list[bool], *tensors: torch.Tensor) -> tuple:
        outs = run()
        ctx.line = str(user_line())
        ctx.mark_non_differentiable(*[t for t, has in zip(outs, gives) if not has])
        return tuple(outs)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple:
        raise NoGradientError("while_loop", ctx.line)


def _run(test: Recorded, body: Recorded, state: Tensors) -> Tensors:
    slots = [c.slot for c in body.state]
    if test.state:
        raise ValueError("while_loop: `cond_fn` must not change tensors from outside")
    seen = {s: v for v, s in zip(test.same, test.sources) if s in slots}
    picks = [*range(len(state)), *[len(state) + slots.index(s) for s in seen]]
    test_same = [v for v in test.same if v not in seen.values()]
    test_from = [s for s in test.sources if s not in slots]
    given = body.arguments + [c.before for c in body.state] + body.same
    step, numbers = body.part(given, body.outputs + [c.after for c in body.state])
    given = test.arguments + list(seen.values()) + test_same
    ask, ask_numbers = test.part(given, test.outputs)
    with recorder.lock:
        carried = [read(t) for t in state] + [operand(s) for s in slots]
        args = (
            ask.const(), step.const(), const(tuple(picks)), const(depth()),
            tuple(carried), tuple([operand(s) for s in test_from]),
            tuple([operand(s) for s in body.sources]),
            number_args(ask), number_args(step),
        )  # fmt: skip
        specs = (*body.out_specs, *[s.spec for s in slots])
        outs = record_op("tarry::while", args, specs, ask_numbers + numbers)
    write_state(body.state, outs[len(state) :])
    recorded_as("tarry::while")
    return outs[: len(state)]


def fori_loop(
    lower: Any, upper: Any, body_fn: Callable[[torch.Tensor, Any], Any], init: Any
) -> Any:
    """`for i in range(lower, upper): value = body_fn(i, value)`, as one operation.

    `lower` and `upper`: integers, or integer tensors of the device, which are no part
    of the program: other bounds do not compile it again. `i` is an int64 tensor.
    `init`: tensors in any containers, whose form stays the same; the last value is
    returned. Gradients need numbers as bounds, and a program for each length.

    Raises ValueError where the value changes its form, NoGradientError going backward
    between bounds that are tensors.
    """
    state, tree = only_tensors(init, "fori_loop: `init`")
    number = isinstance(lower, int) and isinstance(upper, int)
    first, last = _bound(lower), _bound(upper)

    def body(tensors: Tensors) -> tuple[Tensors, Any]:
        *values, i, end = tensors
        found = body_fn(i, tree.filled(values))
        after, after_tree = only_tensors(found, "fori_loop: what `body_fn` returns")
        same_form(state, after, (tree, after_tree), "fori_loop: the value")
        return [*after, i + 1, end], None

    def goes_on(tensors: Tensors) -> tuple[Tensors, Any]:
        return [tensors[-2] < tensors[-1]], None

    every = [*state, first, last]
    specs = [contiguous_spec(t.shape, t.dtype) for t in every]
    recorded = record(body, specs, [t.requires_grad for t in every], len(every))
    if number and (recorded.gradient is not None):
        length = max(upper - lower, 0)
        outs = scan_recorded(recorded, every, [], length)
    else:
        test = record(goes_on, specs, [False] * len(specs))
        outs = while_recorded(test, recorded, every)
        if number:
            stream.skip((max(upper - lower, 0) - 1) * recorded.draws)
    return tree.filled(outs[: len(state)])


def _bound(value: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value.to(device=seam.DEVICE, dtype=torch.int64).reshape(())
    return torch.full((), int(value), dtype=torch.int64, device=seam.DEVICE)
