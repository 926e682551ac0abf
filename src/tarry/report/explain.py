"""Why a program was compiled, in one sentence: the first named part in which its key
differs from the nearest key that came before it."""

from itertools import zip_longest
from typing import Any

from tarry.cache.key import Key
from tarry.cache.store import Store
from tarry.dtypes import SHORT
from tarry.record.graph import Graph, Node
from tarry.record.slot import Spec
from tarry.record.trie import INPUT, Const

NEAREST = 8  # recent keys that a new one is compared with


def why_new(key: Key, store: Store[Key, Any]) -> str:
    """One sentence: what is different from the most similar program compiled so far."""
    if store.was_evicted(key):
        return (
            f"it was evicted from the cache ({store.limit} programs); raise "
            "TARRY_COMPILATION_CACHE_SIZE to keep it"
        )
    recent = store.recent()[:NEAREST]
    if not recent:
        return "it is the first program"
    nearest = max(recent, key=lambda old: _likeness(key.graph, old.graph))
    if _likeness(key.graph, nearest.graph) < 0.3:
        return f"it is the first program of its kind ({_size(key.graph)})"
    return difference(nearest, key)


def _size(graph: Graph) -> str:
    inputs = len(graph.inputs)
    operations = len(graph.nodes) - inputs
    return f"{_count(operations, 'operation')}, {_count(inputs, 'input')}"


def _likeness(a: Graph, b: Graph) -> float:
    """Share of operation names that stand at the same place, from either end."""
    x, y = [n.op for n in a.nodes], [n.op for n in b.nodes]
    ends = zip(reversed(x), reversed(y))
    same = max(sum(p == q for p, q in zip(x, y)), sum(p == q for p, q in ends))
    return same / max(len(x), len(y), 1)


def difference(old: Key, new: Key) -> str:
    """What changed from `old` to `new`, the first named part that differs."""
    if old.environment != new.environment:
        return _environment(dict(old.environment), dict(new.environment))
    if old.graph != new.graph:
        return _graphs(old.graph, new.graph)
    was, now = len(old.donation), len(new.donation)
    return (
        f"donation changed: {now} input buffers may be overwritten, {was} before "
        "(a tensor that holds an old value keeps its buffer from being reused)"
    )


def _environment(old: dict, new: dict) -> str:
    names = [k for k in {**old, **new} if old.get(k) != new.get(k)]
    changes = [f"{k}: {old.get(k, 'unset')} → {new.get(k, 'unset')}" for k in names]
    return "the compile environment changed (" + "; ".join(changes) + ")"


def _graphs(old: Graph, new: Graph) -> str:
    shapes = _input_changes(old, new)
    if shapes:
        return shapes
    now_inputs = _computed_before(old, new)
    if now_inputs:
        return now_inputs
    for a, b in zip_longest(old.nodes, new.nodes):
        if a != b:
            return _nodes(a, b)
    added = len(new.outputs) - len(old.outputs)
    if added:
        return (
            f"{abs(added)} output{'s' * (abs(added) > 1)} "
            f"{'appeared' if added > 0 else 'vanished'} ({len(old.outputs)} → "
            f"{len(new.outputs)}): other tensors are kept alive at the cut"
        )
    return "other values are kept alive at the cut"


def _computed_before(old: Graph, new: Graph) -> str:
    """Values the older program made itself and the newer one is given: an optimizer's
    state after its first step."""
    more = len(new.inputs) - len(old.inputs)
    fewer = (len(old.nodes) - len(old.inputs)) - (len(new.nodes) - len(new.inputs))
    if more <= 0 or fewer <= 0:
        return ""
    pairs = zip_longest(old.inputs, new.inputs)
    first = next(b for a, b in pairs if a != b and b is not None)
    return (
        f"{_count(more, 'value')} that the program before computed itself "
        f"{'comes' if more == 1 else 'come'} from an earlier one now, the first "
        f"{spell(first)}, first used at {first.line} ({_count(fewer, 'operation')} "
        "fewer): state that a first step makes, for example"
    )


def _input_changes(old: Graph, new: Graph) -> str:
    if len(old.inputs) != len(new.inputs):
        return ""
    changed = [(a, b) for a, b in zip(old.inputs, new.inputs) if a != b]
    if not changed or [n.op for n in old.nodes] != [n.op for n in new.nodes]:
        return ""
    a, b = changed[0]
    more = f", and {len(changed) - 1} more inputs" if len(changed) > 1 else ""
    return f"an input changed: {spell(a)} → {spell(b)}, first used at {b.line}{more}"


def spell(node: Node) -> str:
    """`f32[8,128]` of a node's first result."""
    spec = node.specs[0]
    return f"{SHORT.get(spec.dtype, '?')}[{','.join(map(str, spec.shape))}]"


def _nodes(a: Node | None, b: Node | None) -> str:
    if b is None:
        assert a is not None
        return f"operations vanished, the first of them {_name(a)} ({a.line})"
    if a is None:
        return f"operations were added, the first of them {_name(b)} at {b.line}"
    if a.op != b.op:
        return f"{_name(b)} at {b.line} stands where {_name(a)} ({a.line}) stood before"
    static = _static_change(a, b)
    return static or f"{_name(b)} at {b.line} has other operands than before"


def _static_change(a: Node, b: Node) -> str:
    for x, y in zip_longest(a.args, b.args):
        if x != y and (isinstance(x, Const) or isinstance(y, Const)):
            return f"an argument of {_name(b)} at {b.line} changed: {_v(x)} → {_v(y)}"
    return ""


def _v(arg: Any) -> str:
    if not isinstance(arg, Const):
        return "a tensor or number"
    if isinstance(arg.value, Spec):
        return f"{arg.value!r} with strides {list(arg.value.strides)}"
    return repr(arg.value)


def _count(n: int, what: str) -> str:
    return f"{n} {what}" + "s" * (n != 1)


def _name(node: Node) -> str:
    if node.op == INPUT:
        return f"an input {spell(node)}"
    return node.op if node.op.startswith("tarry::") else f"aten::{node.op}"
