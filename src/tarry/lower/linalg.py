"""Factorizations and solvers, by XLA's linear algebra (LAPACK on the CPU). Batch
dimensions lead; pivots are 1-based as in LAPACK and PyTorch.

`_linalg_det` and `_linalg_slogdet` keep the LU factors of the transpose of a real
matrix, as PyTorch's kernels do, and its gradients expect, for contiguous input.
"""

from typing import Any

import numpy as np

from tarry.lower.precision import const, spread
from tarry.lower.table import Call, broadcast, convert, row
from tarry.lower.xla import jnp, lax

_I32 = np.dtype(np.int32)


def _t(x: Any) -> Any:
    return lax.transpose(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def _h(x: Any) -> Any:
    return _t(lax.conj(x) if x.dtype.kind == "c" else x)


def _diagonal(x: Any) -> Any:
    n = min(x.shape[-2:])
    keep = lax.eq(*(lax.broadcasted_iota(_I32, x.shape[-2:], d) for d in (0, 1)))
    keep = lax.broadcast(keep, x.shape[:-2])
    d = lax.reduce_sum(lax.select(keep, x, lax.full_like(x, 0)), (x.ndim - 1,))
    return lax.slice_in_dim(d, 0, n, axis=d.ndim - 1)


def _eye(like: Any, n: int) -> Any:
    return broadcast(jnp.eye(n, dtype=like.dtype), (*like.shape[:-2], n, n))


def _empty(out: Any) -> Any:
    return lax.full(out.shape, 0, out.dtype)


def _triangle(x: Any, upper: bool) -> Any:
    return jnp.triu(x) if upper else jnp.tril(x)


def _solve_triangular(
    a: Any, b: Any, *, lower: bool, left: bool = True, unit: bool = False, **how: bool
) -> Any:
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a = broadcast(a, (*batch, *a.shape[-2:]))
    b = broadcast(b, (*batch, *b.shape[-2:]))
    solve = lax.linalg.triangular_solve
    return solve(a, b, left_side=left, lower=lower, unit_diagonal=unit, **how)


def _singular(lu: Any) -> Any:
    """1 + the place of the first zero on the diagonal, or 0."""
    zero = lax.eq(_diagonal(lu), const(lu, 0))
    n = zero.shape[-1]
    place = lax.broadcasted_iota(_I32, zero.shape, zero.ndim - 1)
    place = lax.select(zero, place, lax.full_like(place, n))
    first = lax.reduce_min(place, (place.ndim - 1,))
    return lax.select(
        lax.eq(first, const(first, n)), lax.full_like(first, 0), first + 1
    )


@row("linalg_cholesky_ex")
def cholesky_ex(call: Call, a: Any, upper: bool, check: bool) -> tuple[Any, Any]:
    """`info` is 1 where the matrix is not positive definite (LAPACK's minor isn't
    told apart)."""
    a = _h(jnp.triu(a)) if upper else a
    c = lax.linalg.cholesky(jnp.tril(a), symmetrize_input=False)
    info = lax.reduce_or(lax.ne(c, c), (c.ndim - 2, c.ndim - 1))
    return _h(c) if upper else c, convert(info, _I32)


@row("cholesky")
def cholesky(call: Call, a: Any, upper: bool) -> Any:
    return cholesky_ex(call, a, upper, False)[0]


@row("cholesky_solve")
def cholesky_solve(call: Call, b: Any, c: Any, upper: bool) -> Any:
    c = _h(c) if upper else c
    y = _solve_triangular(c, b, lower=True)
    conj = c.dtype.kind == "c"
    return _solve_triangular(c, y, lower=True, transpose_a=True, conjugate_a=conj)


@row("cholesky_inverse")
def cholesky_inverse(call: Call, c: Any, upper: bool) -> Any:
    return cholesky_solve(call, _eye(c, c.shape[-1]), c, upper)


@row("linalg_qr")
def qr(call: Call, a: Any, mode: str) -> tuple[Any, Any]:
    q, r = lax.linalg.qr(a, full_matrices=mode == "complete")
    return _empty(call.outs[0]) if mode == "r" else q, r


@row("linalg_householder_product")
def householder_product(call: Call, a: Any, tau: Any) -> Any:
    return lax.linalg.householder_product(a, tau)


@row("_linalg_svd")
def svd(
    call: Call, a: Any, full_matrices: bool, compute_uv: bool, driver: str | None
) -> tuple[Any, Any, Any]:
    if not compute_uv:
        s = lax.linalg.svd(a, compute_uv=False)
        s = s[0] if isinstance(s, tuple | list) else s
        return _empty(call.outs[0]), s, _empty(call.outs[2])
    return tuple(lax.linalg.svd(a, full_matrices=full_matrices))


@row("_linalg_eigh")
def eigh(call: Call, a: Any, uplo: str, compute_v: bool) -> tuple[Any, Any]:
    upper = uplo.upper() == "U"
    v, w = lax.linalg.eigh(a, lower=not upper, symmetrize_input=False)
    return w, v if compute_v else _empty(call.outs[1])


@row("linalg_eig")
def eig(call: Call, a: Any) -> tuple[Any, Any]:
    w, v = lax.linalg.eig(a, compute_left_eigenvectors=False)
    return w, v


@row("_linalg_eigvals")
def eigvals(call: Call, a: Any) -> Any:
    how = {"compute_left_eigenvectors": False, "compute_right_eigenvectors": False}
    return lax.linalg.eig(a, **how)[0]


def _lu(a: Any) -> tuple[Any, Any, Any]:
    """(LU, 1-based pivots, permutation)."""
    lu, pivots, permutation = lax.linalg.lu(a)
    return lu, lax.add(pivots, const(pivots, 1)), permutation


def _transposed_lu(a: Any) -> tuple[Any, Any]:
    """What the determinants keep: the LU of the transpose of a real matrix."""
    return _lu(a if a.dtype.kind == "c" else _t(a))[:2]


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
        b = _solve_triangular(lu, b, lower=True, unit=True)
        return _solve_triangular(lu, b, lower=False)
    how = {"transpose_a": True, "conjugate_a": lu.dtype.kind == "c"}
    b = _solve_triangular(lu, b, lower=False, **how)
    b = _solve_triangular(lu, b, lower=True, unit=True, **how)
    return _permute(b, permutation, inverse=True)


def _permutation(pivots: Any, n: int) -> Any:
    zero_based = lax.sub(pivots, const(pivots, 1))
    return lax.linalg.lu_pivots_to_permutation(zero_based, n)


@row("linalg_inv_ex")
def inv_ex(call: Call, a: Any, check: bool) -> tuple[Any, Any]:
    lu, _, permutation = _lu(a)
    return _lu_solve(lu, permutation, _eye(a, a.shape[-1]), False), _singular(lu)


def _sign(pivots: Any, dtype: np.dtype) -> Any:
    """The sign of the permutation the pivots stand for."""
    place = lax.broadcasted_iota(_I32, pivots.shape, pivots.ndim - 1)
    moved = convert(lax.ne(pivots, lax.add(place, const(place, 1))), _I32)
    odd = lax.rem(lax.reduce_sum(moved, (moved.ndim - 1,)), _I32.type(2))
    return convert(lax.sub(_I32.type(1), lax.mul(odd, _I32.type(2))), dtype)


@row("_linalg_det")
def det(call: Call, a: Any) -> tuple[Any, Any, Any]:
    lu, pivots = _transposed_lu(a)
    d = _diagonal(lu)
    product = lax.reduce_prod(d, (d.ndim - 1,))
    return lax.mul(product, _sign(pivots, a.dtype)), lu, pivots


@row("_linalg_slogdet")
def slogdet(call: Call, a: Any) -> tuple[Any, Any, Any, Any]:
    lu, pivots = _transposed_lu(a)
    d = _diagonal(lu)
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
    return _h(_lu_solve(lu, permutation, _h(b), not adjoint))


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
    p = _permute(_eye(lu, m), permutation, inverse=True)
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
        part if want else _empty(out)
        for part, want, out in zip(parts, wanted, call.outs)
    )


@row("linalg_solve_triangular")
def solve_triangular(
    call: Call, a: Any, b: Any, upper: bool, left: bool, unitriangular: bool
) -> Any:
    return _solve_triangular(a, b, lower=not upper, left=left, unit=unitriangular)


@row("triangular_solve")
def triangular_solve(
    call: Call, b: Any, a: Any, upper: bool, transpose: bool, unitriangular: bool
) -> tuple[Any, Any]:
    how = {"lower": not upper, "unit": unitriangular, "transpose_a": transpose}
    return _solve_triangular(a, b, **how), broadcast(a, call.outs[1].shape)


@row("linalg_matrix_exp")
def matrix_exp(call: Call, a: Any) -> Any:
    """Scaling and squaring of a Taylor series of degree 18, the norm scaled to 1."""
    norm = lax.reduce_sum(lax.abs(a), (a.ndim - 1,))
    norm = lax.reduce_max(norm, (norm.ndim - 1,))
    power = jnp.ceil(jnp.log2(jnp.maximum(norm, 1)))
    shrink = convert(jnp.exp2(-power), a.dtype)
    x = lax.mul(a, spread(shrink, a.shape, range(a.ndim - 2)))
    term = total = _eye(a, a.shape[-1])
    for k in range(1, 19):
        term = lax.div(jnp.matmul(term, x), const(x, k))
        total = lax.add(total, term)
    times = jnp.asarray(jnp.max(power, initial=0), _I32)

    def square(i: Any, y: Any) -> Any:
        more = spread(
            lax.gt(power, convert(i, power.dtype)), y.shape, range(y.ndim - 2)
        )
        return lax.select(more, jnp.matmul(y, y), y)

    return lax.fori_loop(_I32.type(0), times, square, total)


@row("linalg_cross")
def cross(call: Call, a: Any, b: Any, dim: int) -> Any:
    a, b = (broadcast(convert(x, call.out.dtype), call.out.shape) for x in (a, b))
    dim %= a.ndim

    def turned(x: Any, by: int) -> Any:
        head = lax.slice_in_dim(x, by, 3, axis=dim)
        return lax.concatenate([head, lax.slice_in_dim(x, 0, by, axis=dim)], dim)

    left = lax.mul(turned(a, 1), turned(b, 2))
    return lax.sub(left, lax.mul(turned(a, 2), turned(b, 1)))
