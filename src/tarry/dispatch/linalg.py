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
    upper rows of the right-hand sides."""

    def kernel(a: torch.Tensor, b: torch.Tensor, *args: Any, **kwargs: Any) -> tuple:
        x, *rest = plain(a, b, *args, **kwargs)
        rows, unknowns = a.shape[-2:]
        if rows <= unknowns or x.dim() != a.dim() or not x.numel():
            return x, *rest
        sides = x.new_zeros((*x.shape[:-2], x.shape[-1], rows)).mT
        solution = sides.narrow(-2, 0, unknowns)
        solution.copy_(x)
        return solution, *rest

    return kernel


WRAPPED = {
    "linalg_lstsq": lstsq,
    "_linalg_det": of_transpose,
    "_linalg_slogdet": of_transpose,
    "_linalg_solve_ex": solve,
}
