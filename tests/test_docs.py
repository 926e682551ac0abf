"""The Python blocks of README and docs run, file by file, each in a process of its
own where they count what happened; settings and commands are all described."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tarry.cli import main
from tarry.config import settings

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
WITH_CODE = [p for p in PAGES if BLOCK.search(p.read_text())]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda p: p.name)
def test_python_blocks_run(page, tmp_path):
    text = page.read_text()
    lines = [""] * text.count("\n")
    for block in BLOCK.finditer(text):
        first = text[: block.start(1)].count("\n")
        for i, line in enumerate(block[1].splitlines()):
            lines[first + i] = line
    script = tmp_path / (page.name + ".py")
    script.write_text("\n".join(lines))
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_every_setting_is_described():
    described = set(re.findall(r"^\| `(TARRY_\w+)`", settings_page(), re.MULTILINE))
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
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target
