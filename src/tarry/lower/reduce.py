"""Reductions over dimensions, norms, variances and running (cumulative) forms.

Halves accumulate in f32 and are rounded once. `dim` may be None, an int or a tuple;
None and the empty tuple mean all dimensions. Index results are int64: the first
position among equals, and the first NaN where there is one.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tarry.dtypes import from_numpy, opmath, to_numpy
from tarry.lower.arith import complex_logaddexp
from tarry.lower.compare import truth
from tarry.lower.doubt import no_elements
from tarry.lower.precision import quotient
from tarry.lower.table import Call, Out, broadcast, convert, row
from tarry.lower.xla import jnp, lax

INT64 = np.dtype(np.int64)
Dims = int | Sequence[int] | None


def axes_of(dim: Dims, ndim: int) -> tuple[int, ...]:
    """The non-negative axes `dim` names in a tensor of `ndim` dimensions."""
    if dim is None or dim == ():
        return tuple(range(ndim))
    dims = (dim,) if isinstance(dim, int) else dim
    return tuple(d % ndim for d in dims) if ndim else ()


def wide(dtype: np.dtype) -> np.dtype:
    """The dtype to accumulate values of `dtype` in."""
    return to_numpy(opmath(from_numpy(dtype)))


def fit(value: Any, out: Out) -> Any:
    """A reduced value in the dtype and shape (kept dimensions) of the result."""
    value = convert(value, out.dtype)
    return value if value.shape == out.shape else lax.reshape(value, out.shape)


def count(x: Any, axes: Sequence[int]) -> int:
    return math.prod(x.shape[a] for a in axes)


def total(x: Any, axes: Sequence[int]) -> Any:
    return (lax.reduce_or if x.dtype == np.bool_ else lax.reduce_sum)(x, axes)


def _full(x, value):
    return lax.full_like(x, value)


@row("sum")
def sum_all(call: Call, x, dtype=None):
    return sum_dim(call, x, None, False, dtype)


@row("sum.dim_IntList")
def sum_dim(call: Call, x, dim: Dims, keepdim: bool, dtype=None):
    x = convert(x, wide(call.out.dtype))
    return fit(total(x, axes_of(dim, x.ndim)), call.out)


@row("nansum")
def nansum(call: Call, x, dim: Dims, keepdim: bool, dtype=None):
    x = lax.select(lax.ne(x, x), _full(x, 0), x)
    return sum_dim(call, x, dim, keepdim, dtype)


@row("mean")
def mean_all(call: Call, x, dtype=None):
    return mean_dim(call, x, None, False, dtype)


@row("mean.dim")
def mean_dim(call: Call, x, dim: Dims, keepdim: bool, dtype=None):
    x = convert(x, wide(call.out.dtype))
    return fit(mean(x, axes_of(dim, x.ndim)), call.out)


def mean(x: Any, axes: Sequence[int]) -> Any:
    summed = total(x, axes)
    return quotient(summed, _full(summed, count(x, axes)))


@row("prod")
def prod_all(call: Call, x, dtype=None):
    return prod_dim(call, x, None, False, dtype)


@row("prod.dim_int")
def prod_dim(call: Call, x, dim: Dims, keepdim: bool, dtype=None):
    x = convert(x, wide(call.out.dtype))
    product = lax.reduce_and if x.dtype == np.bool_ else lax.reduce_prod
    return fit(product(x, axes_of(dim, x.ndim)), call.out)


@row("amax")
def amax(call: Call, x, dim: Dims, keepdim: bool):
    return fit(lax.reduce_max(x, axes_of(dim, x.ndim)), call.out)


@row("amin")
def amin(call: Call, x, dim: Dims, keepdim: bool):
    return fit(lax.reduce_min(x, axes_of(dim, x.ndim)), call.out)


@row("aminmax")
def aminmax(call: Call, x, dim: Dims, keepdim: bool):
    axes, (low, high) = axes_of(dim, x.ndim), call.outs
    return fit(lax.reduce_min(x, axes), low), fit(lax.reduce_max(x, axes), high)


@row("max", doubts=no_elements)
def max_all(call: Call, x):
    return amax(call, x, None, False)


@row("min", doubts=no_elements)
def min_all(call: Call, x):
    return amin(call, x, None, False)


def _select(call: Call, x, dim: int, best: Callable, where: Callable):
    values, indices = call.outs
    axes = axes_of(dim, x.ndim)
    if not axes:
        return fit(x, values), lax.full(indices.shape, 0, INT64)
    return fit(best(x, axes), values), fit(where(x, axes[0], INT64), indices)


@row("max.dim", doubts=no_elements)
def max_dim(call: Call, x, dim: int, keepdim: bool):
    return _select(call, x, dim, lax.reduce_max, lax.argmax)


@row("min.dim", doubts=no_elements)
def min_dim(call: Call, x, dim: int, keepdim: bool):
    return _select(call, x, dim, lax.reduce_min, lax.argmin)


def _position(call: Call, x, dim: int | None, where: Callable):
    if x.ndim == 0 or dim is None:
        x, dim = lax.reshape(x, (x.size,)), 0
    return fit(where(x, dim % x.ndim, INT64), call.out)


@row("argmax")
def argmax(call: Call, x, dim: int | None, keepdim: bool):
    return _position(call, x, dim, lax.argmax)


@row("argmin")
def argmin(call: Call, x, dim: int | None, keepdim: bool):
    return _position(call, x, dim, lax.argmin)


@row("all", "all.dim")
def all_(call: Call, x, dim: int | None = None, keepdim: bool = False):
    return fit(lax.reduce_and(truth(x), axes_of(dim, x.ndim)), call.out)


@row("any", "any.dim")
def any_(call: Call, x, dim: int | None = None, keepdim: bool = False):
    return fit(lax.reduce_or(truth(x), axes_of(dim, x.ndim)), call.out)


def _listed(dim: tuple[int, ...] | None, ndim: int) -> tuple[int, ...]:
    """`axes_of`, but an empty tuple is no dimension: so `all.dims` and `any.dims`."""
    return () if dim == () else axes_of(dim, ndim)


@row("all.dims")
def all_dims(call: Call, x, dim: tuple[int, ...] | None, keepdim: bool):
    return fit(lax.reduce_and(truth(x), _listed(dim, x.ndim)), call.out)


@row("any.dims")
def any_dims(call: Call, x, dim: tuple[int, ...] | None, keepdim: bool):
    return fit(lax.reduce_or(truth(x), _listed(dim, x.ndim)), call.out)


@row("count_nonzero", "count_nonzero.dim_IntList")
def count_nonzero(call: Call, x, dim: Dims):
    hits = convert(truth(x), INT64)
    return fit(total(hits, axes_of(dim, x.ndim)), call.out)


def moments(x: Any, dim: Dims, correction: float | None) -> tuple[Any, Any]:
    """Variance and mean in the accumulation dtype: mean first, then squares, of the
    distances to the first value, so that equal values have none."""
    x, axes = convert(x, wide(x.dtype)), axes_of(dim, x.ndim)
    center = mean(x, axes)
    if x.size:
        ends = [1 if d in axes else n for d, n in enumerate(x.shape)]
        x = lax.sub(x, broadcast(lax.slice(x, [0] * x.ndim, ends), x.shape))
    kept = [d for d in range(x.ndim) if d not in axes]
    apart = lax.sub(x, lax.broadcast_in_dim(mean(x, axes), x.shape, kept))
    squares = square(apart)
    free = max(0, count(x, axes) - (1 if correction is None else correction))
    summed = total(squares, axes)
    return quotient(summed, _full(summed, free)), center


def square(x: Any) -> Any:
    """|x|^2, real."""
    if x.dtype.kind == "c":
        return lax.add(lax.square(lax.real(x)), lax.square(lax.imag(x)))
    return lax.square(x)


@row("var.correction", static=("correction",))
def var(call: Call, x, dim: Dims, correction: float | None, keepdim: bool):
    return fit(moments(x, dim, correction)[0], call.out)


@row("std.correction", static=("correction",))
def std(call: Call, x, dim: Dims, correction: float | None, keepdim: bool):
    return fit(lax.sqrt(moments(x, dim, correction)[0]), call.out)


@row("var_mean.correction", static=("correction",))
def var_mean(call: Call, x, dim: Dims, correction: float | None, keepdim: bool):
    variance, center = moments(x, dim, correction)
    return fit(variance, call.outs[0]), fit(center, call.outs[1])


@row("std_mean.correction", static=("correction",))
def std_mean(call: Call, x, dim: Dims, correction: float | None, keepdim: bool):
    variance, center = moments(x, dim, correction)
    return fit(lax.sqrt(variance), call.outs[0]), fit(center, call.outs[1])


def norm(x: Any, p: float, axes: Sequence[int]) -> Any:
    """The vector p-norm of |x|."""
    if p == 2:
        return lax.sqrt(total(square(x), axes))
    size = lax.abs(x)
    if p == 0:
        return total(convert(truth(size), size.dtype), axes)
    if p == 1:
        return total(size, axes)
    if math.isinf(p):
        return (lax.reduce_max if p > 0 else lax.reduce_min)(size, axes)
    summed = total(lax.pow(size, _full(size, p)), axes)
    return lax.pow(summed, _full(summed, 1 / p))


def _norm(call: Call, x, p: float | None, dim: Dims, dtype):
    x = convert(x, wide(to_numpy(dtype) if dtype is not None else x.dtype))
    return fit(norm(x, 2 if p is None else p, axes_of(dim, x.ndim)), call.out)


@row("linalg_vector_norm", static=("ord",))
def vector_norm(call: Call, x, ord: float, dim: Dims, keepdim: bool, dtype=None):
    return _norm(call, x, ord, dim, dtype)


@row("norm.Scalar", "norm.ScalarOpt_dtype", static=("p",))
def norm_all(call: Call, x, p: float | None, dtype=None):
    return _norm(call, x, p, None, dtype)


@row("norm.ScalarOpt_dim", "norm.ScalarOpt_dim_dtype", static=("p",))
def norm_dim(call: Call, x, p: float | None, dim: Dims, keepdim: bool, dtype=None):
    return _norm(call, x, p, dim, dtype)


@row("logsumexp")
def logsumexp(call: Call, x, dim: Dims, keepdim: bool):
    x = convert(x, wide(call.out.dtype))
    axes = axes_of(dim, x.ndim)
    if count(x, axes) == 0:
        return lax.full(call.out.shape, -np.inf, call.out.dtype)
    peak = lax.reduce_max(lax.real(x) if x.dtype.kind == "c" else x, axes)
    peak = lax.select(lax.is_finite(peak), peak, _full(peak, 0))
    peak = convert(peak, x.dtype)
    kept = [d for d in range(x.ndim) if d not in axes]
    shifted = lax.sub(x, lax.broadcast_in_dim(peak, x.shape, kept))
    return fit(lax.add(lax.log(total(lax.exp(shifted), axes)), peak), call.out)


def _running(call: Call, x, dim: int, scan: Callable):
    x = convert(x, wide(call.out.dtype))
    return convert(scan(x, axis=dim % x.ndim) if x.ndim else x, call.out.dtype)


@row("cumsum")
def cumsum(call: Call, x, dim: int, dtype=None):
    return _running(call, x, dim, lax.cumsum)


@row("cumprod")
def cumprod(call: Call, x, dim: int, dtype=None):
    return _running(call, x, dim, lax.cumprod)


@row("logcumsumexp")
def logcumsumexp(call: Call, x, dim: int):
    if x.dtype.kind == "c" and x.ndim:
        # In order: which term is the larger decides the branch of the logarithm.
        lead = jnp.moveaxis(x, dim, 0)
        first = lax.full(lead.shape[1:], -np.inf, x.dtype)
        _, y = lax.scan(lambda a, b: (complex_logaddexp(a, b),) * 2, first, lead)
        return convert(jnp.moveaxis(y, 0, dim), call.out.dtype)
    return _running(call, x, dim, lax.cumlogsumexp)


@row("_logcumsumexp", outs=lambda x, dim: [Out(tuple(x.shape), x.dtype)])
def logcumsumexp_kernel(call: Call, x, dim: int):
    return logcumsumexp(call, x, dim)


def _running_best(x, dim: int, better: Callable):
    """Running best and the last position that reached it; NaN beats all."""
    if x.ndim == 0:
        return x, lax.full((), 0, INT64)

    def choose(left, right):
        (lv, li), (rv, ri) = left, right
        ahead = lax.bitwise_and(lax.eq(lv, lv), better(rv, lv))
        right_wins = lax.bitwise_or(lax.ne(rv, rv), ahead)
        return lax.select(right_wins, rv, lv), lax.select(right_wins, ri, li)

    at = lax.broadcasted_iota(INT64, x.shape, dim % x.ndim)
    return lax.associative_scan(choose, (x, at), axis=dim % x.ndim)


@row("cummax")
def cummax(call: Call, x, dim: int):
    return _running_best(x, dim, lax.ge)


@row("cummin")
def cummin(call: Call, x, dim: int):
    return _running_best(x, dim, lax.le)


@row("trace")
def trace(call: Call, x):
    return fit(total(convert(jnp.diagonal(x), wide(call.out.dtype)), (0,)), call.out)
