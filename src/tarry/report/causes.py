"""Why each program of a run was compiled and each line cut it, from the ledger alone,
as text: the sentences that stood at the events, with the user's lines and what to do.
"""

from collections import defaultdict
from collections.abc import Iterator

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from tarry.ledger import Compile, Ledger
from tarry.report.spell import plural, seconds, share, short


def explanation(ledger: Ledger) -> Iterator[RenderableType]:
    """Programs in the order of their compiles, then causes, the most frequent first."""
    yield Text("Why programs were compiled", style="bold")
    for each in ledger.compiles:
        yield from _compile(ledger, each)
    if not ledger.compiles:
        yield Text("No program was compiled.")
    yield ""
    yield Text("Why the recording was cut", style="bold")
    yield from _cuts(ledger)


def _compile(ledger: Ledger, c: Compile) -> Iterator[RenderableType]:
    cost, uses = seconds(c.trace_s + c.compile_s), plural(ledger.uses[c.program], "use")
    yield _text(f"#{c.program} ({cost}, {uses}), cut at {_place(ledger, c.line)}")
    yield _below(f"because {c.why}")
    if c.differs_at and c.differs_at != c.line:
        yield _below(f"first difference at {_place(ledger, c.differs_at)}")
    if c.advice:
        yield _below(f"what to do: {c.advice}")


def _cuts(ledger: Ledger) -> Iterator[RenderableType]:
    lines: dict[str, list[tuple[int, str, str]]] = defaultdict(list)
    for (cause, detail, line), n in ledger.cut_totals.items():
        lines[cause].append((n, detail, line))
    cuts = sum(ledger.cut_totals.values())
    if not cuts:
        yield Text("It never was: nothing was computed on the device.")
    for cause, found in sorted(
        lines.items(), key=lambda item: -sum(f[0] for f in item[1])
    ):
        n = sum(f[0] for f in found)
        yield _text(f"{cause}: {plural(n, 'cut')}, {share(n, cuts)}")
        for times, detail, line in sorted(found, key=lambda f: -f[0]):
            what = f" ({detail})" if detail else ""
            yield _below(f"{times:,} at {_place(ledger, line)}{what}")


def _below(text: str) -> RenderableType:
    return Padding(_text(short(text)), (0, 0, 0, 4), expand=False)


def _text(text: str) -> Text:
    """`text` with what a terminal would obey, such as escapes, made harmless."""
    return Text(
        "".join([c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text])
    )


def _place(ledger: Ledger, line: str) -> str:
    source = ledger.sources.get(line, "")
    return short(f"{line}: {source}" if source else line)
