"""The tables of `docs/torch_xla.md`, from the results of a run."""

from collections import Counter, defaultdict
from pathlib import Path

from deviations import Verdict, judge
from files import FILES

BEGIN = "<!-- written by conformance/run.py --doc -->"
END = "<!-- end -->"


def write(page: Path, results: dict) -> None:
    """Replace what stands between the two marks of the page."""
    text = page.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{tables(results)}{END}{after}")


def tables(results: dict) -> str:
    order = [f.name for f in FILES if f.name in results]
    rows, totals = [], Counter()
    reasons: dict[Verdict, dict[str, list[str]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for name in order:
        found = Counter()
        for record in results[name]:
            verdict, reason = judge(name, record)
            found[verdict] += 1
            if verdict in (Verdict.DEVIATION, Verdict.NOT_MEANT, Verdict.SKIPPED):
                test = record["test"].rpartition(".")[2]
                reasons[verdict][reason].append(f"{name}: {test}")
        rows.append([name, *_counts(found)])
        totals += found
    rows.append(["**all**", *_counts(totals)])
    meant = sum(n for v, n in totals.items() if v.meaningful)
    good = totals[Verdict.PASSED] + totals[Verdict.DEVIATION]
    return (
        f"\n{good} of {meant} meaningful tests pass or deviate as intended "
        f"({100 * good / max(meant, 1):.1f} %).\n\n"
        + _table(["file", *_HEAD], rows)
        + "\n### Intended deviations\n\n"
        + _by_reason(reasons[Verdict.DEVIATION])
        + "\n### Not meaningful for one device, or for tarry\n\n"
        + _by_reason(reasons[Verdict.NOT_MEANT])
        + "\n### Skipped by the files themselves\n\n"
        + _by_reason(reasons[Verdict.SKIPPED])
    )


_SHOWN = {
    Verdict.PASSED: "passed",
    Verdict.DEVIATION: "deviations",
    Verdict.FAILED: "failed",
    Verdict.NOT_MEANT: "not meaningful",
    Verdict.SKIPPED: "skipped by the file",
}
_HEAD = list(_SHOWN.values())


def _counts(found: Counter) -> list[str]:
    return [str(found[v]) if found[v] else "" for v in _SHOWN]


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] + ["--:"] * (len(head) - 1), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _by_reason(found: dict[str, list[str]]) -> str:
    lines = ["| why | tests |\n| --- | --- |\n"]
    for reason, tests in sorted(found.items(), key=lambda item: -len(item[1])):
        by_file: dict[str, list[str]] = defaultdict(list)
        for test in tests:
            file, _, name = test.partition(": ")
            by_file[file].append(name)
        said = "; ".join(f"{file}: {_listed(names)}" for file, names in by_file.items())
        lines.append(f"| {reason or 'no reason is given'} | {said} |\n")
    return "".join(lines)


def _listed(names: list[str]) -> str:
    if len(names) > 4:
        return f"{len(names)} tests"
    return ", ".join(f"`{n.removeprefix('test_')}`" for n in names)
