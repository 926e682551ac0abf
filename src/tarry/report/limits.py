"""Whether a run kept to the compiles and cuts it was allowed, and if not, which ones
were too many: so that a test on a CPU protects a job on an accelerator."""

from collections import defaultdict

from tarry.ledger import Cut, Ledger
from tarry.report.spell import plural, spell_cause


def broken_limits(
    ledger: Ledger, compiles: int | None, cuts_per_step: int | None
) -> list[str]:
    """One text for every limit that was exceeded (None: no limit)."""
    found = []
    made = ledger.counters["UncachedCompile"]
    if compiles is not None and made > compiles:
        rows = [f"  #{c.program} at {c.line}: {c.why}" for c in ledger.compiles]
        found.append(
            f"{plural(made, 'program')} compiled, {compiles} allowed:\n"
            + "\n".join(rows)
        )
    if cuts_per_step is not None:
        found += _steps_over(ledger, cuts_per_step)
    return found


def _steps_over(ledger: Ledger, most: int) -> list[str]:
    steps: dict[int, list[Cut]] = defaultdict(list)
    for cut in ledger.cuts:
        if cut.step:  # what comes before the first step belongs to none
            steps[cut.step].append(cut)
    over = [(step, cuts) for step, cuts in steps.items() if len(cuts) > most]
    if not over:
        return []
    step, cuts = over[0]
    rows = [
        f"  {c.line}: {spell_cause(c.cause, c.detail)} "
        f"({plural(c.instructions, 'instruction')})"
        for c in cuts
    ]
    return [
        f"{plural(len(over), 'step')} cut more than {most} times; in step {step}, the "
        f"first of them, {len(cuts)} cuts:\n" + "\n".join(rows)
    ]
