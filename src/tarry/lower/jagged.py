"""Rows of different lengths, one after the other, and the padded dense tensor of them:
what `torch.nested` tensors of layout `torch.jagged` are made of."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tarry.lower.table import Call, Out, broadcast, convert, row
from tarry.lower.xla import jnp, lax

_I64 = np.dtype(np.int64)


def _single(offsets: Sequence[Any]) -> Any:
    if len(offsets) != 1:
        raise NotImplementedError("more than one ragged dimension")
    return offsets[0]


def _padded_outs(
    values: Any, offsets: Sequence[Any], longest: Sequence[int], *rest: Any
) -> list[Out]:
    rows = _single(offsets).shape[0] - 1
    return [Out((rows, longest[0], *values.shape[1:]), values.dtype)]


@row("_jagged_to_padded_dense_forward", scalars=("padding_value",), outs=_padded_outs)
def to_padded(
    call: Call, values: Any, offsets: Sequence[Any], longest: Sequence[int], fill: Any
) -> Any:
    starts = convert(_single(offsets), _I64)
    out = call.out
    shape = out.shape[:2]
    column = lax.broadcasted_iota(_I64, shape, 1)
    first, end = (
        lax.broadcast_in_dim(v, shape, (0,)) for v in (starts[:-1], starts[1:])
    )
    place = first + column
    inside = lax.broadcast_in_dim(lax.lt(place, end), out.shape, (0, 1))
    fill = broadcast(convert(fill, out.dtype), out.shape)
    if not values.size:
        return fill
    return lax.select(inside, jnp.take(values, place, 0, mode="clip"), fill)


def _ragged_outs(dense: Any, offsets: Sequence[Any], total: int | None) -> list[Out]:
    _single(offsets)
    if total is None:
        raise NotImplementedError("a number of values that only the offsets know")
    return [Out((total, *dense.shape[2:]), dense.dtype)]


@row("_padded_dense_to_jagged_forward", outs=_ragged_outs)
def to_ragged(call: Call, dense: Any, offsets: Sequence[Any], total: int | None) -> Any:
    starts = convert(_single(offsets), _I64)
    if not call.out.shape[0] or not dense.size:
        return lax.full(call.out.shape, 0, call.out.dtype)
    at = lax.iota(_I64, call.out.shape[0])
    line = jnp.searchsorted(starts, at, side="right") - 1
    line = lax.clamp(_I64.type(0), convert(line, _I64), _I64.type(dense.shape[0] - 1))
    column = at - jnp.take(starts, line, mode="clip")
    column = lax.clamp(_I64.type(0), column, _I64.type(dense.shape[1] - 1))
    return dense[line, column]
