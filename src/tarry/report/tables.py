"""The tables of the closing report: cuts, compiles, time and CPU fallbacks.

What costs most stands first, a table ends after `ROWS` lines with the number of those
left out, and user strings are never read as markup.
"""

from collections.abc import Callable, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from tarry.ledger import Compile, Fallback, Ledger
from tarry.report.spell import plural, seconds, share, short, spell_cause

ROWS = 12
Row = Sequence[str]


def _table(
    title: str, columns: str, items: Sequence[Any], row: Callable[[Any], Row]
) -> Table:
    """`columns` by name; those that start with `>` are set to the right."""
    table = Table(title=Text(title, style="bold"), box=None, pad_edge=False)
    table.title_justify = "left"
    for name in columns.split("|"):
        side, label = ("right", name[1:]) if name[0] == ">" else ("left", name)
        table.add_column(Text(label, style="dim"), justify=side)  # type: ignore[arg-type]
    for item in items[:ROWS]:
        table.add_row(*[Text(short(cell)) for cell in row(item)])
    if len(items) > ROWS:
        more = Text(f"and {len(items) - ROWS} more", style="dim")
        table.add_row(*[""] * (len(table.columns) - 1), more)
    return table


def cut_table(ledger: Ledger) -> Table:
    """Cuts by cause and line, the most frequent first."""
    totals = sorted(ledger.cut_totals.items(), key=lambda item: -item[1])
    cuts = sum(ledger.cut_totals.values())

    def row(item: tuple[tuple[str, str, str], int]) -> Row:
        (cause, detail, line), n = item
        return f"{n:,}", share(n, cuts), spell_cause(cause, detail), line

    return _table("Why the recording was cut", ">cuts|>share|cause|line", totals, row)


def compile_table(ledger: Ledger) -> Table:
    """Compiled programs, the dearest first."""
    dear = sorted(ledger.compiles, key=lambda c: -(c.trace_s + c.compile_s))

    def row(c: Compile) -> Row:
        time = seconds(c.trace_s + c.compile_s)
        return f"#{c.program}", time, f"{c.instructions:,}", c.why, c.line

    columns = ">program|>time|>operations|compiled because|line"
    return _table("What was compiled", columns, dear, row)


def time_table(ledger: Ledger) -> Table:
    """Wall time by what the calling thread did."""
    whole, took = ledger.wall_s(), ledger.seconds
    fetch = ledger.metrics.get("TransferFromDeviceTime")
    waited = fetch.accumulator / 1e9 if fetch is not None else 0.0
    parts = [
        ("compiling (tracing and XLA)", took["compile"]),
        ("waiting for results that were read", waited),
        ("recording, and your own Python between cuts", took["record"] - waited),
        ("looking programs up (the first time loads JAX)", took["lookup"]),
        ("moving inputs to the device", took["transfer"]),
        ("launching programs (they run asynchronously)", took["run"]),
    ]
    parts.append(("all else (imports, after the last cut)", whole - sum(
        s for _, s in parts
    )))  # fmt: skip
    parts = sorted([(n, max(s, 0.0)) for n, s in parts], key=lambda part: -part[1])

    def row(part: tuple[str, float]) -> Row:
        return seconds(part[1]), share(part[1], whole), part[0]

    return _table(
        "Where the time went", ">time|>share|what the program did", parts, row
    )


def fallback_table(ledger: Ledger) -> Table:
    """Operators that ran on the CPU, the dearest first."""
    found = sorted(ledger.fallbacks.values(), key=lambda f: -f.seconds)
    calls = plural(sum(f.calls for f in found), "call")

    def row(f: Fallback) -> Row:
        return f"{f.calls:,}", seconds(f.seconds), f.op, f.line

    title = f"Operators without a lowering, run on the CPU ({calls})"
    return _table(title, ">calls|>time|operator|line", found, row)
