"""The canonical graph of a cut: what its outputs need, in recorded order, renumbered.

Equality is structural: two paths through the trie that compute the same from the same
kinds of inputs give equal graphs, whatever else was recorded around them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tarry.record.slot import Spec
from tarry.record.trie import INPUT, Instr, Line, Num, operands


@dataclass(frozen=True, slots=True)
class Node:
    """One operation: operand numbers are canonical value numbers.

    Result shapes follow from the operands', so they are no part of the structure —
    except where an op has no operands, or is tarry's own (`shapes`).
    """

    op: str
    args: tuple
    dtypes: tuple
    shapes: tuple
    specs: tuple[Spec, ...] = field(compare=False)
    line: Line = field(compare=False)


@dataclass(frozen=True, slots=True)
class Graph:
    """Values are numbered through: node after node, result after result.

    An input is a node `tarry::input` whose args are its shape; numbers (run-time
    Python numbers) stand in the args as `Num`, in order of appearance.
    """

    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]

    @property
    def inputs(self) -> list[Node]:
        return [n for n in self.nodes if n.op == INPUT]


@dataclass(frozen=True, slots=True)
class Bound:
    """A graph together with where the trace keeps what it consumes and makes."""

    graph: Graph
    inputs: tuple[int, ...]  # value numbers of the trace's inputs, in graph order
    numbers: tuple[int, ...]  # instructions that bring run-time numbers
    outputs: tuple[int, ...]  # value numbers of the trace
    sources: tuple[int, ...]  # base value number of each node of the graph


def reached(
    path: list[Instr], wanted: Iterable[int], given: Iterable[int] = ()
) -> list[Instr]:
    """The instructions of `path` that `wanted` is computed by, where the values
    `given` are at hand."""
    known = set(given)
    need = set(wanted) - known
    kept = []
    for node in reversed(path):
        if any(v in need for v in range(node.base, node.end)):
            kept.append(node)
            need.update(v for v in operands(node.args) if v not in known)
    kept.reverse()
    return kept


def _first_uses(nodes: list[Instr]) -> dict[int, Line]:
    """Where each value is used first. An input's own line may be that of another tensor
    of its shape, whose trace began like this one."""
    found: dict[int, Line] = {}
    for node in nodes:
        for v in operands(node.args):
            found.setdefault(v, node.line)
    return found


def renumber(arg: Any, number: dict[int, int]) -> Any:
    if isinstance(arg, tuple):
        return tuple([renumber(a, number) for a in arg])
    return number[arg] if type(arg) is int else arg


def as_node(instr: Instr, number: dict[int, int], line: Line) -> Node:
    """An instruction in a graph; `number`: canonical numbers by value number."""
    dtypes = tuple([s.dtype for s in instr.specs])
    free = instr.op.startswith("tarry::") or next(operands(instr.args), None) is None
    shapes = tuple([s.shape for s in instr.specs]) if free else ()
    args = renumber(instr.args, number)
    return Node(instr.op, args, dtypes, shapes, instr.specs, line)


def bind(last: Instr, outputs: tuple[int, ...]) -> Bound:
    """The canonical graph of `outputs` (value numbers of the trace ending at last)."""
    number: dict[int, int] = {}
    nodes, inputs, numbers, sources = [], [], [], []
    path = reached(last.path(), outputs)
    used = _first_uses(path)
    for node in path:
        line = used.get(node.base, node.line) if node.op == INPUT else node.line
        nodes.append(as_node(node, number, line))
        for v in range(node.base, node.end):
            number[v] = len(number)
        if node.op == INPUT:
            inputs.append(node.base)
        if node.scalars:
            numbers.append(node.base)
        sources.append(node.base)
    graph = Graph(tuple(nodes), tuple([number[v] for v in outputs]))
    return Bound(graph, tuple(inputs), tuple(numbers), outputs, tuple(sources))


def run_time_numbers(args: Any) -> list[Num]:
    """The run-time numbers in `args`, in order."""
    if isinstance(args, tuple):
        return [n for a in args for n in run_time_numbers(a)]
    return [args] if isinstance(args, Num) else []
