"""Convolution and its gradients: 1-3 spatial dimensions, strides, padding, dilation,
groups, transposed. Layouts stay PyTorch's (channels second); halves accumulate in f32.

A transposed convolution is the input gradient of a plain one with the same weight, so
three products make everything: `_forward`, `_input_grad`, `_weight_grad`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tarry.lower import depthwise
from tarry.lower.doubt import odd_window
from tarry.lower.precision import rest, spread, wide_dtype, widen
from tarry.lower.table import Call, convert, row
from tarry.lower.xla import lax


@dataclass(frozen=True, slots=True)
class _Window:
    """How a plain convolution moves over its input."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int


def _window(
    ndim: int,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> _Window:
    def full(v: Sequence[int]) -> tuple[int, ...]:
        return tuple(v) * ndim if len(v) == 1 else tuple(v)

    return _Window(full(stride), full(padding), full(dilation), groups)


def _dims(ndim: int, lhs: str, rhs: str, out: str) -> Any:
    """Dimension numbers from the places of (batch, feature) in each array."""
    spatial = tuple(range(2, ndim + 2))
    first = {"NC": (0, 1), "CN": (1, 0), "OI": (0, 1), "IO": (1, 0)}
    return lax.ConvDimensionNumbers(*(first[s] + spatial for s in (lhs, rhs, out)))


def _on_cpu(cpu: Any, default: Any, x: Any, y: Any) -> Any:
    """`cpu(x, y)` where the program is lowered for CPUs, else `default(x, y)`."""
    return lax.platform_dependent(x, y, cpu=cpu, default=default)


def _forward(x: Any, w: Any, at: _Window) -> Any:
    if not depthwise.fits(x.shape[1], w.shape[2:], at.groups):
        return _forward_conv(x, w, at)
    size = [
        (n + 2 * p - t * (k - 1) - 1) // s + 1
        for n, p, t, k, s in zip(
            x.shape[2:], at.padding, at.dilation, w.shape[2:], at.stride
        )
    ]
    return _on_cpu(
        lambda x, w: depthwise.forward(x, w, size, at),
        lambda x, w: _forward_conv(x, w, at),
        x,
        w,
    )


def _forward_conv(x: Any, w: Any, at: _Window) -> Any:
    n = x.ndim - 2
    return lax.conv_general_dilated(
        x,
        w,
        at.stride,
        [(p, p) for p in at.padding],
        rhs_dilation=at.dilation,
        dimension_numbers=_dims(n, "NC", "OI", "NC"),
        feature_group_count=at.groups,
        preferred_element_type=wide_dtype(x.dtype),
    )


def _swap_groups(w: Any, groups: int) -> Any:
    """(O, I/g, …) to (I, O/g, …), the channels exchanged within each group."""
    o, i, *kernel = w.shape
    w = lax.reshape(w, (groups, o // groups, i, *kernel))
    w = lax.transpose(w, (0, 2, 1, *range(3, w.ndim)))
    return lax.reshape(w, (groups * i, o // groups, *kernel))


def _dilated(g: Any, stride: tuple[int, ...]) -> Any:
    """`g` with zeros between its elements.

    XLA aborts the process when it simplifies some 3-d convolutions that dilate their
    operand themselves (jaxlib 0.10.2, "Window dimensions do not match RHS shape").
    """
    between = [(0, 0, s - 1) for s in (1, 1, *stride)]
    return lax.pad(g, g.dtype.type(0), between)


def _input_grad(g: Any, w: Any, size: Sequence[int], at: _Window) -> Any:
    if not depthwise.fits(w.shape[1] * at.groups, w.shape[2:], at.groups):
        return _input_grad_conv(g, w, size, at)
    return _on_cpu(
        lambda g, w: depthwise.input_grad(g, w, size, at),
        lambda g, w: _input_grad_conv(g, w, size, at),
        g,
        w,
    )


def _input_grad_conv(g: Any, w: Any, size: Sequence[int], at: _Window) -> Any:
    """The gradient of an input whose spatial sizes are `size`."""
    spatial = tuple(range(2, g.ndim))
    padding = []
    for d, s, p, t, n in zip(spatial, at.stride, at.padding, at.dilation, size):
        low = t * (w.shape[d] - 1) - p
        padding.append((low, n - (g.shape[d] - 1) * s - 1 + p))
    stride = at.stride
    if len(spatial) == 3:
        g, stride = _dilated(g, stride), (1, 1, 1)
    plain = at.groups == 1
    w = lax.rev(w if plain else _swap_groups(w, at.groups), spatial)
    return lax.conv_general_dilated(
        g,
        w,
        (1,) * len(spatial),
        padding,
        lhs_dilation=stride,
        rhs_dilation=at.dilation,
        dimension_numbers=_dims(len(spatial), "NC", "IO" if plain else "OI", "NC"),
        feature_group_count=at.groups,
        preferred_element_type=wide_dtype(g.dtype),
    )


def _weight_grad(x: Any, g: Any, kernel: Sequence[int], at: _Window) -> Any:
    by_parts: Any = None
    if depthwise.fits(x.shape[1], kernel, at.groups):
        by_parts = depthwise.weight_grad
    elif at.groups == 1 and _prefers_products(x, g, kernel):
        by_parts = _weight_grad_products
    if by_parts is None:
        return _weight_grad_conv(x, g, kernel, at)
    return _on_cpu(
        lambda x, g: by_parts(x, g, kernel, at),
        lambda x, g: _weight_grad_conv(x, g, kernel, at),
        x,
        g,
    )


def _prefers_products(x: Any, g: Any, kernel: Sequence[int]) -> bool:
    """Where a product a kernel position beats XLA:CPU's convolution (measured): the
    copy of the input each position makes must be small beside its product."""
    return x.shape[1] >= 32 and (g.shape[1] >= 128 or math.prod(kernel) == 1)


def _weight_grad_conv(x: Any, g: Any, kernel: Sequence[int], at: _Window) -> Any:
    padding = []
    for d, (k, s, p, t) in enumerate(
        zip(kernel, at.stride, at.padding, at.dilation), start=2
    ):
        reach = (k - 1) * t + (g.shape[d] - 1) * s + 1
        padding.append((p, reach - x.shape[d] - p))
    return lax.conv_general_dilated(
        x,
        g,
        at.dilation,
        padding,
        rhs_dilation=at.stride,
        dimension_numbers=_dims(len(kernel), "CN", "IO", "CN"),
        batch_group_count=at.groups,
        preferred_element_type=wide_dtype(x.dtype),
    )


def _weight_grad_products(x: Any, g: Any, kernel: Sequence[int], at: _Window) -> Any:
    """One matrix product (O, samples) by (samples, I) a kernel position."""
    o, i, n = g.shape[1], x.shape[1], x.ndim
    x = lax.pad(x, x.dtype.type(0), [(0, 0, 0)] * 2 + [(p, p, 0) for p in at.padding])
    g2 = lax.reshape(lax.transpose(g, (1, 0, *range(2, n))), (o, g.size // o))
    wide, parts = wide_dtype(x.dtype), []
    for position in np.ndindex(*kernel):
        start = [a * t for a, t in zip(position, at.dilation)]
        stop = [a + (m - 1) * s + 1 for a, m, s in zip(start, g.shape[2:], at.stride)]
        seen = lax.slice(x, (0, 0, *start), (x.shape[0], i, *stop), (1, 1, *at.stride))
        seen = lax.transpose(seen, (0, *range(2, n), 1))
        seen = lax.reshape(seen, (g.size // o, i))
        part = lax.dot_general(
            g2, seen, (((1,), (0,)), ((), ())), preferred_element_type=wide
        )
        parts.append(lax.expand_dims(part, (2,)))
    stacked = parts[0] if len(parts) == 1 else lax.concatenate(parts, 2)
    return lax.reshape(stacked, (o, i, *kernel))


@row("convolution", doubts=odd_window)
def convolution(
    call: Call,
    x: Any,
    w: Any,
    bias: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    at = _window(x.ndim - 2, stride, padding, dilation, groups)
    w = convert(w, x.dtype)
    if transposed:
        y = _input_grad(x, w, call.out.shape[2:], at)
    else:
        y = _forward(x, w, at)
    if bias is not None:
        y = lax.add(y, spread(convert(bias, y.dtype), y.shape, (1,)))
    return convert(y, call.out.dtype)


@row("convolution_backward")
def convolution_backward(
    call: Call,
    g: Any,
    x: Any,
    w: Any,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    mask: Sequence[bool],
) -> tuple[Any, Any, Any]:
    at = _window(x.ndim - 2, stride, padding, dilation, groups)
    g, w = convert(g, x.dtype), convert(w, x.dtype)
    kernel = w.shape[2:]
    gx = gw = gb = None
    if mask[0]:
        gx = _forward(g, w, at) if transposed else _input_grad(g, w, x.shape[2:], at)
        if gx.shape != x.shape:  # output padding of a stride and more
            gx = lax.slice(gx, (0,) * x.ndim, x.shape)
        gx = convert(gx, call.outs[0].dtype)
    if mask[1]:
        seen, by = (g, x) if transposed else (x, g)
        gw = convert(_weight_grad(seen, by, kernel, at), call.outs[1].dtype)
    if mask[2]:
        gb = lax.reduce_sum(widen(g), rest(g.ndim, 1))
        gb = convert(gb, call.outs[2].dtype)
    return gx, gw, gb
