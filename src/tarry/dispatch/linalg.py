"""Linear algebra whose results depend on how LAPACK uses memory.

The saved factors of LU-based operators follow the memory order of their operand:
PyTorch factorises the transpose of a contiguous real matrix and the matrix itself
otherwise, and its gradient formulas ask the operand which it was. The rows know values
only and give the factors of a contiguous operand; here the other case is served. Least
squares leave their solution inside of something larger.
"""

from collections.abc import Callable
from typing import Any

import torch

from tarry.cut.cause import Cause
from tarry.dispatch.exits import value_of


def _is_transposed(a: torch.Tensor) -> bool:
    return a.is_contiguous() or a.is_complex()


def of_transpose(plain: Callable[..., tuple]) -> Callable[..., tuple]:
    """det and slogdet: the determinant of the transpose is the same."""

    def kernel(a: torch.Tensor) -> tuple:
        return plain(a) if _is_transposed(a) else plain(a.mT.contiguous())

    return kernel


def solve(plain: Callable[..., tuple]) -> Callable[..., tuple]:
    """solve: the solution as ever, the factors of the matrix itself."""

    def kernel(
        a: torch.Tensor, b: Any, *, left: bool = True, check_errors: bool = False
    ) -> tuple:
        if _is_transposed(a):
            return plain(a, b, left=left, check_errors=check_errors)
        x, _, _, info = plain(a.contiguous(), b, left=left, check_errors=check_errors)
        lu, pivots, _ = torch.ops.aten.linalg_lu_factor_ex(a)
        return x, lu, pivots, info

    return kernel


def lstsq(plain: Callable[..., tuple]) -> Callable[..., tuple]:
    """The solution of more equations than unknowns stands where LAPACK left it, in the
    upper rows of the right-hand sides. `gelsd` and `gelss` give their residuals only
    where the rank is full, which is read."""

    def kernel(
        a: torch.Tensor, b: torch.Tensor, rcond: Any = None, *, driver: Any = None
    ) -> tuple:
        x, residuals, rank, values = plain(a, b, rcond, driver=driver)
        rows, unknowns = a.shape[-2:]
        if rows <= unknowns or not x.numel():
            return x, residuals, rank, values
        if driver in ("gelsd", "gelss") and _is_full(rank, unknowns):
            residuals = _residuals(a, x, b)
        if x.dim() == a.dim():
            sides = x.new_zeros((*x.shape[:-2], x.shape[-1], rows)).mT
            solution = sides.narrow(-2, 0, unknowns)
            x = solution.copy_(x)
        return x, residuals, rank, values

    return kernel


def _is_full(rank: torch.Tensor, unknowns: int) -> bool:
    full = (rank == unknowns).all()
    return bool(value_of(full, Cause.SHAPE, "aten::linalg_lstsq"))


def _residuals(a: torch.Tensor, x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if x.dim() < a.dim():
        x, b = x.unsqueeze(-1), b.unsqueeze(-1)
    return (a @ x - b).abs().square().sum(-2)


WRAPPED = {
    "linalg_lstsq": lstsq,
    "_linalg_det": of_transpose,
    "_linalg_slogdet": of_transpose,
    "_linalg_solve_ex": solve,
}
