"""The ledger as JSON and back: plain records, so that a report of a finished run can
be written again from its file."""

import dataclasses
import json
import time
from collections import Counter, deque
from typing import Any

from tarry.ledger import Compile, Cut, Fallback, Ledger, Metric

FORMAT = 2


def dump(ledger: Ledger) -> str:
    """All records and totals of `ledger`; times in seconds, timers in nanoseconds."""
    return json.dumps(
        {
            "format": FORMAT,
            "started": ledger.started,
            "ended": ledger.ended or time.time(),
            "steps": ledger.steps,
            "seconds": dict(ledger.seconds),
            "counters": dict(ledger.counters),
            "metrics": {
                name: {
                    "kind": m.kind,
                    "total": m.total,
                    "accumulator": m.accumulator,
                    "samples": list(m.samples),
                }
                for name, m in ledger.metrics.items()
            },
            "cut_totals": [
                {"cause": cause, "detail": detail, "line": line, "cuts": n}
                for (cause, detail, line), n in ledger.cut_totals.items()
            ],
            "cuts": [dataclasses.asdict(c) for c in ledger.cuts],
            "compiles": [dataclasses.asdict(c) for c in ledger.compiles],
            "fallbacks": [dataclasses.asdict(f) for f in ledger.fallbacks.values()],
        },
        indent=1,
    )


def load(text: str) -> Ledger:
    """The ledger that `dump` wrote.

    Raises ValueError if `text` is not such a file.
    """
    data = json.loads(text)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f"not a report of tarry (format {FORMAT})")
    try:
        return _ledger(data)
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a complete report of tarry: {error}") from None


def _ledger(data: dict[str, Any]) -> Ledger:
    found = Ledger()
    found.started, found.ended = data["started"], data["ended"]
    found.steps = data["steps"]
    found.seconds = Counter(data["seconds"])
    found.counters = Counter(data["counters"])
    found.cuts.extend(Cut(**c) for c in data["cuts"])
    found.compiles.extend(Compile(**c) for c in data["compiles"])
    for f in data["fallbacks"]:
        found.fallbacks[f["op"], f["line"]] = Fallback(**f)
    for total in data["cut_totals"]:
        key = total["cause"], total["detail"], total["line"]
        found.cut_totals[key] = total["cuts"]
    for name, m in data["metrics"].items():
        metric = found.metrics[name] = Metric(m["kind"], m["total"], m["accumulator"])
        metric.samples = deque(map(tuple, m["samples"]), metric.samples.maxlen)
    return found
