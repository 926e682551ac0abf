"""Fractional max pooling with given random samples: the windows of a plane begin at
places that its samples shift, one a dimension."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tarry.lower.precision import const, scale, spread, widen
from tarry.lower.table import Call, Out, convert, row
from tarry.lower.window import flat_strides, scatter_add
from tarry.lower.xla import jnp, lax

_I64 = np.dtype(np.int64)


def _starts(u: Any, n: int, m: int, k: int) -> Any:
    """(planes, m): where windows begin in a dimension of size `n`, for samples `u`."""
    last = lax.full((u.shape[0], 1), n - k, _I64)
    if m == 1:
        return last
    alpha = (n - k) / (m - 1)
    place = lax.broadcasted_iota(u.dtype, (u.shape[0], m - 1), 1)
    shifted = scale(place + spread(u, place.shape, (0,)), alpha)
    base = convert(scale(u, alpha), _I64)
    starts = convert(shifted, _I64) - spread(base, place.shape, (0,))
    return lax.concatenate([starts, last], 1)


def _windows(samples: Any, size: Any, out: Any, kernel: Any) -> Any:
    """(planes, *out, window): flat places of the elements of every window."""
    rank, planes = len(size), samples.shape[0]
    shape = (planes, *out, *kernel)
    total = lax.full(shape, 0, _I64)
    for d, step in enumerate(flat_strides(size)):
        # Two dimensions list their samples from the last, three from the first.
        u = samples[:, rank - 1 - d if rank == 2 else d]
        starts = _starts(u, size[d], out[d], kernel[d])
        at = spread(starts, shape, (0, 1 + d))
        at = at + lax.broadcasted_iota(_I64, shape, 1 + rank + d)
        total = total + scale(at, step)
    return lax.reshape(total, (planes, *out, int(np.prod(kernel))))


@row("fractional_max_pool2d", "fractional_max_pool3d")
def fractional_max_pool(
    call: Call, x: Any, kernel: Sequence[int], out: Sequence[int], samples: Any
) -> tuple[Any, Any]:
    if not x.size:
        return tuple(lax.full(o.shape, 0, o.dtype) for o in call.outs)
    rank = len(out)
    size = x.shape[x.ndim - rank :]
    planes, volume = int(np.prod(x.shape[: x.ndim - rank])), int(np.prod(size))
    # There may be more samples than planes: an input without a batch takes the first.
    samples = widen(lax.reshape(samples, (samples.size // rank, rank))[:planes])
    at = _windows(samples, size, tuple(out), tuple(kernel))
    flat = lax.reshape(at, (planes, at.size // planes))
    values = jnp.take_along_axis(lax.reshape(x, (planes, volume)), flat, 1, mode="clip")
    values = lax.reshape(values, at.shape)
    best = jnp.argmax(values, -1, keepdims=True)
    y, index = (jnp.take_along_axis(v, best, values.ndim - 1) for v in (values, at))
    results = (lax.reshape(v, o.shape) for v, o in zip((y, index), call.outs))
    return tuple(convert(v, o.dtype) for v, o in zip(results, call.outs))


def _backward_outs(g: Any, x: Any, *rest: Any) -> list[Out]:
    return [Out(tuple(x.shape), x.dtype)]


@row("fractional_max_pool2d_backward")
@row("fractional_max_pool3d_backward", outs=_backward_outs)
def fractional_max_pool_backward(
    call: Call, g: Any, x: Any, kernel: Any, out: Sequence[int], index: Any
) -> Any:
    index = lax.clamp(const(index, 0), index, const(index, max(x.size - 1, 0)))
    size = x.shape[x.ndim - len(out) :]
    return convert(scatter_add(widen(g), index, size), call.out.dtype)
