"""A graph as torch_xla's IR text: one value a line, with its shape, and layout."""

from collections.abc import Iterator
from typing import Any

from tarry.dtypes import SHORT
from tarry.record.graph import Graph, Node
from tarry.record.slot import Spec
from tarry.record.trie import INPUT, Const, Num, full_name

_NUMBERS = {"b": "pred", "i": "s64", "f": "f32", "c": "c64"}


def shape_text(spec: Spec) -> str:
    """`f32[2,3]{1,0}`: XLA's spelling of dtype, sizes and (row-major) layout."""
    sizes = ",".join(map(str, spec.shape))
    layout = ",".join(map(str, reversed(range(len(spec.shape)))))
    return f"{SHORT.get(spec.dtype, '?')}[{sizes}]" + (
        f"{{{layout}}}" if layout else ""
    )


def lazy_text(graph: Graph, device: str) -> str:
    """The IR of a graph. Run-time numbers are inputs, as tensors are; what is constant
    stands behind the operands."""
    return "IR {\n" + "".join(_lines(graph, device)) + "}\n"


def _lines(graph: Graph, device: str) -> Iterator[str]:
    number: list[int] = []  # of the graph's values, among the lines
    roots = {v: i for i, v in enumerate(graph.outputs)}
    at = 0
    for node in graph.nodes:
        names: list[str] = []
        fixed: list[str] = []
        for arg in node.args if node.op != INPUT else ():
            for part in arg if isinstance(arg, tuple) else (arg,):
                if isinstance(part, Num):
                    yield f"  %{at} = {_number(part)} {_input(device)}\n"
                    names.append(f"%{at}")
                    at += 1
                elif type(part) is int:
                    names.append(f"%{number[part]}")
                elif isinstance(part, Const):
                    fixed.append(str(part.value))
        for spec in node.specs:
            number.append(at)
            root = roots.get(len(number) - 1)
            yield f"  %{at} = {shape_text(spec)} {_call(node, names, device)}" + (
                "".join(f", {text}" for text in fixed)
                + (f", ROOT={root}" if root is not None else "")
                + "\n"
            )
            at += 1


def _number(number: Num) -> str:
    kind: Any = number.kind
    return f"{_NUMBERS.get(kind) or SHORT.get(kind, '?')}[]"


def _input(device: str) -> str:
    return f"xla::device_data(), device={device}"


def _call(node: Node, names: list[str], device: str) -> str:
    if node.op == INPUT:
        return _input(device)
    return f"{operation(node.op)}({', '.join(names)})"


def operation(op: str) -> str:
    """`aten::add`: the name without its overload."""
    return full_name(op).partition(".")[0]
