"""A part of a recording as one static argument: what a loop does in each iteration, or
a function that is called as one operation.

In: the last instruction of a recording made aside, the values that are given to the
part and those wanted from it. Out: a `Body`, hashed once and compared by structure, so
that equal functions are the same argument, and the instructions whose run-time numbers
it takes. Nothing else goes into a body: values from outside are given, too.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from tarry.record.graph import Graph, Node, as_node, reached, run_time_numbers
from tarry.record.trie import INPUT, VIEW, Const, Instr, Num, const, operands


class Body:
    """`graph`, whose inputs are the given values in their order; `draws`, how many
    random draws an iteration makes; `numbers`, the run-time numbers that it takes."""

    __slots__ = ("_hash", "draws", "graph", "numbers")

    def __init__(self, graph: Graph, draws: int) -> None:
        self.graph, self.draws = graph, draws
        self.numbers = tuple(
            [n for node in graph.nodes for n in run_time_numbers(node.args)]
        )
        self._hash = hash((graph, draws))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Body) or self._hash != other._hash:
            return False
        return self.draws == other.draws and self.graph == other.graph

    def __repr__(self) -> str:
        n = len(self.graph.nodes) - len(self.graph.inputs)
        return f"{{{n} operations}}"

    def const(self) -> Const:
        return Const(self, self)


def part(
    last: Instr, given: Sequence[int], wanted: Sequence[int], draws: int
) -> tuple[Body, tuple[int, ...]]:
    """What computes `wanted` from `given`, both value numbers of the recording, and the
    base numbers of its instructions with run-time numbers. Kept with `last`."""
    place = "part", tuple(given), tuple(wanted), draws
    found = last.programs.get(place)
    if found is None:
        found = last.programs[place] = _part(last, given, wanted, draws)
    return found


def _part(
    last: Instr, given: Sequence[int], wanted: Sequence[int], draws: int
) -> tuple[Body, tuple[int, ...]]:
    path = last.path()
    makers = _makers(path)
    number: dict[int, int] = {}
    nodes: list[Node] = []
    for v in given:
        number[v] = len(nodes)
        spec = makers[v].specs[v - makers[v].base]
        line = makers[v].line
        shape = (spec.shape,)
        nodes.append(
            Node(INPUT, (const(spec.shape),), (spec.dtype,), shape, (spec,), line)
        )
    count, scalars = len(nodes), []
    for instr in reached(path, wanted, number):
        nodes.append(as_node(instr, number, instr.line))
        for v in range(instr.base, instr.end):
            number.setdefault(v, count + v - instr.base)
        count += len(instr.specs)
        if instr.scalars:
            scalars.append(instr.base)
    graph = Graph(tuple(nodes), tuple([number[v] for v in wanted]))
    return Body(graph, draws), tuple(scalars)


def _makers(path: list[Instr]) -> dict[int, Instr]:
    return {v: n for n in path for v in range(n.base, n.end)}


CHEAP = (VIEW, "tarry::cast")  # made again rather than kept


def to_keep(
    last: Instr, end: int, given: Iterable[int], same: Iterable[int],
    wanted: Iterable[int], again: bool,
) -> list[int]:  # fmt: skip
    """Values from before value number `end` that have to be kept in order to compute
    `wanted` later, where `given` is at hand anyway.

    Not kept, but made again, is what costs nothing or what depends on nothing but
    `same`, values that are equal in all iterations; with `again` whatever can be.
    """
    path = last.path()
    makers, at_hand = _makers(path), set(given)
    fixed = _depending_on(path, set(same))
    kept: dict[int, None] = {}
    seen: set[int] = set()
    stack = list(wanted)
    while stack:
        v = stack.pop()
        if v in seen or v in at_hand:
            continue
        seen.add(v)
        maker = makers[v]
        remade = v >= end or v in fixed or again or maker.op in CHEAP
        if maker.op != INPUT and remade:
            stack += operands(maker.args)
        else:
            kept[v] = None
    return sorted(kept)


def used(last: Instr, given: Iterable[int], wanted: Iterable[int]) -> set[int]:
    """Those of `given` that `wanted` is computed from."""
    known = set(given)
    taken = {v for n in reached(last.path(), wanted, known) for v in operands(n.args)}
    return known & (taken | set(wanted))


def _depending_on(path: list[Instr], same: set[int]) -> set[int]:
    """The values that are computed from `same` alone, without random draws."""
    found = set(same)
    for instr in path:
        random = any(n.draw for n in run_time_numbers(instr.args))
        if instr.op == INPUT or random:
            continue
        if all(v in found for v in operands(instr.args)):
            found.update(range(instr.base, instr.end))
    return found


def flat_numbers(numbers: dict[int, Any], bases: Iterable[int]) -> tuple:
    """The run-time numbers that instructions brought, in order."""
    return tuple([n for base in bases for n in numbers[base]])


def number_args(body: Body) -> tuple[Num, ...]:
    """The numbers of `body` as arguments of the instruction that it belongs to."""
    return tuple([Num(n.kind, False, n.draw) for n in body.numbers])
