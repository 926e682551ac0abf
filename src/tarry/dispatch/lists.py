"""`_foreach_*` and `_fused_*`: one instruction over a whole list of tensors.

`tarry::map` applies one row to each element, so an optimizer step over 300 parameters
is a few instructions. Which row follows from the foreach overload's name and schema.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from tarry.cut.cause import Cause
from tarry.dispatch import seam
from tarry.dispatch.exits import on_host
from tarry.dispatch.growth import infer
from tarry.dispatch.kernels import Param, params
from tarry.dispatch.operands import KINDS, foreign, from_host, read, store
from tarry.dispatch.storage import new_tensor
from tarry.lower.table import TABLE, Row
from tarry.record.lines import runs_below, user_line
from tarry.record.slot import IR, Slot, contiguous_spec, spec
from tarry.record.trie import Instr, Num, const, recorder

MAP = "tarry::map"
_RENAMED = {"_foreach_norm": "linalg_vector_norm"}


def row_for(packet: str, which: str) -> Row | None:
    """The row that `_foreach_<packet>.<which>` applies to each element."""
    name = _RENAMED.get("_foreach_" + packet, packet)
    tries = {
        "List": [f"{name}.Tensor", f"{name}.Tensor_Tensor", name],
        "Scalar": [f"{name}.Tensor_Scalar", f"{name}.Scalar", f"{name}.Tensor", name],
        "ScalarList": [
            f"{name}.Tensor_Scalar",
            f"{name}.Scalar",
            f"{name}.Tensor",
            name,
        ],
        "Tensor": [f"{name}.Tensor", name],
        "ScalarAndTensor": [f"{name}.Scalar"],
    }.get(which, [name])
    if name in ("add", "sub", "mul", "div"):
        tries = [f"{name}.Tensor"]
    return next((TABLE[t] for t in tries if t in TABLE), None)


class Plan:
    """How one list overload's arguments become per-element arguments of a row."""

    def __init__(self, op: Any, row: Row, params: list[Param], number: int) -> None:
        self.op, self.row, self.params, self.number = op, row, params, number
        arguments = op._schema.arguments
        self.inplace = bool(
            arguments[0].alias_info and arguments[0].alias_info.is_write
        )
        self.static = row.static
        # Where each argument of the row comes from: the element, or what is shared.
        self.layout = "".join("se"[p.type.startswith("List[")] for p in params)
        if row.name == "linalg_vector_norm":  # (self, ord, dtype) in the list form
            self.layout = "es__s"

    def bind(self, args: tuple, kwargs: dict) -> list[Any]:
        values = list(args)
        for p in self.params[len(values) :]:
            values.append(kwargs.get(p.name, p.default))
        return values

    def parts(self, values: list[Any]) -> tuple[tuple, tuple]:
        """Key and run-time numbers of one call, a list argument a column."""
        key: list[Any] = [MAP, self.number]
        numbers: list[Any] = []
        columns: list[Any] = []
        for p, value in zip(self.params, values):
            if p.type == "List[Tensor]":
                key.append(_tensors(value))
            elif p.type.startswith("List["):
                key.append(tuple([v.__class__ for v in value]))
                columns.append(value)
            else:
                key.append(self._shared(p, value, numbers))
        if len(columns) == 1:
            numbers += columns[0]
        elif columns:
            numbers += [n for element in zip(*columns) for n in element]
        return tuple(key), tuple(numbers)

    def element(self, values: list[Any], i: int) -> list[Any]:
        """The arguments of a call for the element `i` alone."""
        return [
            v[i : i + 1] if p.type.startswith("List[") else v
            for p, v in zip(self.params, values)
        ]

    def is_sequence(self, key: tuple) -> bool:
        """True where an element may read what an earlier one has written."""
        first, *others = [k for k, p in zip(key[2:], self.params) if _is_list(p)]
        place = {value: i for i, value in enumerate(first)}
        return any(
            place.get(v, i) != i for column in others for i, v in enumerate(column)
        )

    def _shared(self, p: Param, value: Any, numbers: list[Any]) -> Any:
        if isinstance(value, torch.Tensor):
            part, brought = _one(value)
            numbers += brought
            return part if isinstance(part, int) else Num(part)
        static = p.kind == "static" or p.name in self.static
        if value is None or static or value.__class__ not in KINDS:
            return const(value)
        numbers.append(value)
        return Num(KINDS[value.__class__])

    def arguments(self, key: tuple) -> tuple:
        """The instruction's arguments: what all elements share, then each one's."""
        shared, columns = [], []
        for p, part in zip(self.params, key[2:]):
            if _is_list(p):
                columns.append(part)
            elif p.type.startswith("List["):
                columns.append([Num(KINDS[c], loose=True) for c in part])
            else:
                shared.append(part)
        name, layout = const(self.row.name), const(self.layout)
        return name, layout, tuple(shared), tuple(zip(*columns))


def _is_list(p: Param) -> bool:
    return p.type == "List[Tensor]"


def _one(t: torch.Tensor) -> tuple[Any, tuple]:
    try:
        at = t.untyped_storage().slot.at
    except AttributeError:
        return foreign(t)
    return (at if at >= 0 else read(t)), ()


def _tensors(tensors: list[torch.Tensor]) -> tuple[int, ...]:
    """Value numbers of a list of tensors of the device, or 0-d ones of the CPU."""
    found = []
    for t in tensors:
        try:
            at = t.untyped_storage().slot.at
        except AttributeError:
            if t.dim() or t.device.type != "cpu":
                raise RuntimeError(
                    "Expected all tensors to be on the same device, but found at least "
                    f"two devices, {seam.DEVICE}:0 and {t.device}!"
                ) from None
            t, at = from_host(t), -1
        found.append(at if at >= 0 else read(t))
    return tuple(found)


def list_kernel(plan: Plan) -> Callable[..., Any]:
    """The kernel of one `_foreach_` overload."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        values = plan.bind(args, kwargs)
        targets = values[0]
        with recorder.lock:
            while True:
                key, numbers = plan.parts(values)
                trace = recorder.trace
                last = trace.node
                node = last.next.get(key)
                if node is None and plan.inplace and plan.is_sequence(key):
                    for i in range(len(targets)):
                        kernel(*plan.element(values, i))
                    return None
                if node is None:
                    node = _grow(plan, last, key, values)
                    if not isinstance(node, Instr):
                        return node
                if trace.node is last:
                    break
            trace.node = node
            if numbers:
                trace.numbers[node.base] = numbers
            if not plan.inplace:
                return _results(node)
            for i in _write(node, targets):
                kernel(*plan.element(values, i))
            return None

    return kernel


def _grow(plan: Plan, last: Instr, key: tuple, values: list[Any]) -> Any:
    if runs_below(seam.PRINT_CODES):
        return on_host(plan.op, tuple(values), plan.params, Cause.PRINT)
    actual = tuple(values)
    if plan.inplace:
        infer(plan.op, plan.params, actual)
        specs = tuple([contiguous_spec(t.shape, t.dtype) for t in values[0]])
    else:
        metas = infer(plan.op, plan.params, actual)
        specs = tuple([spec(tuple(m.shape), m.stride(), m.dtype) for m in metas])
    args = plan.arguments(key)
    return recorder.grow(last, key, MAP, args, specs, user_line())


def _results(node: Instr) -> list[torch.Tensor]:
    trace, outs = recorder.trace, []
    for i, s in enumerate(node.specs):
        slot = Slot(node.base + i, s)
        trace.add_result(slot)
        outs.append(new_tensor(slot))
    return outs


def _write(node: Instr, targets: list[torch.Tensor]) -> Iterator[int]:
    """The targets become the results of `node`; those whose memory an earlier one
    shares are left to the caller, who computes them from what is there then."""
    trace, value = recorder.trace, node.base
    for i, t in enumerate(targets):
        slot = t.untyped_storage().slot
        if slot.pos >= value:
            yield i
        elif slot.at < 0 and slot.viewed:
            store(slot, t, value + i)
        else:
            trace.add_result(slot)
            slot.state = IR
            slot.data = None
            slot.pos = slot.at = value + i


def foreach_kernels() -> dict[str, Callable[..., Any]]:
    """Kernels of every `_foreach_` overload for which there is a row."""
    found: dict[str, Callable[..., Any]] = {}
    for name in seam.all_aten_overloads():
        if not name.startswith("_foreach_") or "out" in name.partition(".")[2]:
            continue
        packet, _, which = name.removeprefix("_foreach_").partition(".")
        row = row_for(packet.rstrip("_"), which)
        if row is None:
            continue
        op = seam.op_overload(name)
        found[name] = list_kernel(Plan(op, row, params(op, row), len(found)))
    return found
