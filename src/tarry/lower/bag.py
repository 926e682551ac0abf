"""Embedding bags: rows of a weight, reduced over bags that follow one another in a flat
list of indices (`offsets` says where each begins). Modes are PyTorch's: 0 sum, 1 mean,
2 max. The bookkeeping results have the shapes that PyTorch's CPU kernel gives them."""

from typing import Any

import numpy as np
import torch

from tarry.lower.activation import zero_unless
from tarry.lower.index import place_one
from tarry.lower.precision import const, quotient, shift, spread, widen
from tarry.lower.table import Call, Out, convert, row
from tarry.lower.xla import jnp, lax

_SUM, _MEAN, _MAX = 0, 1, 2
_QUICK = (torch.float32, torch.float16, torch.bfloat16)


def _meta(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(
        value.shape, value.stride(), dtype=value.dtype, device="meta"
    )


def _bag_outs(for_gradient: bool) -> Any:
    def outs(weight: Any, indices: Any, offsets: Any, *rest: Any) -> list[Out]:
        """The meta kernel checks the arguments; it gives shapes of the GPU kernel."""
        _, mode, _, factors, _, padding = rest
        meta = [_meta(v) for v in (weight, indices, offsets, *rest)]
        y, places, *_ = torch.ops.aten._embedding_bag(*meta)
        bags = y.shape[0]
        quick = weight.dtype in _QUICK and weight.stride(1) == 1 and padding < 0
        quick = quick and (factors is None or factors.stride(0) == 1)
        listed = 0 if mode == _SUM and quick else indices.shape[0]
        sizes = offsets.shape[0] if mode == _SUM and not for_gradient else bags
        best = (bags, weight.shape[1]) if mode == _MAX else (sizes,)
        kind = places.dtype
        return [
            Out(tuple(y.shape), y.dtype),
            Out((listed,), kind),
            Out((sizes,), kind),
            Out(best, kind),
        ]

    return outs


def _bag_of(indices: Any, offsets: Any) -> Any:
    """The bag of every index."""
    place = lax.iota(offsets.dtype, indices.shape[0])
    return jnp.searchsorted(offsets, place, side="right").astype(offsets.dtype) - 1


def _bag_sum(rows: Any, bag: Any, bags: int) -> Any:
    total = lax.full((bags, *rows.shape[1:]), 0, rows.dtype)
    return total.at[bag].add(rows, mode="drop")


def _each(v: Any, like: Any) -> Any:
    """One value a row."""
    return spread(v, like.shape, (0,))


def _rows(weight: Any, indices: Any) -> Any:
    return place_one(weight.shape, 0, indices).read(weight)


def _largest(
    rows: Any, bag: Any, keep: Any, size: Any, indices: Any
) -> tuple[Any, Any]:
    """The largest of each bag and column, and the index it came from (the first)."""
    low = lax.full_like(rows, -np.inf)
    rows = lax.select(_each(keep, rows), rows, low)
    best = lax.full((*size.shape, rows.shape[1]), -np.inf, rows.dtype)
    best = best.at[bag].max(rows, mode="drop")
    n = indices.shape[0]
    place = lax.broadcasted_iota(bag.dtype, rows.shape, 0)
    found = lax.bitwise_and(_each(keep, rows), rows == best[bag])
    place = lax.select(found, place, lax.full_like(place, n))
    first = lax.full(best.shape, n, bag.dtype).at[bag].min(place, mode="drop")
    filled = _each(size > 0, best)
    source = jnp.take(indices, lax.min(first, const(first, max(n - 1, 0))), mode="clip")
    return zero_unless(filled, best), zero_unless(filled, source)


@row("_embedding_bag", outs=_bag_outs(True))
def embedding_bag(
    call: Call,
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    factors: Any,
    include_last_offset: bool,
    padding: int,
) -> tuple[Any, Any, Any, Any]:
    bags = call.outs[0].shape[0]
    if not indices.size or not bags:
        return tuple(lax.full(o.shape, 0, o.dtype) for o in call.outs)
    bag = _bag_of(indices, offsets[:bags])
    keep = lax.ne(indices, const(indices, padding))
    rows = widen(_rows(weight, indices))
    if factors is not None:
        rows = lax.mul(rows, _each(convert(factors, rows.dtype), rows))
    sizes, best = (lax.full(o.shape, 0, o.dtype) for o in call.outs[2:])
    if mode != _SUM:
        sizes = _bag_sum(convert(keep, sizes.dtype), bag, bags)
        best = sizes
    if mode == _MAX:
        y, best = _largest(rows, bag, keep, sizes, indices)
    else:
        y = _bag_sum(zero_unless(_each(keep, rows), rows), bag, bags)
    if mode == _MEAN:
        y = quotient(y, _each(convert(lax.max(sizes, const(sizes, 1)), y.dtype), y))
    results = (y, bag[: call.outs[1].shape[0]], sizes, best)
    return tuple(convert(r, o.dtype) for r, o in zip(results, call.outs))


@row("_embedding_bag_forward_only", outs=_bag_outs(False))
def embedding_bag_forward_only(call: Call, *args: Any) -> tuple[Any, Any, Any, Any]:
    return embedding_bag(call, *args)


def _weight_gradient(
    call: Call,
    g: Any,
    indices: Any,
    bag: Any,
    sizes: Any,
    best: Any,
    by_frequency: bool,
    mode: int,
    factors: Any,
    padding: int,
) -> Any:
    g = widen(g)
    total = lax.full(call.out.shape, 0, g.dtype)
    if mode == _MAX:
        g = zero_unless(_each(sizes > 0, g), g)
        column = lax.broadcasted_iota(best.dtype, best.shape, 1)
        return convert(total.at[best, column].add(g, mode="drop"), call.out.dtype)
    g = jnp.take(g, bag, axis=0, mode="clip")
    if mode == _MEAN:
        sizes = jnp.take(sizes, bag, mode="clip")
        g = quotient(g, _each(convert(sizes, g.dtype), g))
    if factors is not None:
        g = lax.mul(g, _each(convert(factors, g.dtype), g))
    if by_frequency:
        ones = lax.full(indices.shape, 1, g.dtype)
        times = lax.full(call.out.shape[:1], 0, g.dtype).at[indices].add(ones)
        g = quotient(g, _each(jnp.take(times, indices, mode="clip"), g))
    g = zero_unless(_each(lax.ne(indices, const(indices, padding)), g), g)
    return convert(total.at[indices].add(g, mode="drop"), call.out.dtype)


@row("_embedding_bag_dense_backward")
def embedding_bag_dense_backward(
    call: Call,
    g: Any,
    indices: Any,
    bag: Any,
    sizes: Any,
    best: Any,
    num_weights: int,
    *rest: Any,
) -> Any:
    return _weight_gradient(call, g, indices, bag, sizes, best, *rest)


def _dense_outs(
    g: Any, indices: Any, offsets: Any, bag: Any, sizes: Any, best: Any, n: int, *rest
) -> list[Out]:
    """Of `sparse=True`, too: the device has no sparse layout, and the numbers are the
    same."""
    return [Out((n, g.shape[1]), g.dtype)]


@row("_embedding_bag_backward", outs=_dense_outs)
def embedding_bag_backward(
    call: Call,
    g: Any,
    indices: Any,
    offsets: Any,
    bag: Any,
    sizes: Any,
    best: Any,
    num_weights: int,
    by_frequency: bool,
    mode: int,
    sparse: bool,
    *rest: Any,
) -> Any:
    bag = _bag_of(indices, offsets)
    return _weight_gradient(
        call, g, indices, bag, sizes, best, by_frequency, mode, *rest
    )


@row("_embedding_bag_per_sample_weights_backward")
def embedding_bag_per_sample_weights_backward(
    call: Call,
    g: Any,
    weight: Any,
    indices: Any,
    offsets: Any,
    bag: Any,
    mode: int,
    padding: int,
) -> Any:
    """The dot product of each row with the gradient of its bag."""
    g = jnp.take(widen(g), _bag_of(indices, offsets), axis=0, mode="clip")
    each = lax.reduce_sum(lax.mul(g, widen(_rows(weight, indices))), (1,))
    each = zero_unless(lax.ne(indices, const(indices, padding)), each)
    return convert(each, call.out.dtype)


@row("embedding_renorm")
def embedding_renorm(
    call: Call, weight: Any, indices: Any, max_norm: float, norm_type: float
) -> Any:
    """The rows that are looked up, scaled down to `max_norm` where they exceed it."""
    indices = lax.reshape(indices, (indices.size,))
    if not indices.size or not weight.size:
        return weight
    rows = widen(_rows(weight, indices))
    norm = jnp.linalg.norm(rows, ord=norm_type, axis=1)
    down = lax.div(const(norm, max_norm), shift(norm, 1e-7))
    factor = lax.select(norm > max_norm, down, lax.full_like(norm, 1))
    rows = convert(lax.mul(rows, _each(factor, rows)), weight.dtype)
    return weight.at[indices].set(rows, mode="drop")
