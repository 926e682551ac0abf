"""`--full` runs PyTorch's databases whole; without it a seeded sample."""

import pytest

import tarry


@pytest.fixture(autouse=True)
def _nothing_pending():
    tarry.sync()
    yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full", action="store_true", help="PyTorch's databases whole, not a sample"
    )
