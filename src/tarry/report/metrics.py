"""Counters and metrics as text, in torch_xla's format."""

from collections.abc import Mapping

from tarry.ledger import Metric

PERCENTILES = (0.01, 0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 0.95, 0.99)
_UNITS = (
    ("d", 86_400 * 10**9, 2),
    ("h", 3_600 * 10**9, 2),
    ("m", 60 * 10**9, 2),
    ("s", 10**9, 2),
    ("ms", 10**6, 3),
)


def time_text(nanoseconds: float) -> str:
    """`06m09s401ms746.001us`: larger units only where they are needed."""
    text, left = "", float(nanoseconds)
    for unit, size, width in _UNITS:
        count = int(left // size)
        if count or text:
            text += f"{count:0{width}d}{unit}"
            left -= count * size
    return text + f"{left / 1000:07.3f}us"


def bytes_text(size: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if abs(size) < 1024:
            return f"{size:.2f}{unit}"
        size /= 1024
    return f"{size:.2f}TB"


def _text(kind: str, value: float) -> str:
    if kind == "time":
        return time_text(value)
    return bytes_text(value) if kind == "bytes" else f"{value:.2f}"


def metric_text(name: str, metric: Metric) -> str:
    lines = [
        f"Metric: {name}",
        f"  TotalSamples: {metric.total}",
        f"  Accumulator: {_text(metric.kind, metric.accumulator)}",
    ]
    samples = list(metric.samples)
    seconds = samples[-1][0] - samples[0][0] if len(samples) > 1 else 0
    if seconds > 0:
        rate = sum(v for _, v in samples) / seconds
        lines.append(f"  ValueRate: {_text(metric.kind, rate)} / second")
        lines.append(f"  Rate: {len(samples) / seconds:g} / second")
    if samples:
        values = sorted(v for _, v in samples)
        at = [values[min(int(p * len(values)), len(values) - 1)] for p in PERCENTILES]
        shown = [
            f"{p * 100:g}%={_text(metric.kind, v)}" for p, v in zip(PERCENTILES, at)
        ]
        lines.append("  Percentiles: " + "; ".join(shown))
    return "\n".join(lines) + "\n"


def counter_text(name: str, value: int) -> str:
    return f"Counter: {name}\n  Value: {value}\n"


def report(metrics: Mapping[str, Metric], counters: Mapping[str, int]) -> str:
    """All metrics, then all counters above zero, each in alphabetical order."""
    parts = [metric_text(n, metrics[n]) for n in sorted(metrics)]
    parts += [counter_text(n, counters[n]) for n in sorted(counters) if counters[n]]
    return "".join(parts)


def short_report(
    metrics: Mapping[str, Metric],
    counters: Mapping[str, int],
    metric_names: tuple[str, ...],
    counter_names: tuple[str, ...],
) -> str:
    """The named metrics and counters, and every counter `aten::…`."""
    shown = [n for n in counters if n in counter_names or n.startswith("aten::")]
    return report(
        {n: metrics[n] for n in metric_names if n in metrics},
        {n: counters[n] for n in shown},
    )
