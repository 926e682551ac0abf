"""The scenarios under `torch.compile(backend="tarry")`: values as on the CPU.

PyTorch traces what it can of a function, and runs the rest of it as it stands.
"""

import pytest
import torch

import tarry
from known_gaps import COMPILED_IN_FULL
from test_scenarios import SCENARIOS, equal

BY_NAME = {s.__name__: s for s in SCENARIOS}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "scenario" in metafunc.fixturenames:
        chosen = [n for n in BY_NAME if n not in COMPILED_IN_FULL]
        if metafunc.config.getoption("--full"):
            chosen += COMPILED_IN_FULL
        metafunc.parametrize("scenario", chosen)


@pytest.mark.filterwarnings("ignore")
def test_scenario_compiled(scenario, fresh_dynamo):
    want = BY_NAME[scenario]("cpu", lambda: None)
    got = torch.compile(BY_NAME[scenario], backend="tarry")("tarry", tarry.sync)
    equal(want, got)
