"""PyTorch's databases on tarry.

`python databases/opdb.py --report` runs them in two worker processes, prints the counts
and writes `docs/operators.md`; `--only NAME …` runs some entries of the operator
database here and prints their records.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

import torch

from entries import DTYPES, ENTRIES, KINDS, dtype_of, takes
from known_gaps import REASONS
from page import PAGE, counts_table, page
from runs import Record, run_named
from workers import GROUPS, LIMIT, jobs_of, run_jobs, work


def run_asked(asked: argparse.Namespace) -> list[Record]:
    jobs = jobs_of(asked.groups, asked.dtypes, asked.only)
    seen = 0

    def keep(record: Record) -> None:
        nonlocal seen
        seen += 1
        if sys.stderr.isatty():
            print(f"\r{seen}/{len(jobs)}", end="", file=sys.stderr)
        if asked.records:
            with asked.records.open("a") as file:
                print(json.dumps(asdict(record)), file=file)

    return run_jobs(jobs, keep)


def report(asked: argparse.Namespace) -> None:
    """Run the asked groups, print the counts; write the page unless only a part ran."""
    if asked.from_records:
        lines = [n for f in asked.from_records for n in f.read_text().splitlines()]
        found = {r.key: r for r in (Record(**json.loads(n)) for n in lines)}
        jobs = jobs_of(asked.groups, asked.dtypes, asked.only)
        records = [found[j.key] for j in jobs if j.key in found]
    else:
        records = run_asked(asked)
    print("\n".join(counts_table(records, asked.groups)))
    for r in records:
        if not r.fine and r.key not in REASONS:
            print(f"no reason: {r.kind} {r.name} {r.dtype}: {r.status} {r.message}")
    if not asked.dtypes and not asked.only:
        PAGE.write_text(page(records, asked.groups), encoding="utf-8")
        print(f"written: {PAGE}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--groups", nargs="*", default=list(GROUPS), choices=GROUPS)
    parser.add_argument("--dtypes", nargs="*", default=[])
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--kinds", nargs="*", default=["forward"], choices=KINDS)
    parser.add_argument("--records", type=Path, help="append each record to this file")
    parser.add_argument(
        "--from-records", nargs="*", type=Path, help="report these files, run nothing"
    )
    asked = parser.parse_args()
    if asked.worker:
        work()
    elif asked.report:
        report(asked)
    else:
        show(asked)


def show(asked: argparse.Namespace) -> None:
    """Run the asked kinds and dtypes of the asked entries here; print each record."""
    dtypes = [getattr(torch, d) for d in asked.dtypes] or DTYPES[:1]
    for name in asked.only or ENTRIES:
        for kind in asked.kinds:
            for dtype in (dtype_of(kind, d) for d in dtypes):
                if takes(ENTRIES[name], dtype, kind):
                    r = run_named(name, dtype, kind, limit=LIMIT)
                    print(
                        r.kind, r.name, r.dtype, r.status, f"{r.right}/{r.samples}",
                        *r.fallbacks, *r.reads, f"{r.seconds} s", r.message,
                    )  # fmt: skip


if __name__ == "__main__":
    main()
