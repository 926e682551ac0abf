"""What a peer's process tells `run.py`, one JSON line each, and what becomes of it.

A process answers `@ready` with a Start, each `run N` with a Round, `done` with an End.
"""

from dataclasses import dataclass, field
from statistics import median

# The parts of a step, in their order; a peer that is not lazy has no use for some.
RECORDING = ("forward", "backward", "optimizer")
PHASES = (*RECORDING, "cut", "wait")

TOLERANCE = 1e-3


@dataclass(slots=True)
class Start:
    """Seconds to import, to place the data, for the first step; five losses."""

    import_s: float
    setup_s: float
    first_s: float
    losses: list[float]


@dataclass(slots=True)
class Round:
    """Medians over a round's steps, in milliseconds, of a step and of its phases."""

    step_ms: float
    phases_ms: dict[str, float]


@dataclass(slots=True)
class End:
    """Totals of the process; `late` ones came after the fifth step. None: not known."""

    peak_rss_mb: float
    compiles: int | None = None
    late_compiles: int | None = None
    compile_s: float | None = None
    fallbacks: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Outcome:
    """One peer on one workload; `error` says why anything is missing."""

    peer: str
    start: Start | None = None
    rounds: list[Round] = field(default_factory=list)
    end: End | None = None
    error: str = ""

    @property
    def step_ms(self) -> float:
        return median(r.step_ms for r in self.rounds)

    def phase_ms(self, *names: str) -> float:
        """The median over the rounds of these phases together."""
        return median(sum(r.phases_ms[n] for n in names) for r in self.rounds)

    def ratio(self, other: "Outcome") -> float:
        """Step time over `other`'s: the median of the rounds' ratios."""
        return median(a.step_ms / b.step_ms for a, b in zip(self.rounds, other.rounds))

    def difference(self, other: "Outcome") -> float:
        """The largest relative difference between the losses, NaN being infinite."""
        pairs = zip(self.start.losses, other.start.losses, strict=True)
        found = [abs(a - b) / max(abs(b), 1e-12) for a, b in pairs]
        return max(d if d == d else float("inf") for d in found)


def is_wrong(outcome: Outcome, eager: Outcome | None) -> bool:
    """Whether the losses are not eager's; unknown, so False, where either lacks."""
    if eager is None or eager.start is None or outcome.start is None:
        return False
    return outcome.difference(eager) > TOLERANCE
