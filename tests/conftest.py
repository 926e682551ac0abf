"""Every test starts with nothing pending and the automatic cut after a step on."""

import pytest

import tarry
from tarry.config import config
from tarry.dispatch.device import StepCuts


@pytest.fixture(autouse=True)
def _nothing_pending():
    tarry.sync()
    StepCuts.enabled = config.auto_step
    yield
    StepCuts.enabled = config.auto_step
