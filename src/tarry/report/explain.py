"""Why a program was compiled: how its key differs from the nearest one before it, as
one sentence and one record, and what to do about it where that follows."""

from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any

from tarry.record.graph import Graph, Node
from tarry.record.slot import Spec
from tarry.record.trie import INPUT, VIEW, WRITE, operands
from tarry.report.matching import (
    first_difference,
    given_instead,
    inputs_before,
    kinds,
    makers,
    nearness,
    operations,
    other_inputs,
)
from tarry.report.nodes import argument_change, kind, name, spell
from tarry.report.spell import plural
from tarry.report.why import Reason, Seen, Why

NEAREST = 8  # recent keys that a new one is compared with
WINDOW = 400  # operations after a difference in which the two graphs may meet again


def why_new(new: Seen, recent: Sequence[Seen], limit: int | None, evicted: bool) -> Why:
    """What is different from the most similar of the recently used programs.

    `limit`: how many programs the cache keeps, None where it dropped some to spare
    memory mappings; `evicted`: whether it held this one.
    """
    if evicted and limit is None:
        return Why(
            Reason.EVICTED,
            "it was evicted from the cache: compiled programs took half of the memory "
            "mappings that Linux grants the process",
            advice="raise vm.max_map_count (sysctl) to keep it",
        )
    if evicted:
        return Why(
            Reason.EVICTED,
            f"it was evicted from the cache, which keeps {limit} programs",
            advice="raise TARRY_COMPILATION_CACHE_SIZE to keep it",
        )
    if not recent:
        return Why(Reason.FIRST, "it is the first program")
    near = [(_nearness(old, new), -i) for i, old in enumerate(recent)]
    (likeness, *_), i = max(near)
    nearest = recent[-i]
    if likeness < 0.3:
        size = _size(new.key.graph)
        return Why(
            Reason.KIND, f"it is the first program of its kind ({size})", nearest.number
        )
    return difference(nearest, new)


def _nearness(old: Seen, new: Seen) -> tuple[float, int, int]:
    share, equal = nearness(old.key.graph, new.key.graph)
    a, b = old.key, new.key
    settings = a.environment == b.environment, a.graph.outputs == b.graph.outputs
    return share, equal, sum(settings)


def _size(graph: Graph) -> str:
    inputs = len(graph.inputs)
    operations = plural(len(graph.nodes) - inputs, "operation")
    return f"{operations}, {plural(inputs, 'input')}"


def difference(old: Seen, new: Seen) -> Why:
    """The first of the checks below that finds what is different."""
    for check in (
        _environment, _outputs, _input_changes, _state, _aliases, _operations, _order,
        _donation,
    ):  # fmt: skip
        found = check(old, new)
        if found is not None:
            return found
    return _sequence(old, new)


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
    node = makers(which.key.graph)[which.key.graph.outputs[at]]
    called = which.outputs[at].name if at < len(which.outputs) else ""
    count, verb = sum(gone.values()), "appeared" if came else "vanished"
    held = "is alive at the cut now" if came else "is no longer alive at the cut"
    what = f"`{called}`, made by" if called else "the result of"
    sizes = len(a.outputs), len(b.outputs)
    return Why(
        Reason.OUTPUT,
        f"{plural(count, 'output')} {verb} ({sizes[0]} → {sizes[1]}): {what} "
        f"{name(node)} at {node.line}, {held}",
        old.number, str(node.line), str(sizes[0]), str(sizes[1]),
        "keep the same tensors alive at every cut: drop what is not needed (del, or a "
        "number instead of a tensor that is read later)",
    )  # fmt: skip


def _input_changes(old: Seen, new: Seen) -> Why | None:
    """The same operations on inputs of other shapes or dtypes."""
    a, b = old.key.graph, new.key.graph
    if kinds(a.nodes) != kinds(b.nodes):
        return None
    return _input_change(old, new, a.inputs, b.inputs)


def _input_change(old: Seen, new: Seen, a: list[Node], b: list[Node]) -> Why | None:
    """What differs between inputs that stand for each other."""
    changed = [(i, x, y) for i, (x, y) in enumerate(zip(a, b)) if x != y]
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
    fewer = len(operations(a)) - len(operations(b))
    given = given_instead(a, b) if more > 0 and fewer > 0 else []
    if not given:
        return None
    at, first = given[0], b.inputs[given[0]]
    return Why(
        Reason.STATE,
        f"{plural(len(given), 'value')} that the program before computed itself "
        f"{'is an input' if len(given) == 1 else 'are inputs'} now, the first "
        f"{_called(new, at)}{spell(first)}, {_made(new, at)}first used at {first.line} "
        f"({plural(fewer, 'operation')} fewer): state that a first step makes, for "
        "example",
        old.number, str(first.line), str(len(a.inputs)), str(len(b.inputs)),
        "nothing, where it happens once: the second step is the steady one",
    )  # fmt: skip


def _aliases(old: Seen, new: Seen) -> Why | None:
    """The same operations, but one tensor where there were two, or two for one."""
    a, b = old.key.graph, new.key.graph
    more = len(b.inputs) > len(a.inputs)
    longer = new if more else old
    others = other_inputs(b, a) if more else other_inputs(a, b)
    if not others:
        return None
    at, entry = others[0], longer.key.graph.inputs[others[0]]
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


def _operations(old: Seen, new: Seen) -> Why | None:
    """The first operation that differs: its arguments, or what stands in its place."""
    x, y = operations(old.key.graph), operations(new.key.graph)
    for i, (a, b) in enumerate(zip_longest(x, y)):
        why = _edit(old, x[i:], y[i:]) if _other(a, b) else _change(old, a, b)
        if why is not None:
            given = [inputs_before(s.key.graph, i) for s in (old, new)]
            same = len(given[0]) == len(given[1])
            return (_input_change(old, new, *given) if same else None) or why
    return None


def _other(a: Node | None, b: Node | None) -> bool:
    return a is None or b is None or kind(a) != kind(b)


def _change(old: Seen, a: Node, b: Node) -> Why | None:
    """What differs between two operations of one kind, apart from operands."""
    change = argument_change(a, b)
    if change is not None:
        which, was, now = change
        of = f"argument {which}" if which else "an argument"
        what = "the view" if b.op == VIEW else f"{of} of {name(b)}"
        return Why(
            Reason.ARGUMENT, f"{what} at {b.line} changed: {was} → {now}",
            old.number, str(b.line), was, now, _argument_advice(b),
        )  # fmt: skip
    if len(a.specs) != len(b.specs):
        was, now = name(a), name(b)
        return Why(
            Reason.CHANGED, f"{now} at {b.line}, not {was} as before",
            old.number, str(b.line), was, now,
        )  # fmt: skip
    if (a.dtypes, a.shapes) != (b.dtypes, b.shapes):
        was, now = spell(a), spell(b)
        return Why(
            Reason.CHANGED, f"{name(b)} at {b.line} yields {now}, not {was}",
            old.number, str(b.line), was, now,
        )  # fmt: skip
    return None


def _edit(old: Seen, x: list[Node], y: list[Node]) -> Why:
    ops = kinds(x[:WINDOW]), kinds(y[:WINDOW])
    codes = SequenceMatcher(None, *ops, autojunk=False).get_opcodes()
    kind, i, end, j, stop = next(c for c in codes if c[0] != "equal")
    if kind == "delete":
        first = x[i]
        return Why(
            Reason.REMOVED,
            f"{plural(end - i, 'operation')} vanished, the first of them "
            f"{name(first)} ({first.line})",
            old.number, str(first.line), name(first), "",
            "take the same branch at every step, or choose with torch.where",
        )  # fmt: skip
    first = y[j]
    if kind == "insert":
        count = plural(stop - j, "operation")
        verb = "was" if stop - j == 1 else "were"
        return Why(
            Reason.ADDED,
            f"{count} {verb} added, the first of them {name(first)} at {first.line}",
            old.number, str(first.line), "", name(first),
            "take the same branch at every step, or choose with torch.where",
        )  # fmt: skip
    return Why(
        Reason.CHANGED,
        f"{name(first)} at {first.line} stands where {name(x[i])} ({x[i].line}) "
        "stood before",
        old.number, str(first.line), name(x[i]), name(first),
        "take the same branch at every step, or choose with torch.where",
    )  # fmt: skip


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
    for x, y in zip(operations(a), operations(b)):
        if _origins(a, x) != _origins(b, y):
            return _operand(old, new, x, y)
    if a.outputs == b.outputs:
        return None
    at = first_difference(a.outputs, b.outputs)
    node = makers(b)[b.outputs[min(at, len(b.outputs) - 1)]]
    return Why(
        Reason.OUTPUT,
        f"other values are alive at the cut, the first of them {name(node)} at "
        f"{node.line}",
        old.number, str(node.line), *(str(g.outputs[at:at + 1]) for g in (a, b)),
    )  # fmt: skip


def _sequence(old: Seen, new: Seen) -> Why:
    """The same operations on the same operands, but one before another."""
    a, b = old.key.graph.nodes, new.key.graph.nodes
    at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), 0)
    was, now = name(a[at]), name(b[at])
    return Why(
        Reason.CHANGED,
        f"the same operations were recorded in another order: {now} at {b[at].line} "
        f"comes where {was} ({a[at].line}) came before",
        old.number, str(b[at].line), was, now,
        "do the same in the same order at every step",
    )  # fmt: skip


def _operand(old: Seen, new: Seen, x: Node, y: Node) -> Why:
    values = tuple(operands(x.args)), tuple(operands(y.args))
    origins = _origins(old.key.graph, x), _origins(new.key.graph, y)
    if origins[0] == origins[1] or len(origins[0]) != len(origins[1]):
        return _otherwise(old, x, y)
    i = first_difference(*origins)
    was, now = (_value(s, v[i]) for s, v in zip((old, new), values))
    both = all(
        makers(s.key.graph)[v[i]].op == INPUT for s, v in zip((old, new), values)
    )
    return Why(
        Reason.ALIAS if both else Reason.CHANGED,
        f"{name(y)} at {y.line} takes {now} where it took {was}",
        old.number, str(y.line), was, now,
    )  # fmt: skip


def _origins(graph: Graph, node: Node) -> tuple[tuple[bool, int], ...]:
    """For each operand whether it is an input, and the how-manieth of its kind."""
    is_input = [n.op == INPUT for n in makers(graph)]
    return tuple(
        [
            (is_input[v], sum(i == is_input[v] for i in is_input[:v]))
            for v in operands(node.args)
        ]
    )


def _otherwise(old: Seen, x: Node, y: Node) -> Why:
    """An operation that differs in something else than which operands it takes."""
    return Why(
        Reason.CHANGED,
        f"{name(y)} at {y.line} is not what it was at {x.line}",
        old.number, str(y.line), spell(x), spell(y),
    )  # fmt: skip


def _value(seen: Seen, value: int) -> str:
    """A value of a program in words: which input, or the result of what."""
    makes = makers(seen.key.graph)
    node = makes[value]
    if node.op != INPUT:
        return f"the result of {name(node)} ({node.line})"
    i = [v for v, n in enumerate(makes) if n.op == INPUT].index(value)
    made = _made(seen, i).removesuffix(", ")
    return f"input {i} " + (_called(seen, i) + made or spell(node)).rstrip()


def _donation(old: Seen, new: Seen) -> Why | None:
    was, now = set(old.key.donation), set(new.key.donation)
    if was == now:
        return None
    i = min(was ^ now)
    entry = new.key.graph.inputs[i]
    may = "may" if i in now else "may not"
    return Why(
        Reason.DONATION,
        f"donation changed: {plural(len(now), 'input buffer')} may be overwritten, "
        f"{len(was)} before; now {_called(new, i)}{spell(entry)}, {_made(new, i)}first "
        f"used at {entry.line}, {may} (a tensor that holds an old value keeps its "
        "buffer from being reused)",
        old.number, str(entry.line), str(len(was)), str(len(now)),
    )  # fmt: skip
