"""Programs and pending recordings as text: tarry's IR, StableHLO, XLA's optimized HLO,
and Graphviz."""

from typing import TypeAlias

import torch

from tarry.cut.sync import store
from tarry.dispatch.storage import slot_of
from tarry.dtypes import product_precision
from tarry.ledger import Compile, ledger
from tarry.lower.build import packing
from tarry.record.graph import Graph, bind
from tarry.record.slot import IR
from tarry.record.trie import live_slots, recorder
from tarry.report.ir import dot_text, graph_text
from tarry.report.programs import Source
from tarry.report.why import Named
from tarry.run.compile import Executable, lower_graph

What: TypeAlias = int | torch.Tensor | list[torch.Tensor] | None


def programs() -> list[Compile]:
    """The records of all programs compiled so far (the last 20,000), oldest first."""
    return list(ledger.compiles)


def text(what: What = None) -> str:
    """tarry's IR, one operation a line, of a program or of pending tensors.

    `what`: a program's number, a tensor or a list of tensors; None: the last program.
    Raises ValueError where there is no such program, or nothing is pending.
    """
    graph, names, donated = _graph(what)
    return graph_text(graph, names, donated)


def dot(what: What = None) -> str:
    """The graph as Graphviz DOT."""
    graph, names, _ = _graph(what)
    return dot_text(graph, names)


def stablehlo(what: What = None) -> str:
    """The graph as StableHLO, as it is given to XLA."""
    graph, _, donated = _graph(what)
    name = f"tarry_{what if isinstance(what, int) else 'graph'}"
    return xla_text(graph, "stablehlo", donated, name)


def xla_text(
    graph: Graph, dialect: str, donated: tuple[int, ...] = (), name: str = "tarry_graph"
) -> str:
    """A graph as it is given to XLA: `stablehlo` or `hlo`."""
    lowered = lower_graph(graph, donated, packing(graph), product_precision(), name)
    return lowered.as_text(dialect)


def hlo(program: int | None = None) -> str:
    """XLA's optimized HLO of a compiled program; the operations' metadata names the
    user's lines. Raises ValueError if the cache has evicted it."""
    number = _record(program).program
    for executable in store.values():
        if executable.number == number:
            return _compiled_text(executable)
    raise ValueError(f"program {number} was evicted from the cache: run it again first")


def _compiled_text(executable: Executable) -> str:
    return executable.call.as_text()


def _record(program: int | None) -> Compile:
    for record in reversed(ledger.compiles):
        if program is None or record.program == program:
            return record
    what = "no program" if program is None else f"no program {program}"
    raise ValueError(f"{what} was compiled; tarry.debug.programs() lists them")


def _graph(what: What) -> tuple[Graph, tuple[Named, ...], tuple[int, ...]]:
    if what is None or isinstance(what, int):
        source = _record(what).source
        if not isinstance(source, Source):
            raise ValueError(
                "this program comes from a saved ledger, without its graph"
            )
        return source.seen.key.graph, source.seen.inputs, source.seen.key.donation
    graph = pending([what] if isinstance(what, torch.Tensor) else what)
    if graph is None:
        raise ValueError("nothing is pending: these tensors have their values")
    return graph, (), ()


def pending(tensors: list[torch.Tensor] | None = None) -> Graph | None:
    """The graph that computes the tensors, or all that are alive; None if no value is
    pending."""
    with recorder.lock:
        trace = recorder.trace
        if tensors is None:
            wanted = tuple(
                sorted(v for v in live_slots(trace) if v not in trace.inputs)
            )
        else:
            slots = [slot_of(t) for t in tensors]
            wanted = tuple(dict.fromkeys(s.pos for s in slots if s.state is IR))
        return bind(trace.node, wanted).graph if wanted else None
