"""Operations of a graph in words: what one is called, what it yields, and which of its
static arguments is not what it is in another graph."""

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from tarry.dtypes import SHORT
from tarry.lower.table import ARGUMENTS
from tarry.record.body import Body
from tarry.record.graph import Node
from tarry.record.slot import Spec
from tarry.record.trie import INPUT, VIEW, WRITE, Arg, Const, Num, full_name
from tarry.report.spell import plural

MAP = "tarry::map"


def kind(node: Node) -> str:
    """What tells operations apart: its name, of a list operation that of the row."""
    return f"{MAP} {node.args[0].value}" if node.op == MAP else node.op


def name(node: Node) -> str:
    if node.op == INPUT:
        return f"an input {spell(node)}"
    if node.op == MAP:
        row, elements = full_name(node.args[0].value), len(node.args[3])
        return f"{row} for {plural(elements, 'tensor')}"
    return full_name(node.op)


def spell(node: Node) -> str:
    """`f32[8,128]` of a node's first result."""
    return spell_spec(node.specs[0])


def spell_spec(spec: Spec) -> str:
    return f"{SHORT.get(spec.dtype, '?')}[{','.join(map(str, spec.shape))}]"


def argument_change(a: Node, b: Node) -> tuple[str, str, str] | None:
    """(name, old, new) of the first argument that is not the same; which tensor an
    operand is does not count."""
    if a.op == INPUT:
        return None
    for (which, y), (_, x) in zip(_arguments(b), _arguments(a)):
        change = _difference(x, y)
        if change is not None:
            return which, *change
    return None


def _difference(x: Arg, y: Arg) -> tuple[str, str] | None:
    if x == y or type(x) is type(y) is int:
        return None
    if isinstance(x, tuple) and isinstance(y, tuple) and len(x) == len(y):
        return next(filter(None, map(_difference, x, y)), None)
    if isinstance(x, Const) and isinstance(y, Const) and _is_geometry(x.value):
        return _geometry_change(x.value, y.value)
    if isinstance(x, Const) and isinstance(y, Const) and isinstance(x.value, Body):
        return _body_change(x.value, y.value)
    return _value(x), _value(y)


def _body_change(a: Body, b: Body) -> tuple[str, str]:
    """The first operations that are not the same in two bodies."""
    for x, y in zip(a.graph.nodes, b.graph.nodes):
        change = argument_change(x, y) if x.op == y.op else None
        if change is not None:
            return tuple([f"{name(x)} with {v}" for v in change[1:]])  # type: ignore
        if x != y:
            return f"{name(x)} at {x.line}", f"{name(y)} at {y.line}"
    return repr(a), repr(b)


def _arguments(node: Node) -> Iterator[tuple[str, Arg]]:
    if node.op == MAP:
        _, layout, shared, elements = node.args
        for x in (layout, *shared, *[x for each in elements for x in each]):
            yield "", x
        return
    for which, x in zip_longest(_names(node), node.args):
        yield which or "", x


def _names(node: Node) -> tuple[str, ...]:
    if node.op == VIEW:
        return "base", "spec", "geometry"
    if node.op == WRITE:
        return "base", "value", "spec", "geometry"
    return ARGUMENTS.get(node.op, ())


_KINDS = {"b": "a bool", "i": "an int", "f": "a float", "c": "a complex number"}


def _number(number: Num) -> str:
    return _KINDS.get(number.kind, f"a 0-d tensor of {number.kind}")


_GEOMETRY = ("shape", "strides", "offset", "dtype")


def _is_geometry(value: Any) -> bool:
    return isinstance(value, tuple) and tuple(map(type, value[:3])) == (
        tuple, tuple, int,
    )  # fmt: skip


def _geometry_change(a: tuple, b: tuple) -> tuple[str, str]:
    parts = [
        (
            n,
            list(x) if isinstance(x, tuple) else x,
            list(y) if isinstance(y, tuple) else y,
        )
        for n, x, y in zip(_GEOMETRY, a, b)
        if x != y
    ]
    was, now = (", ".join(f"{p[0]} {p[side]}" for p in parts) for side in (1, 2))
    return was, now


def _value(arg: Any) -> str:
    if isinstance(arg, Num):
        return _number(arg)
    if isinstance(arg, tuple):
        return f"a list of {len(arg)}"
    if not isinstance(arg, Const):
        return "none" if arg is None else "a tensor"
    if isinstance(arg.value, Spec):
        return f"{arg.value!r} with strides {list(arg.value.strides)}"
    return repr(arg.value)
