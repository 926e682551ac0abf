"""Programs go before the process runs out of memory mappings, which would end it."""

from pathlib import Path

import pytest
import torch

import tarry
from harness import compiles, make, same
from known_gaps import SKIPS
from tarry.cut.program import store
from tarry.ledger import ledger
from tarry.run.mappings import mappings

OWN = Path("/proc/self/maps")


def count() -> int:
    return len(OWN.read_text().splitlines())


def program(x: torch.Tensor, i: int) -> list[torch.Tensor]:
    """Many kernels, other ones for each `i`."""
    made = [torch.softmax(x[:, : 1 + k % 4], 0) + k for k in range(24 + i)]
    tarry.sync()
    return made


@pytest.mark.skipif(not OWN.exists(), reason=SKIPS["test_mappings.py"])
def test_old_programs_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    store.clear()  # programs of other tests would go first
    x = make(4, 4).to("tarry")
    program(x, 0)
    before = len(store)
    monkeypatch.setattr(mappings, "_most", count() + 600)
    for i in range(1, 9):
        program(x, i)
        assert count() < mappings.most + 600
    assert len(store) < before + 8
    with compiles(1):
        again = program(x, 1)
    assert "memory mappings" in list(ledger.compiles)[-1].why
    same([torch.softmax(make(4, 4)[:, :1], 0)], again[:1])
