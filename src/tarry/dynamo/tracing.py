"""An FX graph, recorded aside once for one geometry of its inputs.

In: a graph of ATen operators, and its arguments. Out: a `Recording`: the bound graph,
where each of its inputs and numbers comes from in a call, which arguments take a new
value, and how the results are made. Nothing runs, and the pending recording does not
notice. An operator that needs a value on the host raises `NeedsHost`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
from torch.fx import GraphModule
from torch.fx import Node as FxNode
from torch.fx.node import map_arg

from tarry.dispatch import seam
from tarry.dispatch.aside import Aside, Constant, aside
from tarry.dispatch.eager import recording_whole
from tarry.dispatch.operands import enter, geometry
from tarry.dispatch.random import stream
from tarry.dispatch.storage import is_base, is_lazy, is_ours, restride, slot_of
from tarry.errors import AsideError
from tarry.record.graph import Bound, Graph, bind, run_time_numbers
from tarry.record.lines import is_user_file
from tarry.record.slot import Slot, Spec
from tarry.record.trie import Instr, Line, recorder


class NeedsHost(Exception):
    """This operation of the graph cannot be a part of a program."""

    def __init__(self, node: FxNode) -> None:
        super().__init__(str(node))
        self.node = node


@dataclass(frozen=True, slots=True)
class Taken:
    """The value of a 0-d CPU argument, taken at the call."""

    argument: int


def host_number(value: torch.Tensor, argument: int) -> torch.Tensor:
    """Stands for a 0-d CPU tensor, whose value is a run-time number of the program."""
    made = torch.zeros((), dtype=value.dtype)
    made.item = lambda: Taken(argument)  # type: ignore[method-assign]
    return made


class Draw:
    """Two run-time numbers: the seed and the number of a draw, taken at the call."""


DRAW = Draw()


@dataclass(frozen=True, slots=True)
class New:
    """A tensor on a storage of its own, whose base value is a result of the program or,
    where `result` is -1, that of a source; `holder`: the earlier output on the same
    storage; `shape`: of a view of it, None for the whole."""

    result: int
    source: int
    spec: Spec
    holder: int = -1
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] = ()
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Alias:
    """A view of the tensor `argument`; that tensor itself if `shape` is None."""

    argument: int
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] = ()
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Same:
    """The very tensor that an earlier output is."""

    output: int


@dataclass(frozen=True, slots=True)
class Given:
    """The very tensor of the CPU that is this argument."""

    argument: int


@dataclass(frozen=True, slots=True)
class Plain:
    """Anything that is no tensor of the device; a CPU tensor is copied."""

    value: Any


@dataclass(slots=True)
class Recording:
    """What a call needs to know. Sources number the tensors of the device among the
    arguments, then `extra`, slots that hold what the graph itself brings."""

    bound: Bound
    last: Instr
    sources: tuple[int, ...]  # of the program's inputs
    extra: list[Slot]
    numbers: list[Any]  # values, `Taken`s and `DRAW`s
    writes: list[tuple[int, int, int]]  # (source, result or -1, or else source)
    outputs: list[Any]
    single: bool  # the graph returns one value, not a list


def line_of(node: FxNode) -> Line | None:
    """The user's line of an operation, from the trace that dynamo left with it."""
    text = node.meta.get("stack_trace") or ""
    found = None
    for row in text.splitlines():
        file, is_frame, rest = row.strip().removeprefix('File "').partition('", line ')
        if is_frame and is_user_file(file):
            number, _, function = rest.partition(", in ")
            found = Line(file, int(number), function)
    return found


def interpret(
    module: GraphModule, args: Sequence[Any], call: Callable[..., Any]
) -> tuple[list[Any], bool]:
    """The values of the graph's outputs, and whether it returns a single one; `call`
    runs each operation: `call(node, args, kwargs)`."""
    env: dict[FxNode, Any] = {}
    left = iter(args)
    for node in module.graph.nodes:
        if node.op == "placeholder":
            env[node] = next(left)
        elif node.op == "get_attr":
            env[node] = attribute(module, node.target)
        elif node.op == "output":
            found = map_arg(node.args[0], env.__getitem__)
            single = not isinstance(found, list | tuple)
            return ([found] if single else list(found)), single
        else:
            call_args = map_arg(node.args, env.__getitem__)
            env[node] = call(node, call_args, map_arg(node.kwargs, env.__getitem__))
    return [], False


def output_nodes(module: GraphModule) -> list[Any]:
    """What the graph returns."""
    (output,) = [n for n in module.graph.nodes if n.op == "output"]
    found = output.args[0]
    return list(found) if isinstance(found, list | tuple) else [found]


def attribute(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name)
    return module


def apply(node: FxNode, args: Any, kwargs: Any) -> Any:
    """Run the operation of a node."""
    if node.op == "call_method":
        return getattr(args[0], node.target)(*args[1:], **kwargs)
    if node.op == "call_module":
        return attribute(node.graph.owning_module, node.target)(*args, **kwargs)
    return node.target(*args, **kwargs)  # type: ignore[operator]


def run_singly(module: GraphModule, args: Sequence[Any]) -> Any:
    """Run the operations one by one, as PyTorch would: those of the device are recorded
    where the caller records."""
    with seam.without_autocast():
        found, single = interpret(module, args, apply)
    return found[0] if single else found


class _Tracer:
    """Runs the graph on stand-ins, and keeps which instruction came from which line."""

    def __init__(self, module: GraphModule, args: Sequence[Any]) -> None:
        self.module, self.args = module, args
        self.lines: list[tuple[int, Line]] = []
        self.stands: list[Slot] = []  # one a tensor of the device; aliases share one
        self.tensors: list[torch.Tensor] = []
        self.starts: list[int] = []
        self.hosts: list[tuple[int, Any]] = []  # what stands for a tensor of the CPU

    def record(self) -> Recording:
        draws = stream.draws
        try:
            with (
                torch.no_grad(),
                seam.without_autocast(),
                recording_whole(),
                aside() as s,
            ):
                stand_ins = self._stand_ins(s)
                outputs, single = interpret(self.module, stand_ins, self._call)
                found = self._finish(s, outputs, single)
                found.last.visits += 1
                return found
        finally:
            stream.rewind(draws)

    def _stand_ins(self, side: Aside) -> list[Any]:
        made: list[Any] = []
        known: dict[int, torch.Tensor] = {}
        for i, a in enumerate(self.args):
            if not isinstance(a, torch.Tensor):
                made.append(a)
            elif is_ours(a):
                made.append(self._stand_in(a, side, known))
            else:
                number = a.device.type == "cpu" and a.dim() == 0
                made.append(host_number(a, i) if number else Elsewhere())
                self.hosts.append((i, made[-1]))
        return made

    def _stand_in(
        self, tensor: torch.Tensor, side: Aside, known: dict[int, torch.Tensor]
    ) -> torch.Tensor:
        slot = slot_of(tensor)
        base = known.get(id(slot))
        if base is None:
            base = known[id(slot)] = side.argument(slot.spec)
        stand = slot_of(base)
        if not is_base(tensor, slot.spec):
            stand.mark_viewed()
            shape, strides, offset, dtype = geometry(tensor)
            if dtype is not base.dtype:
                raise AssertionError(f"a view of {base.dtype} as {dtype}")
            base = restride(base, shape, strides, offset)
            if tensor.is_conj():
                base = torch.ops.aten._conj.default(base)
            if tensor.is_neg():
                base = torch.ops.aten._neg_view.default(base)
        self.stands.append(stand)
        self.starts.append(stand.pos)
        self.tensors.append(base)
        return base

    def _call(self, node: FxNode, args: Any, kwargs: Any) -> Any:
        if any(isinstance(a, Elsewhere) for a in chain(flat(args), kwargs.values())):
            raise NeedsHost(node)
        draws = stream.draws
        try:
            result = apply(node, args, kwargs)
        except AsideError as error:
            raise NeedsHost(node) from error
        if is_seeded(node) and stream.draws == draws and not _reads_tensor(args):
            raise NeedsHost(node)
        line = line_of(node)
        if line is not None:
            self.lines.append((recorder.trace.node.end, line))
        return result

    def _finish(self, side: Aside, outputs: list[Any], single: bool) -> Recording:
        extra: list[Slot] = []
        source_at = dict(zip(reversed(self.starts), reversed(range(len(self.starts)))))
        places = [self._place(o) for o in outputs]
        written = [
            (i, pos if (pos := _position(s)) != start else -1)
            for i, (s, start) in enumerate(zip(self.stands, self.starts))
            if i == source_at[start]
        ]
        written = [(i, pos) for i, pos in written if pos >= 0]
        for pos, source in side.captured():
            source_at[pos] = len(self.stands) + len(extra)
            extra.append(source.slot() if isinstance(source, Constant) else source)
        wanted = sorted(
            {p for _, p in written} | {p for p, _ in places if p is not None}
        )
        wanted = [p for p in wanted if p not in source_at]
        bound = bind(side.last, tuple(wanted))
        result_at = {p: i for i, p in enumerate(wanted)}
        return Recording(
            self._with_lines(bound), side.last,
            tuple([source_at[v] for v in bound.inputs]),
            extra, _numbers(bound, side.numbers),
            [(i, result_at.get(p, -1), source_at.get(p, -1)) for i, p in written],
            self._outputs(outputs, places, result_at, source_at), single,
        )  # fmt: skip

    def _place(self, value: Any) -> tuple[int | None, Slot | None]:
        """The value number and the slot of an output."""
        if not is_ours(value):
            return None, None
        slot = slot_of(value)
        if any(slot is s for s in self.stands):
            return None, slot
        return _position(slot), slot

    def _outputs(
        self, outputs: list, places: list, result_at: dict, source_at: dict
    ) -> list[Any]:
        first: dict[int, int] = {}
        seen: dict[int, int] = {}
        made: list[Any] = []
        nodes = output_nodes(self.module)
        for i, (value, (pos, slot)) in enumerate(zip(outputs, places)):
            if slot is not None and self._is_odd(value, slot):
                raise NeedsHost(nodes[i])
            if slot is None:
                given = [a for a, stand in self.hosts if stand is value]
                made.append(Given(given[0]) if given else Plain(value))
            elif seen.setdefault(id(value), i) != i:
                made.append(Same(seen[id(value)]))
            elif pos is None:
                made.append(self._alias(value, slot))
            else:
                holder = first.setdefault(id(slot), i)
                is_whole = holder == i and is_base(value, slot.spec)
                view = () if is_whole else _geometry_of(value)
                at = -1 if holder == i else holder
                of = result_at.get(pos, -1), source_at.get(pos, -1)
                made.append(New(*of, slot.spec, at, *view))
        return made

    def _is_odd(self, value: torch.Tensor, slot: Slot) -> bool:
        """True of a result that differs from its memory by more than geometry."""
        given = any(value is t for t in self.tensors)
        return not given and (is_lazy(value) or value.dtype is not slot.spec.dtype)

    def _alias(self, value: torch.Tensor, slot: Slot) -> Alias:
        for i, t in enumerate(self.tensors):
            if t is value:
                return Alias(i)
        argument = next(i for i, s in enumerate(self.stands) if s is slot)
        return Alias(argument, *_geometry_of(value))

    def _with_lines(self, bound: Bound) -> Bound:
        nodes, at = [], 0
        for node, base in zip(bound.graph.nodes, bound.sources):
            while at < len(self.lines) and self.lines[at][0] <= base:
                at += 1
            known = at < len(self.lines)
            nodes.append(replace(node, line=self.lines[at][1]) if known else node)
        return replace(bound, graph=Graph(tuple(nodes), bound.graph.outputs))


class Elsewhere:
    """Stands for a tensor that is not on the device."""


def flat(args: Any) -> Any:
    for a in args:
        if isinstance(a, list | tuple):
            yield from flat(a)
        else:
            yield a


def is_seeded(node: FxNode) -> bool:
    """True of operations that draw random numbers."""
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _reads_tensor(args: Any) -> bool:
    return any(isinstance(a, torch.Tensor) for a in flat(args))


def _position(slot: Slot) -> int:
    return slot.pos if slot.pos >= 0 else enter(slot)


def _geometry_of(t: torch.Tensor) -> tuple[tuple, tuple, int]:
    return tuple(t.shape), t.stride(), t.storage_offset()


def _numbers(bound: Bound, brought: dict[int, Any]) -> list[Any]:
    """The program's run-time numbers; a draw's two are `DRAW`, once."""
    values: list[Any] = []
    base_of = dict(zip(bound.sources, bound.graph.nodes))
    for base in bound.numbers:
        forms = run_time_numbers(base_of[base].args)
        for form, value in zip(forms, brought[base], strict=True):
            if form.draw:
                values[-1] = DRAW  # its seed stands before it
            else:
                values.append(value)
    return values


def trace(module: GraphModule, args: Sequence[Any]) -> Recording:
    """Record `module` for arguments like these.

    Raises NeedsHost, and what the operations raise.
    """
    return _Tracer(module, args).record()
