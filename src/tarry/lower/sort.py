"""Sorting, selection by rank, and searching in sorted sequences.

NaN stands behind every number, as in PyTorch. Sorts are stable in both directions;
positions are int64. Where PyTorch leaves the position among equals open (`topk`,
`kthvalue`, `median`), the first one is taken.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from tarry.dtypes import to_numpy
from tarry.lower.doubt import no_elements, no_list
from tarry.lower.index import flat
from tarry.lower.reduce import fit
from tarry.lower.table import Call, compute_dtype, convert, row
from tarry.lower.xla import jax, jnp, lax

INT64 = np.dtype(np.int64)


def _full(x, value):
    return lax.full_like(x, value)


def _with_positions(x: Any, dim: int, descending: bool) -> tuple[Any, Any]:
    """Sorted values and where they came from. Descending is the ascending order of
    the reversed input, reversed: so equals stay in their order."""
    at = lax.broadcasted_iota(INT64, x.shape, dim)
    pair = (x, at)
    if descending:
        pair = tuple(lax.rev(v, (dim,)) for v in pair)
    pair = lax.sort(pair, dimension=dim, is_stable=True, num_keys=1)
    return tuple(lax.rev(v, (dim,)) for v in pair) if descending else tuple(pair)


@row("sort")
def sort(call: Call, x, dim: int, descending: bool):
    if x.ndim == 0:
        return x, lax.full((), 0, INT64)
    return _with_positions(x, dim % x.ndim, descending)


@row("sort.stable")
def sort_stable(call: Call, x, stable: bool | None, dim: int, descending: bool):
    return sort(call, x, dim, descending)


@row("topk")
def topk(call: Call, x, k: int, dim: int, largest: bool, sorted: bool):
    values, indices = call.outs
    if x.ndim == 0 or k == 0:
        return fit(x, values) if k else _nothing(values), _nothing(indices)
    dim %= x.ndim
    if x.dtype.kind == "b":
        pair = _with_positions(x, dim, largest)
    else:
        pair = _first(x, k, dim, largest)
    return tuple(lax.slice_in_dim(v, 0, k, axis=dim) for v in pair)


def _nothing(out: Any) -> Any:
    return lax.full(out.shape, 0, out.dtype)


def _first(x: Any, k: int, dim: int, largest: bool) -> tuple[Any, Any]:
    last = x.ndim - 1
    keys = jnp.moveaxis(x, dim, last)
    values, at = lax.top_k(_ordered(keys, largest), k)
    if not largest:
        values = _reverse(values)
    return tuple(jnp.moveaxis(v, last, dim) for v in (values, convert(at, INT64)))


def _reverse(x: Any) -> Any:
    """The order of values reversed, exactly: -x, or ~x for integers."""
    return lax.bitwise_not(x) if x.dtype.kind in "iu" else lax.neg(x)


def _ordered(x: Any, largest: bool) -> Any:
    """Keys whose greatest come first. `top_k` goes by IEEE total order, in which a
    NaN's sign bit says whether it stands above or below all numbers."""
    keys = x if largest else _reverse(x)
    if x.dtype.kind in "iu":
        return keys
    nan = np.copysign(np.nan, 1 if largest else -1)
    return lax.select(lax.ne(x, x), _full(x, nan), keys)


def _ranked(call: Call, x: Any, dim: int, rank: Callable[[Any, int], Any]):
    """The element whose rank along `dim` is `rank(sorted values, dim)`."""
    values, indices = call.outs
    if x.ndim == 0:
        return fit(x, values), _nothing(indices)
    dim %= x.ndim
    pair = _with_positions(x, dim, False)
    at = rank(pair[0], dim)
    picked = [jnp.take_along_axis(v, at, dim, mode="clip") for v in pair]
    return fit(picked[0], values), fit(picked[1], indices)


def _row_of(x: Any, dim: int, value: int) -> Any:
    shape = tuple(1 if d == dim else n for d, n in enumerate(x.shape))
    return lax.full(shape, value, INT64)


@row("kthvalue")
def kthvalue(call: Call, x, k: int, dim: int, keepdim: bool):
    return _ranked(call, x, dim, lambda v, d: _row_of(v, d, k - 1))


def _nan_count(x: Any, dim: int) -> Any:
    return jnp.sum(lax.ne(x, x), axis=dim, keepdims=True, dtype=INT64)


def _median(x: Any, dim: int) -> Any:
    """The lower middle; the first NaN where there is one."""
    nans, size = _nan_count(x, dim), x.shape[dim]
    first_nan = lax.sub(_full(nans, size), nans)
    has_nan = lax.gt(nans, _full(nans, 0))
    return lax.select(has_nan, first_nan, _full(nans, (size - 1) // 2))


def _nanmedian(x: Any, dim: int) -> Any:
    """The lower middle of what is no NaN."""
    nans = _nan_count(x, dim)
    last = lax.sub(_full(nans, x.shape[dim] - 1), nans)
    return lax.div(lax.max(last, _full(nans, 0)), _full(nans, 2))


@row("median.dim", doubts=no_elements)
def median_dim(call: Call, x, dim: int, keepdim: bool):
    return _ranked(call, x, dim, _median)


@row("nanmedian.dim", doubts=no_elements)
def nanmedian_dim(call: Call, x, dim: int, keepdim: bool):
    return _ranked(call, x, dim, _nanmedian)


def _middle(call: Call, x: Any, rank: Callable[[Any, int], Any]) -> Any:
    if not x.size:
        return lax.full((), np.nan, call.out.dtype)
    values = lax.sort(flat(x))
    at = rank(values, 0)
    return fit(jnp.take(values, at, mode="clip"), call.out)


@row("median")
def median(call: Call, x):
    return _middle(call, x, _median)


@row("nanmedian")
def nanmedian(call: Call, x):
    return _middle(call, x, _nanmedian)


@row("mode", doubts=no_elements)
def mode(call: Call, x, dim: int, keepdim: bool):
    """The most frequent value, the smallest of several; its last position."""
    values, indices = call.outs
    if x.ndim == 0:
        return fit(x, values), _nothing(indices)
    dim %= x.ndim
    ordered, at = _with_positions(x, dim, False)
    place = lax.broadcasted_iota(INT64, x.shape, dim)
    before = lax.slice_in_dim(ordered, 0, x.shape[dim] - 1, axis=dim)
    after = lax.slice_in_dim(ordered, 1, x.shape[dim], axis=dim)
    head = lax.full_like(lax.slice_in_dim(ordered, 0, 1, axis=dim), True, np.bool_)
    starts = lax.concatenate([head, lax.ne(before, after)], dim)
    start = lax.cummax(lax.select(starts, place, _full(place, 0)), axis=dim)
    best = lax.argmax(lax.sub(place, start), dim, INT64)
    best = lax.expand_dims(best, (dim,))
    picked = [jnp.take_along_axis(v, best, dim, mode="clip") for v in (ordered, at)]
    return fit(picked[0], values), fit(picked[1], indices)


def _search(call: Call, sequence: Any, values: Any, right: bool) -> Any:
    """Insertion points of `values` in `sequence`, batched over leading dimensions.

    The steps of PyTorch's own binary search, so that what is not sorted, or holds NaN,
    leads to the same place.
    """
    dtype = to_numpy(compute_dtype([sequence, values]))
    sequence, values = convert(sequence, dtype), convert(values, dtype)
    passes = lax.gt if right else lax.ge

    def find(row_: Any, wanted: Any) -> Any:
        def step(_: Any, span: tuple[Any, Any]) -> tuple[Any, Any]:
            low, high = span
            middle = low + (high - low) // 2
            after = lax.bitwise_not(passes(row_[middle], wanted))
            after = lax.bitwise_and(after, lax.lt(low, high))
            return (
                lax.select(after, middle + 1, low),
                lax.select(after, high, lax.min(middle, high)),
            )

        size = row_.shape[0]
        if size == 0:
            return lax.full(wanted.shape, 0, INT64)
        span = lax.full(wanted.shape, 0, INT64), lax.full(wanted.shape, size, INT64)
        return lax.fori_loop(0, size.bit_length(), step, span)[0]

    for _ in sequence.shape[:-1]:
        find = jax.vmap(find)
    return convert(find(sequence, values), call.out.dtype)


@row("searchsorted.Tensor", "searchsorted.Scalar")
def searchsorted(
    call: Call, sequence, x, out_int32: bool, right: bool, side: str | None, sorter
):
    if sorter is not None:
        sequence = jnp.take_along_axis(sequence, sorter, sequence.ndim - 1, mode="clip")
    right = side == "right" if side is not None else right
    return _search(call, sequence, x, right)


@row("bucketize.Tensor", "bucketize.Scalar", doubts=no_list)
def bucketize(call: Call, x, boundaries, out_int32: bool, right: bool):
    return _search(call, boundaries, x, right)
