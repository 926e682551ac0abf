"""How large is the page of a long run, and how soon is it there?
`python benchmarks/page.py [--steps N]`.

Runs so many steps of a small loop under `tarry run`, two cuts a step, writes the page,
and opens it in a headless Chromium. Prints the sizes of ledger and page and the time
until the page's load event; exits with 1 above 20 MB or 2 s (the best of three).
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

SIZE, SECONDS = 20e6, 2.0

SCRIPT = """
import torch, tarry

model = torch.nn.Linear(8, 4).to("tarry")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x = torch.ones(4, 8).to("tarry")
for step in range({steps}):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    (loss * 2).item()
"""


def written(folder: Path, steps: int) -> tuple[Path, Path]:
    """Ledger and page of a run."""
    (folder / "train.py").write_text(SCRIPT.format(steps=steps))
    for command in (["run", "--report", "run.json", "train.py"], ["view", "run.json"]):
        subprocess.run(
            [sys.executable, "-m", "tarry", *command],
            cwd=folder, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
    return folder / "run.json", folder / "run.html"


def loading_times(page: Path, times: int = 3) -> list[float]:
    """Seconds until the load event, each in a fresh context."""
    found = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
    if found is None:
        sys.exit("this needs Chromium: apt install chromium")
    # A sandbox needs user namespaces, which containers often refuse to root.
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    seconds = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=options)
        for _ in range(times):
            tab = browser.new_context().new_page()
            tab.goto(f"file://{page}")
            entry = "performance.getEntriesByType('navigation')[0].loadEventEnd"
            seconds.append(tab.evaluate(entry) / 1e3)
            tab.close()
        browser.close()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    steps = parser.parse_args().steps
    with tempfile.TemporaryDirectory() as folder:
        files = written(Path(folder), steps)
        sizes = [f.stat().st_size for f in files]
        seconds = loading_times(files[1])
    ledger, page = (f"{size / 1e6:.1f} MB" for size in sizes)
    print(f"{steps:,} steps: ledger {ledger}, page {page}")
    print("loaded after", ", ".join(f"{s:.2f} s" for s in seconds))
    sys.exit(max(sizes) > SIZE or min(seconds) > SECONDS)


if __name__ == "__main__":
    main()
