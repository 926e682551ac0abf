"""Blocks and lines about compiles and cuts, as they happen."""

import io
import re
import subprocess
import sys
import time

import pytest

from tarry.ledger import Compile, Cut
from tarry.report import live
from tarry.report.live import Watch, compile_block, cut_block

COMPILE = Compile(
    3, "an input changed: f32[8] → f32[5]", "train.py:9", 62, 25, 4, 2, 0.25, 1.5, "",
    advice="pad it", memory={"peak_memory": 4096},
)  # fmt: skip
CUT = Cut(
    "tarry.sync()", "", "train.py:9", 80, 25, 3, True, step=2, record_s=0.003,
    compile_s=1.75, run_s=0.0001,
)  # fmt: skip


def test_compile_block():
    assert compile_block(COMPILE) == (
        "tarry: compiled program #3 in 1.75 s: 62 operations, 25 inputs (2 donated), "
        "4 outputs\n"
        "  cut at  train.py:9\n"
        "  because an input changed: f32[8] → f32[5]\n"
        "  advice  pad it\n"
        "  memory  4,096 bytes at the peak\n"
    )


def test_cut_block():
    assert cut_block(CUT) == (
        "tarry: cut at train.py:9 (step 2), program #3, compiled\n"
        "  cause   tarry.sync()\n"
        "  size    80 instructions pending, 25 outputs\n"
        "  cost    record 3.0 ms, compile 1.75 s, run 0.1 ms\n"
    )


SCRIPT = """
import torch, tarry
x = torch.ones(3, device="tarry")
for n in (3, 3, 2):
    y = x[:n].exp()
    tarry.sync()
y.sum().item()
"""


@pytest.mark.parametrize(
    ("variable", "value", "compiles", "cuts"),
    [
        ("TARRY_DEBUG", "1", 4, 0),
        ("TARRY_DEBUG", "2", 4, 4),
        ("PT_XLA_DEBUG_LEVEL", "1", 4, 0),
        ("PT_XLA_DEBUG_LEVEL", "2", 4, 4),
        ("PT_XLA_DEBUG", "1", 4, 4),
    ],
)
def test_debug_prints_blocks(variable, value, compiles, cuts, tmp_path):
    file = tmp_path / "debug.txt"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={"PATH": "", variable: value, "PT_XLA_DEBUG_FILE": str(file)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    text = file.read_text()
    assert text.count("tarry: compiled program #") == compiles
    assert text.count("tarry: cut at <string>:") == cuts
    assert "  cut at  <string>:6\n  because it is the first program" in text
    if cuts:
        assert "tarry: cut at <string>:7 (step 3), program #3, compiled" in text
        assert "  cause   a number was read (item, bool, int, float)\n" in text


def test_blocks_go_to_stderr_where_the_file_cannot_be_written(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={"PATH": "", "TARRY_DEBUG": "1", "TARRY_DEBUG_FILE": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert done.stderr.count("cannot be written (Is a directory):\n") == 1
    assert done.stderr.count("tarry: compiled program #") == 4


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_watch_on_a_terminal_writes_one_line_over():
    out = Terminal()
    watch = Watch(out)
    watch.cut(CUT)
    watch.cut(Cut("item", "", "a.py:1", 1, 1, 4, step=2))
    watch.cut(Cut("tarry.sync()", "", "a.py:1", 1, 1, 4, step=3))
    watch.close()
    lines = out.getvalue().split("\r\x1b[2K")
    assert lines[0] == "" and lines[-1] == ""
    assert re.fullmatch(
        r"step 2: .*, 1 cut, program #3; record 3\.0 ms, compile 1\.75 s, run 0\.1 ms",
        lines[1],
    )
    assert re.fullmatch(r"step 3: .*, 2 cuts, program #4; ", lines[2])


def test_watch_elsewhere_tells_of_compiles_and_hundreds():
    out = io.StringIO()
    watch = Watch(out)
    for step in range(1, 205):
        watch.cut(Cut("tarry.sync()", "", "a.py:1", 1, 1, 4, step == 7, step=step))
    steps = re.findall(r"^step (\d+):", out.getvalue(), re.MULTILINE)
    assert steps == ["7", "100", "200"]


def test_watch_says_that_it_compiles(monkeypatch):
    monkeypatch.setattr(live, "PATIENCE", 0.02)
    out = io.StringIO()
    watch = Watch(out)
    watch.compiling(6042, "a.py:1")
    while "compiling 6,042 instructions, 0 s\n" not in out.getvalue():
        time.sleep(0.01)
    watch.compiled(COMPILE)
    assert "tarry: compiled program #3 in 1.75 s" in out.getvalue()
    watch.close()
