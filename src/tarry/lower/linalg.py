"""Matrix factorizations (Cholesky, QR, SVD, eigenvalues), triangular solvers and the
matrix exponential, by XLA's linear algebra (LAPACK on the CPU). Batch dimensions
lead."""

from typing import Any

import numpy as np

from tarry.lower.layout import column_major
from tarry.lower.precision import const, spread
from tarry.lower.table import Call, broadcast, convert, row
from tarry.lower.xla import jnp, lax

_I32 = np.dtype(np.int32)


def transpose(x: Any) -> Any:
    return lax.transpose(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def adjoint_of(x: Any) -> Any:
    return transpose(lax.conj(x) if x.dtype.kind == "c" else x)


def diagonal(x: Any) -> Any:
    n = min(x.shape[-2:])
    keep = lax.eq(*(lax.broadcasted_iota(_I32, x.shape[-2:], d) for d in (0, 1)))
    keep = lax.broadcast(keep, x.shape[:-2])
    d = lax.reduce_sum(lax.select(keep, x, lax.full_like(x, 0)), (x.ndim - 1,))
    return lax.slice_in_dim(d, 0, n, axis=d.ndim - 1)


def eye(like: Any, n: int) -> Any:
    return broadcast(jnp.eye(n, dtype=like.dtype), (*like.shape[:-2], n, n))


def empty(out: Any) -> Any:
    return lax.full(out.shape, 0, out.dtype)


def _triangle(x: Any, upper: bool) -> Any:
    return jnp.triu(x) if upper else jnp.tril(x)


def solve_triangular(
    a: Any, b: Any, *, lower: bool, left: bool = True, unit: bool = False, **how: bool
) -> Any:
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a = broadcast(a, (*batch, *a.shape[-2:]))
    b = broadcast(b, (*batch, *b.shape[-2:]))
    solve = lax.linalg.triangular_solve
    return solve(a, b, left_side=left, lower=lower, unit_diagonal=unit, **how)


@row("linalg_cholesky_ex")
def cholesky_ex(call: Call, a: Any, upper: bool, check: bool) -> tuple[Any, Any]:
    """`info` is 1 where the matrix is not positive definite (LAPACK's minor isn't
    told apart)."""
    a = adjoint_of(jnp.triu(a)) if upper else a
    c = lax.linalg.cholesky(jnp.tril(a), symmetrize_input=False)
    info = lax.reduce_or(lax.ne(c, c), (c.ndim - 2, c.ndim - 1))
    return adjoint_of(c) if upper else c, convert(info, _I32)


@row("cholesky")
def cholesky(call: Call, a: Any, upper: bool) -> Any:
    return cholesky_ex(call, a, upper, False)[0]


@row("cholesky_solve")
def cholesky_solve(call: Call, b: Any, c: Any, upper: bool) -> Any:
    c = adjoint_of(c) if upper else c
    y = solve_triangular(c, b, lower=True)
    conj = c.dtype.kind == "c"
    return solve_triangular(c, y, lower=True, transpose_a=True, conjugate_a=conj)


@row("cholesky_inverse")
def cholesky_inverse(call: Call, c: Any, upper: bool) -> Any:
    return cholesky_solve(call, eye(c, c.shape[-1]), c, upper)


@row("linalg_qr")
def qr(call: Call, a: Any, mode: str) -> tuple[Any, Any]:
    q, r = lax.linalg.qr(a, full_matrices=mode == "complete")
    return empty(call.outs[0]) if mode == "r" else q, r


@row("linalg_householder_product")
def householder_product(call: Call, a: Any, tau: Any) -> Any:
    return lax.linalg.householder_product(a, tau)


@row("_linalg_svd", strides=column_major(0, 2))
def svd(
    call: Call, a: Any, full_matrices: bool, compute_uv: bool, driver: str | None
) -> tuple[Any, Any, Any]:
    if not compute_uv:
        s = lax.linalg.svd(a, compute_uv=False)
        s = s[0] if isinstance(s, tuple | list) else s
        return empty(call.outs[0]), s, empty(call.outs[2])
    return tuple(lax.linalg.svd(a, full_matrices=full_matrices))


@row("_linalg_eigh")
def eigh(call: Call, a: Any, uplo: str, compute_v: bool) -> tuple[Any, Any]:
    upper = uplo.upper() == "U"
    v, w = lax.linalg.eigh(a, lower=not upper, symmetrize_input=False)
    return w, v if compute_v else empty(call.outs[1])


@row("linalg_eig", strides=column_major(1))
def eig(call: Call, a: Any) -> tuple[Any, Any]:
    w, v = lax.linalg.eig(a, compute_left_eigenvectors=False)
    return w, v


@row("_linalg_eigvals")
def eigvals(call: Call, a: Any) -> Any:
    how = {"compute_left_eigenvectors": False, "compute_right_eigenvectors": False}
    return lax.linalg.eig(a, **how)[0]


@row("linalg_solve_triangular")
def solve_triangular_row(
    call: Call, a: Any, b: Any, upper: bool, left: bool, unitriangular: bool
) -> Any:
    return solve_triangular(a, b, lower=not upper, left=left, unit=unitriangular)


@row("triangular_solve")
def triangular_solve(
    call: Call, b: Any, a: Any, upper: bool, transpose: bool, unitriangular: bool
) -> tuple[Any, Any]:
    how = {"lower": not upper, "unit": unitriangular, "transpose_a": transpose}
    return solve_triangular(a, b, **how), broadcast(a, call.outs[1].shape)


@row("linalg_matrix_exp")
def matrix_exp(call: Call, a: Any) -> Any:
    """Scaling and squaring of a Taylor series of degree 18, the norm scaled to 1."""
    norm = lax.reduce_sum(lax.abs(a), (a.ndim - 1,))
    norm = lax.reduce_max(norm, (norm.ndim - 1,))
    power = jnp.ceil(jnp.log2(jnp.maximum(norm, 1)))
    shrink = convert(jnp.exp2(-power), a.dtype)
    x = lax.mul(a, spread(shrink, a.shape, range(a.ndim - 2)))
    term = total = eye(a, a.shape[-1])
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
