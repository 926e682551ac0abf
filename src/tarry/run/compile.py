"""Graph to XLA executable, through JAX's public ahead-of-time API."""

import re
import time
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tarry import dtypes
from tarry.lower.build import (
    build,
    is_complex,
    is_integral,
    loose_dtype,
    packing,
    vector_sizes,
)
from tarry.lower.xla import jax
from tarry.record.graph import Graph
from tarry.record.trie import Num
from tarry.report.why import Seen
from tarry.run.options import unfused
from tarry.run.platform import device, products, x64


@dataclass(frozen=True, slots=True)
class Layout:
    """How a program's run-time numbers are passed."""

    numbers: tuple[Num, ...]
    only_floats: bool

    @staticmethod
    def of(numbers: list[Num]) -> "Layout":
        packed = all(not n.loose for n in numbers)
        real = all(not is_integral(n.kind) and not is_complex(n.kind) for n in numbers)
        return Layout(tuple(numbers), packed and real)


@dataclass(slots=True)
class Executable:
    """A compiled program, and what its making cost (seconds)."""

    call: Any
    layout: Layout
    graph: Graph
    donated: tuple[int, ...]
    options: dict[str, str]
    seen: Seen
    trace_s: float = 0.0
    compile_s: float = 0.0
    uses: int = 0
    used: int = 0
    why: str = ""
    memory: dict[str, int] = field(default_factory=dict)

    @property
    def number(self) -> int:
        return self.seen.number

    def drop(self) -> None:
        """Free the compiled program; whoever still holds this must compile anew."""
        self.call = None


def usable_donation(graph: Graph, donated: tuple[int, ...]) -> tuple[int, ...]:
    """The donated inputs for which an output of the same shape and dtype is left."""
    specs: dict[int, Any] = {}
    value = 0
    inputs = set()
    for node in graph.nodes:
        if node.op == "tarry::input":
            inputs.add(value)
        for s in node.specs:
            specs[value] = (s.shape, s.dtype)
            value += 1
    free: dict[Any, int] = {}
    for v in graph.outputs:
        if v not in inputs:
            free[specs[v]] = free.get(specs[v], 0) + 1
    usable = []
    entries = graph.inputs
    for i in donated:
        s = entries[i].specs[0]
        if free.get((s.shape, s.dtype), 0):
            free[s.shape, s.dtype] -= 1
            usable.append(i)
    return tuple(usable)


def lower_graph(
    graph: Graph, donated: tuple[int, ...], numbers: list[Num], precision: str,
    name: str,
) -> Any:  # fmt: skip
    """`graph` as JAX's lowered computation; raises what a row raises."""
    floats, ints = vector_sizes(numbers)
    loose = [n for n in numbers if n.loose]
    program = build(graph, numbers)
    entries = graph.inputs
    place = jax.sharding.SingleDeviceSharding(device())

    def aval(shape: tuple, dtype: np.dtype) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=place)

    avals = [aval(n.specs[0].shape, dtypes.to_numpy(n.dtypes[0])) for n in entries]

    def flat(f: Any, i: Any, *rest: Any) -> list[Any]:
        return program(f, i, list(rest[: len(loose)]), list(rest[len(loose) :]))

    flat.__name__ = name
    with x64(), products(precision), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Some donated buffers were not usable")
        jitted = jax.jit(
            flat,
            donate_argnums=tuple(
                i + 2 + len(loose) for i in usable_donation(graph, donated)
            ),
            keep_unused=True,
        )
        return jitted.lower(
            aval((floats,), np.dtype(np.float64)),
            aval((ints,), np.dtype(np.int64)),
            *[aval((), loose_dtype(n.kind)) for n in loose],
            *avals,
        )


def compile_graph(
    graph: Graph, donated: tuple[int, ...], options: dict[str, str], precision: str,
    seen: Seen,
) -> Executable:  # fmt: skip
    """Trace, lower and compile `graph`; raises what a row or XLA raises."""
    # Unfused kernels are single operations, of which only equal ones compile once.
    numbers = packing(graph, all_loose=unfused(options))
    started = time.perf_counter()
    lowered = lower_graph(graph, donated, numbers, precision, f"tarry_{seen.number}")
    traced = time.perf_counter()
    with x64():
        compiled = lowered.compile(compiler_options=options or None)
    done = time.perf_counter()
    return Executable(
        compiled, Layout.of(numbers), graph, donated, options, seen,
        traced - started, done - traced, memory=_memory(compiled),
    )  # fmt: skip


_USES = ("argument", "output", "alias", "temp", "generated_code", "peak_memory")


def _memory(compiled: Any) -> dict[str, int]:
    """Bytes by use, as XLA plans them; empty where it does not say."""
    try:
        found = compiled.memory_analysis()
    except (NotImplementedError, RuntimeError):
        return {}
    sizes = {use: getattr(found, f"{use}_size_in_bytes", None) for use in _USES}
    sizes["peak_memory"] = getattr(found, "peak_memory_in_bytes", None)
    return {use: int(n) for use, n in sizes.items() if n is not None}


def is_out_of_memory(error: BaseException) -> bool:
    return re.search("RESOURCE_EXHAUSTED|out of memory", str(error)) is not None
