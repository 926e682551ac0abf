"""Why a program was compiled: how its key differs from the nearest one before it, as
one sentence and one record, and what to do about it where that follows."""

from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any

from tarry.dtypes import SHORT
from tarry.lower.table import ARGUMENTS
from tarry.record.graph import Graph, Node
from tarry.record.slot import Spec
from tarry.record.trie import INPUT, VIEW, WRITE, Const, Num, full_name, operands
from tarry.report.spell import plural
from tarry.report.why import Reason, Seen, Why

NEAREST = 8  # recent keys that a new one is compared with
WINDOW = 400  # operations after a difference in which the two graphs may meet again


def why_new(new: Seen, recent: Sequence[Seen], limit: int, evicted: bool) -> Why:
    """What is different from the most similar of the recently used programs.

    `limit`: how many programs the cache keeps; `evicted`: whether it held this one.
    """
    if evicted:
        return Why(
            Reason.EVICTED,
            f"it was evicted from the cache, which keeps {limit} programs",
            advice="raise TARRY_COMPILATION_CACHE_SIZE to keep it",
        )
    if not recent:
        return Why(Reason.FIRST, "it is the first program")
    graph = new.key.graph
    nearest = max(recent, key=lambda old: _likeness(graph, old.key.graph))
    if _likeness(graph, nearest.key.graph) < 0.3:
        return Why(
            Reason.KIND, f"it is the first program of its kind ({_size(graph)})",
            nearest.number,
        )  # fmt: skip
    return difference(nearest, new)


def _size(graph: Graph) -> str:
    inputs = len(graph.inputs)
    operations = plural(len(graph.nodes) - inputs, "operation")
    return f"{operations}, {plural(inputs, 'input')}"


def _likeness(a: Graph, b: Graph) -> float:
    """Share of operation names that stand at the same place, from either end."""
    x, y = [n.op for n in a.nodes], [n.op for n in b.nodes]
    ends = zip(reversed(x), reversed(y))
    same = max(sum(p == q for p, q in zip(x, y)), sum(p == q for p, q in ends))
    return same / max(len(x), len(y), 1)


def difference(old: Seen, new: Seen) -> Why:
    """The first of the checks below that finds what is different."""
    for check in (
        _environment, _outputs, _input_changes, _state, _aliases, _operations, _order,
        _donation,
    ):  # fmt: skip
        found = check(old, new)
        if found is not None:
            return found
    raise AssertionError("the keys are equal")


def _environment(old: Seen, new: Seen) -> Why | None:
    was, now = dict(old.key.environment), dict(new.key.environment)
    names = [k for k in {**was, **now} if was.get(k) != now.get(k)]
    if not names:
        return None
    pairs = [(k, was.get(k, "unset"), now.get(k, "unset")) for k in names]
    changes = "; ".join(f"{k}: {a} → {b}" for k, a, b in pairs)
    _, before, after = pairs[0]
    return Why(
        Reason.ENVIRONMENT, f"the compile environment changed ({changes})", old.number,
        old=before, new=after, advice="set it once, before the first step",
    )  # fmt: skip


def _meanings(graph: Graph) -> list[int]:
    """For every value a number that says how it is computed: equal in two graphs where
    they compute the same from inputs of the same shapes."""
    found: list[int] = []
    for node in graph.nodes:
        parts = _meaning(node.args, found)
        own = hash((node.op, parts, node.dtypes, node.shapes))
        found += [hash((own, i)) for i in range(len(node.specs))]
    return found


def _meaning(args: Any, found: list[int]) -> Any:
    if isinstance(args, tuple):
        return tuple([_meaning(a, found) for a in args])
    return found[args] if type(args) is int else args


def _outputs(old: Seen, new: Seen) -> Why | None:
    """Only outputs came or went, and what is computed for them."""
    a, b = old.key.graph, new.key.graph
    was, now = _meanings(a), _meanings(b)
    before = Counter(was[v] for v in a.outputs)
    after = Counter(now[v] for v in b.outputs)
    came, went = after - before, before - after
    if bool(came) == bool(went):
        return None
    which, meanings = (new, now) if came else (old, was)
    gone = came or went
    at = next(i for i, v in enumerate(which.key.graph.outputs) if meanings[v] in gone)
    node = _maker(which.key.graph, which.key.graph.outputs[at])
    name = which.outputs[at].name if at < len(which.outputs) else ""
    count, verb = sum(gone.values()), "appeared" if came else "vanished"
    held = "is alive at the cut now" if came else "is no longer alive at the cut"
    what = (
        f"`{name}`, made by {_name(node)}" if name else f"the result of {_name(node)}"
    )
    sizes = len(a.outputs), len(b.outputs)
    return Why(
        Reason.OUTPUT,
        f"{plural(count, 'output')} {verb} ({sizes[0]} → {sizes[1]}): {what} at "
        f"{node.line}, {held}",
        old.number, str(node.line), str(sizes[0]), str(sizes[1]),
        "keep the same tensors alive at every cut: drop what is not needed (del, or a "
        "number instead of a tensor that is read later)",
    )  # fmt: skip


def _maker(graph: Graph, value: int) -> Node:
    end = 0
    for node in graph.nodes:
        end += len(node.specs)
        if value < end:
            return node
    raise AssertionError(value)


def _input_changes(old: Seen, new: Seen) -> Why | None:
    """The same operations on inputs of other shapes or dtypes."""
    a, b = old.key.graph, new.key.graph
    if [n.op for n in a.nodes] != [n.op for n in b.nodes]:
        return None
    pairs = enumerate(zip(a.inputs, b.inputs))
    changed = [(i, x, y) for i, (x, y) in pairs if x != y]
    if not changed:
        return None
    i, x, y = changed[0]
    dimensions = _dimensions(x.specs[0], y.specs[0])
    what = f" ({dimensions})" if dimensions else ""
    more = f", and {plural(len(changed) - 1, 'more input')}" if changed[1:] else ""
    return Why(
        Reason.INPUT,
        f"an input changed: {_called(new, i)}{spell(x)} → {spell(y)}{what}, "
        f"{_made(new, i)}first used at {y.line}{more}",
        old.number, str(y.line), spell(x), spell(y), _shape_advice(x, y),
    )  # fmt: skip


def _called(seen: Seen, i: int) -> str:
    name = seen.inputs[i].name if i < len(seen.inputs) else ""
    return f"`{name}` " if name else ""


def _made(seen: Seen, i: int) -> str:
    made = seen.inputs[i].made if i < len(seen.inputs) else ""
    return f"made at {made}, " if made else ""


def _dimensions(a: Spec, b: Spec) -> str:
    if len(a.shape) != len(b.shape) or a.shape == b.shape:
        return ""
    which = [str(d) for d, (m, n) in enumerate(zip(a.shape, b.shape)) if m != n]
    return ("dimension " if len(which) == 1 else "dimensions ") + ", ".join(which)


def _shape_advice(a: Node, b: Node) -> str:
    was, now = a.specs[0], b.specs[0]
    if was.dtype is not now.dtype:
        return "convert it to one dtype before the step"
    if len(was.shape) != len(now.shape):
        return "give it the same number of dimensions every time"
    sizes = [d for d, (m, n) in enumerate(zip(was.shape, now.shape)) if m != n]
    if not sizes:
        return ""
    advice = f"pad dimension {sizes[0]} to one size, or to a few"
    if sizes == [0] and now.shape[0] < was.shape[0]:
        advice += "; if it is the last, shorter batch: drop_last=True in the DataLoader"
    return advice


def _state(old: Seen, new: Seen) -> Why | None:
    """Values that the older program made itself and the newer one is given."""
    a, b = old.key.graph, new.key.graph
    more = len(b.inputs) - len(a.inputs)
    fewer = (len(a.nodes) - len(a.inputs)) - (len(b.nodes) - len(b.inputs))
    if more <= 0 or fewer <= 0:
        return None
    pairs = enumerate(zip_longest(a.inputs, b.inputs))
    at, first = next((i, y) for i, (x, y) in pairs if x != y and y is not None)
    return Why(
        Reason.STATE,
        f"{plural(more, 'value')} that the program before computed itself "
        f"{'comes' if more == 1 else 'come'} from an earlier one now, the first "
        f"{_called(new, at)}{spell(first)}, {_made(new, at)}first used at {first.line} "
        f"({plural(fewer, 'operation')} fewer): state that a first step makes, for "
        "example",
        old.number, str(first.line), str(len(a.inputs)), str(len(b.inputs)),
        "nothing, where it happens once: the second step is the steady one",
    )  # fmt: skip


def _aliases(old: Seen, new: Seen) -> Why | None:
    """The same operations, but one tensor where there were two, or two for one."""
    a, b = old.key.graph, new.key.graph
    if len(a.inputs) == len(b.inputs):
        return None
    x, y = (_operations_of(g) for g in (a, b))
    if [n.op for n in x] != [n.op for n in y]:
        return None
    more = len(b.inputs) > len(a.inputs)
    longer = new if more else old
    pairs = enumerate(zip_longest(a.inputs, b.inputs))
    at = next(i for i, (p, q) in pairs if p is None or q is None or p != q)
    entry = longer.key.graph.inputs[at]
    what = (
        "are separate tensors where they were one"
        if more
        else "are one tensor where they were separate"
    )
    return Why(
        Reason.ALIAS,
        f"inputs alias otherwise: operands {what} ({len(a.inputs)} → {len(b.inputs)} "
        f"inputs), the first of them {_called(longer, at)}{spell(entry)}, "
        f"{_made(longer, at)}first used at {entry.line}",
        old.number, str(entry.line), str(len(a.inputs)), str(len(b.inputs)),
        "pass the same tensors, or copies of them, every time",
    )  # fmt: skip


def _operations_of(graph: Graph) -> list[Node]:
    return [n for n in graph.nodes if n.op != INPUT]


def _operations(old: Seen, new: Seen) -> Why | None:
    """The first operation that differs: its arguments, or what stands in its place."""
    x, y = (_operations_of(s.key.graph) for s in (old, new))
    for i, (a, b) in enumerate(zip_longest(x, y)):
        if a is None or b is None or a.op != b.op:
            return _edit(old, x[i:], y[i:])
        change = _argument_change(a, b)
        if change is not None:
            name, was, now = change
            what = "the view" if b.op == VIEW else f"argument {name} of {_name(b)}"
            return Why(
                Reason.ARGUMENT, f"{what} at {b.line} changed: {was} → {now}",
                old.number, str(b.line), was, now, _argument_advice(b),
            )  # fmt: skip
        if (a.dtypes, a.shapes) != (b.dtypes, b.shapes):
            was, now = spell(a), spell(b)
            return Why(
                Reason.CHANGED, f"{_name(b)} at {b.line} yields {now}, not {was}",
                old.number, str(b.line), was, now,
            )  # fmt: skip
    return None


def _edit(old: Seen, x: list[Node], y: list[Node]) -> Why:
    ops = [n.op for n in x[:WINDOW]], [n.op for n in y[:WINDOW]]
    codes = SequenceMatcher(None, *ops, autojunk=False).get_opcodes()
    kind, i, end, j, stop = next(c for c in codes if c[0] != "equal")
    if kind == "delete":
        first = x[i]
        return Why(
            Reason.REMOVED,
            f"{plural(end - i, 'operation')} vanished, the first of them "
            f"{_name(first)} ({first.line})",
            old.number, str(first.line), _name(first), "",
            "take the same branch at every step, or choose with torch.where",
        )  # fmt: skip
    first = y[j]
    if kind == "insert":
        count = plural(stop - j, "operation")
        verb = "was" if stop - j == 1 else "were"
        return Why(
            Reason.ADDED,
            f"{count} {verb} added, the first of them {_name(first)} at {first.line}",
            old.number, str(first.line), "", _name(first),
            "take the same branch at every step, or choose with torch.where",
        )  # fmt: skip
    return Why(
        Reason.CHANGED,
        f"{_name(first)} at {first.line} stands where {_name(x[i])} ({x[i].line}) "
        "stood before",
        old.number, str(first.line), _name(x[i]), _name(first),
        "take the same branch at every step, or choose with torch.where",
    )  # fmt: skip


def _argument_change(a: Node, b: Node) -> tuple[str, str, str] | None:
    """(name, old, new) of the first static argument that is not the same."""
    if a.op == INPUT:
        return None
    names = _argument_names(b)
    for name, x, y in zip_longest(names, a.args, b.args):
        if x == y:
            continue
        if isinstance(x, Num) and isinstance(y, Num):
            return str(name), _kind(x), _kind(y)
        if not (isinstance(x, Const) or isinstance(y, Const)):
            continue
        if name == "geometry" and isinstance(x, Const) and isinstance(y, Const):
            return _geometry_change(x.value, y.value)
        return str(name), _value(x), _value(y)
    return None


def _argument_names(node: Node) -> Iterator[str]:
    if node.op in (VIEW, WRITE):
        names = ("base", "value", "spec", "geometry")
        yield from (n for n in names if node.op == WRITE or n != "value")
        return
    yield from ARGUMENTS.get(node.op, ())


_KINDS = {"b": "a bool", "i": "an int", "f": "a float", "c": "a complex number"}


def _kind(number: Num) -> str:
    return _KINDS.get(number.kind, f"a 0-d tensor of {number.kind}")


def _geometry_change(a: tuple, b: tuple) -> tuple[str, str, str]:
    names = ("shape", "strides", "offset", "dtype")
    parts = [
        (
            n,
            list(x) if isinstance(x, tuple) else x,
            list(y) if isinstance(y, tuple) else y,
        )
        for n, x, y in zip(names, a, b)
        if x != y
    ]
    was, now = (", ".join(f"{p[0]} {p[side]}" for p in parts) for side in (1, 2))
    return "geometry", was, now


def _argument_advice(node: Node) -> str:
    if node.op in (VIEW, WRITE):
        return (
            "index with a tensor instead of a number (x[i] with a tensor i, "
            "torch.index_select): then the place is data"
        )
    return "a value that changes from step to step has to be a tensor, or stay the same"


def _order(old: Seen, new: Seen) -> Why | None:
    """The same operations on other operands, or other results alive."""
    a, b = old.key.graph, new.key.graph
    for x, y in zip(a.nodes, b.nodes):
        if x != y:
            was, now = (list(operands(n.args)) for n in (x, y))
            return Why(
                Reason.CHANGED,
                f"{_name(y)} at {y.line} has other operands than before",
                old.number, str(y.line), str(was), str(now),
            )  # fmt: skip
    if a.outputs == b.outputs:
        return None
    at = next(i for i, (v, w) in enumerate(zip(a.outputs, b.outputs)) if v != w)
    node = _maker(b, b.outputs[at])
    return Why(
        Reason.OUTPUT,
        f"other values are alive at the cut, the first of them {_name(node)} at "
        f"{node.line}",
        old.number, str(node.line), str(a.outputs[at]), str(b.outputs[at]),
    )  # fmt: skip


def _donation(old: Seen, new: Seen) -> Why | None:
    was, now = (len(s.key.donation) for s in (old, new))
    if old.key.donation == new.key.donation:
        return None
    return Why(
        Reason.DONATION,
        f"donation changed: {plural(now, 'input buffer')} may be overwritten, {was} "
        "before (a tensor that holds an old value keeps its buffer from being reused)",
        old.number, "", str(was), str(now),
    )  # fmt: skip


def spell(node: Node) -> str:
    """`f32[8,128]` of a node's first result."""
    return spell_spec(node.specs[0])


def spell_spec(spec: Spec) -> str:
    return f"{SHORT.get(spec.dtype, '?')}[{','.join(map(str, spec.shape))}]"


def _value(arg: Any) -> str:
    if not isinstance(arg, Const):
        return "none" if arg is None else "a tensor or number"
    if isinstance(arg.value, Spec):
        return f"{arg.value!r} with strides {list(arg.value.strides)}"
    return repr(arg.value)


def _name(node: Node) -> str:
    if node.op == INPUT:
        return f"an input {spell(node)}"
    return full_name(node.op)
