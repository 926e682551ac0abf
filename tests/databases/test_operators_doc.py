"""`docs/operators.md` and `tarry ops` tell the truth: the page's tables add up, name
what `known_gaps.py` explains, and agree with a sample of entries that is run again."""

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from known_gaps import DEPENDS_ON_CPU, REASONS, VIA_CPU
from page import PAGE
from tarry import coverage
from tarry.cli import main
from workers import Job, jobs_of, run_job

SEED = 3
AGAIN = 24  # pairs that are run again, at most

TEXT = PAGE.read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """The cells of the table under `## heading`."""
    section = TEXT.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


LISTED = list(dict.fromkeys(row[0] for row in rows("Counts")))
NOT_RIGHT = {
    (kind, names(entry)[0], dtype): (result, reason)
    for entry, kind, result, dtypes, reason in rows("Not right")
    for dtype in dtypes.split()
}
ON_CPU = {
    names(op)[0]: (set(names(entries)), reason)
    for op, entries, reason in rows("Operators that run on the CPU")
}


def test_counts_add_up() -> None:
    """What each line of the counts says is what the other tables list, and adds up."""
    for group, way, dtype, *numbers, right_part, native_part in rows("Counts"):
        pairs, right, native, cpu, *others = map(int, numbers)
        jobs = [
            j.key
            for j in jobs_of([group], [], [])
            if way in ("all", j.kind) and dtype in ("all", j.dtype)
        ]
        listed = [NOT_RIGHT[key][0] for key in jobs if key in NOT_RIGHT]
        results = ("strides", "refused", "wrong", "error", "crash")
        assert others == [listed.count(r) for r in results], (group, way, dtype)
        assert pairs == right + sum(others) <= len(jobs)
        assert right == native + cpu
        assert right_part == f"{100 * right / pairs:.1f}"
        assert native_part == f"{100 * native / pairs:.1f}"


def test_what_is_not_right_has_its_reason() -> None:
    for key, (_, reason) in NOT_RIGHT.items():
        assert reason == REASONS[key], key


def test_what_runs_on_the_cpu_has_its_reason() -> None:
    for op, (_, reason) in ON_CPU.items():
        assert reason == VIA_CPU[op]
    assert set(ON_CPU) <= set(VIA_CPU)


def drawn() -> list[Job]:
    """Some pairs of every group, half of them with something to tell."""
    draw, chosen = random.Random(SEED), []
    telling = set().union(*(entries for entries, _ in ON_CPU.values()), ())
    for group in LISTED:
        jobs = [j for j in jobs_of([group], [], []) if j.key not in DEPENDS_ON_CPU]
        special = [j for j in jobs if j.key in NOT_RIGHT or j.name in telling]
        for pool in (special, jobs):
            chosen += draw.sample(pool, min(len(pool), AGAIN // 2 // len(LISTED)))
    return list(dict.fromkeys(chosen))


@pytest.mark.parametrize("job", drawn(), ids=lambda j: "-".join(j.key))
def test_the_page_is_still_true(job: Job) -> None:
    record = run_job(job)
    status = "right" if record.fine else record.status
    listed = NOT_RIGHT.get(job.key, ("right", ""))[0]
    assert status == listed, record.message
    for op in record.fallbacks:
        assert job.name in ON_CPU[op][0], f"{op} of {job.name} is not listed"


def test_overloads_are_told_apart() -> None:
    found = {o.name: o.support for o in coverage.overloads()}
    assert found["add.Tensor"] is coverage.Support.NATIVE
    assert found["add_.Tensor"] is coverage.Support.NATIVE
    assert found["conv2d"] is coverage.Support.DECOMPOSED
    assert found["_to_sparse"] is coverage.Support.UNSUPPORTED
    assert "add.int" not in found  # of numbers, not tensors


def test_what_falls_back_is_said_to() -> None:
    """The static list agrees with what the operator database met: an operator that ran
    on the CPU has no row, or one that does not take every argument."""
    cpu, native = coverage.Support.CPU, coverage.Support.NATIVE
    said = {
        o.name.partition(".")[0]
        for o in coverage.overloads()
        if o.support in (cpu, native)
    }
    assert {op.removeprefix("aten::") for op in ON_CPU} <= said


def test_ops_lists_and_filters() -> None:
    shown = CliRunner().invoke(main, ["ops", "lu_factor"])
    assert shown.exit_code == 0
    assert "aten::linalg_lu_factor_ex" in shown.output
    assert "aten::add.Tensor" not in shown.output
    shown = CliRunner().invoke(main, ["ops", "--only", "CPU fallback", "ldl_solve"])
    assert "CPU fallback   aten::linalg_ldl_solve\n" in shown.output
    assert "\nunsupported    aten" not in shown.output


SCRIPT = """
import sys
import torch
x = torch.eye(3).to("tarry")
for _ in range(2):
    torch.linalg.ldl_factor_ex(x)
sys.exit(len(sys.argv))
"""


def test_missing_for_names_lines_calls_and_time(tmp_path: Path) -> None:
    script = tmp_path / "lacking.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-m", "tarry", "ops", "--missing-for", script, "--flag"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2, done.stderr
    assert "aten::linalg_ldl_factor_ex" in done.stderr
    assert re.search(r"lacking\.py:\s*6", done.stderr.replace("\n", ""))
