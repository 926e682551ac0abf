"""Instructions as edges of a trie, and the trace being recorded as a path in it.

An instruction is (row, arguments). Operands are numbers of earlier values of the same
path, so an instruction's meaning depends on nothing but the path to it, and everything
about it (result specs, source line) is computed once, when the edge is made.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from sys import getrefcount
from typing import Any
from weakref import ref

from tarry.record.slot import Slot, Spec


@dataclass(frozen=True, slots=True)
class Const:
    """A static argument. Equality is that of `token`, which carries type and bits."""

    value: Any
    token: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Const) and self.token == other.token

    def __hash__(self) -> int:
        return hash(self.token)


def const(value: Any) -> Const:
    return Const(value, token(value))


def token(value: Any) -> Any:
    """`value` as a hashable that tells 1, 1.0 and True, 0.0 and -0.0 apart."""
    if isinstance(value, float):
        return ("f", value.hex())
    if isinstance(value, complex):
        return ("c", value.real.hex(), value.imag.hex())
    if isinstance(value, list | tuple):
        return ("l", *map(token, value))
    return (type(value).__name__, value)


@dataclass(frozen=True, slots=True)
class Num:
    """A run-time number: kind `b`, `i`, `f`, `c`, or the dtype of a 0-d CPU tensor.

    Numbers travel packed in vectors; a `loose` one is an argument of its own, so that
    the elements of a list operator stay the same code for XLA (which compiles equal
    kernels once, and a slice of a vector makes them different). A `draw` numbers a draw
    of random bits: in the body of a loop it goes on from one iteration to the next.
    """

    kind: Any
    loose: bool = False
    draw: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the user's code; `spans`: of `debug.profiler.Trace`, around it."""

    file: str
    number: int
    function: str = ""
    spans: tuple[str, ...] = ()

    @property
    def place(self) -> tuple[str, int]:
        return self.file, self.number

    def __str__(self) -> str:
        return f"{self.file}:{self.number}"


NOWHERE = Line("<no user frame>", 0)

# What an argument of an instruction is: a value number, None (absent), a Num, a Const,
# or a tuple of these.
Arg = Any


class Instr:
    """One instruction, and the trie node reached by recording it."""

    __slots__ = (
        "args", "base", "count", "dtype", "end", "line", "next", "op", "parent",
        "programs", "scalars", "shape", "spec", "specs", "strided", "visits",
    )  # fmt: skip

    def __init__(
        self,
        parent: "Instr | None",
        op: str,
        args: tuple,
        specs: tuple[Spec, ...],
        line: Line,
    ) -> None:
        self.parent, self.op, self.args, self.specs, self.line = (
            parent, op, args, specs, line,
        )  # fmt: skip
        self.base: int = parent.end if parent is not None else 0
        self.end: int = self.base + len(specs)
        self.count: int = parent.count + 1 if parent is not None else 0
        self.scalars = count_numbers(args)
        self.spec = specs[0] if specs else None
        self.shape = specs[0].shape if specs else None
        self.dtype = specs[0].dtype if specs else None
        self.strided = bool(specs) and not specs[0].plain
        self.next: dict[Any, Instr] = {}
        self.programs: dict[Any, Any] = {}
        self.visits = 0

    def path(self) -> list["Instr"]:
        """The instructions from the root (excluded) to this one."""
        nodes, node = [], self
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        nodes.reverse()
        return nodes


def full_name(op: str) -> str:
    """An operation's name with its namespace, `aten` where none is written."""
    return op if op.startswith("tarry::") else f"aten::{op}"


def count_numbers(args: Arg) -> int:
    if isinstance(args, tuple):
        return sum(map(count_numbers, args))
    return isinstance(args, Num)


def operands(args: Arg) -> Iterator[int]:
    """The value numbers in `args`, in order."""
    if isinstance(args, tuple):
        for a in args:
            yield from operands(a)
    elif type(args) is int:
        yield args


INPUT = "tarry::input"
VIEW = "tarry::view"
WRITE = "tarry::write"


@dataclass(slots=True)
class Input:
    """A value that existed before the trace: whose it was, and what it is."""

    slot: ref
    data: Any
    spec: Spec
    host: bool


class Trace:
    """The recording since the last cut."""

    private = False  # one that is made aside, and is never cut

    __slots__ = (
        "epoch", "inputs", "node", "numbers", "results", "started", "views",
    )  # fmt: skip

    def __init__(self, root: Instr, epoch: int = 0) -> None:
        self.node = root
        self.epoch = epoch
        self.results: list[Slot] = []
        self.inputs: dict[int, Input] = {}
        self.numbers: dict[int, Any] = {}
        self.views: dict[Any, int] = {}
        self.started = time.perf_counter()

    def add_result(self, slot: Slot) -> None:
        """Count `slot` among the slots that took a value in this trace, once."""
        if slot.listed != self.epoch:
            slot.listed = self.epoch
            self.results.append(slot)

    def bear(self, slot: Slot) -> None:
        """A slot made with a value of the host; of interest to private traces."""


class _Gate(dict):
    """The edges of a closed trace: looking one up waits for the cut to end."""

    def __init__(self, recorder: "Recorder") -> None:
        self._recorder = recorder

    def get(self, key: Any, default: Any = None) -> Any:
        if self._recorder.cutting == threading.get_ident():
            raise RuntimeError(
                "a tensor operation ran while the same thread was cutting the graph "
                "(in a finalizer or a signal handler); move it out of there"
            )
        with self._recorder.lock:
            return default


class _Start(dict):
    """The edges of a trace that holds nothing yet: those of the root that belongs to
    the user's line, found once a trace."""

    def __init__(self, recorder: "Recorder") -> None:
        self._recorder = recorder

    def get(self, key: Any, default: Any = None) -> Any:
        return self._recorder.root_of(self._recorder.where()).next.get(key, default)


class PrivateEdges(dict):
    """The edges of a recording made aside, which only the thread that makes it may
    follow: a kernel of another thread waits until it is made, and starts again."""

    def __init__(self, recorder: "Recorder") -> None:
        self._recorder = recorder

    def get(self, key: Any, default: Any = None) -> Any:
        if self._recorder.aside == threading.get_ident():
            return super().get(key, default)
        with self._recorder.lock:
            return default


class Recorder:
    """The one recording of the device. `lock` guards growth and cuts.

    Each line that begins traces has a root of its own in the trie: two places of a
    program that record the same operations share no instruction, and so no line.
    `where` tells the line's file and number; `record/lines.py` sets it.

    Kernels commit without the lock, so while a cut is at work the trace is closed:
    kernels of other threads wait, and start again on the next trace.
    """

    where: Callable[[], tuple[str, int]]

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.root = Instr(None, "", (), (), NOWHERE)
        self.root.next = _Start(self)
        self._roots: dict[tuple[str, int], Instr] = {}
        self.private_root = self._private_root()
        self.size = 0
        self.epoch = 1
        self.trace = Trace(self.root, self.epoch)
        self._retired: Counter[str] = Counter()
        self.cutting = 0
        self.aside = 0  # the thread that records aside
        self._closed = Trace(Instr(None, "", (), (), NOWHERE))
        self._closed.node.next = _Gate(self)

    def grow(
        self, node: Instr, key: Any, op: str, args: tuple, specs: tuple, line: Line
    ) -> Instr:
        """The new edge `key` from `node` (or the one another thread just made)."""
        if node is self.root:
            node = self.root_of(line.place)
        with self.lock:
            found = node.next.get(key)
            if found is None:
                found = Instr(node, op, args, specs, line)
                if type(node.next) is PrivateEdges:
                    found.next = PrivateEdges(self)
                node.next[key] = found
                self.size += 1
            return found

    def root_of(self, place: tuple[str, int]) -> Instr:
        """Where traces that begin at this line start."""
        found = self._roots.get(place)
        if found is None:
            with self.lock:
                root = Instr(None, "", (), (), NOWHERE)
                found = self._roots.setdefault(place, root)
                self.size += 1
        return found

    def _private_root(self) -> Instr:
        root = Instr(None, "", (), (), NOWHERE)
        root.next = PrivateEdges(self)
        return root

    @contextmanager
    def closed(self) -> Iterator[Trace]:
        """The recording, shut for a cut. If no new one is begun, it goes on."""
        with self.lock:
            trace, self.trace = self.trace, self._closed
            self.cutting = threading.get_ident()
            try:
                yield trace
            finally:
                self.cutting = 0
                if self.trace is self._closed:
                    self.trace = trace

    def restart(self, limit: int) -> None:
        """Begin the next trace; an overgrown trie is dropped."""
        if self.size > limit:
            self._retired += self._visits()
            self._roots, self.size = {}, 0
            self.private_root = self._private_root()
        self.epoch += 1
        self.trace = Trace(self.root, self.epoch)

    def op_counts(self) -> Counter[str]:
        """How often each operation was recorded."""
        pending = Counter(node.op for node in self.trace.node.path())
        return self._retired + self._visits() + pending

    def _visits(self) -> Counter[str]:
        return visits([*self._roots.values(), self.private_root])


def visits(roots: Iterable[Instr]) -> Counter[str]:
    """Operations on the paths to all cuts, each as often as it was cut there."""
    order, stack = [], list(roots)
    while stack:
        node = stack.pop()
        order.append(node)
        stack.extend(node.next.values())
    through: dict[int, int] = {}
    counts: Counter[str] = Counter()
    for node in reversed(order):
        n = node.visits + through.get(id(node), 0)
        if node.parent is not None:
            through[id(node.parent)] = through.get(id(node.parent), 0) + n
            counts[node.op] += n
    return counts


def live_slots(trace: Trace) -> dict[int, list[Slot]]:
    """Value number -> the live slots that hold it, of all pending slots."""
    found: dict[int, list[Slot]] = {}
    end = trace.node.end
    for slot in trace.results:
        # Held by the list, by this loop and by the call: nothing else is left of it.
        if getrefcount(slot) > 3 and 0 <= slot.pos < end:
            found.setdefault(slot.pos, []).append(slot)
    return found


recorder = Recorder()
