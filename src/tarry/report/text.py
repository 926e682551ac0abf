"""The closing report: what a run did, from the ledger alone, as text.

Plain where the console is no terminal; what is good is said as plainly as what is not.
"""

import io
from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.text import Text

from tarry.ledger import Ledger
from tarry.report.spell import plural, seconds, share
from tarry.report.steady import Steady, steady_state
from tarry.report.tables import compile_table, cut_table, fallback_table, time_table

WIDTH = 100
GOOD, BAD = "green", "yellow"


def closing_report(ledger: Ledger, console: Console) -> None:
    """Print the report of `ledger`."""
    if not console.is_terminal:
        console.file.write(report_text(ledger, console.width))
        return
    _print(ledger, console)


def _print(ledger: Ledger, console: Console) -> None:
    console.print(Text("tarry: closing report", style="bold"))
    for part in _parts(ledger):
        console.print(part)


def report_text(ledger: Ledger, width: int = WIDTH) -> str:
    """The report as plain text, at most `width` columns wide."""
    out = io.StringIO()
    _print(ledger, Console(file=out, width=width, color_system=None))
    return "\n".join(line.rstrip() for line in out.getvalue().split("\n"))


def _parts(ledger: Ledger) -> Iterator[RenderableType]:
    if not ledger.cut_totals:
        yield Text("Nothing was computed on the device 'tarry'.")
    else:
        yield from _verdict(ledger)
        yield ""
        yield cut_table(ledger)
        yield ""
        if ledger.compiles:
            yield compile_table(ledger)
            yield ""
        yield time_table(ledger)
    if ledger.fallbacks:
        yield ""
        yield fallback_table(ledger)


def _verdict(ledger: Ledger) -> Iterator[Text]:
    cuts = sum(ledger.cut_totals.values())
    missed, hit = (ledger.counters[n] for n in ("UncachedCompile", "CachedCompile"))
    yield Text(
        f"{plural(ledger.steps, 'step')}, {plural(cuts, 'cut')}, "
        f"{plural(missed, 'program')} compiled, {seconds(ledger.wall_s())} in all"
    )
    yield _steady(ledger, steady_state(ledger.cuts))
    yield Text(
        f"Compile cache: {hit:,} of {plural(hit + missed, 'cut')} found their program "
        f"there ({share(hit, hit + missed)})."
    )
    if not ledger.fallbacks:
        yield Text("No operator ran on the CPU.", style=GOOD)


def _steady(ledger: Ledger, found: Steady | None) -> Text:
    if not ledger.steps:
        return Text("No step was marked (by tarry.sync() or an optimizer's step).")
    if found is None:
        return Text("No steady state: every step compiled a program.", style=BAD)
    same = "always the same" if found.programs == found.per_step else "not always the "
    if found.programs != found.per_step:
        same += f"same ({plural(found.programs, 'program')} in turn)"
    counted = [
        f"{found.usual:,} of {plural(found.usual + found.others, 'step')}",
        f"{plural(found.compiling, 'step')} compiled" if found.compiling else "",
    ]
    return Text(
        f"Steady state: {plural(found.per_step, 'program')} per step, {same} "
        f"({'; '.join(filter(None, counted))}).",
        style=GOOD if found.per_step == 1 else BAD,
    )
