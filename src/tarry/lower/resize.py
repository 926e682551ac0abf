"""Up- and down-sampling. Every dimension has its own static taps: for each output the
indices of inputs and their weights, computed as PyTorch's CPU kernels do. The forward
gathers and adds them; the backward is the transposed matrix."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tarry.lower.byte_resize import plain, resize_bytes
from tarry.lower.filters import Filter, cubic, triangle
from tarry.lower.precision import spread, widen
from tarry.lower.table import Call, convert, row
from tarry.lower.xla import lax

Taps = list[tuple[np.ndarray, np.ndarray]]


def _ratio(n: int, m: int, factor: float | None, real: Any) -> Any:
    return real(1 / factor) if factor and factor > 0 else real(n) / real(m)


def _nearest(n: int, m: int, factor: float | None, real: Any, half: float) -> Taps:
    at = (np.arange(m, dtype=np.float32) + np.float32(half)).astype(np.float32)
    index = np.floor(at * np.float32(_ratio(n, m, factor, np.float32)))
    if m == n:
        index = np.arange(m)
    elif m == 2 * n and not half:
        index = np.arange(m) // 2
    index = np.minimum(index.astype(np.int64), n - 1)
    return [(index, np.ones(m, real))]


def _source(
    n: int, m: int, align: bool, factor: float | None, real: Any, clip: bool
) -> np.ndarray:
    i = np.arange(m, dtype=real)
    if align:
        return i * (real(n - 1) / real(m - 1) if m > 1 else real(0))
    at = (i + real(0.5)) * _ratio(n, m, factor, real) - real(0.5)
    return np.maximum(at, real(0)) if clip else at


def _linear(n: int, m: int, align: bool, factor: float | None, real: Any) -> Taps:
    if n == m:
        return [(np.arange(m), np.ones(m, real))]
    at = _source(n, m, align, factor, real, True)
    low = np.minimum(at.astype(np.int64), n - 1)
    weight = np.minimum(np.maximum(at - low.astype(real), 0), 1).astype(real)
    high = np.minimum(low + 1, n - 1)
    return [(low, (1 - weight).astype(real)), (high, weight)]


def _cubic(n: int, m: int, align: bool, factor: float | None, real: Any) -> Taps:
    at = _source(n, m, align, factor, real, False)
    low = np.floor(at).astype(np.int64)
    t = at - low.astype(real)
    a = real(-0.75)

    def near(x: Any) -> Any:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Any) -> Any:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    weights = (far(t + 1), near(t), near(1 - t), far(2 - t))
    return [
        (np.clip(low + k - 1, 0, n - 1), w.astype(real)) for k, w in enumerate(weights)
    ]


def _take(x: Any, d: int, index: np.ndarray) -> Any:
    n, m = x.shape[d], len(index)
    if m % n == 0 and (index == np.arange(m) // (m // n)).all():
        if m == n:
            return x
        shape = (*x.shape[: d + 1], m // n, *x.shape[d + 1 :])
        x = spread(x, shape, [a for a in range(len(shape)) if a != d + 1])
        return lax.reshape(x, (*x.shape[:d], m, *x.shape[d + 2 :]))
    rest = tuple(a for a in range(x.ndim) if a != d)
    dims = lax.GatherDimensionNumbers(rest, (d,), (d,))
    sizes = [1 if a == d else k for a, k in enumerate(x.shape)]
    return lax.gather(x, index[:, None].astype(np.int32), dims, sizes)


def _apply(x: Any, d: int, taps: Taps) -> Any:
    if len(taps) == 1:
        return _take(x, d, taps[0][0])
    total = None
    for index, weight in taps:
        part = _take(x, d, index)
        part = lax.mul(part, spread(weight, part.shape, (d,)))
        total = part if total is None else lax.add(total, part)
    return total


def _apply_transposed(g: Any, d: int, taps: Taps, n: int) -> Any:
    m = g.shape[d]
    if len(taps) == 1 and m % n == 0 and (taps[0][0] == np.arange(m) // (m // n)).all():
        g = lax.reshape(g, (*g.shape[:d], n, m // n, *g.shape[d + 1 :]))
        return lax.reduce_sum(g, (d + 1,))
    matrix = np.zeros((n, m), g.dtype)
    for index, weight in taps:
        np.add.at(matrix, (index, np.arange(m)), weight)
    dims = (((d,), (1,)), ((), ()))
    y = lax.dot_general(g, matrix, dims, precision=lax.Precision.HIGHEST)
    order = list(range(y.ndim - 1))
    order.insert(d, y.ndim - 1)
    return lax.transpose(y, order)


def _resize(call: Call, x: Any, make: Any, factors: Sequence[Any]) -> Any:
    x = widen(x) if x.dtype.kind in "fV" else x
    real = np.float64 if x.dtype == np.float64 else np.float32
    for i, factor in enumerate(factors):
        d = i + 2
        x = _apply(x, d, make(x.shape[d], call.out.shape[d], factor, real))
    return convert(x, call.out.dtype)


def _resize_backward(call: Call, g: Any, make: Any, factors: Sequence[Any]) -> Any:
    if g.shape == call.out.shape:
        return convert(g, call.out.dtype)
    g = widen(g)
    real = np.float64 if g.dtype == np.float64 else np.float32
    for i, factor in enumerate(factors):
        d, n = i + 2, call.out.shape[i + 2]
        g = _apply_transposed(g, d, make(n, g.shape[d], factor, real), n)
    return convert(g, call.out.dtype)


def _register_nearest(prefix: str, half: float) -> None:
    def make(n: int, m: int, factor: float | None, real: Any) -> Taps:
        return _nearest(n, m, factor, real, half)

    names = [f"{prefix}{n}d" for n in (1, 2, 3)]

    @row(*names)
    def nearest(call: Call, x: Any, size: Sequence[int], *factors: Any) -> Any:
        return _resize(call, x, make, factors)

    @row(*(f"{n}_backward" for n in names))
    def nearest_backward(
        call: Call, g: Any, out: Sequence[int], size: Sequence[int], *factors: Any
    ) -> Any:
        return _resize_backward(call, g, make, factors)


def _resize_bytes(
    call: Call, x: Any, align: bool, factors: Sequence[Any], shape: Filter, width: int
) -> Any:
    for d in range(x.ndim - 1, 1, -1):
        n, m = x.shape[d], call.out.shape[d]
        if n != m:
            taps = plain(n, m, align, factors[d - 2], shape, width)
            x = resize_bytes(x, d, taps)
    return x


def _register_weighted(*names: str, taps: Any, shape: Filter, width: int) -> None:
    def maker(align: bool) -> Any:
        return lambda n, m, factor, real: taps(n, m, align, factor, real)

    @row(*names)
    def weighted(
        call: Call, x: Any, size: Sequence[int], align: bool, *factors: Any
    ) -> Any:
        if x.dtype == np.uint8:
            return _resize_bytes(call, x, align, factors, shape, width)
        return _resize(call, x, maker(align), factors)

    @row(*(f"{n}_backward" for n in names))
    def weighted_backward(
        call: Call,
        g: Any,
        out: Sequence[int],
        size: Sequence[int],
        align: bool,
        *factors: Any,
    ) -> Any:
        return _resize_backward(call, g, maker(align), factors)


_register_nearest("upsample_nearest", 0.0)
_register_nearest("_upsample_nearest_exact", 0.5)
_register_weighted(
    "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d",
    taps=_linear, shape=triangle, width=2,
)  # fmt: skip
_register_weighted("upsample_bicubic2d", taps=_cubic, shape=cubic(-0.75), width=4)
