"""Operators that PyTorch's database showed to be wrong, each with its right value."""

import math

import pytest
import torch

from harness import check, make


def test_as_strided_scatter_counts_from_the_memory() -> None:
    def scatter(x: torch.Tensor) -> tuple:
        part = x[1:, 1:4]
        src = torch.tensor([100.0, 200.0], device=x.device)
        given = torch.as_strided_scatter(part, src, (2,), (2,), 8)
        assert given.stride() == part.stride()
        return given, torch.as_strided_scatter(part, src, (2,), (2,))

    check(scatter, make(4, 6), grad=False)


def test_in_place_forms_with_other_argument_orders() -> None:
    def change(x: torch.Tensor) -> tuple:
        y = x.abs() + 1
        return y.clone().polygamma_(1), y.clone().pow_(2), y.clone().floor_divide_(x)

    check(change, make(3, 4), grad=False)


@pytest.mark.parametrize("shape", [(5, 0, 5), (0,), (), (2, 3)])
def test_nonzero_static_fills(shape: tuple) -> None:
    check(lambda x: torch.nonzero_static(x, size=4), torch.ones(shape))
    check(lambda x: torch.nonzero_static(x, size=4, fill_value=7), torch.zeros(shape))


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 2.0, 3.0, math.inf])
def test_cdist_without_elements(p: float) -> None:
    pairs = [((0, 4, 5), (3, 5)), ((2, 0, 5), (3, 5)), ((2, 3), (0, 3)), ((4, 0),) * 2]
    for x, y in pairs:
        check(lambda x, y: torch.cdist(x, y, p), make(*x), make(*y), views=False)
