"""The scenarios under `torch.compile(backend="tarry")`: values as on the CPU.

PyTorch traces what it can of a function, and runs the rest of it as it stands.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import tarry
from known_gaps import COMPILED_ALONE, COMPILED_IN_FULL, NOT_COMPILED
from test_scenarios import SCENARIOS, equal

BY_NAME = {s.__name__: s for s in SCENARIOS}
APART = {*NOT_COMPILED, *COMPILED_ALONE, *COMPILED_IN_FULL}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "scenario" in metafunc.fixturenames:
        chosen = [n for n in BY_NAME if n not in APART]
        if metafunc.config.getoption("--full"):
            chosen += COMPILED_IN_FULL
        metafunc.parametrize("scenario", chosen)


def compare(name: str) -> None:
    want = BY_NAME[name]("cpu", lambda: None)
    torch.compiler.reset()
    got = torch.compile(BY_NAME[name], backend="tarry")("tarry", tarry.sync)
    torch.compiler.reset()
    equal(want, got)


@pytest.mark.filterwarnings("ignore")
def test_scenario_compiled(scenario):
    compare(scenario)


@pytest.mark.parametrize("name", COMPILED_ALONE)
def test_scenario_compiled_alone(name):
    call = f"from test_dynamo_scenarios import compare; compare({name!r})"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", call],
        cwd=Path(__file__).parent, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
