"""What happened: counters, timed metrics and records, written by the stages.

Reports only read it. Sizes are bounded: records are kept for the last `KEPT` events,
totals for all.
"""

import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

KEPT = 20_000
SAMPLES = 1024


@dataclass(slots=True)
class Metric:
    """`samples` of (Unix time in s, value); values of timers are nanoseconds."""

    kind: str  # "time", "bytes" or "value"
    total: int = 0
    accumulator: float = 0.0
    samples: deque[tuple[float, float]] = field(
        default_factory=lambda: deque(maxlen=SAMPLES)
    )

    def add(self, value: float) -> None:
        self.total += 1
        self.accumulator += value
        self.samples.append((time.time(), value))


@dataclass(slots=True)
class Cut:
    """One cut: why, where, how much was pending, and what it cost (seconds)."""

    cause: str
    detail: str
    line: str
    instructions: int
    outputs: int
    program: int = -1
    compiled: bool = False
    at: float = 0.0
    step: int = 0  # steps begun before or with this cut
    record_s: float = 0.0
    lookup_s: float = 0.0
    compile_s: float = 0.0
    transfer_s: float = 0.0
    run_s: float = 0.0
    blocked_s: float = 0.0  # the host waited for its results


@dataclass(slots=True)
class Compile:
    """One compiled program: why it was new, and what it cost (seconds).

    `reason` to `advice` are the parts of the sentence `why`, see `report.why.Why`;
    `source`: what else is known of the program, see `report.programs.Source`, or, of a
    saved ledger, the plain record that was made of it.
    """

    program: int
    why: str
    line: str
    instructions: int
    inputs: int
    outputs: int
    donated: int
    trace_s: float
    compile_s: float
    options: str
    reason: str = ""
    before: int = -1
    differs_at: str = ""
    old: str = ""
    new: str = ""
    advice: str = ""
    memory: dict[str, int] = field(default_factory=dict)  # bytes, by use
    source: Any = None


@dataclass(slots=True)
class Fallback:
    """An operator that ran on the CPU, summed per operator and line."""

    op: str
    line: str
    calls: int = 0
    seconds: float = 0.0


class Watcher:
    """Is told what happens, when it happens; this one does nothing with it."""

    def compiling(self, instructions: int, line: str) -> None:
        """A program is about to be compiled."""

    def compiled(self, record: Compile) -> None: ...

    def cut(self, record: Cut) -> None:
        """A cut has launched its program."""


_nothing = nullcontext()


def no_span(name: str) -> AbstractContextManager:
    return _nothing


class Ledger:
    """`span(name)`: a context that a profiler shows, where one is running."""

    def __init__(self) -> None:
        self.watchers: list[Watcher] = []
        self.span: Callable[[str], AbstractContextManager] = no_span
        self.started = time.time()
        self.ended = 0.0  # set where the ledger comes from a saved file
        self.clear_counters()
        self.clear_metrics()
        self.cuts: deque[Cut] = deque(maxlen=KEPT)
        self.compiles: deque[Compile] = deque(maxlen=KEPT)
        self.fallbacks: dict[tuple[str, str], Fallback] = {}
        self.cut_totals: dict[tuple[str, str, str], int] = defaultdict(int)
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.steps = 0
        self.uses: Counter[int] = Counter()
        self.sources: dict[str, str] = {}  # of a saved run: the text of its lines

    def wall_s(self) -> float:
        """Seconds from the start to now, or to the end of the saved run."""
        return (self.ended or time.time()) - self.started

    def clear_counters(self) -> None:
        self.counters: Counter[str] = Counter()

    def clear_metrics(self) -> None:
        self.metrics: dict[str, Metric] = {}

    def count(self, name: str, n: int = 1) -> None:
        self.counters[name] += n

    def sample(self, name: str, value: float, kind: str = "value") -> None:
        metric = self.metrics.get(name)
        if metric is None:
            metric = self.metrics[name] = Metric(kind)
        metric.add(value)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.sample(name, (time.perf_counter() - started) * 1e9, "time")

    def add_cut(self, cut: Cut) -> None:
        cut.at, cut.step = time.time() - self.started, self.steps
        self.cuts.append(cut)
        self.cut_totals[cut.cause, cut.detail, cut.line] += 1
        self.uses[cut.program] += 1
        self.sample("InstructionsPerCut", cut.instructions)
        if cut.instructions:
            per_op = cut.record_s / cut.instructions
            self.sample("RecordTimePerInstruction", per_op * 1e9, "time")
        seconds = self.seconds
        seconds["record"] += cut.record_s
        seconds["compile"] += cut.compile_s
        seconds["transfer"] += cut.transfer_s
        seconds["run"] += cut.run_s
        seconds["lookup"] += cut.lookup_s
        for watcher in self.watchers:
            watcher.cut(cut)

    def begin_compile(self, instructions: int, line: str) -> None:
        for watcher in self.watchers:
            watcher.compiling(instructions, line)

    def add_compile(self, compile: Compile) -> None:
        self.compiles.append(compile)
        for watcher in self.watchers:
            watcher.compiled(compile)

    def add_blocked(self, seconds: float) -> None:
        """The host waited so long for a value: a cost of the last cut."""
        self.seconds["blocked"] += seconds
        if self.cuts:
            self.cuts[-1].blocked_s += seconds

    def add_fallback(self, op: str, line: str, seconds: float) -> bool:
        """Record one CPU fallback; True the first time for this op and line."""
        self.count(op)
        found = self.fallbacks.get((op, line))
        first = found is None
        if found is None:
            found = self.fallbacks[op, line] = Fallback(op, line)
        found.calls += 1
        found.seconds += seconds
        return first


ledger = Ledger()
