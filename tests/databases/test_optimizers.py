"""Every optimizer of PyTorch's database in every implementation against its plain loop
on the CPU. `make test` runs four configurations of each, `make test-all` all."""

import pytest

import optimizers
from entries import CAP
from known_gaps import REASONS

SAMPLES = 4  # configurations of an optimizer, in the sample

CASES = [(kind, name) for kind in optimizers.KINDS for name in optimizers.names(kind)]


@pytest.mark.parametrize("case", CASES, ids=["-".join(c) for c in CASES])
def test_steps(case: tuple[str, str], pytestconfig: pytest.Config) -> None:
    kind, name = case
    gap = REASONS.get((kind, name, "float32"))
    cap = CAP if gap or pytestconfig.getoption("--full") else SAMPLES
    record = optimizers.run_named(name, kind, cap)
    if gap:
        assert not record.fine, f"a gap has closed, remove it: {gap}"
    else:
        assert record.fine, f"{record.status}: {record.message}"
