"""Which operations and values of two graphs stand for each other."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from tarry.record.graph import Graph, Node
from tarry.record.trie import INPUT, operands
from tarry.report.nodes import kind


def operations(graph: Graph) -> list[Node]:
    """All nodes but the inputs."""
    return [n for n in graph.nodes if n.op != INPUT]


def kinds(nodes: Sequence[Node]) -> list[str]:
    return [kind(n) for n in nodes]


def inputs_before(graph: Graph, i: int) -> list[Node]:
    """The inputs that the first `i` operations of a graph use, and the next one."""
    found, passed = [], 0
    for node in graph.nodes:
        if node.op == INPUT:
            found.append(node)
            continue
        passed += 1
        if passed > i:
            break
    return found


def makers(graph: Graph) -> list[Node]:
    """The node that makes each value of a graph."""
    return [node for node in graph.nodes for _ in node.specs]


def nearness(a: Graph, b: Graph) -> tuple[float, int]:
    """Share of operations that stand at the same place, from either end, and how many
    nodes are equal in everything."""
    x, y = kinds(operations(a)), kinds(operations(b))
    ends = zip(reversed(x), reversed(y))
    same = max(sum(p == q for p, q in zip(x, y)), sum(p == q for p, q in ends))
    return same / max(len(x), len(y), 1), sum(map(Node.__eq__, a.nodes, b.nodes))


def shape_of_arguments(args: Any) -> Any:
    """`args` with every operand alike: what is left tells numbers and tensors apart."""
    if isinstance(args, tuple):
        return tuple([shape_of_arguments(a) for a in args])
    return int if type(args) is int else args


def other_inputs(longer: Graph, shorter: Graph) -> list[int]:
    """Which inputs of a graph are one with an earlier input in a graph of the same
    operations; none if that is not the difference between the two."""
    x, y = operations(longer), operations(shorter)
    if [(kind(n), shape_of_arguments(n.args)) for n in x] != [
        (kind(n), shape_of_arguments(n.args)) for n in y
    ]:
        return []
    makes, twins = makers(longer), makers(shorter)
    other: dict[int, int] = {}
    for v, w in operand_pairs(x, y):
        if other.setdefault(v, w) != w or (makes[v].op, makes[v].specs[0].shape) != (
            twins[w].op, twins[w].specs[0].shape,
        ):  # fmt: skip
            return []
    taken: set[int] = set()
    found = []
    for i, v in enumerate(v for v, node in enumerate(makes) if node.op == INPUT):
        if other.get(v) in taken:
            found.append(i)
        elif v in other:
            taken.add(other[v])
    return found


def operand_pairs(x: Sequence[Node], y: Sequence[Node]) -> list[tuple[int, int]]:
    """The operands of operations that stand for each other, in order."""
    return [
        pair for a, b in zip(x, y) for pair in zip(operands(a.args), operands(b.args))
    ]


def given_instead(old: Graph, new: Graph) -> list[int]:
    """Which inputs of the newer graph the older one computed itself: where all that is
    done in the newer one is done in the older one too, in the same order."""
    rest = iter(operations(old))
    x = []
    for node in operations(new):
        wanted = kind(node)
        twin = next((n for n in rest if kind(n) == wanted), None)
        if twin is None:
            return []
        x.append(twin)
    makes = makers(old)
    computed = {w for v, w in operand_pairs(x, operations(new)) if makes[v].op != INPUT}
    places = [v for v, node in enumerate(makers(new)) if node.op == INPUT]
    return [i for i, v in enumerate(places) if v in computed]


def first_difference(x: Sequence[Any], y: Sequence[Any]) -> int:
    """The first place at which two sequences differ, of the longer one if need be."""
    return next(i for i, (a, b) in enumerate(zip_longest(x, y)) if a != b)
