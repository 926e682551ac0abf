"""Regions of a program with a promise: `compile` (one program from border to border),
`no_host_reads`, `budget`.

A region ends the recording at its borders, so that what it records does not depend on
what stood pending before. Inside another region the outer one's borders hold.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from tarry.cut.cause import Cause
from tarry.cut.guard import Budget, FewGraphs, NoCuts, NoReads, guarded, guards
from tarry.cut.sync import cut
from tarry.dispatch.device import StepCuts
from tarry.dispatch.eager import recording_whole
from tarry.ledger import ledger
from tarry.run.options import custom

F = TypeVar("F", bound=Callable[..., Any])
_numbers = itertools.count()


class Region:
    """What `compile` gives: a decorator of functions and a context manager."""

    _open = 0

    def __init__(
        self, full_graph: bool, name: str | None, most: int | None,
        options: Mapping[str, Any] | None,
    ) -> None:  # fmt: skip
        self.named = name is not None
        self.name = name or f"region_{next(_numbers)}"
        self.full_graph = full_graph
        self.few = None if most is None else FewGraphs(self.name, most)
        self.options = {k: str(v) for k, v in (options or {}).items()}
        self._entered: list[ExitStack] = []

    def __call__(self, f: F) -> F:
        """`f` with this region around every call; an unnamed region gets its name."""
        if not self.named and hasattr(f, "__name__"):
            self.name = f.__name__
            if self.few is not None:
                self.few.name = self.name
        if self.few is not None:
            self.few.seen = _programs_of(f)

        @functools.wraps(f, updated=())
        def run(*args: Any, **kwargs: Any) -> Any:
            with self:
                return f(*args, **kwargs)

        return run  # type: ignore[return-value]

    def __enter__(self) -> "Region":
        if Region._open == 0:
            cut(Cause.REGION_BEGIN, self.name)
        with ExitStack() as stack:
            stack.enter_context(_counted())
            stack.enter_context(_step_cuts_off())
            stack.enter_context(recording_whole())
            stack.enter_context(with_options(self.options))
            if self.few is not None:
                stack.enter_context(guarded(self.few))
            stack.push(self._end)  # after the promise has ended, before all else
            if self.full_graph:
                stack.enter_context(guarded(NoCuts()))
            self._entered.append(stack.pop_all())
        return self

    def _end(self, kind: Any, error: Any, trace: Any) -> None:
        if Region._open == 1 and kind is None:
            ledger.count("MarkStep")
            cut(Cause.REGION_END, self.name)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._entered.pop().__exit__(kind, error, trace)


def _programs_of(f: Callable[..., Any]) -> dict[int, str]:
    """The programs that a function has run, in all its regions."""
    try:
        return _programs.setdefault(f, {})
    except TypeError:  # it cannot be referred to weakly
        return {}


_programs: WeakKeyDictionary[Callable[..., Any], dict[int, str]] = WeakKeyDictionary()


@contextmanager
def _counted() -> Iterator[None]:
    Region._open += 1
    try:
        yield
    finally:
        Region._open -= 1


@contextmanager
def _step_cuts_off() -> Iterator[None]:
    before, StepCuts.enabled = StepCuts.enabled, False
    try:
        yield
    finally:
        StepCuts.enabled = before


@contextmanager
def with_options(options: Mapping[str, str]) -> Iterator[None]:
    before = dict(custom)
    custom.update(options)
    try:
        yield
    finally:
        custom.clear()
        custom.update(before)


def compile(
    f: Callable[..., Any] | None = None,
    full_graph: bool = False,
    name: str | None = None,
    max_different_graphs: int | None = None,
    custom_compile_options: Mapping[str, Any] | None = None,
) -> Any:
    """`f`, or a block, recorded from border to border and cut there.

    As a decorator (`@tarry.compile` or `@tarry.compile(full_graph=True)`), around a
    function (`step = tarry.compile(step)`) or as a context manager
    (`with tarry.compile(name="step"):`). `f` runs and is recorded at every call.
    `optimizer.step()` does not cut inside.

    `full_graph`: every cut inside raises ExecutionNotAllowedError, with its cause and
    line. `max_different_graphs`: TooManyGraphsError where the region would run one more
    program, counted over all calls of `f`; it says what is different.
    `custom_compile_options`: XLA's options by name, a part of the compile key.
    `name`: of the region in reports; that of `f` if there is one.

    After an exception the recording is as it was, and the next cut computes it.
    """
    region = Region(full_graph, name, max_different_graphs, custom_compile_options)
    return region if f is None else region(f)


_no_cuts = NoCuts()


def set_allow_execution(allow: bool) -> None:
    """False: every cut raises ExecutionNotAllowedError, until True is set again."""
    if allow != is_execution_allowed():
        guards.remove(_no_cuts) if allow else guards.append(_no_cuts)


def is_execution_allowed() -> bool:
    return _no_cuts not in guards


def step() -> Region:
    """`with tarry.step():` — one step of a loop, recorded and cut as one program."""
    return compile(name="step")


@contextmanager
def no_host_reads() -> Iterator[None]:
    """HostReadError, with cause and line, where the block reads a value on the host:
    `item()`, `bool`, `print`, `cpu()`, an operator on the CPU, a size that data tell.
    """
    with guarded(NoReads()):
        yield


@contextmanager
def budget(compiles: int | None = None, cuts: int | None = None) -> Iterator[Budget]:
    """BudgetError where the block would compile or cut once more than that; it lists
    all of them, with cause and line. None: any number. Gives the counts:
    `len(b.compiled)` and `len(b.done)`."""
    spent = Budget(compiles, cuts)
    with guarded(spent):
        yield spent
