"""Windows that move over the last dimensions of an array, for pooling: their extents
(all static) and the strided views that give every output one element of its window."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from tarry.lower.precision import spread
from tarry.lower.xla import lax


@dataclass(frozen=True, slots=True)
class Windows:
    """One entry a spatial dimension; `size` is the input's and `out` the output's."""

    size: tuple[int, ...]
    out: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def volume(self) -> int:
        return math.prod(self.kernel)

    def reach(self, d: int) -> int:
        """How far windows extend from the first padded element."""
        span = self.dilation[d] * (self.kernel[d] - 1) + 1
        return (self.out[d] - 1) * self.stride[d] + span

    def edges(self) -> list[tuple[int, int]]:
        """Padding that makes every window lie inside the input (may be negative)."""
        return [
            (p, self.reach(d) - n - p)
            for d, (n, p) in enumerate(zip(self.size, self.padding))
        ]

    def starts(self, d: int) -> np.ndarray:
        return np.arange(self.out[d]) * self.stride[d] - self.padding[d]


def windows(
    shape: Sequence[int],
    out: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int] = (1,),
    *,
    rank: int,
) -> Windows:
    def full(v: Sequence[int]) -> tuple[int, ...]:
        return tuple(v) * rank if len(v) == 1 else tuple(v)

    kernel = full(kernel)
    return Windows(
        tuple(shape[-rank:]),
        tuple(out[-rank:]),
        kernel,
        full(stride) if stride else kernel,
        full(padding),
        full(dilation),
    )


def pad(x: Any, edges: Sequence[tuple[int, int]], value: Any, inner: Any = None) -> Any:
    """Pad the last dimensions; `inner` gives the zeros between elements plus one."""
    inner = inner or (1,) * len(edges)
    lead = [(0, 0, 0)] * (x.ndim - len(edges))
    config = lead + [(*edge, s - 1) for edge, s in zip(edges, inner)]
    return lax.pad(x, x.dtype.type(value), config)


def views(x: Any, at: Windows) -> Iterator[tuple[tuple[int, ...], Any]]:
    """(kernel position, the element every window has there) of a padded input."""
    lead = x.shape[: x.ndim - len(at.out)]
    for position in np.ndindex(*at.kernel):
        start = [a * t for a, t in zip(position, at.dilation)]
        stop = [b + (m - 1) * s + 1 for b, m, s in zip(start, at.out, at.stride)]
        yield (
            position,
            lax.slice(
                x,
                ([0] * len(lead) + start),
                (*lead, *stop),
                [1] * len(lead) + [*at.stride],
            ),
        )


def grid(lines: Sequence[np.ndarray], shape: Sequence[int], combine: Any) -> Any:
    """A constant for each of the last dimensions, combined over `shape`."""
    first = len(shape) - len(lines)
    return reduce(
        combine, (spread(v, shape, (first + d,)) for d, v in enumerate(lines))
    )


def flat_strides(size: Sequence[int]) -> list[int]:
    return [math.prod(size[d + 1 :]) for d in range(len(size))]


def scatter_add(g: Any, indices: Any, size: Sequence[int]) -> Any:
    """Sums `g` at flat spatial `indices`, into zeros of the spatial `size`."""
    rank = len(size)
    lead = g.shape[: g.ndim - rank]
    batch, count = math.prod(lead), math.prod(g.shape[g.ndim - rank :])
    dims = lax.ScatterDimensionNumbers(
        update_window_dims=(),
        inserted_window_dims=(1,),
        scatter_dims_to_operand_dims=(1,),
        operand_batching_dims=(0,),
        scatter_indices_batching_dims=(0,),
    )
    zeros = lax.full((batch, math.prod(size)), 0, g.dtype)
    index = lax.reshape(indices, (batch, count, 1))
    total = lax.scatter_add(zeros, index, lax.reshape(g, (batch, count)), dims)
    return lax.reshape(total, (*lead, *size))
