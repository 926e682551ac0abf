"""LU factors and what is made of them: determinants, inverses, solutions. Pivots are
1-based as in LAPACK and PyTorch; batch dimensions lead.

`_linalg_det` and `_linalg_slogdet` keep the LU factors of the transpose of a real
matrix, as PyTorch's kernels do, and its gradients expect, for contiguous input.
"""

from typing import Any

import numpy as np

from tarry.lower.linalg import (
    adjoint_of,
    diagonal,
    empty,
    eye,
    solve_triangular,
    transpose,
)
from tarry.lower.precision import const
from tarry.lower.table import Call, broadcast, convert, row
from tarry.lower.xla import jnp, lax

_I32 = np.dtype(np.int32)


def _singular(lu: Any) -> Any:
    """1 + the place of the first zero on the diagonal, or 0."""
    zero = lax.eq(diagonal(lu), const(lu, 0))
    n = zero.shape[-1]
    place = lax.broadcasted_iota(_I32, zero.shape, zero.ndim - 1)
    place = lax.select(zero, place, lax.full_like(place, n))
    if n == 0:
        return lax.full(place.shape[:-1], 0, _I32)
    first = lax.reduce_min(place, (place.ndim - 1,))
    return lax.select(
        lax.eq(first, const(first, n)), lax.full_like(first, 0), first + 1
    )


def _lu(a: Any) -> tuple[Any, Any, Any]:
    """(LU, 1-based pivots, permutation)."""
    lu, pivots, permutation = lax.linalg.lu(a)
    return lu, lax.add(pivots, const(pivots, 1)), permutation


def _transposed_lu(a: Any) -> tuple[Any, Any]:
    """What the determinants keep: the LU of the transpose of a real matrix."""
    return _lu(a if a.dtype.kind == "c" else transpose(a))[:2]


def _permute(x: Any, permutation: Any, inverse: bool = False) -> Any:
    """Rows of `x` in the order of `permutation` (or back)."""
    if inverse:
        permutation = jnp.argsort(permutation, axis=-1)
    batch = np.broadcast_shapes(x.shape[:-2], permutation.shape[:-1])
    x = broadcast(x, (*batch, *x.shape[-2:]))
    index = broadcast(permutation, (*batch, permutation.shape[-1]))
    return jnp.take_along_axis(x, index[..., None], x.ndim - 2)


def _lu_solve(lu: Any, permutation: Any, b: Any, adjoint: bool) -> Any:
    if not adjoint:
        b = _permute(b, permutation)
        b = solve_triangular(lu, b, lower=True, unit=True)
        return solve_triangular(lu, b, lower=False)
    how = {"transpose_a": True, "conjugate_a": lu.dtype.kind == "c"}
    b = solve_triangular(lu, b, lower=False, **how)
    b = solve_triangular(lu, b, lower=True, unit=True, **how)
    return _permute(b, permutation, inverse=True)


def _permutation(pivots: Any, n: int) -> Any:
    zero_based = lax.sub(pivots, const(pivots, 1))
    return lax.linalg.lu_pivots_to_permutation(zero_based, n)


@row("linalg_inv_ex")
def inv_ex(call: Call, a: Any, check: bool) -> tuple[Any, Any]:
    lu, _, permutation = _lu(a)
    return _lu_solve(lu, permutation, eye(a, a.shape[-1]), False), _singular(lu)


def _sign(pivots: Any, dtype: np.dtype) -> Any:
    """The sign of the permutation the pivots stand for."""
    place = lax.broadcasted_iota(_I32, pivots.shape, pivots.ndim - 1)
    moved = convert(lax.ne(pivots, lax.add(place, const(place, 1))), _I32)
    odd = lax.rem(lax.reduce_sum(moved, (moved.ndim - 1,)), _I32.type(2))
    return convert(lax.sub(_I32.type(1), lax.mul(odd, _I32.type(2))), dtype)


@row("_linalg_det")
def det(call: Call, a: Any) -> tuple[Any, Any, Any]:
    lu, pivots = _transposed_lu(a)
    d = diagonal(lu)
    product = lax.reduce_prod(d, (d.ndim - 1,))
    return lax.mul(product, _sign(pivots, a.dtype)), lu, pivots


@row("_linalg_slogdet")
def slogdet(call: Call, a: Any) -> tuple[Any, Any, Any, Any]:
    lu, pivots = _transposed_lu(a)
    d = diagonal(lu)
    sign = lax.reduce_prod(lax.sign(d), (d.ndim - 1,))
    size = lax.reduce_sum(lax.log(lax.abs(d)), (d.ndim - 1,))
    return lax.mul(sign, _sign(pivots, a.dtype)), size, lu, pivots


@row("_linalg_solve_ex")
def solve_ex(call: Call, a: Any, b: Any, left: bool, check: bool) -> tuple[Any, ...]:
    lu, pivots, permutation = _lu(a)
    vector = b.ndim == a.ndim - 1 and b.shape == a.shape[:-1]
    x = lax.expand_dims(b, (b.ndim,)) if vector else b
    x = _solve_side(lu, permutation, x, left or vector, False)
    return lax.reshape(x, call.out.shape), lu, pivots, _singular(lu)


def _solve_side(lu: Any, permutation: Any, b: Any, left: bool, adjoint: bool) -> Any:
    """A X = B, or X A = B as its adjoint; `adjoint`: the factors are those of A'."""
    if left:
        return _lu_solve(lu, permutation, b, adjoint)
    return adjoint_of(_lu_solve(lu, permutation, adjoint_of(b), not adjoint))


@row("linalg_lu_factor_ex")
def lu_factor_ex(call: Call, a: Any, pivot: bool, check: bool) -> tuple[Any, ...]:
    if not pivot:
        raise NotImplementedError("linalg.lu_factor without pivoting")
    lu, pivots, _ = _lu(a)
    return lu, pivots, _singular(lu)


@row("linalg_lu_solve")
def lu_solve(
    call: Call, lu: Any, pivots: Any, b: Any, left: bool, adjoint: bool
) -> Any:
    permutation = _permutation(pivots, lu.shape[-1])
    return _solve_side(lu, permutation, b, left, adjoint)


def _unpack(lu: Any, permutation: Any) -> tuple[Any, Any, Any]:
    m, n = lu.shape[-2:]
    k = min(m, n)
    low = jnp.tril(lu[..., :, :k], -1) + jnp.eye(m, k, dtype=lu.dtype)
    p = _permute(eye(lu, m), permutation, inverse=True)
    return p, low, jnp.triu(lu[..., :k, :])


@row("linalg_lu")
def lu(call: Call, a: Any, pivot: bool) -> tuple[Any, Any, Any]:
    if not pivot:
        raise NotImplementedError("linalg.lu without pivoting")
    factors, _, permutation = _lu(a)
    return _unpack(factors, permutation)


@row("lu_unpack")
def lu_unpack(
    call: Call, factors: Any, pivots: Any, data: bool, unpack_pivots: bool
) -> tuple[Any, ...]:
    parts = _unpack(factors, _permutation(pivots, factors.shape[-2]))
    wanted = (unpack_pivots, data, data)
    return tuple(
        part if want else empty(out)
        for part, want, out in zip(parts, wanted, call.outs)
    )
