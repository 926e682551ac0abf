"""The steady state of a run: how many programs a step takes once none is compiled."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from tarry.ledger import Cut


@dataclass(frozen=True, slots=True)
class Steady:
    """`usual` steps ran `per_step` programs each, `programs` different ones in all;
    `others` ran more or fewer, and in `compiling` steps something was compiled."""

    per_step: int
    programs: int
    usual: int
    others: int
    compiling: int


def steady_state(cuts: Iterable[Cut]) -> Steady | None:
    """None where no step ran without a compile.

    Cuts are told apart by the number of steps begun before them, so what is read
    between two steps counts to the earlier one.
    """
    steps: dict[int, list[Cut]] = defaultdict(list)
    for cut in cuts:
        if cut.step:
            steps[cut.step].append(cut)
    settled = [s for s in steps.values() if not any(c.compiled for c in s)]
    if not settled:
        return None
    per_step, usual = Counter(map(len, settled)).most_common(1)[0]
    programs = {c.program for s in settled if len(s) == per_step for c in s}
    compiling = len(steps) - len(settled)
    return Steady(per_step, len(programs), usual, len(settled) - usual, compiling)
