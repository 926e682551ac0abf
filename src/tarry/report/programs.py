"""A compiled program as plain data: names, key, graph, and the recording it was cut
from, so that a page can draw them and a reader can step through them."""

import inspect
from dataclasses import dataclass
from functools import cache
from typing import Any

from tarry.ledger import Compile
from tarry.lower.table import ARGUMENTS, TABLE
from tarry.record.graph import Node
from tarry.record.slot import Spec
from tarry.record.trie import INPUT, Const, Instr, Num, full_name
from tarry.report.nodes import spell_spec
from tarry.report.why import Named, Seen

MOST = 40_000  # operations that a saved ledger holds, of all programs together


@dataclass(frozen=True, slots=True)
class Source:
    """What a program was compiled from: its key and names, and the recording it was cut
    from (the last instruction, and the values that were alive).

    `hosted`: the places of the inputs that the first run uploaded from the host.
    """

    seen: Seen
    last: Instr
    alive: tuple[int, ...]
    hosted: tuple[int, ...] = ()


def plain(compile: Compile, uses: int, room: int) -> dict[str, Any]:
    """The record of one program; without graph and replay if they have more than `room`
    operations.

    Arguments of operations are lists of: a number (the value of that number), null
    (absent), a string (a constant), {"number": kind, "name": parameter} (a run-time
    number; the name where it is known), a list.
    """
    found = compile.source
    if isinstance(found, dict):
        return found
    record: dict[str, Any] = {"uses": uses, "key": [], "graph": None, "replay": None}
    if not isinstance(found, Source):
        return record
    key, graph = found.seen.key, found.seen.key.graph
    record["key"] = [
        ["donation", ", ".join(map(str, key.donation))],
        *[[f"environment: {name}", value] for name, value in key.environment],
    ]
    path = found.last.path()
    if len(path) > room:
        return record
    names = found.seen.inputs
    donated = set(key.donation)
    record["graph"] = {
        "nodes": [_row(n) for n in graph.nodes],
        "outputs": list(graph.outputs),
        "output_names": [n.name for n in found.seen.outputs],
        "inputs": [
            {
                **_input(names[i] if i < len(names) else Named()),
                "donated": i in donated,
                "host": i in found.hosted,
            }
            for i in range(len(graph.inputs))
        ],
    }
    record["replay"] = {
        "rows": [_row(n) for n in path],
        "alive": list(found.alive),
    }
    return record


def _input(name: Named) -> dict[str, Any]:
    return {"name": name.name, "made": name.made}


def _row(node: Node | Instr) -> list[Any]:
    """[operation, arguments, results, line]."""
    name = full_name(node.op)
    args: list[Any] = []
    if node.op != INPUT:
        names = _parameters(node.op)
        args = [_argument(a, *names[i : i + 1]) for i, a in enumerate(node.args)]
    return [name, args, [spell_spec(s) for s in node.specs], str(node.line)]


@cache
def _parameters(op: str) -> tuple[str, ...]:
    """Names of an operation's arguments: the schema's, or those of tarry's own row."""
    if op in ARGUMENTS or op not in TABLE:
        return ARGUMENTS.get(op, ())
    found = inspect.signature(TABLE[op].lower).parameters.values()
    return tuple([p.name for p in found if p.kind is p.POSITIONAL_OR_KEYWORD][1:])


def _argument(arg: Any, name: str = "") -> Any:
    if isinstance(arg, tuple):
        return [_argument(a) for a in arg]
    if isinstance(arg, Const):
        value = arg.value
        return spell_spec(value) if isinstance(value, Spec) else str(value)
    if isinstance(arg, Num):
        return {"number": str(arg.kind), **({"name": name} if name else {})}
    return arg
