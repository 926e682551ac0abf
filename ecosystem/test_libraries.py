"""Training loops of other libraries, unmodified: the losses of the CPU, and one program
a step once the loop is steady. Each runs in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
AS_TORCH_XLA = ["-m", "tarry", "run", "--as-torch-xla"]


def outcome(*command: str) -> dict:
    """What the script printed last, in JSON."""
    path = os.pathsep.join([str(FOLDER), os.environ.get("PYTHONPATH", "")])
    quiet = {"HF_HUB_OFFLINE": "1", "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, *command], env={**os.environ, "USE_TORCH_XLA": "1", **quiet},
        cwd=FOLDER, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


def check(want: dict, got: dict, device: str) -> None:
    assert (want["device"], got["device"]) == ("cpu", f"{device}:0")
    assert got["losses"] == pytest.approx(want["losses"], rel=1e-3)
    steady = got["runs"][3:]
    assert steady == list(range(steady[0], steady[0] + len(steady))), got["runs"]


@pytest.mark.parametrize("model", ["bert", "gpt2", "llama", "t5", "vit"])
@pytest.mark.parametrize("script", ["trainer.py", "accelerated.py"])
def test_as_torch_xla(script, model):
    """`transformers.Trainer` and `accelerate` know torch_xla: they find tarry in it."""
    file = f"scripts/{script}"
    want, got = outcome(file, model, "cpu"), outcome(*AS_TORCH_XLA, file, model, "xla")
    check(want, got, "xla")


def test_lightning():
    want, got = outcome("scripts/lit.py", "cpu"), outcome("scripts/lit.py", "tarry")
    check(want, got, "tarry")
