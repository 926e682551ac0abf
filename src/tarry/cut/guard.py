"""What may forbid a host read, a cut, a compile or a run: guards, all of them asked.

A guard that says no raises before anything has happened: the recording stays as it is,
and is cut later.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tarry.cut.cause import Cause
from tarry.errors import (
    BudgetError,
    ExecutionNotAllowedError,
    HostReadError,
    TooManyGraphsError,
)
from tarry.record.lines import user_line
from tarry.report.spell import spell_cause


@dataclass(frozen=True, slots=True)
class Event:
    """A cut or a host read: why, of what (an operator, for example), and where."""

    cause: Cause
    detail: str
    line: str

    def __str__(self) -> str:
        return spell_cause(self.cause.value, self.detail)


class Guard:
    """Says no by raising a TarryError; this one never does."""

    def read(self, event: Event) -> None:
        """The host is about to read a value, computed or not."""

    def cut(self, event: Event) -> None:
        """A recording is about to be computed."""

    def compile(self, event: Event, why: str) -> None:
        """No compiled program fits."""

    def run(self, event: Event, program: int, why: str) -> None:
        """Program number `program` is about to run; `why` it was compiled."""


guards: list[Guard] = []


@contextmanager
def guarded(guard: Guard) -> Iterator[None]:
    """`guard` is asked, too, in the block."""
    guards.append(guard)
    try:
        yield
    finally:
        guards.remove(guard)


def reading(cause: Cause, detail: str) -> None:
    """Ask whether the host may read."""
    if guards:
        event = Event(cause, detail, str(user_line()))
        for guard in guards:
            guard.read(event)


class NoCuts(Guard):
    """A region that promises to be one program."""

    def cut(self, event: Event) -> None:
        raise ExecutionNotAllowedError(str(event), event.line)


class NoReads(Guard):
    def read(self, event: Event) -> None:
        raise HostReadError(str(event), event.line)


@dataclass(slots=True)
class FewGraphs(Guard):
    """At most `most` different programs, counted over all entries of a region."""

    name: str
    most: int
    seen: dict[int, str] = field(default_factory=dict)

    def run(self, event: Event, program: int, why: str) -> None:
        if program in self.seen:
            return
        if len(self.seen) >= self.most:
            raise TooManyGraphsError(self.name, self.most, event.line, why)
        self.seen[program] = why


@dataclass(slots=True)
class Budget(Guard):
    """At most so many compiles and cuts (None: any number)."""

    compiles: int | None = None
    cuts: int | None = None
    compiled: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)

    def cut(self, event: Event) -> None:
        self._spend("cuts", self.cuts, self.done, f"{event.line}: {event}")

    def compile(self, event: Event, why: str) -> None:
        what = f"{event.line}: {event}, because {why}"
        self._spend("compiles", self.compiles, self.compiled, what)

    def _spend(self, what: str, most: int | None, spent: list[str], new: str) -> None:
        if most is not None and len(spent) >= most:
            raise BudgetError(what, most, [*spent, new])
        spent.append(new)
