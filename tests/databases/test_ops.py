"""Every entry of PyTorch's operator database against the CPU.

`make test` runs a sample that `SEED` chooses: every entry forward in float32
with two samples, and a part of the entries in the other dtypes and other ways of
calling them.
`make test-all` (`--full`) runs all of them with up to `entries.CAP` samples.
"""

import random

import pytest
import torch

from compare import Different, compare
from entries import CAP, DTYPES, ENTRIES, KINDS, dtype_of, short, takes
from known_gaps import DEPENDS_ON_CPU, REASONS, VIA_CPU
from runs import Timeout, deadline, run_named
from workers import GROUPS, jobs_of

SEED = 20260
SAMPLES = 2  # of an entry, in the sample

# Way of calling -> dtypes in the full run, and one entry in how many in the sample.
PLAN = {
    "forward": (DTYPES, 12),
    "grad": (DTYPES[:1], 4),
    "gradgrad": (DTYPES[:1], 24),
    "gradcheck": (DTYPES[:1], 48),
    "gradgradcheck": (DTYPES[:1], 96),
    "inplace": ([torch.float32, torch.int64], 8),
    "out": ([torch.float32, torch.int64], 12),
    "transposed": ([torch.float32, torch.complex64], 12),
    "sliced": ([torch.float32, torch.int32], 12),
    "expanded": ([torch.float32, torch.int64], 12),
    "extremal": (DTYPES[:1], 8),
    "reference": ([torch.float32, torch.int64], 24),
    "errors": (DTYPES[:1], 4),
}
assert list(PLAN) == KINDS


def cases(full: bool) -> list[tuple[str, str, str]]:
    """(kind, entry, dtype): all of them, or the sample."""
    draw = random.Random(SEED)
    found = []
    for kind, (dtypes, every) in PLAN.items():
        for dtype in (dtype_of(kind, d) for d in dtypes):
            for name, op in ENTRIES.items():
                drawn = draw.randrange(every) == 0
                always = kind == "forward" and dtype is torch.float32
                if (full or drawn or always) and takes(op, dtype, kind):
                    found.append((kind, name, short(dtype)))
    return found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        chosen = cases(metafunc.config.getoption("--full"))
        metafunc.parametrize("case", chosen, ids=["-".join(c) for c in chosen])


def test_entry(case: tuple[str, str, str], pytestconfig: pytest.Config) -> None:
    kind, name, dtype = case
    gap = REASONS.get(case)
    cap = CAP if gap or pytestconfig.getoption("--full") else SAMPLES
    record = run_named(name, getattr(torch, dtype), kind, cap)
    if gap:
        closed = record.fine and case not in DEPENDS_ON_CPU
        assert not closed, f"a gap has closed, remove it: {gap}"
        return
    assert record.fine, f"{record.status}: {record.message}"
    unexplained = set(record.fallbacks) - set(VIA_CPU)
    assert not unexplained, f"on the CPU without a reason in VIA_CPU: {unexplained}"


def test_gaps_name_what_exists() -> None:
    every = set(cases(full=True)) | {job.key for job in jobs_of(list(GROUPS), [], [])}
    unknown = [key for key in REASONS if key not in every]
    assert not unknown


def test_a_wrong_result_is_seen() -> None:
    """The harness itself: a wrong value, dtype, shape, stride and error are seen."""
    x = torch.rand(2, 3)
    ours = x.to("tarry")
    compare(x, ours, True, None)
    compare([x, 1.5], [ours, 1.5], True, None)
    bad = [ours + 1, ours.double(), ours.reshape(3, 2), ours.t().contiguous().t(), x]
    for got in bad:
        with pytest.raises(Different):
            compare(x, got, True, None)
    with pytest.raises(Different):
        compare([x, x], [ours], True, None)


def test_the_limit_ends_an_entry() -> None:
    with pytest.raises(Timeout), deadline(1):
        while True:
            pass
