"""Operators whose result shape depends on data: one cut for the size, named with the
operator and the line; everything else is recorded, nothing runs on the CPU."""

from collections.abc import Callable
from math import nan
from pathlib import Path

import pytest
import torch

import tarry
from harness import DEVICE, check, cuts, fallbacks, make
from tarry.ledger import ledger

FLOATS = torch.tensor([[nan, 1.0, nan, -0.0], [0.0, 1.0, 7.0, -3.0]])
ROWS = torch.tensor([[1, 2, 3], [0, 5, 3], [1, 2, 3], [1, 2, 0], [0, 5, 3], [0, 5, 3]])

KINDS: dict[str, tuple[str, Callable]] = {
    "unique": ("_unique2", lambda x: torch.unique(x, return_inverse=True)),
    "counts": ("_unique2", lambda x: torch.unique(x, return_counts=True)),
    "values": ("_unique", lambda x: torch.ops.aten._unique(x, True, True)),
    "rows": ("unique_dim", lambda x: torch.unique(x, True, True, True, dim=0)),
    "columns": ("unique_dim", lambda x: torch.unique(x, True, True, True, dim=1)),
    "consecutive": (
        "unique_consecutive", lambda x: torch.unique_consecutive(x, True, True)
    ),
    "runs of rows": (
        "unique_dim_consecutive",
        lambda x: torch.ops.aten.unique_dim_consecutive(x, 0, True, True),
    ),
    "nonzero": ("nonzero", lambda x: x.nonzero()),
    "masked_select": ("masked_select", lambda x: x.masked_select(x > 1)),
    "mask": ("nonzero", lambda x: x[x > 1]),
    "bincount": ("bincount", lambda x: x.reshape(-1).abs().long().bincount()),
    "repeat_interleave": (
        "repeat_interleave", lambda x: x[0].repeat_interleave(x[1].abs().long())
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_size_is_one_cut(name: str) -> None:
    op, fn = KINDS[name]
    x = (ROWS.to(DEVICE) + 0) * 1
    with fallbacks(0), cuts(1):
        result = fn(x)
    cut = ledger.cuts[-1]
    assert cut.cause == "a result's shape depends on data"
    assert cut.detail == f"aten::{op}"
    assert Path(__file__).name in cut.line
    with cuts(1):
        tarry.sync()
    del result


@pytest.mark.parametrize("name", KINDS)
def test_values(name: str) -> None:
    fn = KINDS[name][1]
    check(fn, ROWS)
    check(fn, make(4, 3, dtype=torch.float64), grad=False)


@pytest.mark.parametrize("name", ["unique", "counts", "rows", "consecutive"])
def test_unique_with_nan_and_zeros(name: str) -> None:
    check(KINDS[name][1], FLOATS, grad=False)
    check(KINDS[name][1], FLOATS > 0)


def test_unique_of_wide_rows() -> None:
    """Rows that differ late, in more columns than a power of two."""
    x = make(9, 7, dtype=torch.int64) % 2
    x[:, :5] = 1
    check(lambda x: torch.unique(x, True, True, True, dim=0), x)


def test_unique_without_elements() -> None:
    def every(x: torch.Tensor) -> tuple:
        return torch.unique(x, True, True, True)

    check(every, torch.zeros(0, 3), grad=False)
    check(lambda x: torch.unique(x, dim=1), torch.zeros(3, 0), grad=False)
    check(every, torch.tensor(3.0), grad=False)
    for shape, dim in (((3, 0), 0), ((0, 0), 1)):
        for device in ("cpu", DEVICE):
            with pytest.raises(RuntimeError, match="unique cannot be applied"):
                torch.unique(torch.zeros(shape, device=device), dim=dim)


def test_unique_refuses_complex_numbers() -> None:
    x = make(3, dtype=torch.complex64)
    for device in ("cpu", DEVICE):
        with pytest.raises(NotImplementedError, match="not implemented for 'ComplexF"):
            torch.unique(x.to(device))
