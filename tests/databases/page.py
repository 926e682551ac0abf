"""`docs/operators.md` from records."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch

from entries import ENTRIES
from known_gaps import REASONS, VIA_CPU
from runs import Record
from workers import GROUPS, LIMIT, jobs_of


@dataclass(frozen=True, slots=True)
class Counts:
    """How many (entry, dtype) pairs came out how; `right` includes `cpu`."""

    pairs: int
    right: int
    cpu: int
    strides: int
    refused: int
    wrong: int
    error: int
    timeout: int
    late: int
    crash: int

    @property
    def values(self) -> int:
        """Right in all but strides and aliasing, too."""
        return self.right + self.strides


NOT_FINE = ("strides", "refused", "wrong", "error", "timeout", "late", "crash")


def count(records: list[Record]) -> Counts:
    ran = [r for r in records if r.status != "none"]
    by = Counter(r.status for r in ran)
    cpu = sum(r.status == "right" and not r.native for r in ran)
    return Counts(len(ran), by["right"], cpu, *(by[s] for s in NOT_FINE))


PAGE = Path(__file__).parents[2] / "docs" / "operators.md"

HEAD = """# Operators

Written by `make ops-report`, which runs PyTorch's own operator database
(`torch.testing._internal.common_methods_invocations.op_db` of torch {torch}, {entries}
entries) on tarry, on XLA's CPU platform, and compares every sample with CPU PyTorch:
value, dtype, shape, device, strides, and whether a result is a view.
`make test` runs a part of it, `make test-all` all of it.

## Counts

One line a group, way of calling and dtype. The ways are explained in
`tests/databases/entries.py`; modules and optimizers are those of `module_db` and
`optim_db`. A *pair* is an entry in a dtype that PyTorch's CPU supports, with at most so
many samples, spread over those that the entry yields:
{caps}.
*Right* is right in all respects; *native* of these ran without a CPU fallback.
*Strides*: the values are right; strides, offset or aliasing are not. *Refused*: tarry
has no such tensors (sparse ones) and says so. *Error*: tarry raised something else, or
the entry took more than {limit} s of CPU. Random and uninitialised results
are compared in all but their values; eigenvectors and the like through their
invariants. Entries of which the CPU refuses every sample are left out.

"""


COLUMNS = (
    "pairs", "right", "native", "via CPU", "strides", "refused", "wrong", "error",
    "crash", "right %", "native %",
)  # fmt: skip


def counts_table(records: list[Record], groups: list[str]) -> list[str]:
    """A line for each way and dtype of each group, and one for all of a group."""
    by_key = {r.key: r for r in records}
    lines = [
        f"| group | way | dtype | {' | '.join(COLUMNS)} |",
        f"|---|---|---|{'--:|' * len(COLUMNS)}",
    ]
    for group in groups:
        jobs = jobs_of([group], [], [])
        ways = list(dict.fromkeys((j.kind, j.dtype) for j in jobs))
        rows = [(way, dtype, [(way, dtype)]) for way, dtype in ways]
        if len(rows) > 1:
            rows.append(("all", "all", ways))
        for way, dtype, of in rows:
            found = [by_key[j.key] for j in jobs if j.key in by_key]
            cells = _cells(count([r for r in found if (r.kind, r.dtype) in of]))
            if cells:
                lines.append(f"| {group} | {way} | {dtype} | {' | '.join(cells)} |")
    return lines


def _cap(group: str) -> str:
    found = GROUPS[group]
    every = f", every {found.every}th entry" if found.every > 1 else ""
    return f"{found.cap} ({group}{every})"


def _cells(c: Counts) -> list[str]:
    if not c.pairs:
        return []
    native = c.right - c.cpu
    numbers = (
        c.pairs, c.right, native, c.cpu, c.strides, c.refused, c.wrong,
        c.error + c.timeout + c.late, c.crash,
    )  # fmt: skip
    shares = (f"{100 * n / c.pairs:.1f}" for n in (c.right, native))
    return [*map(str, numbers), *shares]


def _entries_of(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """(what, its entries as a cell), by what, of pairs of what and an entry."""
    found: dict[str, set[str]] = {}
    for what, name in pairs:
        found.setdefault(what, set()).add(name)
    return [(w, " ".join(f"`{n}`" for n in sorted(found[w]))) for w in sorted(found)]


def fallback_table(records: list[Record]) -> list[str]:
    lines = ["| operator | entries | reason |", "|---|---|---|"]
    for op, listed in _entries_of((op, r.name) for r in records for op in r.fallbacks):
        lines.append(f"| `{op}` | {listed} | {VIA_CPU.get(op, '')} |")
    return lines


def wrong_table(records: list[Record]) -> list[str]:
    grouped: dict[tuple, list[str]] = {}
    for r in records:
        if not r.fine:
            status = "error" if r.status in ("timeout", "late") else r.status
            reason = REASONS.get(r.key, "")
            grouped.setdefault((r.name, r.kind, status, reason), []).append(r.dtype)
    lines = ["| entry | way | result | dtypes | reason |", "|---|---|---|---|---|"]
    for (name, kind, status, reason), dtypes in sorted(grouped.items()):
        listed = " ".join(dtypes)
        lines.append(f"| `{name}` | {kind} | {status} | {listed} | {reason} |")
    return lines


def reads_table(records: list[Record]) -> list[str]:
    lines = ["| cause of the cut | entries |", "|---|---|"]
    for cause, listed in _entries_of((c, r.name) for r in records for c in r.reads):
        lines.append(f"| {cause} | {listed} |")
    return lines


def page(records: list[Record], groups: list[str]) -> str:
    caps = ", ".join(_cap(g) for g in groups)
    parts = [
        HEAD.format(
            torch=torch.__version__.partition("+")[0],
            entries=len(ENTRIES),
            caps=caps,
            limit=LIMIT,
        ).rstrip(),
        *counts_table(records, groups),
        *(f"Not part of this run: {g}." for g in GROUPS if g not in groups),
        "## Operators that run on the CPU",
        "In any group above; each call cuts the graph, warns once a line, and is "
        "counted.",
        *fallback_table(records),
        "## Not right",
        *wrong_table(records),
        "## Entries that read a value",
        "They run natively but for the number or size that they need, which cuts.",
        *reads_table(records),
    ]
    text = parts[0] + "\n"
    for before, part in pairwise(parts):
        rows = part.startswith("|") and before.startswith("|")
        text += ("" if rows else "\n") + part + "\n"
    return text
