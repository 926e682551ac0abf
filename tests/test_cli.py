"""The command line: scripts keep their arguments, exit codes and tracebacks."""

import json
import re
import subprocess
import sys

import pytest

SCRIPT = """
import sys
from beside import answer
import torch

x = torch.ones(3, device="tarry") * answer
print(__name__, sys.argv[1:], x.sum().item(), flush=True)
if "raise" in sys.argv:
    raise ValueError("from the script")
sys.exit(next((int(a) for a in sys.argv[1:] if a.isdigit()), None))
"""


def tarry(*args, **kwargs):
    command = [sys.executable, "-m", "tarry", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, **kwargs)


@pytest.fixture
def script(tmp_path):
    (tmp_path / "beside.py").write_text("answer = 14\n")
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path / "script.py"


def test_run_passes_arguments_and_exit_code_and_reports(script):
    arguments = "--report", "-x", "3", "--", "--help"
    done = tarry("run", "script.py", *arguments, cwd=script.parent)
    assert done.stdout == "__main__ ['--report', '-x', '3', '--', '--help'] 42.0\n"
    assert done.returncode == 3
    assert "tarry: closing report" in done.stderr
    assert re.search(r"1 +100 % +a number was read.* script.py:7\n", done.stderr)


def test_run_keeps_the_traceback_and_writes_json(script, tmp_path):
    file = tmp_path / "report.json"
    done = tarry("run", "--report", file, script, "raise")
    assert done.returncode == 1
    trace = done.stderr[: done.stderr.index("tarry: closing report")]
    assert trace == (
        "Traceback (most recent call last):\n"
        f'  File "{script}", line 9, in <module>\n'
        '    raise ValueError("from the script")\n'
        "ValueError: from the script\n"
    )
    saved = json.loads(file.read_text())
    cuts = [dict(zip(saved["columns"], row)) for row in saved["cuts"]]
    cause = saved["cut_totals"][0]["cause"]
    assert [saved["strings"][c["cause"]] for c in cuts] == [cause]
    (program,) = saved["programs"]
    assert program["why"] == "it is the first program" and program["uses"] == 1
    rows = program["replay"]["rows"]
    assert [r[0] for r in rows][-2:] == ["aten::mul.Tensor", "aten::sum"]
    line = f"{script}:6"
    assert saved["sources"][line] == 'x = torch.ones(3, device="tarry") * answer'
    assert rows[-2][3] == line
    again = tarry("report", file)
    assert "What was compiled" in again.stdout


def test_a_report_that_cannot_be_written_goes_to_the_terminal(script, tmp_path):
    done = tarry("run", "--report", tmp_path / "none" / "r.txt", script)
    assert done.stdout == "__main__ [] 42.0\n"
    assert done.returncode == 1
    assert "r.txt cannot be written (No such file or directory)" in done.stderr
    assert "tarry: closing report" in done.stderr


def test_run_writes_text(script, tmp_path):
    file = tmp_path / "report.txt"
    done = tarry("run", "--report", file, script)
    assert done.returncode == 0
    assert file.read_text().startswith("tarry: closing report\n")
    assert done.stderr == f"tarry: closing report written to {file}\n"


def test_demo_learns():
    done = tarry("demo", "--quick")
    assert done.returncode == 0, done.stderr
    losses = [float(x) for x in re.findall(r"^step .* loss (\S+)", done.stdout, re.M)]
    assert len(losses) == 9
    assert losses[0] > 4
    assert losses[-1] < 2.8
    written = done.stdout.split("It writes:\n")[1].split("tarry: closing report")[0]
    assert len(written.strip("\n")) > 20
    assert "Steady state: 1 program per step, always the same" in done.stdout
    assert "80 steps, 120 cuts, 3 programs compiled" in done.stdout
    assert "No operator ran on the CPU." in done.stdout


def test_doctor():
    done = tarry("doctor")
    assert done.returncode == 0, done.stderr
    for name in ("tarry", "python", "torch", "jax", "jaxlib", "numpy"):
        assert re.search(rf"^ {name} +\d", done.stdout, re.MULTILINE), name
    assert "TARRY_COMPILATION_CACHE_SIZE" in done.stdout
    assert "tarry computes on " in done.stdout


def test_doctor_without_a_device(monkeypatch):
    monkeypatch.setenv("TARRY_PLATFORM", "abacus")
    monkeypatch.setenv("TARRY_SINK_WAIT", "1")
    done = tarry("doctor")
    assert done.returncode == 1
    assert "TARRY_PLATFORM=abacus has no device here" in done.stderr
    assert "TARRY_SINK_WAIT is set, but tarry has no such setting" in done.stdout


def test_not_a_saved_report(tmp_path):
    (tmp_path / "r.json").write_text("{}")
    done = tarry("report", tmp_path / "r.json")
    assert done.returncode == 1
    assert "not a report of tarry" in done.stderr


LOOP = """
import torch, tarry
x = torch.ones(4, device="tarry")
tarry.sync()
for n in (4, 4, 3):
    y = (x[:n] * 2).sum()
    tarry.sync()
    print(y.item() + (y + 1).item())
"""


@pytest.fixture
def loop(tmp_path):
    file = tmp_path / "loop.py"
    file.write_text(LOOP)
    return file


def test_limits_that_are_kept(loop):
    limits = ("--max-compiles", 4, "--max-cuts-per-step", 2)
    done = tarry("run", *limits, loop)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 3


def test_too_many_compiles_fail_with_their_reasons(loop):
    done = tarry("run", "--max-compiles", 2, loop)
    assert done.returncode == 1
    assert "tarry: 4 programs compiled, 2 allowed:\n  #0 at " in done.stderr
    words = f"  #3 at {loop}:7: 1 operation was added, the first of them tarry::view"
    assert f"{words} at {loop}:6\n" in done.stderr


def test_too_many_cuts_fail_with_their_lines(loop):
    done = tarry("run", "--max-cuts-per-step", 1, loop)
    assert done.returncode == 1
    words = (
        "tarry: 3 steps cut more than 1 times; in step 2, the first of them, 2 cuts:"
    )
    assert f"{words}\n  {loop}:7: tarry.sync() (" in done.stderr
    assert f"\n  {loop}:8: a number was read (item, bool, int, float) (" in done.stderr


def test_watch_tells_of_compiles(loop):
    done = tarry("run", "--watch", loop)
    assert done.returncode == 0
    assert "tarry: compiled program #0 in " in done.stderr
    assert re.search(r"^step 2: .* program #1; ", done.stderr, re.MULTILINE)
