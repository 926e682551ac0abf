"""From a bound graph to its program, and from a program to its results.

In: a graph and where it was recorded. Out: the executable that the cache holds for its
key, else a new one, with a record of why it is new. The cut of a recording and the
replay of a compiled function both come through here.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

from tarry.cache.key import Key
from tarry.cache.store import Store
from tarry.config import config
from tarry.cut.cause import Cause
from tarry.cut.guard import Event, guards
from tarry.errors import CompileError, TarryError
from tarry.ledger import Compile, Cut, ledger
from tarry.lower.build import LoweringError
from tarry.record.graph import Bound
from tarry.record.slot import Slot
from tarry.record.trie import Instr, full_name
from tarry.report.explain import NEAREST, why_new
from tarry.report.programs import Source
from tarry.report.why import Named, Seen
from tarry.run.compile import Executable, compile_graph
from tarry.run.execute import Constant, end_after_programs, launch
from tarry.run.mappings import mappings
from tarry.run.options import choose
from tarry.run.platform import environment

store: Store[Key, Executable] = Store(config.cache_size)
_numbers = count()
EAGER = Cause.EAGER.value

Holders = Sequence[list[Slot | None]]


class Naming:
    """What the user calls the tensors on some slots, one answer for each list of them;
    the dispatcher knows it, and says here how to find out."""

    names_of: Callable[[Holders], tuple[Named, ...]]


def program_of(
    bound: Bound, last: Instr, donated: tuple[int, ...], precision: str,
    holders: Callable[[], tuple[Holders, Holders, tuple[int, ...]]],
    event: Event, record: Cut,
) -> Executable:  # fmt: skip
    """The program of `bound`, whose recording ends at `last`; `donated`: value numbers
    of inputs whose buffers it may overwrite.

    `holders()`, asked where it is new: the slots that hold its inputs and its outputs,
    and the places of inputs that come from the host.
    """
    env = environment(precision)
    started = time.perf_counter()
    at = {v: i for i, v in enumerate(bound.inputs)}
    positions = tuple(sorted([at[v] for v in donated if v in at]))
    options = choose(bound.graph, env[0][1])
    key = Key(positions, (*env, *sorted(options.items())), bound.graph)
    program = store.get(key)
    record.lookup_s = time.perf_counter() - started
    if program is None:
        inputs, outputs, hosted = holders()
        names = Naming.names_of([*inputs, *outputs])
        number = next(_numbers)
        seen = Seen(key, number, names[: len(inputs)], names[len(inputs) :])
        source = Source(seen, last, bound.outputs, hosted)
        program = _compile(source, options, event, record)
    else:
        ledger.count("CachedCompile")
    record.program = program.number
    return program


def _compile(source: Source, options: dict, event: Event, record: Cut) -> Executable:
    started = time.perf_counter()
    seen = source.seen
    key = seen.key
    recent = [p.seen for p in store.recent()[:NEAREST]]
    limit = store.limit if len(store) >= store.limit else None
    why = why_new(seen, recent, limit, store.was_evicted(key))
    for guard in guards:
        guard.compile(event, why.sentence)
    nodes, inputs = len(key.graph.nodes), len(key.graph.inputs)
    ledger.begin_compile(nodes - inputs, event.line)
    precision = dict(key.environment)["float32_matmul_precision"]
    with ledger.span("tarry::compile"):
        program = compile_graph(key.graph, key.donation, options, precision, seen)
    end_after_programs()
    program.why = why.sentence
    store.put(key, program)
    _make_room(nodes - inputs)
    record.compile_s, record.compiled = time.perf_counter() - started, True
    ledger.count("UncachedCompile")
    ledger.count("CreateCompileHandles")
    ledger.sample(_timer("CompileTime", record), record.compile_s * 1e9, "time")
    ledger.sample("InputOutputAliasCount", len(key.donation))
    ledger.add_compile(
        Compile(
            seen.number, why.sentence, event.line, nodes - inputs, inputs,
            len(key.graph.outputs), len(key.donation),
            program.trace_s, program.compile_s,
            " ".join(f"{k}={v}" for k, v in options.items()),
            why.reason.name, why.before, why.line, why.old, why.new, why.advice,
            program.memory, source,
        )
    )  # fmt: skip
    return program


def _make_room(operations: int) -> None:
    """Drop the oldest programs, an eighth at a time, where compiling one of so many
    operations brought the process near Linux's limit of memory mappings."""
    mappings.grow(operations)
    while len(store) > 1 and mappings.are_many():
        for _ in range(max(1, len(store) // 8)):
            store.evict_oldest()


def found_again(program: Executable, record: Cut) -> None:
    """Account for a program that was found without its key."""
    store.touch(program)
    ledger.count("CachedCompile")
    record.program = program.number


def run(
    program: Executable, inputs: list[Any], numbers: list[Any] | Constant, record: Cut
) -> list[Any]:
    """The program's outputs, as buffers that may still be computed."""
    started = time.perf_counter()
    with ledger.span("tarry::run"):
        results = launch(program, inputs, numbers)
    record.run_s = time.perf_counter() - started
    ledger.sample(_timer("ExecuteTime", record), record.run_s * 1e9, "time")
    ledger.count("ExecuteComputation")
    return results


def _timer(name: str, record: Cut) -> str:
    """The metric of this name; the operators of eager mode have their own."""
    return f"EagerOp{name}" if record.cause == EAGER else name


@contextmanager
def compiling(what: str, line: str) -> Iterator[None]:
    """A block that finds or compiles the program of `what`, cut at `line`: whatever
    else goes wrong in it is a CompileError."""
    try:
        yield
    except LoweringError as error:
        raise compile_error(error) from error
    except TarryError:
        raise
    except Exception as error:
        raise CompileError(what, line, first_line(error)) from error


def compile_error(error: LoweringError) -> CompileError:
    return CompileError(
        full_name(error.node.op),
        str(error.node.line),
        first_line(error.reason),
    )


def first_line(error: BaseException) -> str:
    text = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
