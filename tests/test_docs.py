"""The Python blocks of README and docs run, each page's in one namespace; settings and
commands are all described, and links lead somewhere."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tarry.cli import main
from tarry.config import settings
from tarry.cut.cause import Cause
from tarry.report.why import Reason

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)

# Runs in one process of its own, in which every page starts as in a new one: nothing is
# compiled or counted, and no `tarry.sync()` was called.
DRIVER = """
import json, sys
from tarry.cut.sync import store
from tarry.debug import metrics
from tarry.dispatch.device import StepCuts

for page, code in json.load(sys.stdin):
    metrics.clear_all()
    store.clear()
    StepCuts.enabled = True
    exec(compile(code, page, "exec"), {"__name__": "__main__"})
    print("ran", page)
"""


def blocks(page):
    """The page's blocks as one program in which every line keeps its number."""
    text = page.read_text()
    lines = [""] * text.count("\n")
    for block in BLOCK.finditer(text):
        first = text[: block.start(1)].count("\n")
        code = block[1].splitlines()
        lines[first : first + len(code)] = code
    return "\n".join(lines)


def test_python_blocks_run():
    programs = [(str(page), blocks(page)) for page in PAGES]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", DRIVER],
        input=json.dumps(programs),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"ran {PAGES[-1]}"


def test_the_tour_shows_every_stage():
    done = subprocess.run(
        [sys.executable, "-W", "error", ROOT / "docs" / "tour.py"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    parts = done.stdout.split("\n== ")[1:]
    assert [p[:2] for p in parts] == [f"{i}." for i in range(1, 9)]
    assert "slot of x: HOST, float32[2, 3]" in parts[0]
    assert "slot of total: IR, value number" in parts[1]
    assert "add.Tensor" in parts[1] and parts[1].count("add.Tensor") == 2
    assert parts[2].count("add.Tensor") == 1  # the dead one is not computed
    assert "stablehlo.exponential" in parts[4]
    assert parts[5].count("DEVICE") == 4
    assert "compiled because it is the first program" in parts[6]
    assert "compiled now: 0\n" in parts[7]
    wanted = (torch.arange(6.0) * 7.5).exp().sum().item()
    assert f"total = {wanted:.1e}" in parts[7]


def test_every_cause_and_reason_has_its_words():
    page = (ROOT / "docs" / "when-it-cuts.md").read_text()
    assert not [c for c in Cause if f"| {c.value}" not in page and c.value not in page]
    page = (ROOT / "docs" / "why-it-recompiled.md").read_text()
    headings = " ".join(re.findall(r"^## (.*)", page, re.MULTILINE))
    assert not [r for r in Reason if r.value not in headings]


def test_every_setting_is_described():
    described = set(re.findall(r"^\| `(\w+)`", settings_page(), re.MULTILINE))
    assert described == set(settings)


def test_defaults_are_the_ones_described():
    for name, setting in settings.items():
        row = re.search(rf"^\| `{name}` \| (\S+)", settings_page(), re.MULTILINE)
        assert row is not None
        value = setting.value
        wanted = int(value) if isinstance(value, bool) else value
        if value and not setting.given:
            assert row[1] == str(wanted), name


def settings_page():
    return (ROOT / "docs" / "settings.md").read_text()


def test_every_command_is_described():
    page = (ROOT / "docs" / "commands.md").read_text()
    for name in main.commands:
        assert f"## `tarry {name}" in page


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)#]+)", prose):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target
