"""The scenarios under `torch.compile(backend="tarry")`: values as on the CPU.

PyTorch traces what it can of a function, and runs the rest of it as it stands.
"""

import pytest
import torch

import tarry
from test_scenarios import SCENARIOS, equal

# Dynamo unrolls the 3,000 steps of `long_chain`, which takes minutes.
SHORT = [s for s in SCENARIOS if s.__name__ != "long_chain"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("scenario", SHORT, ids=lambda f: f.__name__)
def test_scenario_compiled(scenario):
    want = scenario("cpu", lambda: None)
    torch.compiler.reset()
    got = torch.compile(scenario, backend="tarry")("tarry", tarry.sync)
    torch.compiler.reset()
    equal(want, got)
