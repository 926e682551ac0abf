"""Which ATen overloads tarry has, and how; which of them a script lacked.

In go the kernels registered at import and PyTorch's own registries; out comes one
`Support` an overload, read without running anything, and tables of them. What a script
lacked is read from the ledger.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rich.table import Table
from rich.text import Text

from tarry.dispatch import exits, refused, seam
from tarry.ledger import Fallback, Ledger


class Support(Enum):
    NATIVE = "native row"
    DECOMPOSED = "decomposition"
    CPU = "CPU fallback"
    UNSUPPORTED = "unsupported"


MEANING = {
    Support.NATIVE: "a kernel of tarry's own, recorded as one instruction or a few",
    Support.DECOMPOSED: "PyTorch's decomposition, each part looked up in turn",
    Support.CPU: "PyTorch's CPU kernel; cuts the graph and copies",
    Support.UNSUPPORTED: "raises an error",
}

COMPOSITES = ("CompositeImplicitAutograd", "CompositeExplicitAutograd")

# PyTorch's kernel of a structured overload calls the `out=` one, which then is to be
# had on the CPU only; it comes before a decomposition in Python. Copying forms of views
# (`narrow_copy`) have such a kernel too, made of the view and a copy.
STRUCTURED = "CompositeExplicitAutogradNonFunctional"


@dataclass(frozen=True, slots=True)
class Overload:
    """One overload of aten, without `aten::`, and how it is supported."""

    name: str
    support: Support


def overloads(filters: Iterable[str] = ()) -> list[Overload]:
    """Every overload on tensors whose name contains one of `filters` (none: all)."""
    wanted = tuple(filters)
    found = []
    for name in seam.all_aten_overloads():
        if wanted and not any(part in name for part in wanted):
            continue
        op = _operator(name)
        if op is not None and _on_tensors(op):
            found.append(Overload(name, support_of(name, op)))
    return found


def _operator(name: str) -> Any:
    """None for an overload that PyTorch declares but does not offer."""
    try:
        return seam.op_overload(name)
    except (AttributeError, RuntimeError):
        return None


def _on_tensors(op: Any) -> bool:
    schema = op._schema
    return any("Tensor" in str(a.type) for a in (*schema.arguments, *schema.returns))


def support_of(name: str, op: Any) -> Support:
    """How a call of this overload with dense tensors on the device ends."""
    if name in refused.KERNELS:
        return Support.UNSUPPORTED
    if seam.has_kernel(name, "PrivateUse1"):
        return Support.NATIVE
    functional = exits.functional_form(op)
    if functional is not None:
        return support_of(_name(functional), functional)
    if any(seam.has_kernel(name, key) for key in COMPOSITES):
        return Support.DECOMPOSED
    if seam.has_kernel(name, STRUCTURED):
        copies = name.partition(".")[0].endswith("_copy")
        return Support.DECOMPOSED if copies else Support.CPU
    if op not in exits.NOT_DECOMPOSED and op in seam.decompositions():
        return Support.DECOMPOSED
    if _is_view(op) or not seam.has_kernel(name, "CPU"):
        return Support.UNSUPPORTED
    return Support.CPU


def _name(op: Any) -> str:
    name = op._schema.name.removeprefix("aten::")
    which = op._schema.overload_name
    return f"{name}.{which}" if which else name


def _is_view(op: Any) -> bool:
    infos = [a.alias_info for a in op._schema.arguments]
    return any(i is not None and not i.is_write for i in infos)


def counts_table(found: list[Overload]) -> Table:
    number = Counter(o.support for o in found)
    table = Table(title=f"{len(found)} overloads", title_justify="left")
    table.add_column("support")
    table.add_column("overloads", justify="right")
    table.add_column("a call is")
    for support in Support:
        table.add_row(support.value, str(number[support]), MEANING[support])
    return table


def overload_lines(found: list[Overload]) -> str:
    """One line an overload: its support, then its name."""
    return "\n".join(f"{o.support.value:<14} aten::{o.name}" for o in found)


def missing_table(ledger: Ledger) -> Table | Text:
    """The operators that ran on the CPU, by line, the dearest first."""
    found: list[Fallback] = sorted(
        ledger.fallbacks.values(), key=lambda f: f.seconds, reverse=True
    )
    if not found:
        return Text("No operator ran on the CPU.")
    lost = sum(f.seconds for f in found)
    title = f"Operators that ran on the CPU: {lost:.3f} s"
    table = Table(title=title, title_justify="left")
    table.add_column("operator", overflow="fold")
    table.add_column("line", overflow="fold")
    table.add_column("calls", justify="right")
    table.add_column("seconds", justify="right")
    for f in found:
        table.add_row(f.op, Text(f.line), str(f.calls), f"{f.seconds:.3f}")
    return table
