"""Writing by index tensors: scatter, index_put, index_add, embedding's gradient.

An index out of range, on which PyTorch raises, writes nothing. Where indices repeat
and nothing accumulates, the last write wins on the CPU (PyTorch leaves it undefined).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tarry.lower.doubt import no_mask, unfit_count, unfit_source, unfit_values
from tarry.lower.index import (
    at_least_1d,
    column,
    flat,
    mode,
    place,
    place_one,
    wrap,
)
from tarry.lower.precision import quotient, widen
from tarry.lower.reduce import wide
from tarry.lower.table import Call, Scalar, broadcast, convert, narrow, row
from tarry.lower.xla import jnp, lax

INT64 = np.dtype(np.int64)
Put = Callable[[Any, Any, Any], Any]


def _full(x, value):
    return lax.full_like(x, value)


def _along(dim: int, index: Any) -> Put:
    """Writer of single elements: `x[..., index[...], ...] = updates[...]` at `dim`."""
    others = tuple(d for d in range(index.ndim) if d != dim)
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=(),
        inserted_window_dims=(dim,),
        scatter_dims_to_operand_dims=(dim,),
        operand_batching_dims=others,
        scatter_indices_batching_dims=others,
    )

    def put(scatter: Any, x: Any, updates: Any) -> Any:
        zeros = [0] * x.ndim
        limits = [n if d == dim else index.shape[d] for d, n in enumerate(x.shape)]
        part = lax.slice(x, zeros, limits)
        part = scatter(part, column(index), updates, numbers, mode=mode())
        if part.shape == x.shape:
            return part
        return lax.dynamic_update_slice(x, part, zeros)

    return put


def _scatter(call: Call, x, dim: int, index, src, write: Callable[..., Any]):
    """`write(put, x, src)` with `src` cut to the index's shape, or filled with it."""
    if not index.size or not x.size:
        return x
    if isinstance(src, Scalar):
        src = lax.broadcast(src.to(x.dtype), index.shape)
    x, index, src = at_least_1d(x, index, src)
    src = lax.slice(src, [0] * src.ndim, index.shape)
    return lax.reshape(write(_along(dim % x.ndim, index), x, src), call.out.shape)


def _set(put: Put, x, src):
    return put(lax.scatter, x, src)


def _accumulate(how: str, dtype: np.dtype) -> Any:
    """lax's scatter for a reduction; for bool, addition is or, and product is and."""
    if dtype == np.bool_:
        return lax.scatter_min if how in ("prod", "amin") else lax.scatter_max
    return {
        "sum": lax.scatter_add,
        "mean": lax.scatter_add,
        "prod": lax.scatter_mul,
        "amax": lax.scatter_max,
        "amin": lax.scatter_min,
    }[how]


def _add(put: Put, x, src):
    return put(_accumulate("sum", x.dtype), x, src)


@row("scatter.src", "scatter.value")
def scatter(call: Call, x, dim: int, index, src):
    return _scatter(call, x, dim, index, src, _set)


@row("scatter_add")
def scatter_add(call: Call, x, dim: int, index, src):
    return _scatter(call, x, dim, index, src, _add)


@row("scatter.reduce", "scatter.value_reduce")
def scatter_arithmetic(call: Call, x, dim: int, index, src, reduce: str):
    def write(put: Put, x, src):
        how = "sum" if reduce == "add" else "prod"
        return put(_accumulate(how, x.dtype), x, src)

    return _scatter(call, x, dim, index, src, write)


@row("scatter_reduce.two")
def scatter_reduce(
    call: Call, x, dim: int, index, src, reduce: str, include_self: bool
):
    def write(put: Put, x, src):
        return _reduce(put, x, src, reduce, include_self)

    return _scatter(call, x, dim, index, src, write)


def _reduce(put: Put, x, src, how: str, include_self: bool):
    out = x.dtype
    if how == "mean":
        x, src = (convert(v, wide(out)) for v in (x, src))
    if not include_self:
        x = put(lax.scatter, x, _full(src, _identity(how, x.dtype)))
    result = put(_accumulate(how, x.dtype), x, src)
    if how == "mean":
        hits = put(lax.scatter_add, _full(x, int(include_self)), _full(src, 1))
        result = _divide(result, lax.max(hits, _full(hits, 1)))
    return convert(result, out)


def _divide(x, count):
    return jnp.floor_divide(x, count) if x.dtype.kind in "iu" else quotient(x, count)


def _identity(how: str, dtype: np.dtype) -> Any:
    if how in ("sum", "mean", "prod"):
        return 1 if how == "prod" else 0
    if dtype == np.bool_:
        return how == "amin"
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return limits.min if how == "amax" else limits.max
    return -np.inf if how == "amax" else np.inf


def _slices(x, dim: int, index, source) -> tuple[Any, Put, Any]:
    """x at least 1-d, a writer of whole slices of it along `dim`, and the slices."""
    x, index = at_least_1d(x, index)
    spot = place_one(x.shape, dim % x.ndim, index)
    return x, spot.write, lax.reshape(source, spot.shape)


@row("index_add", doubts=unfit_source)
def index_add(call: Call, x, dim: int, index, source, alpha: Scalar | None):
    if alpha is not None:
        source = _times(source, broadcast(alpha.to(source.dtype), source.shape))
    if not x.size or not index.size:
        return x
    x, put, source = _slices(x, dim, index, source)
    return lax.reshape(_add(put, x, source), call.out.shape)


def _times(x, y):
    return lax.bitwise_and(x, y) if x.dtype == np.bool_ else lax.mul(x, y)


@row("index_copy", doubts=unfit_source)
def index_copy(call: Call, x, dim: int, index, source):
    if not x.size or not index.size:
        return x
    x, put, source = _slices(x, dim, index, source)
    return lax.reshape(put(lax.scatter, x, source), call.out.shape)


@row("index_reduce")
def index_reduce(
    call: Call, x, dim: int, index, source, reduce: str, include_self: bool
):
    if not x.size or not index.size:
        return x
    x, put, source = _slices(x, dim, index, source)
    return lax.reshape(_reduce(put, x, source, reduce, include_self), call.out.shape)


@row("index_fill.int_Scalar", "index_fill.int_Tensor")
def index_fill(call: Call, x, dim: int, index, value):
    if not x.size or not index.size:
        return x
    whole, index = at_least_1d(x, index)
    dim %= whole.ndim
    spot = place_one(whole.shape, dim, wrap(index, whole.shape[dim]))
    updates = lax.broadcast(convert(value, x.dtype), spot.shape)
    return lax.reshape(spot.write(lax.scatter, whole, updates), x.shape)


@row("index_put", "_unsafe_index_put", "_index_put_impl", doubts=unfit_values)
def index_put(
    call: Call,
    x,
    indices: Sequence[Any],
    values,
    accumulate: bool,
    unsafe: bool = False,
):
    if not x.size or any(i is not None and not i.size for i in indices):
        return x
    one = _one_index(x, indices)
    if one is not None and not accumulate:
        return _put_one(x, *one, convert(values, x.dtype))
    spot = place(x.shape, indices)
    values = broadcast(convert(values, x.dtype), spot.shape)
    return (_add if accumulate else _set)(spot.write, x, values)


def _one_index(x: Any, indices: Sequence[Any]) -> tuple[int, Any] | None:
    """(dimension, index) where a single index of one element is all there is."""
    given = [(d, i) for d, i in enumerate(indices) if i is not None]
    if len(given) != 1 or given[0][1].size != 1 or given[0][1].ndim > 1:
        return None
    return given[0]


def _put_one(x: Any, dim: int, index: Any, values: Any) -> Any:
    """One slice of `x` replaced in place (the static cache of a decoder); an index out
    of range leaves `x` as it is."""
    kept = (1,) * index.ndim
    spread = (*x.shape[:dim], *kept, *x.shape[dim + 1 :])
    window = (*x.shape[:dim], 1, *x.shape[dim + 1 :])
    values = lax.reshape(broadcast(values, spread), window)
    at = wrap(lax.reshape(convert(index, INT64), ()), x.shape[dim])
    zero = lax.full_like(at, 0)
    starts = [at if d == dim else zero for d in range(x.ndim)]
    old = lax.dynamic_slice(x, starts, window)
    inside = lax.lt(at, lax.full_like(at, x.shape[dim]))
    inside = lax.bitwise_and(inside, lax.ge(at, zero))
    new = lax.select(lax.broadcast(inside, window), values, old)
    return lax.dynamic_update_slice(x, new, starts)


@row("put", doubts=unfit_count)
def put(call: Call, x, index, source, accumulate: bool):
    if not x.size or not index.size:
        return x
    spot = place_one((x.size,), 0, wrap(flat(index), x.size))
    written = (_add if accumulate else _set)(spot.write, flat(x), flat(source))
    return lax.reshape(written, x.shape)


def _rank(mask: Any) -> Any:
    """For each element of a flat mask, how many True stand before it."""
    ones = convert(mask, INT64)
    return lax.sub(lax.cumsum(ones), ones)


@row("masked_scatter", doubts=no_mask)
def masked_scatter(call: Call, x, mask, source):
    shape = call.out.shape
    x, mask = broadcast(x, shape), broadcast(mask, shape)
    if not x.size or not source.size:
        return x
    taken = place_one((source.size,), 0, _rank(flat(mask))).read(flat(source))
    return lax.select(mask, lax.reshape(taken, shape), x)


@row("masked_scatter_backward")
def masked_scatter_backward(call: Call, grad, mask, sizes: Sequence[int]):
    """The gradients under the mask, in order, in front of zeros."""
    target = flat(lax.full(call.out.shape, 0, call.out.dtype))
    mask = flat(broadcast(mask, grad.shape))
    if not target.size or not mask.size:
        return lax.reshape(target, call.out.shape)
    spot = lax.select(mask, _rank(mask), lax.full(mask.shape, target.size, INT64))
    written = place_one(target.shape, 0, spot).write(lax.scatter, target, flat(grad))
    return lax.reshape(written, call.out.shape)


@row("embedding_dense_backward")
def embedding_dense_backward(
    call: Call, grad, indices, num_weights: int, padding_idx: int, by_freq: bool
):
    """Rows of `grad` added up by index; the padding index is sent out of range."""
    dtype = wide(call.out.dtype)
    table = lax.full(call.out.shape, 0, dtype)
    rows = flat(indices)
    if not rows.size or not table.size:
        return convert(table, call.out.dtype)
    if padding_idx >= 0:
        padding = lax.eq(rows, _full(rows, padding_idx))
        rows = lax.select(padding, _full(rows, num_weights), rows)
    updates = lax.reshape(convert(grad, dtype), (rows.size, table.shape[1]))
    spot = place_one(table.shape, 0, rows)
    if by_freq:
        counts = convert(_frequency(rows, num_weights), dtype)
        updates = quotient(updates, broadcast(counts, spot.shape))
    return convert(spot.write(lax.scatter_add, table, updates), call.out.dtype)


def _frequency(rows: Any, num_weights: int) -> Any:
    """How often each row's index occurs, as a column."""
    ones = lax.full(rows.shape, 1, INT64)
    spot = place_one((num_weights,), 0, rows)
    counts = lax.full((num_weights,), 0, INT64)
    return column(spot.read(spot.write(lax.scatter_add, counts, ones)))


@row("histc")
def histc(call: Call, x, bins: int, low: Scalar, high: Scalar):
    """Counts of equal bins from low to high (included); if low = high, those of x."""
    if not x.size:
        return lax.full(call.out.shape, 0, call.out.dtype)
    x = flat(x)
    low_, high_ = low.to(x.dtype), high.to(x.dtype)
    given = lax.ne(low_, high_)
    low_ = lax.select(given, low_, lax.reduce_min(x, (0,)))
    high_ = lax.select(given, high_, lax.reduce_max(x, (0,)))
    flat_range = convert(lax.eq(low_, high_), x.dtype)
    first, last = lax.sub(low_, flat_range), lax.add(high_, flat_range)
    start, end = (broadcast(v, x.shape) for v in (first, last))
    # In the CPU's order, each step in the dtype of x: the bin of an edge depends on it.
    parts = x, start, end, _full(x, bins)
    at, left, right, many = (widen(v) for v in parts)
    above = narrow(lax.sub(at, left), x.dtype)
    scaled = narrow(lax.mul(above, many), x.dtype)
    width = narrow(lax.sub(right, left), x.dtype)
    spot = convert(narrow(quotient(scaled, width), x.dtype), INT64)
    spot = lax.min(spot, _full(spot, bins - 1))
    inside = lax.bitwise_and(lax.ge(x, start), lax.le(x, end))
    spot = lax.select(inside, spot, _full(spot, bins))
    counts = lax.full((bins,), 0, x.dtype)
    return place_one((bins,), 0, spot).write(lax.scatter_add, counts, _full(x, 1))
