"""Outcomes as a markdown table and as JSON."""

from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from records import RECORDING, Outcome, is_wrong
from workloads import chain_ops

LAZY = ("tarry", "torch_xla")
REFERENCES = ("eager", "jax", "jax_nofusion", "torch_xla")

Cell = Callable[[Outcome], str]
Outcomes = dict[str, Outcome]


def markdown(workload: str, outcomes: Outcomes) -> str:
    """A heading and a row a peer."""
    columns = {"peer": lambda o: _name(o, outcomes), **_columns(workload, outcomes)}
    lines = [f"### {workload}", "", _row(columns), "|---" * len(columns) + "|"]
    for o in outcomes.values():
        if o.error:
            lines.append(_row([f"{o.peer} failed: {_in_short(o.error)}"]))
        else:
            lines.append(_row(cell(o) for cell in columns.values()))
    return "\n".join(lines) + "\n"


def as_json(outcomes: Outcomes) -> dict[str, Any]:
    """Everything measured, and what follows from it, by peer."""
    return {o.peer: {**asdict(o), **_derived(o, outcomes)} for o in outcomes.values()}


def _derived(o: Outcome, outcomes: Outcomes) -> dict[str, Any]:
    eager = outcomes.get("eager")
    has_losses = o.start is not None and eager is not None and eager.start is not None
    return {
        "step_ms": o.step_ms if o.rounds else None,
        "ratios": _ratios(o, outcomes),
        "difference": o.difference(eager) if has_losses else None,
        "wrong": is_wrong(o, eager),
    }


def _ratios(o: Outcome, outcomes: Outcomes) -> dict[str, float]:
    names = [n for n in REFERENCES if n in outcomes and outcomes[n].rounds]
    return {n: o.ratio(outcomes[n]) for n in names} if o.rounds else {}


def _columns(workload: str, outcomes: Outcomes) -> dict[str, Cell]:
    ops = chain_ops(workload)
    columns: dict[str, Cell] = {"step ms": lambda o: f"{o.step_ms:.3f}"}
    for name in REFERENCES:
        if name in outcomes:
            columns[f"/ {name}"] = lambda o, n=name: _ratio(o, n, outcomes)
    columns["record ms (fwd, bwd, opt)"] = _record
    columns["cut ms"] = lambda o: _phase(o, "cut")
    columns["wait ms"] = lambda o: _phase(o, "wait")
    if ops:
        columns["µs per op"] = lambda o: _per_op(o, ops)
    columns["import + set-up + first step s"] = _cold
    columns["compiles"] = lambda o: _known(o.end.compiles, "d")
    columns["compile s"] = lambda o: _known(o.end.compile_s, ".2f")
    columns["peak RSS MB"] = lambda o: f"{o.end.peak_rss_mb:.0f}"
    return columns


def _name(o: Outcome, outcomes: Outcomes) -> str:
    eager = outcomes.get("eager")
    if not is_wrong(o, eager):
        return o.peer
    return f"{o.peer} **wrong**: losses differ by {o.difference(eager):.1e}"


def _ratio(o: Outcome, name: str, outcomes: Outcomes) -> str:
    ratios = _ratios(o, outcomes)
    return f"{ratios[name]:.2f}" if name in ratios else ""


def _record(o: Outcome) -> str:
    if o.peer not in LAZY:
        return ""
    parts = ", ".join(f"{o.phase_ms(p):.2f}" for p in RECORDING)
    return f"{o.phase_ms(*RECORDING):.2f} ({parts})"


def _phase(o: Outcome, name: str) -> str:
    return f"{o.phase_ms(name):.2f}" if o.peer in LAZY else ""


def _per_op(o: Outcome, ops: int) -> str:
    """Recording an operation, or, in eager, running it."""
    if o.peer in LAZY:
        return f"{1e3 * o.phase_ms(*RECORDING) / ops:.2f}"
    return f"{1e3 * o.step_ms / ops:.2f}" if o.peer == "eager" else ""


def _cold(o: Outcome) -> str:
    s = o.start
    return f"{s.import_s:.2f} + {s.setup_s:.2f} + {s.first_s:.2f}"


def _known(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _in_short(error: str) -> str:
    """The first line, the exit code, and the last, what was raised."""
    lines = error.strip().splitlines()
    return ": ".join(dict.fromkeys((lines[0], lines[-1])))[:200].replace("|", "/")
