"""The Python blocks of README and docs run, each page's in one namespace; settings and
commands are all described, and links lead somewhere."""

import json
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

# Runs in one process of its own: what a page counts starts at zero, and README, which
# has the loop without a call of `tarry.sync()`, comes first.
DRIVER = """
import json, sys
from tarry.debug import metrics

for page, code in json.load(sys.stdin):
    metrics.clear_all()
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
