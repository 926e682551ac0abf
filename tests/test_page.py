"""The page of a run, in a real browser: its numbers are the ledger's, the keyboard does
all, it fits, and nothing that a ledger says can act."""

import copy
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from click.testing import CliRunner
from playwright.sync_api import expect, sync_playwright

from known_gaps import SKIPS
from tarry.cli import main
from tarry.report.page.write import page
from tarry.report.saved import load

SCRIPT = """
import torch, tarry
from torch import nn
import torch.nn.functional as F

EVIL = "</script><img src=x onerror='document.title=1'>"

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1))
        self.head = nn.Linear(16, 4)
    def forward(self, x):
        return self.head(self.body(x))

Net.__name__ = EVIL
net = Net().to("tarry")
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
for i in range(6):
    x = torch.randn(5 if i == 4 else 8, 8).to("tarry")
    unused = x * 2; del unused  # </script><script>document.title = 2</script>
    optimizer.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    optimizer.step()
    tarry.sync()
print(loss.item(), (loss + 1).item())
"""
VIEWS = "run", "programs", "graph", "replay"


def tarry(*args, **kwargs):
    command = [sys.executable, "-m", "tarry", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, **kwargs)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the script ran and its ledger and page were written."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "train.py").write_text(SCRIPT)
    done = tarry("run", "--report", "run.json", "train.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    done = tarry("view", "run.json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "tarry: page written to run.html\n"
    return folder


@pytest.fixture(scope="module")
def saved(folder):
    return json.loads((folder / "run.json").read_text())


@pytest.fixture(scope="module")
def browser():
    found = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
    if found is None:
        pytest.skip(SKIPS["test_page.py"])
    with sync_playwright() as playwright:
        # A sandbox needs user namespaces, which containers often refuse to root.
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=found, args=options)
        yield browser
        browser.close()


@pytest.fixture
def look(browser):
    """Open a page's file; at the end nothing may have been logged or fetched."""
    contexts, said = [], []

    def look(file, view="run", width=1280, scheme="light"):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme
        )
        contexts.append(context)
        tab = context.new_page()
        tab.set_default_timeout(20_000)
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on("dialog", lambda dialog: said.append("dialog"))
        tab.on(
            "request", lambda r: None if r.url[:5] == "file:" else said.append(r.url)
        )
        tab.goto(f"file://{file}#{view}")
        return tab

    yield look
    for context in contexts:
        context.close()
    assert not said


def written(folder, name, data):
    file = folder / name
    file.write_text(page(json.dumps(data)))
    return file


def rows(tab, caption):
    """The texts of a table's cells."""
    table = tab.locator("table", has=tab.locator("caption", has_text=caption))
    return [r.locator("td").all_inner_texts() for r in table.locator("tbody tr").all()]


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_opens_and_fits(folder, look, width, scheme):
    for view in VIEWS:
        tab = look(folder / "run.html", view, width, scheme)
        assert tab.locator("main > section:visible").count() == 1
        assert len(tab.locator(f"#view-{view}").inner_text()) > 200
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_run_shows_the_ledgers_numbers(folder, saved, look):
    tab = look(folder / "run.html")
    cuts = sum(t["cuts"] for t in saved["cut_totals"])
    assert tab.inner_text("#tile-steps b") == str(saved["steps"]) == "6"
    assert tab.inner_text("#tile-cuts b") == str(cuts)
    assert tab.inner_text("#tile-programs b") == str(len(saved["programs"]))
    shown = rows(tab, "Why the recording was cut")
    totals = sorted(saved["cut_totals"], key=lambda t: -t["cuts"])
    assert [int(r[0]) for r in shown] == [t["cuts"] for t in totals]
    for row, total in zip(shown, totals):
        assert total["cause"] in row[2]
        assert saved["sources"][total["line"]] in row[3]
    spent = {r[0].strip(): r[1] for r in rows(tab, "Where the time went")}
    assert spent["compile"] == f"{saved['seconds']['compile']:.2f} s"


def test_cuts_are_walked_by_keyboard(folder, saved, look):
    tab = look(folder / "run.html")
    tab.focus("canvas")
    for row in saved["cuts"]:
        tab.keyboard.press("ArrowRight")
        cut = dict(zip(saved["columns"], row))
        text = tab.inner_text("#cut")
        assert saved["strings"][cut["cause"]] in text
        assert saved["sources"][saved["strings"][cut["line"]]] in text
        assert f"#{cut['program']} " in text
    tab.keyboard.press("+")
    tab.keyboard.press("0")
    tab.click("text=by step")
    box = tab.locator("canvas").bounding_box()
    tab.mouse.click(box["x"] + 2, box["y"] + 60)
    assert "in step 1" in tab.inner_text("#cut")
    tab.click("#cut >> text=replay")
    assert tab.locator("#view-replay").is_visible()


def test_programs_show_why_cost_memory_and_difference(folder, saved, look):
    tab = look(folder / "run.html", "programs")
    for p in saved["programs"]:
        tab.click(f"#programs a[data-program='{p['program']}']")
        text = tab.inner_text("#program")
        assert text.startswith(f"Program #{p['program']}\n")
        assert p["why"].replace("`", "") in text
        assert p["advice"] in text
        assert f"{p['uses']} cut" in text
        assert f"{p['inputs']} input" in text
        memory = dict(r[:2] for r in rows(tab, "Memory as XLA plans it"))
        assert float(memory["peak"].split()[0]) > 0
        parts = tab.locator("#program details.part").evaluate_all(
            "all => all.map(d => [d.dataset.part, Number(d.dataset.changed)])"
        )
        assert [name for name, _ in parts] == [
            "donation", "environment", "graph: outputs", "graph: inputs",
            "graph: operations",
        ]  # fmt: skip
        changed = dict(parts)
        assert changed["environment"] == 0
        assert any(changed.values()) == (p["before"] >= 0)
        if p["reason"] == "INPUT":
            assert changed["graph: inputs"] == 2
            shown = tab.locator("details[data-part='graph: inputs'] .row").all()
            signs = {r.inner_text()[0]: r.inner_text() for r in shown}
            assert p["old"] in signs["−"] and p["new"] in signs["+"]


def test_graph_tells_inputs_apart_and_opens(folder, saved, look):
    number = next(p["program"] for p in saved["programs"] if p["reason"] == "STATE")
    program = saved["programs"][number]
    tab = look(folder / "run.html", f"graph/{number}")
    facts = tab.locator("#thing .facts > div").all_inner_texts()
    shown = {k: int(v) for k, v in (f.rsplit("\n", 1) for f in facts)}
    names = [i["name"] for i in program["graph"]["inputs"]]
    state = sum("'s exp" in n for n in names)
    assert shown["Optimizer state"] == state == 8
    assert shown["Parameters and buffers"] == 4
    assert shown["Data and other values"] == len(names) - state - 4
    assert shown["Random seeds and draws"] == 2
    assert shown["Operations"] == program["instructions"]
    assert shown["Outputs"] == program["outputs"]
    assert shown["Donated inputs"] == program["donated"]
    closed = tab.locator("svg .box").count()
    tab.locator("svg .is-line").first.focus()
    tab.keyboard.press("Enter")
    assert tab.locator("svg .box").count() > closed
    assert tab.locator("svg .cluster").count() == 1
    tab.keyboard.press("Enter")
    assert tab.locator("svg .box").count() == closed
    tab.fill("#search", "dropout")
    tab.locator(".results button").first.click()
    assert tab.locator("svg .box.chosen").count() == 1
    assert "tarry::dropout" in tab.inner_text("#thing")
    tab.select_option("#grouping", "module")
    assert tab.locator("svg .is-module").count() > 2


def test_replay_steps_through_the_recording(folder, saved, look):
    number = next(p["program"] for p in saved["programs"] if p["reason"] == "STATE")
    replay = saved["programs"][number]["replay"]
    graph = saved["programs"][number]["graph"]
    n = len(replay["rows"])
    tab = look(folder / "run.html", f"replay/{number}")
    assert "Nothing is recorded yet" in tab.inner_text("#said")
    for _, _, specs, line in replay["rows"][:12]:
        tab.keyboard.press("ArrowRight")
        assert saved["sources"][line] in tab.inner_text("#replay-code .now")
        assert specs[0] in tab.inner_text("#replay-rows .now")
    tab.keyboard.press("c")
    assert "The cut" in tab.inner_text("#said")
    assert tab.locator("#stage").input_value() == str(n + 1)
    assert f"output {len(replay['alive'])}" in tab.inner_text("#replay-values .badges")
    tab.keyboard.press("ArrowRight")
    dead = n - len(graph["nodes"])
    assert dead > 0
    assert f"; {dead} are not" in tab.inner_text("#said")
    assert tab.locator("#replay-rows li.dead").count() == dead
    wanted = {
        "donation": saved["programs"][number]["donated"],
        "environment": len(saved["programs"][number]["key"]) - 1,
        "outputs": len(graph["outputs"]),
        "inputs": len(graph["inputs"]),
        "operations": len(graph["nodes"]) - len(graph["inputs"]),
    }
    for i, name in enumerate(wanted):
        tab.keyboard.press("ArrowRight")
        assert tab.locator("#replay-key .keypart").count() == i + 1
        now = tab.locator("#replay-key .keypart.now")
        assert now.get_attribute("data-part") == name
        assert f"{wanted[name]} line" in now.inner_text()
    tab.keyboard.press("End")
    kept = sum(not i["donated"] for i in graph["inputs"])
    badges = tab.inner_text("#replay-values .badges")
    assert f"DEVICE {len(replay['alive']) + kept}" in badges
    assert f"donated {len(graph['inputs']) - kept}" in badges
    tab.keyboard.press("Home")
    tab.keyboard.press("n")
    tab.keyboard.press("n")
    assert tab.inner_text("#replay-rows .now").startswith("%1 = ")
    tab.keyboard.press("Space")
    expect(tab.locator("#said > .dim")).to_have_text(re.compile("^4 of "))


def test_tabs_by_keyboard(folder, look):
    tab = look(folder / "run.html")
    tab.keyboard.press("Tab")
    for view in (*VIEWS[1:], VIEWS[0]):
        tab.keyboard.press("ArrowRight")
        chosen = tab.locator("[role=tab][aria-selected=true]")
        assert chosen.get_attribute("id") == f"tab-{view}"
        assert tab.locator(f"#view-{view}").is_visible()
        assert tab.evaluate("document.activeElement.id") == f"tab-{view}"
        style = "getComputedStyle(document.activeElement).outlineStyle"
        assert tab.evaluate(style) == "solid"
    tab.keyboard.press("End")
    tab.keyboard.press("Enter")
    tab.keyboard.press("ArrowRight")
    assert tab.locator("#stage").input_value() == "1"


def test_what_a_ledger_says_cannot_act(folder, saved, look):
    evil = "</script><script>document.title = 3</script><img src=x onerror=alert(1)>"
    data = copy.deepcopy(saved)
    ansi = f"\x1b[31m{evil}\u2028\u202e"
    data["sources"] = dict.fromkeys(data["sources"], ansi)
    data["strings"] = [s if ":" in s else ansi for s in data["strings"]]
    for total in data["cut_totals"]:
        total["cause"] = total["detail"] = ansi
    for p in data["programs"]:
        p["why"] = p["advice"] = p["options"] = ansi
        for row in p["graph"]["nodes"]:
            row[0] = row[0] if row[0] == "tarry::input" else ansi
            row[2] = [evil for _ in row[2]]
        for i in p["graph"]["inputs"]:
            i["name"] = evil
    file = written(folder, "evil.html", data)
    for view in VIEWS:
        for width in (1280, 400):
            tab = look(file, view, width)
            assert tab.title() == "tarry: what a run did"
            assert tab.locator("img, main script, main b:has-text('mask')").count() == 0
            if view == "graph":
                tab.locator("svg .is-input").first.press("Enter")
            assert "<img src=x" in tab.locator(f"#view-{view}").text_content()
            assert tab.evaluate("document.documentElement.scrollWidth") <= width
    tab = look(folder / "run.html", "replay")
    for _ in range(5):
        tab.keyboard.press("n")
    assert "<script>document.title = 2" in tab.inner_text("#replay-code")


class Elements(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))


def test_the_page_refers_to_nothing_outside(folder):
    elements = Elements()
    text = (folder / "run.html").read_text()
    elements.feed(text)
    assert not [a for _, a in elements.found if "src" in a]
    assert not [a for tag, a in elements.found if tag == "link" or "style" in a]
    scripts = [a for tag, a in elements.found if tag == "script"]
    data = [a for a in scripts if a.get("type") == "application/json"]
    assert len(data) == 1
    policy = next(a["content"] for tag, a in elements.found if "content" in a)
    assert policy.startswith("default-src 'none'")
    assert policy.count("'sha256-") == len(scripts)  # a style's stands for the data's
    for licence in ("Mike Bostock", "Chris Pettitt"):
        assert licence in text


def test_a_page_without_lines_graphs_or_numbers(folder, saved, look):
    data = copy.deepcopy(saved)
    data["sources"] = {}
    data["cuts"][0][data["columns"].index("run_s")] = float("nan")
    for p in data["programs"]:
        p.update(graph=None, replay=None, memory={})
    file = written(folder, "bare.html", data)
    for view in VIEWS:
        tab = look(file, view)
        assert "cannot be shown" not in tab.inner_text("main")
    data.update(cuts=[], programs=[], cut_totals=[], steps=0)
    file = written(folder, "empty.html", data)
    for view in VIEWS:
        tab = look(file, view)
        assert re.search("Nothing was computed|No program was", tab.inner_text("main"))


def test_a_program_that_cannot_be_shown_spoils_no_other(folder, saved, browser):
    data = copy.deepcopy(saved)
    data["programs"][0]["graph"]["outputs"] = [10**6]
    file = written(folder, "broken.html", data)
    tab = browser.new_page()
    for view in VIEWS[1:]:
        tab.goto(f"file://{file}#{view}/0")
        assert "cannot be shown" in tab.inner_text(f"#view-{view}")
        tab.goto(f"file://{file}#{view}/2")
        assert "cannot be shown" not in tab.inner_text(f"#view-{view}")
    tab.keyboard.press("ArrowRight")
    assert tab.locator("#stage").input_value() == "1"
    tab.close()


def test_ten_thousand_steps(folder, saved, look):
    data = copy.deepcopy(saved)
    at = {name: i for i, name in enumerate(data["columns"])}
    cut, step = data["cuts"][-3], data["ended"] - data["started"]
    for i in range(20_000 - len(data["cuts"])):
        row = list(cut)
        row[at["at"]] = round(step + i * 0.01, 6)
        row[at["step"]] = data["steps"] + i // 2
        data["cuts"].append(row)
    data["steps"] = 10_000
    data["ended"] = data["started"] + step + 200
    data["cut_totals"][-1]["cuts"] += 20_000 - len(saved["cuts"])
    long = [["aten::relu", [i], ["f32[8,128]"], f"/a/b/train.py:{i % 90}"]
            for i in range(4_999)]  # fmt: skip
    long.insert(0, ["tarry::input", [], ["f32[8,128]"], "/a/b/train.py:1"])
    big = data["programs"][0]
    big["graph"].update(nodes=long, outputs=[4_999], output_names=[""])
    big["graph"]["inputs"] = big["graph"]["inputs"][:1]
    big["replay"] = {"rows": long, "alive": [4_999]}
    text = json.dumps(data, separators=(",", ":"))
    assert len(load(text).cuts) == 20_000
    file = folder / "long.html"
    file.write_text(page(text))
    assert len(text) < 20e6 and file.stat().st_size < 20e6
    tab = look(file)
    tab.focus("canvas")
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Shift+ArrowRight")
    assert "Cut 101" in tab.inner_text("#cut")
    tab = look(file, "graph/0")
    assert tab.locator("svg .box").count() < 200
    tab = look(file, "replay/0")
    tab.keyboard.press("c")
    assert "The cut" in tab.inner_text("#said")


def test_run_writes_a_page(tmp_path, look):
    (tmp_path / "short.py").write_text(
        'import torch\nprint((torch.ones(2, device="tarry") + 1).sum().item())\n'
    )
    done = tarry("run", "--report", "r.html", "short.py", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout == "4.0\n"
    assert done.stderr == "tarry: closing report written to r.html\n"
    assert "1\ncut" in look(tmp_path / "r.html").inner_text(".tiles")
    done = tarry("run", "--report", "none/r.html", "short.py", cwd=tmp_path)
    assert done.returncode == 1 and done.stdout == "4.0\n"
    assert "r.html cannot be written (No such file or directory)" in done.stderr
    assert "tarry: closing report" in done.stderr


def test_what_is_no_ledger_is_refused(folder, tmp_path):
    text = (folder / "run.json").read_text()
    (tmp_path / "short.json").write_text(text[: len(text) // 2])
    (tmp_path / "other.json").write_text('{"format": 1}')
    (tmp_path / "list.json").write_text('{"format": 2, "cuts": [[1]]}')
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    for name in ("short", "other", "list", "binary", "deep"):
        for command in ("view", "explain"):
            done = CliRunner().invoke(main, [command, str(tmp_path / f"{name}.json")])
            assert done.exit_code == 1
            assert done.stdout == ""
            assert done.stderr.startswith(f"Error: {tmp_path / name}.json: ")
            assert done.stderr.count("\n") == 1, done.stderr
    assert not list(tmp_path.glob("*.html"))
    where = str(tmp_path / "none" / "r.html")
    done = CliRunner().invoke(main, ["view", str(folder / "run.json"), "-o", where])
    assert done.exit_code == 1
    assert done.stderr.endswith("r.html cannot be written: No such file or directory\n")


def test_explain_says_why(folder, saved):
    done = CliRunner().invoke(main, ["explain", str(folder / "run.json")])
    assert done.exit_code == 0, done.stderr
    text = re.sub(r"\s+", " ", done.stdout)
    for p in saved["programs"]:
        assert f"#{p['program']} (" in text
        assert re.sub(r"\s+", " ", p["why"]) in text
        assert p["advice"] in text
    for total in saved["cut_totals"]:
        line = total["line"]
        assert f"{total['cuts']} at {line}: {saved['sources'][line]}" in text


def test_explain_writes_no_escapes(folder, saved, tmp_path):
    data = {**saved, "sources": dict.fromkeys(saved["sources"], "\x1b[31m\x07red")}
    (tmp_path / "r.json").write_text(json.dumps(data))
    done = CliRunner().invoke(main, ["explain", str(tmp_path / "r.json")])
    assert done.exit_code == 0
    assert "[31m" in done.stdout and "\x1b" not in done.stdout
