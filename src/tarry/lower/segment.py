"""Reductions of segments that follow one another along an axis, given by their lengths
or by where they begin and end; leading dimensions are batches."""

import math
from typing import Any

import numpy as np

from tarry.lower.activation import zero_unless
from tarry.lower.precision import const, quotient, widen
from tarry.lower.table import Call, convert, row
from tarry.lower.xla import jax, jnp, lax

_NEUTRAL = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -np.inf, "min": np.inf}


class Segments:
    """Which segment every element along the axis is in, over (batch, n, inner)."""

    def __init__(self, data: Any, lengths: Any, offsets: Any, axis: int) -> None:
        axis %= data.ndim
        self.batch = math.prod(data.shape[:axis])
        self.n = data.shape[axis]
        self.inner = math.prod(data.shape[axis + 1 :])
        if offsets is None:
            lengths = lax.reshape(lengths, (self.batch, lengths.shape[-1]))
            zero = lax.full((self.batch, 1), 0, lengths.dtype)
            offsets = lax.concatenate([zero, lax.cumsum(lengths, 1)], 1)
        offsets = lax.reshape(offsets, (self.batch, offsets.shape[-1]))
        self.count = offsets.shape[1] - 1
        self.lengths = lax.sub(offsets[:, 1:], offsets[:, :-1])
        self.index = jax.vmap(self._find)(offsets)

    def _find(self, offsets: Any) -> Any:
        """The segment of each element; `count` where it is in none."""
        place = lax.iota(offsets.dtype, self.n)
        at = jnp.searchsorted(offsets, place, side="right") - 1
        return lax.select(at < 0, lax.full_like(at, self.count), at)

    def flat(self, x: Any) -> Any:
        return lax.reshape(
            x, (self.batch, x.size // (self.batch * self.inner or 1), self.inner)
        )

    def reduce(self, x: Any, how: str, start: Any) -> Any:
        """`x` reduced into an array filled with `start`."""
        total = lax.broadcast(start, (self.batch, self.count, self.inner))
        add = {"prod": "multiply", "max": "max", "min": "min"}.get(how, "add")
        return getattr(total.at[self._batches(), self.index], add)(x, mode="drop")

    def read(self, y: Any) -> Any:
        """The value of its segment for every element."""
        return y.at[self._batches(), self.index].get(mode="fill", fill_value=0)

    def divide(self, y: Any) -> Any:
        """By the lengths; NaN for an empty one."""
        lengths = convert(self.lengths, y.dtype)[:, :, None]
        return quotient(y, jnp.broadcast_to(lengths, y.shape))

    def _batches(self) -> Any:
        return lax.broadcasted_iota(np.dtype(np.int64), self.index.shape, 0)


def _start(x: Any, how: str, initial: Any) -> Any:
    return const(x, _NEUTRAL[how]) if initial is None else initial.to(x.dtype)


@row("segment_reduce")
def segment_reduce(
    call: Call,
    data: Any,
    how: str,
    lengths: Any,
    indices: Any,
    offsets: Any,
    axis: int,
    unsafe: bool,
    initial: Any,
) -> Any:
    at = Segments(data, lengths, offsets, axis)
    x = at.flat(widen(data))
    y = at.reduce(x, how, jnp.asarray(_start(x, how, initial)))
    if how == "mean":
        mean = at.divide(y)
        empty = jnp.broadcast_to((at.lengths == 0)[:, :, None], y.shape)
        y = mean if initial is None else lax.select(empty, y, mean)
    return convert(lax.reshape(y, call.out.shape), call.out.dtype)


@row("_segment_reduce_backward")
def segment_reduce_backward(
    call: Call,
    g: Any,
    output: Any,
    data: Any,
    how: str,
    lengths: Any,
    offsets: Any,
    axis: int,
    initial: Any,
) -> Any:
    at = Segments(data, lengths, offsets, axis)
    x, y, g = (at.flat(widen(v)) for v in (data, output, g))
    if how in ("max", "min"):
        value = _through_extreme(at, x, y, g)
    elif how == "prod":
        start = jnp.asarray(_start(x, how, initial))
        value = lax.mul(at.read(g), _without(at, x, y, start))
    else:
        value = at.read(at.divide(g) if how == "mean" else g)
    return convert(lax.reshape(value, call.out.shape), call.out.dtype)


def _through_extreme(at: Segments, x: Any, y: Any, g: Any) -> Any:
    """Shared by all elements that equal the extreme, or are NaN."""
    hit = lax.bitwise_or(x != x, x == at.read(y))
    times = at.reduce(convert(hit, x.dtype), "sum", jnp.zeros((), x.dtype))
    return zero_unless(hit, at.read(quotient(g, times)))


def _without(at: Segments, x: Any, y: Any, start: Any) -> Any:
    """The product of a segment without the element; by division where that holds."""
    zero, nan = x == 0, x != x
    odd = lax.bitwise_or(zero, nan)
    one = jnp.ones((), x.dtype)
    plain = at.read(at.reduce(lax.select(odd, lax.full_like(x, 1), x), "prod", start))

    def others(which: Any) -> Any:
        which = convert(which, x.dtype)
        total = at.read(at.reduce(which, "sum", jnp.zeros_like(one)))
        return lax.sub(total, which) > 0

    product = lax.select(others(zero), lax.full_like(x, 0), plain)
    product = lax.select(others(nan), lax.full_like(x, np.nan), product)
    return lax.select(odd, product, lax.div(at.read(y), x))
