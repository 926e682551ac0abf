"""Every test starts with nothing pending and the automatic cut after a step on."""

import dataclasses

import pytest
import torch

import tarry
from known_gaps import EXPECTED
from tarry.config import config
from tarry.dispatch.device import StepCuts
from tarry.lower.table import TABLE


@pytest.fixture(autouse=True)
def _nothing_pending():
    tarry.sync()
    StepCuts.enabled = config.auto_step
    yield
    StepCuts.enabled = config.auto_step


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full", action="store_true", help="PyTorch's databases whole, not a sample"
    )


def pytest_collection_modifyitems(items: list) -> None:
    """Tests named in `known_gaps.EXPECTED` have to fail."""
    for item in items:
        if item.name in EXPECTED:
            item.add_marker(pytest.mark.xfail(reason=EXPECTED[item.name], strict=True))


@pytest.fixture
def fresh_dynamo():
    """Nothing is compiled by `torch.compile` before or after the test."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.fixture
def broken(monkeypatch):
    """The row of `sinh` raises when it is lowered."""

    def lower(*_):
        raise ValueError("no such thing")

    row = dataclasses.replace(TABLE["sinh"], lower=lower)
    monkeypatch.setitem(TABLE, "sinh", row)
