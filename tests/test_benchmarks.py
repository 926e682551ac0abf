"""The benchmarks run, agree on the losses, and report what their page promises."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parent.parent / "benchmarks" / "run.py"
PEERS = ["tarry", "eager", "jax"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """(what was printed, what was saved) of one short run."""
    out = tmp_path_factory.mktemp("benchmarks") / "results.json"
    asked = ["mlp", "--peers", ",".join(PEERS), "--rounds", "1", "--steps", "2"]
    done = subprocess.run(
        [sys.executable, RUN, *asked, "--out", out], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, json.loads(out.read_text())["results"]["mlp"]


def test_peers_agree(run):
    _, peers = run
    assert list(peers) == PEERS
    for peer in peers.values():
        assert peer["error"] == "" and not peer["wrong"]
        assert len(peer["start"]["losses"]) == 5
        assert peer["difference"] < 1e-3
        assert len(peer["rounds"]) == 1
        assert set(peer["ratios"]) == {"eager", "jax"}


def test_tarry_compiles_early_and_never_falls_back(run):
    _, peers = run
    end = peers["tarry"]["end"]
    assert end["compiles"] >= 1
    assert end["late_compiles"] == 0
    assert end["fallbacks"] == {}


def test_the_table_has_a_row_a_peer(run):
    lines = run[0].splitlines()
    assert lines[0] == "### mlp"
    for peer in PEERS:
        assert sum(line.startswith(f"| {peer} |") for line in lines) == 1


def test_unknown_names_are_refused():
    done = subprocess.run([sys.executable, RUN, "mpl"], capture_output=True, text=True)
    assert done.returncode == 2 and "mpl" in done.stderr
