"""Scaled dot-product attention as P V with P = softmax(Q K' scale + bias), and its
gradient from the saved P and the output (dS = P (dP - rowsum(dO O)), Dao et al. 2022).

Where forward and backward are in one program, P never leaves it. Shapes are (batch,
heads, length, width); fewer key heads than query heads are repeated. A line of which
all is masked gives 0.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tarry.lower.precision import const, scale, spread, wide_dtype, widen
from tarry.lower.table import Call, broadcast, convert, row
from tarry.lower.xla import lax

_ABOVE = -np.inf


def _dot(x: Any, y: Any, over_x: int, over_y: int) -> Any:
    dims = (((over_x,), (over_y,)), ((0, 1), (0, 1)))
    wide = wide_dtype(x.dtype)
    return lax.dot_general(x, y, dims, preferred_element_type=wide)


def _repeat(x: Any, heads: int) -> Any:
    """Key or value heads, each as often in a row as there are query heads of it."""
    b, h, t, d = x.shape
    if h == heads:
        return x
    x = lax.broadcast_in_dim(x, (b, h, heads // h, t, d), (0, 1, 3, 4))
    return lax.reshape(x, (b, heads, t, d))


def _folded(g: Any, heads: int) -> Any:
    """The gradient of what `_repeat` repeated."""
    b, h, t, d = g.shape
    if h == heads:
        return g
    return lax.reduce_sum(lax.reshape(g, (b, heads, h // heads, t, d)), (2,))


def _scores(q: Any, k: Any, bias: Any, is_causal: bool, factor: float | None) -> Any:
    """The scores, in the compute dtype."""
    factor = 1 / math.sqrt(q.shape[-1]) if factor is None else factor
    q = convert(scale(widen(q), factor), q.dtype)
    s = _dot(q, k, 3, 3)
    if bias is not None and bias.dtype == np.bool_:
        s = lax.select(broadcast(bias, s.shape), s, lax.full_like(s, _ABOVE))
    elif bias is not None:
        s = lax.add(s, broadcast(convert(bias, s.dtype), s.shape))
    if is_causal:
        line, column = (lax.broadcasted_iota(np.int32, s.shape, d) for d in (2, 3))
        s = lax.select(lax.ge(line, column), s, lax.full_like(s, _ABOVE))
    return s


@row("tarry::attention")
def attention(
    call: Call,
    q: Any,
    k: Any,
    v: Any,
    bias: Any,
    is_causal: bool,
    factor: float | None,
) -> tuple[Any, Any]:
    """(output, probabilities)."""
    k, v = _repeat(k, q.shape[1]), _repeat(v, q.shape[1])
    s = _scores(q, k, bias, is_causal, factor)
    top = lax.reduce_max(s, (3,))
    top = lax.max(top, const(top, np.finfo(np.float32).min))
    e = lax.exp(lax.sub(s, spread(top, s.shape, (0, 1, 2))))
    total = lax.reduce_sum(e, (3,))
    some = lax.select(lax.gt(total, const(total, 0)), total, lax.full_like(total, 1))
    p = lax.div(e, spread(some, e.shape, (0, 1, 2)))
    p = convert(p, call.outs[1].dtype)
    return convert(_dot(p, v, 3, 2), call.outs[0].dtype), p


@row("tarry::attention_backward")
def attention_backward(
    call: Call,
    g: Any,
    q: Any,
    k: Any,
    v: Any,
    bias: Any,
    y: Any,
    p: Any,
    is_causal: bool,
    factor: float | None,
    mask: Sequence[bool],
) -> tuple[Any, ...]:
    """Gradients of q, k, v and the bias; None where `mask` asks for none."""
    heads = k.shape[1]
    k, v = _repeat(k, q.shape[1]), _repeat(v, q.shape[1])
    along = lax.reduce_sum(lax.mul(widen(g), widen(y)), (3,))
    tilt = lax.sub(_dot(g, v, 3, 3), spread(along, p.shape, (0, 1, 2)))
    ds = lax.mul(widen(p), tilt)
    narrow = convert(ds, q.dtype)
    factor = 1 / math.sqrt(q.shape[-1]) if factor is None else factor
    scaled = convert(scale(widen(q), factor), q.dtype)
    makers = (
        lambda: scale(_dot(narrow, k, 3, 2), factor),
        lambda: _folded(_dot(narrow, scaled, 2, 2), heads),
        lambda: _folded(_dot(convert(p, g.dtype), g, 2, 2), heads),
        lambda: _sum_to(ds, bias.shape),
    )
    return tuple(
        convert(make(), out.dtype) if wanted else None
        for make, wanted, out in zip(makers, mask, call.outs)
    )


def _sum_to(x: Any, shape: Sequence[int]) -> Any:
    """The sum of `x` over the dimensions along which `shape` was broadcast."""
    first = x.ndim - len(shape)
    axes = [d for d in range(x.ndim) if d < first or shape[d - first] != x.shape[d]]
    return lax.reshape(lax.reduce_sum(x, tuple(axes)), tuple(shape))
