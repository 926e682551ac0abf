"""Launching a compiled program: asynchronous, numbers packed into two vectors."""

import atexit
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any
from weakref import ref

import numpy as np

from tarry.ledger import ledger
from tarry.lower.xla import jax
from tarry.run.compile import Executable, Layout
from tarry.run.platform import device, x64

# Weak: a buffer held here could not be donated.
_last: deque[Any] = deque(maxlen=1)


@cache
def _no_numbers() -> tuple[Any, Any]:
    """The two vectors of a program without run-time numbers."""
    with x64():
        return tuple(jax.device_put([np.zeros(0), np.zeros(0, np.int64)], device()))


def _vector(numbers: list[Any], dtype: type, empty: Any) -> Any:
    return np.array(numbers, dtype) if numbers else empty


def pack(layout: Layout, numbers: list[Any]) -> tuple[list, list, list]:
    """Numbers as the vectors of floats (complex ones as two) and of integers, and the
    loose ones."""
    if layout.only_floats:
        return numbers, [], []
    floats: list[float] = []
    ints: list[int] = []
    loose: list[Any] = []
    for form, n in zip(layout.numbers, numbers, strict=True):
        if form.loose:
            loose.append(n)
        elif n.__class__ is float:
            floats.append(n)
        elif isinstance(n, int):
            ints.append(n if -(2**63) <= n < 2**63 else n - 2**64)
        else:
            floats += (n.real, n.imag)
    return floats, ints, loose


_LOOSE: dict[type, Any] = {
    float: np.float64,
    int: np.int64,
    bool: np.int64,
    complex: np.complex128,
}


def _buffers(loose: list[Any]) -> list[Any]:
    """Loose numbers as device buffers, equal ones as one buffer."""
    values = [_LOOSE[n.__class__](n) for n in loose]
    bits = [v.tobytes() + v.dtype.char.encode() for v in values]
    distinct = dict(zip(bits, values))
    made = jax.device_put(list(distinct.values()), device())
    buffer = dict(zip(distinct, made))
    return [buffer[b] for b in bits]


def arguments(program: Executable, numbers: list[Any]) -> list[Any]:
    """What a program takes for these numbers, ahead of its inputs; call in `x64`."""
    floats, ints, loose = pack(program.layout, numbers)
    no_floats, no_ints = _no_numbers()
    vectors = [
        _vector(floats, np.float64, no_floats), _vector(ints, np.int64, no_ints),
    ]  # fmt: skip
    return vectors + _buffers(loose) if loose else vectors


def constant(program: Executable, numbers: list[Any]) -> "Constant":
    """Numbers that stay the same, on the device: every launch may take them."""
    with x64():
        placed = jax.device_put(arguments(program, numbers), device())
    return Constant(tuple(placed), len(numbers))


@dataclass(frozen=True, slots=True)
class Constant:
    """Packed numbers that are on the device, and how many they are."""

    arguments: tuple[Any, ...]
    count: int

    def __len__(self) -> int:
        return self.count


def launch(
    program: Executable, inputs: list[Any], numbers: "list[Any] | Constant"
) -> list[Any]:
    """The program's outputs, as buffers that may still be computed."""
    if isinstance(numbers, Constant):
        results = program.call(*numbers.arguments, *inputs)
    elif numbers:
        with x64():
            results = program.call(*arguments(program, numbers), *inputs)
    else:  # entering the 64-bit mode would cost more than the call
        results = program.call(*_no_numbers(), *inputs)
    program.uses += 1
    if results:
        _last.append(ref(results[0]))
    return results


def block() -> None:
    """Wait until the last launched program has run."""
    with ledger.timed("WaitTime"):
        while _last:
            value = _last.pop()()
            if value is None or value.is_deleted():
                program, given = _fence()
                value = program(given)
            value.block_until_ready()


@cache
def _fence() -> tuple[Any, Any]:
    """A program, and what it takes: it waits for those that were launched before it,
    since a thread's programs run in the order in which it launched them."""
    given = jax.device_put(np.zeros((), np.float32), device())
    return jax.jit(lambda x: x + 1).lower(given).compile(), given


@cache
def end_after_programs() -> None:
    """From now on the process ends when its programs have: one that still runs while
    the libraries are torn down would crash it. To be called once JAX is loaded, whose
    own end has to come later."""

    def wait() -> None:
        with suppress(Exception):
            block()

    atexit.register(wait)
