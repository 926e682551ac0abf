"""The ledger as JSON and back: plain records, so that a report or a page of a finished
run can be made from its file. Nothing that is read from a file is executed.

Texts that repeat (causes, lines) stand once, in `strings`; cuts are rows of columns;
`sources` holds the text of every line of code that is named.
"""

import dataclasses
import json
import linecache
import time
from collections import Counter, deque
from typing import Any

from tarry.ledger import Compile, Cut, Fallback, Ledger, Metric
from tarry.report.programs import MOST, plain
from tarry.version import __version__

FORMAT = 2
COLUMNS = [f.name for f in dataclasses.fields(Cut)]
_TEXTS = ("cause", "detail", "line")
_COMPILE = [f.name for f in dataclasses.fields(Compile) if f.name != "source"]


def dump(ledger: Ledger) -> str:
    """All records and totals of `ledger`; times in seconds, timers in nanoseconds."""
    strings: dict[str, int] = {}
    cuts = [
        [
            strings.setdefault(getattr(c, n), len(strings)) if n in _TEXTS
            else _short(getattr(c, n))
            for n in COLUMNS
        ]
        for c in ledger.cuts
    ]  # fmt: skip
    programs = _programs(ledger)
    data = {
        "format": FORMAT,
        "tarry": __version__,
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
        "columns": COLUMNS,
        "cuts": cuts,
        "strings": list(strings),
        "programs": programs,
        "fallbacks": [dataclasses.asdict(f) for f in ledger.fallbacks.values()],
    }
    data["sources"] = ledger.sources or _sources(data)
    return json.dumps(data, separators=(",", ":"))


def _short(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value


def _programs(ledger: Ledger) -> list[dict[str, Any]]:
    found, room = [], MOST
    for c in ledger.compiles:
        more = plain(c, ledger.uses[c.program], room)
        if more["replay"] is not None:
            room -= len(more["replay"]["rows"])
        found.append({**{name: getattr(c, name) for name in _COMPILE}, **more})
    return found


def _sources(data: dict[str, Any]) -> dict[str, str]:
    """The text of every line that is named, as far as its file can be read."""
    named = {row[data["columns"].index("line")] for row in data["cuts"]}
    lines = {data["strings"][i] for i in named}
    lines.update(total["line"] for total in data["cut_totals"])
    lines.update(f["line"] for f in data["fallbacks"])
    for p in data["programs"]:
        lines.update((p["line"], p["differs_at"]))
        for rows in ((p["graph"] or {}).get("nodes"), (p["replay"] or {}).get("rows")):
            lines.update(row[3] for row in rows or ())
        lines.update(i["made"] for i in (p["graph"] or {}).get("inputs", ()))
    found = {}
    for line in sorted(lines):
        file, _, number = line.rpartition(":")
        if file and number.isdigit():
            text = linecache.getline(file, int(number)).strip()
            if text:
                found[line] = text[:200]
    return found


def load(text: str) -> Ledger:
    """The ledger that `dump` wrote.

    Raises ValueError if `text` is not such a file, or not whole.
    """
    try:
        data = json.loads(text)
    except ValueError as error:
        raise ValueError(f"not a report of tarry, or cut short ({error})") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f"not a report of tarry (format {FORMAT})")
    try:
        return _ledger(data)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not a complete report of tarry: {error}") from None


def _ledger(data: dict[str, Any]) -> Ledger:
    found = Ledger()
    found.started, found.ended = data["started"], data["ended"]
    found.steps = data["steps"]
    found.seconds.update(data["seconds"])
    found.counters = Counter(data["counters"])
    found.sources = dict(data["sources"])
    strings = data["strings"]
    for row in data["cuts"]:
        values = dict(zip(data["columns"], row, strict=True))
        found.cuts.append(
            Cut(**{k: strings[v] if k in _TEXTS else v for k, v in values.items()})
        )
    for p in data["programs"]:
        found.uses[p["program"]] = p["uses"]
        rest = {k: p[k] for k in ("uses", "key", "graph", "replay")}
        found.compiles.append(Compile(**{k: p[k] for k in _COMPILE}, source=rest))
    for f in data["fallbacks"]:
        found.fallbacks[f["op"], f["line"]] = Fallback(**f)
    for total in data["cut_totals"]:
        key = total["cause"], total["detail"], total["line"]
        found.cut_totals[key] = total["cuts"]
    for name, m in data["metrics"].items():
        metric = found.metrics[name] = Metric(m["kind"], m["total"], m["accumulator"])
        metric.samples = deque(map(tuple, m["samples"]), metric.samples.maxlen)
    return found
