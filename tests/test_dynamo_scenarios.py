"""The scenarios under `torch.compile(backend="tarry")`: values as on the CPU.

PyTorch traces what it can of a function, and runs the rest of it as it stands.
"""

import pytest
import torch

import tarry
from known_gaps import NOT_COMPILED
from test_scenarios import SCENARIOS, equal

COMPILED = [s for s in SCENARIOS if s.__name__ not in NOT_COMPILED]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("scenario", COMPILED, ids=lambda f: f.__name__)
def test_scenario_compiled(scenario):
    want = scenario("cpu", lambda: None)
    torch.compiler.reset()
    got = torch.compile(scenario, backend="tarry")("tarry", tarry.sync)
    torch.compiler.reset()
    equal(want, got)
