"""Counters and metrics under torch_xla's names and in its report format.

Times are nanoseconds, sizes bytes. Source of names and format: torch_xla 2.9,
`torch_xla/debug/metrics.py` and `csrc/runtime/metrics.cpp`.
"""

import sys
import warnings
from collections import Counter
from pathlib import Path

from tarry.config import config
from tarry.ledger import Cut, Watcher, ledger
from tarry.record.trie import recorder
from tarry.report.metrics import report, short_report

_SHORT_COUNTERS = ("CachedCompile", "MarkStep", "DynamoSyncInputExecuteTime")
_SHORT_METRICS = (
    "CompileTime",
    "ExecuteTime",
    "ExecuteReplicatedTime",
    "TransferToDeviceTime",
    "TransferFromDeviceTime",
)


_cleared: Counter[str] = Counter()


def _counters() -> Counter[str]:
    """All counters; `xla::<op>` ones are read off the recording, not kept per op."""
    recorded = recorder.op_counts() - _cleared
    by_name: Counter[str] = Counter()
    for op, n in recorded.items():
        if not op.startswith("tarry::"):
            by_name["xla::" + op.partition(".")[0]] += n
    return ledger.counters + by_name


def counter_names() -> list[str]:
    """Names of the counters above zero."""
    return sorted(_counters())


def counter_value(name: str) -> int | None:
    """The counter's value; None where it never counted."""
    return _counters().get(name) or None


def clear_counters() -> None:
    _cleared.clear()
    _cleared.update(recorder.op_counts())
    ledger.clear_counters()


def metric_names() -> list[str]:
    """Names of the metrics that have samples."""
    return sorted(ledger.metrics)


def metric_data(name: str) -> tuple[int, float, list[tuple[float, float]]] | None:
    """(total samples, accumulated value, [(Unix time in s, value), …]) or None."""
    metric = ledger.metrics.get(name)
    if metric is None:
        return None
    return metric.total, metric.accumulator, list(metric.samples)


def clear_metrics() -> None:
    ledger.clear_metrics()


def clear_all() -> None:
    """Forget all counters and metrics."""
    clear_counters()
    clear_metrics()


def metrics_report() -> str:
    """All metrics, then all counters, as torch_xla prints them."""
    return report(ledger.metrics, _counters())


def short_metrics_report(
    counter_names: list[str] | None = None, metric_names: list[str] | None = None
) -> str:
    """The named ones (by default the most telling), and every CPU fallback."""
    return short_report(
        ledger.metrics,
        _counters(),
        tuple(metric_names or _SHORT_METRICS),
        tuple(counter_names or _SHORT_COUNTERS),
    )


def executed_fallback_ops() -> list[str]:
    """Names of the operators that ran on the CPU."""
    return [name for name in counter_names() if name.startswith("aten::")]


def save_metrics(file: str | None = None) -> None:
    """Append the report to `file`, `STDOUT` or `STDERR`; to `TARRY_METRICS_FILE` if
    none is given, and nowhere if there is none.

    A step's report begins with the line `[MetricsData; step=N]`.
    """
    name = config.metrics_file if file is None else file
    text = f"[MetricsData; step={ledger.steps}]\n{metrics_report()}\n"
    if name in ("STDOUT", "STDERR"):
        getattr(sys, name.lower()).write(text)
    elif name:
        with Path(name).open("a", encoding="utf-8") as out:
            out.write(text)


class EveryStep(Watcher):
    """Saves the metrics at the end of every step; warns once where it cannot."""

    def __init__(self) -> None:
        self.step, self.failed = 0, False

    def cut(self, record: Cut) -> None:
        if record.step == self.step or self.failed:
            return
        self.step = record.step
        try:
            save_metrics()
        except OSError as error:
            self.failed = True
            why = error.strerror or error
            warnings.warn(
                f"metrics cannot be saved to {config.metrics_file} ({why}); the run "
                "goes on without.",
                stacklevel=2,
            )
