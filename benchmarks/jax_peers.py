"""The JAX peer: one jitted step with donated state a workload.

The loops have the form of those in `torch_peers.py`; launching a step is their "cut".
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import reference
from data import Arrays, Data, projection
from records import End
from workloads import ADAM_RATE, GPT, chain_ops

Lap = Callable[[str], None]


class Jax:
    """JAX with these compile options; counts its compiles."""

    def __init__(self, options: dict[str, str] | None) -> None:
        self.options = options
        self.compiles, self.compile_s = 0, 0.0
        jax.monitoring.register_event_duration_secs_listener(self.hear)

    def hear(self, event: str, seconds: float, **_: Any) -> None:
        if event.endswith("backend_compile_duration"):
            self.compiles += 1
            self.compile_s += seconds

    def count(self, end: End) -> None:
        end.compiles, end.compile_s = self.compiles, self.compile_s

    def jit(self, function: Callable, *donated: int) -> Callable:
        return jax.jit(function, donate_argnums=donated, compiler_options=self.options)


def put(array: np.ndarray) -> jax.Array:
    """Whole numbers as JAX counts by default, in 32 bits."""
    is_long = array.dtype == np.int64
    return jax.device_put(array.astype(np.int32) if is_long else array)


def put_all(arrays: Arrays) -> dict[str, jax.Array]:
    return {name: put(a) for name, a in arrays.items()}


def zeros(params: Arrays) -> dict[str, jax.Array]:
    return put_all({name: np.zeros_like(a) for name, a in params.items()})


def adam_state(params: Arrays) -> tuple:
    return put(np.array(0)), zeros(params), zeros(params)


class Loop:
    """One workload; `out` is what a step has to have computed."""

    out: Any = ()

    def __init__(self, backend: Jax, workload: str, data: Data) -> None:
        self.backend, self.workload, self.data = backend, workload, data
        self.setup()
        jax.block_until_ready(self.out)

    def setup(self) -> None:
        raise NotImplementedError

    def prepare(self, i: int) -> None:
        """Before step `i`, outside its time."""

    def step(self, i: int, lap: Lap) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        jax.block_until_ready(self.out)

    def loss(self) -> float:
        return float(np.asarray(self.out[-1]).mean())


class Train(Loop):
    def setup(self) -> None:
        params, buffers = self.data.params, self.data.buffers
        moments = adam_state if self.workload == "gpt" else zeros
        state = put_all(params), put_all(buffers), moments(params)
        self.batches = [(put(x), put(y)) for x, y in self.data.batches]
        self.call = self.backend.jit(reference.make_step(self.workload), 0)
        self.out = state, 0.0

    def step(self, i: int, lap: Lap) -> None:
        x, y = self.batches[i % len(self.batches)]
        self.out = self.call(self.out[0], x, y)
        lap("cut")


class Update(Loop):
    def setup(self) -> None:
        def update(state: tuple, grads: Arrays) -> tuple:
            return reference.adam(state[0], grads, state[1], ADAM_RATE)

        params = self.data.params
        self.grads = put_all(self.data.grads)
        self.out = put_all(params), adam_state(params)
        self.call = self.backend.jit(update, 0)

    def step(self, i: int, lap: Lap) -> None:
        self.out = self.call(self.out, self.grads)
        lap("cut")

    def loss(self) -> float:
        params = {name: np.asarray(a) for name, a in self.out[0].items()}
        return projection(params, self.data.grads)


class Decode(Loop):
    def setup(self) -> None:
        cache = {n: a for n, a in self.data.buffers.items() if n != "positions"}
        self.params = put_all(self.data.params)
        self.out = put_all(cache), None, None, None
        self.call = self.backend.jit(reference.decode, 1)

    def prepare(self, i: int) -> None:
        if i % GPT.context == 0:
            start = put(np.array([[1]])), put(np.array([0]))
            self.out = self.out[0], *start, None
            jax.block_until_ready(self.out)

    def step(self, i: int, lap: Lap) -> None:
        self.out = self.call(self.params, *self.out[:3])
        lap("cut")

    def finish(self) -> None:
        np.asarray(self.out[1]).item()
        jax.block_until_ready(self.out)


class Chain(Loop):
    def setup(self) -> None:
        ops = chain_ops(self.workload)
        self.inputs = [put(a) for a in self.data.batches[0]]
        self.call = self.backend.jit(lambda x, y: reference.chain(x, y, ops))

    def step(self, i: int, lap: Lap) -> None:
        self.out = (self.call(*self.inputs),)
        lap("cut")


def load(peer: str) -> Jax:
    """`jax`, or `jax_nofusion`: without XLA's fusion pass."""
    return Jax(reference.NO_FUSION if peer == "jax_nofusion" else None)


def make_loop(backend: Jax, workload: str, data: Data) -> Loop:
    if chain_ops(workload):
        return Chain(backend, workload, data)
    kind = {"decode": Decode, "adam300": Update}.get(workload, Train)
    return kind(backend, workload, data)
