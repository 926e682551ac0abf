"""Operations that hold a body: loops, branches and calls, as XLA's own.

A body's run-time numbers come from outside the loop. A number that counts draws of
random bits goes on with the iteration: in a scan as if its iterations had been recorded
one after the other, in a while loop, whose length no one knows, in steps of 2^32, which
leaves the numbers of other draws alone.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tarry.lower.build import INTS, evaluate, loose_dtype
from tarry.lower.table import ARGUMENTS, Call, Scalar, convert, row
from tarry.lower.xla import lax
from tarry.record.body import Body


class _Given:
    """The numbers of a body, all at hand; those of draws are moved on by `shift`."""

    def __init__(self, body: Body, values: Sequence[Any], shift: Any) -> None:
        pairs = zip(body.numbers, values, strict=True)
        self._left = iter([(n, lax.add(v, shift) if n.draw else v) for n, v in pairs])

    def take(self) -> Scalar:
        number, value = next(self._left)
        return Scalar(number.kind, lambda dtype: convert(value, dtype))


_ZERO = np.int64(0)


def _values(numbers: Sequence[Scalar]) -> list[Any]:
    return [n.to(loose_dtype(n.kind)) for n in numbers]


def _run(body: Body, inputs: Sequence[Any], values: Sequence[Any], shift: Any) -> list:
    return evaluate(body.graph, inputs, _Given(body, values, shift))


@row("tarry::call")
def call_row(call: Call, body: Body, inputs: tuple, numbers: tuple) -> list[Any]:
    """The results of `body`."""
    return _run(body, inputs, _values(numbers), _ZERO)


@row("tarry::scan")
def scan(
    call: Call, body: Body, length: int, reverse: bool, state: tuple, slices: tuple,
    same: tuple, numbers: tuple,
) -> list[Any]:  # fmt: skip
    """`state` after all iterations, then what each of them gives besides, stacked.

    An iteration takes the state, its slices and `same`. `reverse`: from the last slice
    to the first.
    """
    values, n = _values(numbers), len(state)

    def step(carry: list[Any], at: Any) -> tuple[list[Any], list[Any]]:
        index, own = at
        shift = lax.mul(index, np.int64(body.draws)) if body.draws else _ZERO
        results = _run(body, [*carry, *own, *same], values, shift)
        return results[:n], results[n:]

    each = lax.iota(INTS, length), list(slices)
    final, stacked = lax.scan(step, list(state), each, length=length, reverse=reverse)
    return [*final, *stacked]


_MIX = 0x9E3779B1


def _apart(depth: int) -> np.int64:
    """How far the draws of a while loop's iterations lie apart, at this depth of loops
    in loops: multiples of 2^32 of which small sums do not meet."""
    return np.uint64((pow(_MIX, depth, 1 << 32) << 32) & (2**64 - 1)).astype(np.int64)


@row("tarry::while")
def while_loop(
    call: Call, goes_on: Body, body: Body, picks: tuple, depth: int, state: tuple,
    goes_on_same: tuple, body_same: tuple, goes_on_numbers: tuple, body_numbers: tuple,
) -> list[Any]:  # fmt: skip
    """`state` after as many iterations of `body` as `goes_on` tells, which takes those
    parts of it that `picks` names."""
    values = _values(goes_on_numbers), _values(body_numbers)
    apart = _apart(depth)

    def test(loop: Any) -> Any:
        index, state = loop
        shift = lax.mul(index, apart)
        inputs = [*[state[i] for i in picks], *goes_on_same]
        (found,) = _run(goes_on, inputs, values[0], shift)
        return lax.reshape(convert(found, np.dtype(np.bool_)), ())

    def step(loop: Any) -> Any:
        index, state = loop
        shift = lax.mul(index, apart)
        state = _run(body, [*state, *body_same], values[1], shift)
        return lax.add(index, np.int64(1)), state

    return lax.while_loop(test, step, (lax.full((), 0, INTS), list(state)))[1]


@row("tarry::cond")
def cond(
    call: Call, yes: Body | None, no: Body | None, test: Any, yes_inputs: tuple,
    no_inputs: tuple, yes_numbers: tuple, no_numbers: tuple,
) -> list[Any]:  # fmt: skip
    """The results of one of two bodies; zeros where there is none."""
    test = lax.reshape(convert(test, np.dtype(np.bool_)), ())

    def branch(body: Body | None, inputs: tuple, numbers: tuple) -> Any:
        values = _values(numbers)
        if body is None:
            return lambda: [lax.full(out.shape, 0, out.dtype) for out in call.outs]
        return lambda: _run(body, inputs, values, _ZERO)

    return lax.cond(
        test, branch(yes, yes_inputs, yes_numbers), branch(no, no_inputs, no_numbers)
    )


ARGUMENTS.update(
    {
        "tarry::call": ("body", "inputs", "numbers"),
        "tarry::scan": (
            "body",
            "length",
            "reverse",
            "state",
            "slices",
            "same",
            "numbers",
        ),
        "tarry::while": ("condition", "body"),
        "tarry::cond": ("if true", "if false"),
    }
)
