"""The kernel maker: from an ATen schema and its row, one Python function per overload.

A kernel resolves its operands to value numbers, looks the instruction up in the trie
(one dictionary look-up), makes the result tensors, and commits by moving the trace on.
The commit is attribute stores only, so no other thread can come between its check and
its effect; a kernel that finds the trace moved starts again. Everything else — shapes,
errors, source lines — happens in `grow`, once per new instruction.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tarry.dispatch import growth, seam
from tarry.dispatch.operands import KINDS, foreign, read, store
from tarry.dispatch.storage import TarryStorage, restride, slot_of
from tarry.lower.table import ARGUMENTS, TABLE, Row
from tarry.record.slot import ABSENT, IR, Slot
from tarry.record.trie import Instr, recorder, token

UNIT_DEFAULT = ("alpha", "beta")  # arguments whose default 1 means "absent"


@dataclass(frozen=True, slots=True)
class Param:
    """One schema argument: how it becomes a part of the instruction key."""

    name: str
    kind: str  # "tensor", "tensors", "number", "numbers", "static", "ignored"
    default: Any
    required: bool
    kwarg_only: bool
    type: str


def params(op: Any, row: Row) -> list[Param]:
    found = []
    for a in op._schema.arguments:
        if a.is_out:
            continue
        default = a.default_value if a.has_default_value() else None
        if a.name in UNIT_DEFAULT and default == 1 and str(a.type) != "float":
            default = None
        found.append(
            Param(
                a.name,
                _kind(a, row),
                default,
                not a.has_default_value(),
                a.kwarg_only,
                str(a.type),
            )
        )
    return found


def _kind(argument: Any, row: Row) -> str:
    t, name = str(argument.type), argument.name
    if "Tensor" in t:
        return "tensors" if "List[" in t or "[]" in t else "tensor"
    if name in ("layout", "device", "pin_memory", "generator"):
        return "ignored"
    runtime = name in row.scalars or (
        ("number" in t or "Scalar" in t) and name not in row.static
    )
    if runtime:
        return "numbers" if "List[" in t or "[]" in t else "number"
    return "static"


@dataclass(slots=True)
class Kernel:
    """What `grow` has to know of a kernel; `order`: where the row's arguments stand
    among `params`."""

    op: Any
    row: Row
    params: list[Param]
    inplace: bool
    order: tuple[int, ...]


def _fitted(name: str, kind: str) -> list[str]:
    """Code for integers that have more than 63 bits."""
    return [
        f"if {kind} is INTEGER and not -{1 << 63} <= {name} < {1 << 63}:",
        f"    {kind}, {name} = BIG({name}, FIRST)",
    ]


def big(value: int, first: Any) -> tuple[str, Any]:
    """Kind and value of such an integer beside the tensor `first`: a float beside
    floats; integers wrap around, as PyTorch's do."""
    inexact = isinstance(first, seam.Tensor) and (
        first.dtype.is_floating_point or first.dtype.is_complex
    )
    return (KINDS[float], float(value)) if inexact else (KINDS[int], value)


def _tensor(p: Param, i: int, wrapped: bool) -> list[str]:
    """Code that resolves a tensor argument to the key part `k{i}`."""
    name = p.name
    code = [
        f"try: k{i} = {name}.untyped_storage().slot.at",
        "except AttributeError:",
        f"    k{i}, n = FOREIGN({name}); nums += n",
        "else:",
        f"    if k{i} < 0: k{i} = READ({name})",
    ]
    if p.type.startswith("Optional"):
        code = [f"if {name} is None: k{i} = None", "else:", *("    " + c for c in code)]
    elif wrapped:
        code = [
            f"c = {name}.__class__",
            f"k{i} = None if c is TENSOR else KINDS.get(c)",
            f"if k{i} is not None:",
            *("    " + c for c in _fitted(name, f"k{i}")),
            f"    nums = ({name},)",
            "else:",
            *("    " + c for c in code),
        ]
    return code


def _part(p: Param, i: int, wrapped: bool) -> list[str]:
    name = p.name
    if p.kind == "tensor":
        return _tensor(p, i, wrapped)
    if p.kind == "tensors":
        return [f"k{i}, n = MANY({name}); nums += n"]
    if p.kind == "number":
        return [
            f"if {name} is None: k{i} = None",
            "else:",
            f"    k{i} = KINDS[{name}.__class__]",
            *("    " + c for c in _fitted(name, f"k{i}")),
            f"    nums += ({name},)",
        ]
    if p.kind == "numbers":
        return [
            f"k{i} = tuple([KINDS[v.__class__] for v in {name}]); nums += tuple({name})"
        ]
    if p.kind == "ignored":
        return []
    if "List[" in p.type:
        if "float" in p.type:
            return [f"k{i} = None if {name} is None else TOKEN({name})"]
        return [f"k{i} = tuple({name}) if {name}.__class__ is list else {name}"]
    if p.type in ("float", "Optional[float]", "number", "Optional[number]"):
        return [f"k{i} = None if {name} is None else TOKEN({name})"]
    return [f"k{i} = {name}"]


_SINGLE = """
        out = CREATE(nxt.shape, nxt.dtype)
        slot = NEW(SLOT)
        slot.at = slot.pos = nxt.base
        slot.state = IR
        slot.spec = nxt.spec
        slot.data = None
        slot.viewed = False
        slot.listed = tr.epoch
        st = out.untyped_storage()
        st.slot = slot
        st.__class__ = STORAGE
        tr.results.append(slot)
        if nxt.strided:
            out = RESTRIDE(out, nxt.shape, nxt.spec.strides)
        if R.trace is not tr or tr.node is not cur:
            slot.pos = slot.at = -1
            continue
        tr.node = nxt
        {numbers}
        return out
"""
_MULTI = """
        outs = MAKE(tr, nxt)
        if R.trace is not tr or tr.node is not cur:
            FORGET(outs)
            continue
        tr.node = nxt
        {numbers}
        return outs
"""
_INPLACE = """
        slot = {self}.untyped_storage().slot
        if slot.at < 0:
            if STORE(tr, cur, nxt, {self}, slot, nums): return {self}
            continue
        if slot.listed != tr.epoch: tr.add_result(slot)
        if R.trace is not tr or tr.node is not cur: continue
        tr.node = nxt
        {numbers}
        slot.state = IR
        slot.data = None
        slot.pos = slot.at = nxt.base
        return {self}
"""


def source(kernel: Kernel, name: str, number: int) -> str:
    """The Python source of one kernel."""
    signature, seen_star = [], False
    for p in kernel.params:
        if p.kwarg_only and not seen_star:
            signature.append("*")
            seen_star = True
        signature.append(p.name if p.required else f"{p.name}=D_{p.name}")
    wrapped = kernel.row.pointwise and not kernel.inplace
    body, parts = [], [str(number)]
    for i, p in enumerate(kernel.params):
        number_likely = p.name in ("other", "exponent") and kernel.row.pointwise
        body += _part(p, i, (wrapped or kernel.inplace) and number_likely)
        if p.kind != "ignored":
            parts.append(f"k{i}")
    can_number = any(p.kind != "static" for p in kernel.params)
    results = len(kernel.op._schema.returns)
    finish = _INPLACE if kernel.inplace else _SINGLE if results == 1 else _MULTI
    finish = finish.format(
        self=kernel.params[0].name,
        numbers="if nums: tr.numbers[nxt.base] = nums" if can_number else "",
    )
    actual = ", ".join(p.name for p in kernel.params)
    lines = [
        f"def {name}({', '.join(signature)}):",
        "    while True:",
        "        tr = R.trace",
        "        nums = ()",
        *("        " + c.replace("FIRST", kernel.params[0].name) for c in body),
        "        cur = tr.node",
        f"        key = ({', '.join(parts)},)",
        "        nxt = cur.next.get(key)",
        "        if nxt is None:",
        f"            nxt = GROW(tr, cur, key, KERNEL, ({actual},))",
        "            if nxt.__class__ is not INSTR:",
        "                if nxt is None: continue",
        "                return nxt.result",
        finish,
    ]
    return "\n".join(lines)


def many(tensors: Any) -> tuple[tuple, tuple]:
    """Key parts of a list of tensors (None and numbers allowed), and its numbers."""
    parts: list[Any] = []
    nums: tuple = ()
    for t in tensors:
        try:
            k = t.untyped_storage().slot.at
            if k < 0:
                k = read(t)
        except AttributeError:
            k, n = foreign(t)
            nums += n
        parts.append(k)
    return tuple(parts), nums


def make_results(trace: Any, node: Instr) -> tuple:
    outs: list[Any] = []
    for i, s in enumerate(node.specs):
        if s is ABSENT:
            outs.append(None)
            continue
        slot = Slot(node.base + i, s)
        out = seam.create_empty_tensor(s.shape, s.dtype)
        st = out.untyped_storage()
        st.slot = slot
        st.__class__ = TarryStorage
        trace.add_result(slot)
        outs.append(out if s.plain else restride(out, s.shape, s.strides))
    return tuple(outs)


def forget(outs: tuple) -> None:
    for t in outs:
        if t is not None:
            slot = slot_of(t)
            slot.pos = slot.at = -1


def store_through(
    trace: Any, node: Instr, new: Instr, target: Any, slot: Slot, numbers: tuple
) -> bool:
    """Commit an in-place result to a view (or a viewed base); False to start again."""
    with recorder.lock:
        if recorder.trace is not trace or trace.node is not node:
            return False
        trace.node = new
        if numbers:
            trace.numbers[new.base] = numbers
        store(slot, target, new.base)
        return True


_NAMES = {
    "INTEGER": KINDS[int], "BIG": big,
    "R": recorder, "READ": read, "FOREIGN": foreign, "MANY": many, "KINDS": KINDS,
    "TOKEN": token, "SLOT": Slot, "STORAGE": TarryStorage, "RESTRIDE": restride,
    "MAKE": make_results, "FORGET": forget, "STORE": store_through, "IR": IR,
    "NEW": object.__new__, "TENSOR": seam.Tensor, "INSTR": Instr, "GROW": growth.grow,
}  # fmt: skip


def _order(row: Row, found: list[Param]) -> tuple[int, ...]:
    names = [p.name for p in found]
    wanted = params(seam.op_overload(row.name), row)
    ARGUMENTS[row.name] = tuple([p.name for p in wanted])
    order = tuple([names.index(p.name) for p in wanted])
    moving = [i for i in order if found[i].kind not in ("static", "ignored")]
    if moving != sorted(moving):
        raise ValueError(f"{row.name}: run-time arguments change places in place")
    return order


def make(name: str, row: Row, inplace: bool, number: int) -> Callable[..., Any]:
    """The kernel of the overload `name`; `row` is that of its functional form."""
    op = seam.op_overload(name)
    found = params(op, row)
    kernel = Kernel(op, row, found, inplace, _order(row, found))
    python_name = name.replace(".", "_")
    scope = {
        **_NAMES,
        "KERNEL": kernel,
        "CREATE": seam.create_empty_tensor,
        **{f"D_{p.name}": p.default for p in kernel.params},
    }
    code = compile(
        source(kernel, python_name, number), f"<tarry kernel {name}>", "exec"
    )
    exec(code, scope)
    return scope[python_name]


def is_mutable_self(op: Any) -> bool:
    args = op._schema.arguments
    first = args[0].alias_info if args else None
    others = any(a.alias_info is not None for a in args[1:])
    return bool(first and first.is_write and not others)


def _types(op: Any) -> dict[str, str]:
    return {a.name: str(a.type) for a in op._schema.arguments}


def inplace_forms(name: str) -> list[str]:
    """The in-place overloads of the functional `name`: those of its arguments, which
    may stand in another order (`polygamma(n, x)`, `x.polygamma_(n)`)."""
    packet = name.partition(".")[0] + "_"
    wanted, found = _types(seam.op_overload(name)), []
    for which in seam.overload_names(packet):
        form = packet if which == "default" else f"{packet}.{which}"
        op = seam.op_overload(form)
        single = is_mutable_self(op) and len(op._schema.returns) == 1
        if single and _types(op) == wanted:
            found.append(form)
    return found


def kernels_of(row: Row) -> dict[str, tuple[Row, bool]]:
    """The overloads that this row serves: its own and the in-place one."""
    forms = dict.fromkeys(inplace_forms(row.name), (row, True))
    return {row.name: (row, False), **forms}


def all_kernels() -> dict[str, Callable[..., Any]]:
    """Every generated kernel, by overload name."""
    found: dict[str, tuple[Row, bool]] = {}
    for row in TABLE.values():
        if not row.name.startswith("tarry::") and seam.has_overload(row.name):
            found.update(kernels_of(row))
    return {
        name: make(name, row, inplace, number)
        for number, (name, (row, inplace)) in enumerate(found.items())
    }
