"""Which parts of a graph are programs, and in which order all parts run.

An operation on tensors of the CPU, or one that needs a value on the host, runs by
itself between programs; host and device take turns, and as seldom as the data allow.
What does not wait for a program comes before the first, what no program waits for after
the last. Draws of random numbers stay in order, and an argument is written after all
that reads it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from operator import getitem
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from tarry.dispatch import seam
from tarry.dynamo.tracing import attribute, is_seeded
from tarry.lower.table import TABLE


@dataclass(slots=True)
class Part:
    """Operations that run together: `inputs` and `outputs` are nodes of the whole
    graph, `module` computes these from those."""

    on_host: bool
    inputs: list[Node]
    outputs: list[Node]
    module: GraphModule


def _values(node: Node) -> list[Any]:
    value = node.meta.get("val")
    return list(value) if isinstance(value, list | tuple) else [value]


def _on_cpu(node: Node) -> bool:
    return any(
        isinstance(v, torch.Tensor) and v.device.type == "cpu" for v in _values(node)
    )


def _is_number(node: Node) -> bool:
    """True of a 0-d CPU tensor, which an elementwise operation takes as a number."""
    (value, *more) = _values(node)
    return not more and _on_cpu(node) and value.dim() == 0


def _takes_numbers(node: Node) -> bool:
    name = seam.overload_name(node.target)
    return name in TABLE and TABLE[name].pointwise


def _is_constant(node: Node, constants: set[Node]) -> bool:
    if node.op == "get_attr":
        return True
    return (
        node.op == "call_function"
        and not is_seeded(node)
        and all(n in constants for n in node.all_input_nodes)
    )


def host_operations(module: GraphModule, refused: Iterable[Any] = ()) -> set[Node]:
    """The operations that are no part of a program: those whose target is one of
    `refused`, and those on tensors of the CPU that depend on the arguments."""
    constants: set[Node] = set()
    found: set[Node] = set()
    for node in module.graph.nodes:
        if node.target not in refused and _is_constant(node, constants):
            constants.add(node)
        elif node.op in ("placeholder", "output"):
            continue
        elif (
            node.target in refused
            or _on_cpu(node)
            or _is_host_bound(node, constants)
            or _is_piece_of(node, found)
        ):
            found.add(node)
    return found


def _is_piece_of(node: Node, found: set[Node]) -> bool:
    return node.target is getitem and node.all_input_nodes[0] in found


def _is_host_bound(node: Node, constants: set[Node]) -> bool:
    numbers = _takes_numbers(node)
    return any(
        _on_cpu(n) and n not in constants and not (numbers and _is_number(n))
        for n in node.all_input_nodes
    )


def _writes_argument(node: Node) -> bool:
    return (
        node.target is torch.ops.aten.copy_.default and node.args[0].op == "placeholder"  # type: ignore[union-attr]
    )


def can_repeat(module: GraphModule) -> bool:
    """Whether the graph computes the same when it runs again: it writes to no argument,
    and draws no random numbers on the CPU."""
    return not any(
        _writes_argument(n) or (is_seeded(n) and _on_cpu(n)) for n in module.graph.nodes
    )


def _stages(module: GraphModule, host: set[Node]) -> dict[Node, tuple[int, int]]:
    """When each operation runs: (turn, 0 on the host or 1 on the device)."""
    when: dict[Node, tuple[int, int]] = {}
    last_draw = {True: (0, 0), False: (0, 1)}
    writes = []
    for node in module.graph.nodes:
        if node.op in ("placeholder", "output", "get_attr"):
            continue
        if _writes_argument(node):
            writes.append(node)
            continue
        side = 0 if node in host else 1
        after = [when[n] for n in node.all_input_nodes if n in when]
        if is_seeded(node):
            after.append(last_draw[node in host])
        turn = max([t + (side < s) for t, s in after], default=0)
        when[node] = turn, side
        if is_seeded(node):
            last_draw[node in host] = turn, side
    for node in writes:
        side = 0 if node in host else 1
        after = [when[n] for n in _read_before(node) if n in when]
        when[node] = max([t + (side < s) for t, s in after], default=0), side
    return when


def _read_before(write: Node) -> list[Node]:
    """What a write to an argument waits for: the value, and all that read the argument,
    through views, too."""
    argument, value = write.all_input_nodes
    found, left = [value], [argument]
    while left:
        for user in left.pop().users:
            if user is not write:
                found.append(user)
                if seam.is_view(user.target):
                    left.append(user)
    return found


def split(module: GraphModule, host: set[Node]) -> list[Part]:
    """The parts of the graph in the order in which they run."""
    when = _stages(module, host)
    (output,) = [n for n in module.graph.nodes if n.op == "output"]
    parts = []
    for stage in sorted(set(when.values())):
        nodes = [n for n in module.graph.nodes if when.get(n) == stage]
        parts.append(_part(module, nodes, stage[1] == 0, output))
    return parts


def _part(module: GraphModule, nodes: list[Node], on_host: bool, end: Node) -> Part:
    inside = set(nodes)
    graph, copies = Graph(), dict[Node, Node]()
    needed = [n for node in nodes for n in node.all_input_nodes if n not in inside]
    inputs = [n for n in dict.fromkeys(needed) if n.op != "get_attr"]
    for n in inputs:
        copies[n] = graph.placeholder(n.name)
        copies[n].meta = dict(n.meta)
    for n in dict.fromkeys(needed):
        if n.op == "get_attr":
            copies[n] = graph.node_copy(n)
    for n in nodes:
        copies[n] = graph.node_copy(n, copies.__getitem__)
    outputs = [n for n in nodes if any(u not in inside for u in n.users)]
    graph.output([copies[n] for n in outputs])
    return Part(on_host, inputs, outputs, GraphModule(module, graph))


class Chain:
    """A graph of several parts as one function; `runners`: what runs each part."""

    def __init__(
        self, module: GraphModule, parts: list[Part], runners: list[Any]
    ) -> None:
        self.parts, self.runners = parts, runners
        self.arguments = [n for n in module.graph.nodes if n.op == "placeholder"]
        self.attributes = {
            n: attribute(module, n.target)
            for n in module.graph.nodes
            if n.op == "get_attr"
        }
        (end,) = [n for n in module.graph.nodes if n.op == "output"]
        self.returned = end.args[0]

    def run(self, args: list[Any]) -> Any:
        values = dict(zip(self.arguments, args)) | self.attributes
        for part, runner in zip(self.parts, self.runners):
            found = runner([values[n] for n in part.inputs])
            values.update(zip(part.outputs, found))
        return map_arg(self.returned, values.__getitem__)
