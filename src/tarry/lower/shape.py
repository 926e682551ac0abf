"""Joining, repeating, rolling and padding; writing a part of a tensor back; the
gradients of views. Values are only moved (and added up in gradients), never computed.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tarry.lower.index import flat, place_one
from tarry.lower.layout import channels_last
from tarry.lower.reduce import wide
from tarry.lower.table import Call, Out, Scalar, broadcast, convert, row
from tarry.lower.xla import jax, lax

INT64 = np.dtype(np.int64)


def zeros(out: Out) -> Any:
    return lax.full(out.shape, 0, out.dtype)


def _zero(x: Any) -> Any:
    return np.zeros((), x.dtype)


def _iota(shape: Sequence[int], dim: int) -> Any:
    return lax.broadcasted_iota(INT64, shape, dim)


@row("cat")
def cat(call: Call, tensors: Sequence[Any], dim: int):
    """Old empty tensors of shape (0,) join with anything, as in PyTorch."""
    dtype, ndim = call.out.dtype, len(call.out.shape)
    parts = [convert(t, dtype) for t in tensors if t.ndim == ndim and t.size]
    if not parts:
        return zeros(call.out)
    return parts[0] if len(parts) == 1 else lax.concatenate(parts, dim % ndim)


@row("stack", "_stack")
def stack(call: Call, tensors: Sequence[Any], dim: int):
    dim %= len(call.out.shape)
    shape = (*call.out.shape[:dim], 1, *call.out.shape[dim + 1 :])
    return cat(call, [lax.reshape(t, shape) for t in tensors], dim)


@row("flip")
def flip(call: Call, x, dims: Sequence[int]):
    return lax.rev(x, [d % x.ndim for d in dims]) if x.ndim else x


@row("roll")
def roll(call: Call, x, shifts: Sequence[int], dims: Sequence[int]):
    if not x.size:
        return x
    if not dims:
        return lax.reshape(_roll(flat(x), shifts[0], 0), x.shape)
    for shift, dim in zip(shifts, dims):
        x = _roll(x, shift, dim % x.ndim)
    return x


def _roll(x: Any, shift: int, dim: int) -> Any:
    size = x.shape[dim]
    at = -shift % size
    if at == 0:
        return x
    left = lax.slice_in_dim(x, 0, at, axis=dim)
    return lax.concatenate([lax.slice_in_dim(x, at, size, axis=dim), left], dim)


@row("repeat")
def repeat(call: Call, x, repeats: Sequence[int]):
    shape = (1,) * (len(repeats) - x.ndim) + x.shape
    pairs = [n for r, s in zip(repeats, shape) for n in (r, s)]
    dims = range(1, 2 * len(shape), 2)
    tiled = lax.broadcast_in_dim(lax.reshape(x, shape), pairs, dims)
    return lax.reshape(tiled, call.out.shape)


@row("constant_pad_nd")
def constant_pad_nd(call: Call, x, pad: Sequence[int], value: Scalar):
    pairs = [(lo, hi, 0) for lo, hi in zip(pad[::2], pad[1::2])]
    config = [(0, 0, 0)] * (x.ndim - len(pairs)) + pairs[::-1]
    return lax.pad(x, value.to(x.dtype), config)


@row("pixel_shuffle", strides=channels_last(0))
def pixel_shuffle(call: Call, x, factor: int):
    *batch, channels, high, across = x.shape
    n, r = len(batch), factor
    x = lax.reshape(x, (*batch, channels // (r * r), r, r, high, across))
    order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return lax.reshape(lax.transpose(x, order), call.out.shape)


@row("pixel_unshuffle")
def pixel_unshuffle(call: Call, x, factor: int):
    *batch, channels, high, across = x.shape
    n, r = len(batch), factor
    x = lax.reshape(x, (*batch, channels, high // r, r, across // r, r))
    order = (*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return lax.reshape(lax.transpose(x, order), call.out.shape)


@row("channel_shuffle", strides=channels_last(0))
def channel_shuffle(call: Call, x, groups: int):
    batch, channels, *rest = x.shape
    x = lax.reshape(x, (batch, groups, channels // groups, *rest))
    order = (0, 2, 1, *range(3, x.ndim))
    return lax.reshape(lax.transpose(x, order), call.out.shape)


def _part(x: Any, dim: int, start: int, stop: int) -> Any:
    return lax.slice_in_dim(x, max(start, 0), min(stop, x.shape[dim]), axis=dim)


def _reflect(x: Any, dim: int, low: int, high: int) -> Any:
    """One dimension padded by its mirror image; a negative pad crops."""
    size = x.shape[dim]
    parts = [_part(x, dim, -low, size + high)]
    if low > 0:
        parts.insert(0, lax.rev(_part(x, dim, 1, low + 1), (dim,)))
    if high > 0:
        parts.append(lax.rev(_part(x, dim, size - high - 1, size - 1), (dim,)))
    return lax.concatenate(parts, dim)


def _replicate(x: Any, dim: int, low: int, high: int) -> Any:
    """One dimension padded by its end values; a negative pad crops."""
    size = x.shape[dim]

    def edge(at: int, count: int) -> Any:
        shape = tuple(count if d == dim else n for d, n in enumerate(x.shape))
        return broadcast(_part(x, dim, at, at + 1), shape)

    parts = [_part(x, dim, -low, size + high)]
    if low > 0:
        parts.insert(0, edge(0, low))
    if high > 0:
        parts.append(edge(size - 1, high))
    return lax.concatenate(parts, dim)


def _pad(x: Any, padding: Sequence[int], extend: Callable[..., Any]) -> Any:
    for k, (low, high) in enumerate(zip(padding[::2], padding[1::2])):
        x = extend(x, x.ndim - 1 - k, low, high)
    return x


def _register_pad(name: str, extend: Callable[..., Any]) -> None:
    """`{name}` and its gradient, the transpose of the same linear function."""

    @row(*(f"{name}{n}d" for n in (1, 2, 3)), strides=channels_last(0))
    def forward(call: Call, x, padding: Sequence[int]):
        return _pad(x, padding, extend)

    @row(
        *(f"{name}{n}d_backward" for n in (1, 2, 3)),
        ignores=("self",),
        strides=channels_last(1),
    )
    def backward(call: Call, grad, x, padding: Sequence[int]):
        dtype = wide(call.out.dtype)
        like = jax.ShapeDtypeStruct(call.out.shape, dtype)
        pull = jax.linear_transpose(lambda v: _pad(v, padding, extend), like)
        return convert(pull(convert(grad, dtype))[0], call.out.dtype)


_register_pad("reflection_pad", _reflect)
_register_pad("replication_pad", _replicate)


@row("fill.Scalar", "fill.Tensor", ignores=("self",))
def fill(call: Call, x, value):
    return broadcast(convert(value, call.out.dtype), call.out.shape)


@row("zero", ignores=("self",))
def zero(call: Call, x):
    return zeros(call.out)


def _span(
    start: int | None, end: int | None, step: int, size: int
) -> tuple[int, int, int]:
    """(first, count, last) of a slice of a dimension, PyTorch's clamping."""
    taken = range(*slice(start, end, step).indices(size))
    first = taken.start if len(taken) else 0
    return first, len(taken), first + (len(taken) - 1) * step


def _spread(x: Any, value: Any, dim: int, size: int, span: tuple, step: int) -> Any:
    """`x` at a slice's places along `dim` of a tensor that holds `value` elsewhere."""
    first, _, last = span
    config = [(0, 0, 0)] * x.ndim
    config[dim] = (first, size - 1 - last, step - 1)
    return lax.pad(x, value, config)


@row("slice_backward")
def slice_backward(call: Call, grad, sizes, dim: int, start: int, end: int, step: int):
    dim %= grad.ndim
    span = _span(start, end, step, sizes[dim])
    if not span[1]:
        return zeros(call.out)
    return _spread(grad, _zero(grad), dim, sizes[dim], span, step)


@row("select_backward")
def select_backward(call: Call, grad, sizes, dim: int, index: int):
    dim %= len(sizes)
    at = index % sizes[dim]
    grad = lax.expand_dims(grad, (dim,))
    return _spread(grad, _zero(grad), dim, sizes[dim], (at, 1, at), 1)


def _overwrite(x: Any, part: Any, dim: int, first: int) -> Any:
    start = [first if d == dim else 0 for d in range(x.ndim)]
    return lax.dynamic_update_slice(x, part, start)


@row("slice_scatter")
def slice_scatter(call: Call, x, src, dim: int, start, end, step: int):
    dim %= x.ndim
    size, src = x.shape[dim], convert(src, x.dtype)
    span = _span(start, end, step, size)
    if not span[1]:
        return x
    if step == 1:
        return _overwrite(x, src, dim, span[0])
    hit = _spread(lax.full_like(src, True, np.bool_), np.False_, dim, size, span, step)
    return lax.select(hit, _spread(src, _zero(src), dim, size, span, step), x)


@row("select_scatter")
def select_scatter(call: Call, x, src, dim: int, index: int):
    dim %= x.ndim
    part = lax.expand_dims(convert(src, x.dtype), (dim,))
    return _overwrite(x, part, dim, index % x.shape[dim])


def _on_diagonal(src: Any, rest: Any, offset: int, dim1: int, dim2: int) -> Any:
    """`rest` with its diagonal (of dim1, dim2) replaced by `src`, whose last
    dimension runs along it."""
    shape = rest.shape
    dim1, dim2 = dim1 % rest.ndim, dim2 % rest.ndim
    along, low = (dim1, -min(offset, 0)) if offset <= 0 else (dim2, offset)
    config = [(0, 0, 0)] * (src.ndim - 1)
    config.append((low, shape[along] - low - src.shape[-1], 0))
    src = lax.pad(src, _zero(src), config)
    others = [d for d in range(rest.ndim) if d not in (dim1, dim2)]
    order = sorted(range(src.ndim), key=lambda k: (*others, along)[k])
    placed = sorted((*others, along))
    src = lax.broadcast_in_dim(lax.transpose(src, order), shape, placed)
    apart = lax.sub(_iota(shape, dim2), _iota(shape, dim1))
    return lax.select(lax.eq(apart, lax.full_like(apart, offset)), src, rest)


@row("diagonal_backward")
def diagonal_backward(call: Call, grad, sizes, offset: int, dim1: int, dim2: int):
    if not grad.size:
        return zeros(call.out)
    return _on_diagonal(grad, zeros(call.out), offset, dim1, dim2)


@row("diagonal_scatter")
def diagonal_scatter(call: Call, x, src, offset: int, dim1: int, dim2: int):
    return _on_diagonal(convert(src, x.dtype), x, offset, dim1, dim2) if src.size else x


@row("diag_embed")
def diag_embed(call: Call, x, offset: int, dim1: int, dim2: int):
    if not x.size:
        return zeros(call.out)
    return _on_diagonal(x, zeros(call.out), offset, dim1, dim2)


@row("unfold_backward")
def unfold_backward(call: Call, grad, sizes, dim: int, size: int, step: int):
    """Windows (last dimension) added up where they overlap along `dim`."""
    if not grad.size:
        return zeros(call.out)
    if not sizes:
        return lax.reshape(grad, ())
    dim, dtype = dim % len(sizes), wide(grad.dtype)
    grad = convert(grad, dtype)
    order = (*range(dim + 1), grad.ndim - 1, *range(dim + 1, grad.ndim - 1))
    grad = lax.transpose(grad, order)
    windows = (grad.shape[dim], size)
    at = lax.add(lax.mul(_iota(windows, 0), np.int64(step)), _iota(windows, 1))
    spot = place_one(call.out.shape, dim, at)
    base = lax.full(call.out.shape, 0, dtype)
    add = lax.scatter_max if dtype == np.bool_ else lax.scatter_add
    return convert(spot.write(add, base, grad), call.out.dtype)
