"""Histograms: how many elements (or how much of their weight) fall between edges. A
bin holds its left edge, the last one both."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tarry.lower.precision import const, scale
from tarry.lower.table import Call, Out, convert, row
from tarry.lower.xla import jnp, lax


def _count(x: Any, edges: Any, weight: Any, density: bool) -> Any:
    x, bins = lax.reshape(x, (x.size,)), edges.shape[0] - 1
    at = jnp.searchsorted(edges, x, side="right") - 1
    at = lax.select(x == edges[-1], lax.full_like(at, bins - 1), at)
    inside = (x >= edges[0]) & (x <= edges[-1])
    at = lax.select(inside, at, lax.full_like(at, bins))
    if weight is None:
        weight = lax.full(x.shape, 1, edges.dtype)
    weight = convert(lax.reshape(weight, x.shape), edges.dtype)
    count = lax.full((bins,), 0, edges.dtype).at[at].add(weight, mode="drop")
    return count / count.sum() / (edges[1:] - edges[:-1]) if density else count


def _edges(x: Any, bins: int, limits: Sequence[float] | None) -> Any:
    """Equal bins over the limits, or over the elements; PyTorch's `linspace`."""
    if limits:
        low, high = (jnp.asarray(v, x.dtype) for v in limits)
    elif not x.size:
        low, high = (jnp.asarray(v, x.dtype) for v in (0, 1))
    else:
        low, high = x.min(), x.max()
    half = convert(low == high, x.dtype)
    low, high = low - scale(half, 0.5), high + scale(half, 0.5)
    step = (high - low) / const(x, bins)
    place = lax.iota(np.dtype(np.int64), bins + 1)
    behind = high - step * convert(bins - place, x.dtype)
    return lax.select(
        place < (bins + 1) // 2, low + step * convert(place, x.dtype), behind
    )


def _bin_ct_outs(
    x: Any, bins: int, limits: Any, weight: Any, density: bool
) -> list[Out]:
    _check(x, weight)
    if bins < 1 or (limits and (len(limits) != 2 or not limits[0] <= limits[1])):
        raise NotImplementedError("bins that histogram refuses")
    return [Out((bins,), x.dtype), Out((bins + 1,), x.dtype)]


def _check(x: Any, weight: Any) -> None:
    fits = weight is None or (weight.shape == x.shape and weight.dtype == x.dtype)
    if not x.is_floating_point() or not fits:
        raise NotImplementedError("operands that histogram refuses")


@row("histogram.bin_ct", outs=_bin_ct_outs)
def histogram_count(
    call: Call,
    x: Any,
    bins: int,
    limits: Sequence[float] | None,
    weight: Any,
    density: bool,
) -> tuple[Any, Any]:
    edges = _edges(x, bins, limits)
    return _count(x, edges, weight, density), edges


def _edges_outs(x: Any, edges: Any, weight: Any, density: bool) -> list[Out]:
    _check(x, weight)
    if edges.ndim != 1 or not edges.numel() or edges.dtype != x.dtype:
        raise NotImplementedError("edges that histogram refuses")
    n = edges.shape[0]
    return [Out((n - 1,), x.dtype), Out((n,), x.dtype)]


@row("histogram.bins_tensor", outs=_edges_outs)
def histogram_edges(
    call: Call, x: Any, edges: Any, weight: Any, density: bool
) -> tuple[Any, Any]:
    return _count(x, edges, weight, density), edges
