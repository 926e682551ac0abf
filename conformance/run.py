"""pytorch/xla's own tests on tarry, through `tarry.compat`.

    .venv/bin/python conformance/run.py CHECKOUT [--only TEXT] [--out RESULTS.json]

CHECKOUT is a copy of https://github.com/pytorch/xla; nothing of it is part of tarry.
Each file runs in a process of its own; one that crashes, or hangs, goes on behind the
test that did. Every test is counted: passed, failed, an intended deviation or not
meaningful (`deviations.py`, each with its reason), or skipped by the file itself.
The files need absl-py; those that need more packages say so when they fail.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from deviations import NONE, Verdict, judge
from document import write
from files import FILES, File

HERE = Path(__file__).parent
OUTCOMES = [*Verdict]


def environment(file: File, checkout: Path, tmp: str) -> dict[str, str]:
    paths = [str(checkout / "test"), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(p for p in paths if p),
        "PJRT_DEVICE": "CPU",
        "PYTHONFAULTHANDLER": "1",
        "TARRY_DEVICE": "xla",
        "TORCH_TEST_DEVICES": str(checkout / "test" / "pytorch_test_base.py"),
        **{k: v.format(tmp=tmp) for k, v in file.env.items()},
    }


def run_file(file: File, checkout: Path, seconds: int, most: int) -> list[dict]:
    """The records of the file's tests; those of crashes, too."""
    path = checkout / "test" / file.path
    with tempfile.TemporaryDirectory() as tmp:
        records = Path(tmp) / "records.jsonl"
        command = [sys.executable, "-m", "tarry.compat", str(HERE / "drive.py")]
        command += [str(path), str(records), str(seconds)]
        until = time.time() + most
        while True:
            with (Path(tmp) / "output.txt").open("w+") as output:
                code = _run(
                    command, environment(file, checkout, tmp), output, until, tmp
                )
                output.seek(0)
                last = output.read()[-2000:]
            lines = records.read_text().splitlines() if records.exists() else []
            found = [json.loads(line) for line in lines]
            if any(r["test"] == "(end)" for r in found) or time.time() >= until:
                return _ended(found, code, last)
            begun = [r["test"] for r in found if r.get("began")]
            ended = {r["test"] for r in found if "outcome" in r}
            if not begun or begun[-1] in ended:
                return _ended(found, code, last)
            with records.open("a") as out:
                out.write(json.dumps(_crash(begun[-1], code, last)) + "\n")


def _run(command, env, output, until: float, cwd: str) -> int:
    process = subprocess.Popen(command, env=env, stdout=output, stderr=output, cwd=cwd)
    try:
        return process.wait(timeout=max(until - time.time(), 1))
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _crash(test: str, code: int, text: str) -> dict:
    why = f"the process ended with {code}"
    part = {"outcome": "failed", "why": why, "text": text, "part": ""}
    return {"test": test, "outcome": "failed", "parts": [part]}


def _ended(found: list[dict], code: int, text: str) -> list[dict]:
    records = [r for r in found if "outcome" in r and r["test"] != "(end)"]
    if not any(r["test"] == "(end)" for r in found):
        records.append(_crash("(the file)", code, text))
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--only", default="", help="files whose path contains this")
    parser.add_argument("--out", type=Path, help="JSON; runs with --only add to it")
    parser.add_argument("--doc", type=Path, help="write the tables into this page")
    parser.add_argument("--seconds", type=int, default=120, help="for one test")
    parser.add_argument("--most", type=int, default=3600, help="seconds for one file")
    args = parser.parse_args()
    results = json.loads(args.out.read_text()) if args.out and args.out.exists() else {}
    for file in FILES:
        if args.only not in file.name:
            continue
        records = run_file(file, args.checkout.resolve(), args.seconds, args.most)
        results[file.name] = records
        print(row(file.name, records), flush=True)
        for record in records:
            verdict, reason = judge(file.name, record)
            if verdict in (Verdict.FAILED, Verdict.STALE):
                print(f"    {verdict.value}: {record['test']}: {why(record)} {reason}")
        if args.out:
            args.out.write_text(json.dumps(results, indent=1))
    print(total(results))
    if args.doc:
        write(args.doc, results)


def why(record: dict) -> str:
    parts = record.get("parts") or [record]
    return " | ".join(
        f"{p.get('part', '')} {p.get('why', '')}".strip().replace("\n", " ")[:200]
        for p in parts
    )


def counts(name: str, records: list[dict]) -> Counter:
    return Counter(judge(name, r)[0] for r in records)


def row(name: str, records: list[dict]) -> str:
    found = counts(name, records)
    said = ", ".join(f"{found[v]} {v.value}" for v in OUTCOMES if found[v])
    return f"{name}: {len(records)} tests: {said or NONE}"


def total(results: dict) -> str:
    found = sum((counts(n, r) for n, r in results.items()), Counter())
    meant = sum(found[v] for v in Verdict if v.meaningful)
    good = sum(found[v] for v in (Verdict.PASSED, Verdict.DEVIATION))
    said = ", ".join(f"{found[v]} {v.value}" for v in OUTCOMES)
    share = 100 * good / max(meant, 1)
    return f"all: {said}\n{good} of {meant} meaningful tests: {share:.1f} %"


if __name__ == "__main__":
    main()
