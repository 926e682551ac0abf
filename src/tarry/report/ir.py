"""A graph as text: tarry's own, one operation a line, and Graphviz."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from tarry.lower.table import ARGUMENTS
from tarry.record.body import Body
from tarry.record.graph import Graph, Node
from tarry.record.slot import Spec
from tarry.record.trie import INPUT, Const, Num, full_name, operands
from tarry.report.nodes import spell_spec
from tarry.report.spell import plural
from tarry.report.why import Named


def graph_text(graph: Graph, names: Sequence[Named], donated: Sequence[int]) -> str:
    """One line for every input and operation: value, operands, result, user line."""
    inputs = len(graph.inputs)
    lines = [
        f"{plural(len(graph.nodes) - inputs, 'operation')}, "
        f"{plural(inputs, 'input')}, {plural(len(graph.outputs), 'output')}"
    ]
    value = entry = 0
    for node in graph.nodes:
        results = ", ".join(f"%{value + i}" for i in range(len(node.specs)))
        specs = ", ".join(map(spell_spec, node.specs))
        value += len(node.specs)
        if node.op == INPUT:
            name = names[entry].name if entry < len(names) else ""
            notes = [f"`{name}`"] * bool(name) + ["donated"] * (entry in donated)
            lines.append(f"  {' '.join([f'{results} = input {specs}', *notes])}")
            entry += 1
        else:
            args = ", ".join(_spell(a) for a in node.args)
            lines.append(
                f"  {results} = {full_name(node.op)}({args}) {specs}  # {node.line}"
            )
            lines += _bodies(node)
    lines.append("  return " + ", ".join(f"%{v}" for v in graph.outputs))
    return "\n".join(lines) + "\n"


def _bodies(node: Node) -> list[str]:
    """The graphs that an operation holds, each under its argument's name."""
    lines: list[str] = []
    for name, arg in zip_longest(ARGUMENTS.get(node.op, ()), node.args):
        if isinstance(arg, Const) and isinstance(arg.value, Body):
            text = graph_text(arg.value.graph, (), ())
            head, *rest = text.splitlines()
            lines.append(f"    {name or 'body'}: {head}")
            lines += [f"    {line}" for line in rest]
    return lines


def dot_text(graph: Graph, names: Sequence[Named]) -> str:
    """The graph for Graphviz: inputs as boxes, outputs with a double border."""
    lines = ["digraph tarry {", '  node [fontname="monospace"];']
    makers: list[int] = []
    kept = set(graph.outputs)
    entry = 0
    for at, node in enumerate(graph.nodes):
        values = range(len(makers), len(makers) + len(node.specs))
        label = f"{full_name(node.op)}\n{', '.join(map(spell_spec, node.specs))}"
        style = "shape=ellipse"
        if node.op == INPUT:
            name = names[entry].name if entry < len(names) else ""
            label, style = (
                f"{name or 'input'}\n{spell_spec(node.specs[0])}",
                "shape=box",
            )
            entry += 1
        if kept.intersection(values):
            style += ", peripheries=2"
        lines.append(f"  n{at} [label={_quoted(label)}, {style}];")
        lines += [f"  n{makers[v]} -> n{at};" for v in operands(node.args)]
        makers += [at] * len(node.specs)
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"'


def _spell(arg: Any) -> str:
    if isinstance(arg, tuple):
        return f"[{', '.join(map(_spell, arg))}]"
    if isinstance(arg, Const):
        value = arg.value
        return spell_spec(value) if isinstance(value, Spec) else repr(value)
    if isinstance(arg, Num):
        return f"<{arg.kind}>"
    return "None" if arg is None else f"%{arg}"
