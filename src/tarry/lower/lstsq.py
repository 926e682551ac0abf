"""Least squares, and products with the orthogonal matrix of a QR factorization.

A matrix of full rank (`gels`) is solved by QR, any other by its singular values, of
which those under `rcond` times the largest count as zero, whatever driver is named.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tarry.lower.layout import column_major
from tarry.lower.linalg import adjoint_of, empty, solve_triangular
from tarry.lower.precision import const, spread
from tarry.lower.table import Call, Out, broadcast, convert, row
from tarry.lower.xla import jnp, lax


def _is_vector(a: Any, b: Any) -> bool:
    return b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1])


def _fits(a: Any, b: Any, driver: str | None) -> bool:
    """Whether the operands are ones that PyTorch takes."""
    if a.ndim < 2 or b.ndim < 1 or a.dtype != b.dtype or a.ndim - b.ndim not in (0, 1):
        return False
    rows = b.shape[-1] if _is_vector(a, b) else b.shape[-2]
    known = driver in (None, "gels", "gelsy", "gelsd", "gelss")
    return known and rows == a.shape[-2]


def _lstsq_outs(a: Any, b: Any, rcond: Any, driver: str | None) -> list[Out]:
    """Without a row for what PyTorch refuses. Where the shape of the residuals depends
    on the rank found (`gelsd` and `gelss` on tall matrices), the kernel adds them."""
    if not _fits(a, b, driver):
        raise NotImplementedError("operands of linalg.lstsq that do not fit")
    (m, n), vector = a.shape[-2:], _is_vector(a, b)
    by_values = driver in ("gelsd", "gelss")
    right = b.shape[:-1] if vector else b.shape[:-2]
    batch = tuple(torch.broadcast_shapes(a.shape[:-2], right))
    columns = () if vector else (b.shape[-1],)
    real = a.real.dtype if a.is_complex() else a.dtype
    left_over = (*batch, *(columns or (1,))) if driver == "gels" and m > n else (0,)
    values = (*batch, min(m, n)) if by_values and m else (0,)
    return [
        Out((*batch, n, *columns), a.dtype),
        Out(left_over, real),
        Out((0,) if driver == "gels" else batch, torch.int64),
        Out(values, real),
    ]


def _lstsq_strides(metas: Sequence[Any], a: Any, b: Any, *_: Any) -> list[Any]:
    """LAPACK leaves the solution where the right-hand sides were, in its order."""
    return [None if _is_vector(a, b) else column_major(0)(metas)[0], None, None, None]


@row("linalg_lstsq", outs=_lstsq_outs, strides=_lstsq_strides)
def lstsq(
    call: Call, a: Any, b: Any, rcond: float | None, driver: str | None
) -> tuple[Any, Any, Any, Any]:
    x, residuals, rank, values = call.outs
    if _is_vector(a, b):
        b = lax.expand_dims(b, (b.ndim,))
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = (broadcast(v, (*batch, *v.shape[-2:])) for v in (a, b))
    if not a.size:
        return tuple(map(empty, call.outs))
    if driver == "gels":
        solution = _of_full_rank(a, b)
        rest = empty(residuals)
        if rest.size:
            rest = lax.square(lax.abs(jnp.matmul(a, solution) - b)).sum(-2)
        return lax.reshape(solution, x.shape), rest, empty(rank), empty(values)
    solution, found, s = _by_values(a, b, rcond)
    s = s if math.prod(values.shape) else empty(values)
    return (
        lax.reshape(solution, x.shape),
        empty(residuals),
        convert(found, rank.dtype),
        s,
    )


def _of_full_rank(a: Any, b: Any) -> Any:
    """R x = Q' b, or x = Q R'^-1 b, the smallest of many, for a wide matrix."""
    if a.shape[-2] >= a.shape[-1]:
        q, r = lax.linalg.qr(a, full_matrices=False)
        return solve_triangular(r, jnp.matmul(adjoint_of(q), b), lower=False)
    q, r = lax.linalg.qr(adjoint_of(a), full_matrices=False)
    how = {"transpose_a": True, "conjugate_a": a.dtype.kind == "c"}
    return jnp.matmul(q, solve_triangular(r, b, lower=False, **how))


def _by_values(a: Any, b: Any, rcond: float | None) -> tuple[Any, Any, Any]:
    """(the smallest solution, the rank, the singular values)."""
    u, s, vh = lax.linalg.svd(a, full_matrices=False)
    if rcond is None:
        rcond = float(jnp.finfo(s.dtype).eps) * max(a.shape[-2:])
    limit = lax.mul(s[..., :1], const(s, rcond))
    kept = lax.gt(s, broadcast(limit, s.shape))
    inverse = lax.select(kept, 1 / s, lax.full_like(s, 0))
    y = jnp.matmul(adjoint_of(u), b)
    y = lax.mul(y, spread(convert(inverse, y.dtype), y.shape, range(y.ndim - 1)))
    return jnp.matmul(adjoint_of(vh), y), kept.sum(-1), s


def _geqrf_outs(a: Any) -> list[Out]:
    if a.ndim < 2 or not (a.is_floating_point() or a.is_complex()):
        raise NotImplementedError("geqrf of what is no matrix")
    shape = tuple(a.shape)
    return [Out(shape, a.dtype), Out((*shape[:-2], min(shape[-2:])), a.dtype)]


@row("geqrf", outs=_geqrf_outs, strides=column_major(0))
def geqrf(call: Call, a: Any) -> tuple[Any, Any]:
    if not a.size:
        return tuple(map(empty, call.outs))
    reflectors, tau = jnp.linalg.qr(a, mode="raw")
    return jnp.matrix_transpose(reflectors), tau


@row("ormqr")
def ormqr(call: Call, a: Any, tau: Any, c: Any, left: bool, transpose: bool) -> Any:
    if not a.size or not c.size:
        return c
    a = a[..., : tau.shape[-1]]
    return lax.linalg.ormqr(a, tau, c, left=left, transpose=transpose)
