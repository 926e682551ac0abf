"""Reading by index tensors: gather, index, take, embedding.

PyTorch raises on an index out of range; a compiled program cannot, so what such an
index reads is never a value of the tensor: it is NaN for floating types, the lowest
integer for signed and the highest for unsigned ones, True for bool. Negative indices
count from the end only where PyTorch lets them (`index`, `take`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tarry.lower.compare import truth
from tarry.lower.table import Call, Out, broadcast, row
from tarry.lower.xla import jnp, lax

INT64 = np.dtype(np.int64)


def mode() -> Any:
    return lax.GatherScatterMode.FILL_OR_DROP


def column(index: Any) -> Any:
    """`index` with the trailing dimension of size 1 that XLA's index vectors need."""
    return lax.reshape(index, (*index.shape, 1))


def flat(x: Any) -> Any:
    return lax.reshape(x, (x.size,))


def wrap(index: Any, size: int) -> Any:
    """Negative indices count from the end."""
    negative = lax.lt(index, lax.full_like(index, 0))
    return lax.select(negative, lax.add(index, lax.full_like(index, size)), index)


def empty(out: Out) -> Any:
    """A result that holds nothing, or only what indices out of range read."""
    return lax.full(out.shape, 0, out.dtype)


@dataclass(frozen=True, slots=True)
class Place:
    """Index tensors in XLA's terms: index vectors into the dimensions `dims`, and
    where the remaining dimensions stand in the result (`window`)."""

    vectors: Any
    dims: tuple[int, ...]
    window: tuple[int, ...]
    shape: tuple[int, ...]

    def read(self, x: Any) -> Any:
        numbers = lax.GatherDimensionNumbers(self.window, self.dims, self.dims)
        sizes = [1 if d in self.dims else n for d, n in enumerate(x.shape)]
        return lax.gather(x, self.vectors, numbers, sizes, mode=mode())

    def write(self, scatter: Any, x: Any, updates: Any) -> Any:
        """`x` with `updates` (of `shape`) scattered into it by `lax.scatter…`."""
        numbers = lax.ScatterDimensionNumbers(self.window, self.dims, self.dims)
        return scatter(x, self.vectors, updates, numbers, mode=mode())


def place_one(shape: Sequence[int], dim: int, index: Any) -> Place:
    """Whole slices along `dim`; the index's dimensions take its place."""
    after = dim + index.ndim
    window = (*range(dim), *range(after, after + len(shape) - dim - 1))
    result = (*shape[:dim], *index.shape, *shape[dim + 1 :])
    return Place(column(index), (dim,), window, result)


def place(shape: Sequence[int], indices: Sequence[Any]) -> Place:
    """PyTorch's rule: index tensors broadcast together; their dimensions stand at the
    first indexed one if those are adjacent, else in front."""
    dims = tuple(d for d, i in enumerate(indices) if i is not None)
    common = np.broadcast_shapes(*(indices[d].shape for d in dims))
    dtype = np.result_type(*(indices[d].dtype for d in dims))
    wrapped = [
        broadcast(wrap(lax.convert_element_type(indices[d], dtype), shape[d]), common)
        for d in dims
    ]
    vectors = lax.concatenate([column(i) for i in wrapped], len(common))
    rest = [n for d, n in enumerate(shape) if d not in dims]
    adjacent = dims == tuple(range(dims[0], dims[0] + len(dims)))
    first = dims[0] if adjacent else 0
    after = first + len(common)
    window = (*range(first), *range(after, after + len(rest) - first))
    return Place(vectors, dims, window, (*rest[:first], *common, *rest[first:]))


def at_least_1d(*arrays: Any) -> list[Any]:
    return [flat(a) if a.ndim == 0 else a for a in arrays]


@row("gather")
def gather(call: Call, x, dim: int, index, sparse_grad: bool):
    out = call.out
    if not math.prod(out.shape) or not x.size:
        return empty(out)
    x, index = at_least_1d(x, index)
    dim %= x.ndim
    limits = [n if d == dim else index.shape[d] for d, n in enumerate(x.shape)]
    x = lax.slice(x, [0] * x.ndim, limits)
    others = tuple(d for d in range(x.ndim) if d != dim)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(),
        collapsed_slice_dims=(dim,),
        start_index_map=(dim,),
        operand_batching_dims=others,
        start_indices_batching_dims=others,
    )
    read = lax.gather(x, column(index), numbers, [1] * x.ndim, mode=mode())
    return lax.reshape(read, out.shape)


@row("index_select")
def index_select(call: Call, x, dim: int, index):
    if not math.prod(call.out.shape) or not x.size:
        return empty(call.out)
    x, index = at_least_1d(x, index)
    read = place_one(x.shape, dim % x.ndim, index).read(x)
    return lax.reshape(read, call.out.shape)


@row("take")
def take(call: Call, x, index):
    if not index.size or not x.size:
        return empty(call.out)
    return place_one((x.size,), 0, wrap(index, x.size)).read(flat(x))


@row("embedding")
def embedding(call: Call, weight, indices, padding_idx: int, scale: bool, sparse: bool):
    if not math.prod(call.out.shape) or not weight.size:
        return empty(call.out)
    return place_one(weight.shape, 0, indices).read(weight)


@row("index.Tensor", "_unsafe_index.Tensor")
def index(call: Call, x, indices: Sequence[Any]):
    if not math.prod(call.out.shape) or not x.size:
        return empty(call.out)
    return place(x.shape, indices).read(x)


def _nonzero_outs(x: Any, size: int, fill_value: int) -> list[Out]:
    """PyTorch's meta kernel gives the strides of a transpose, its CPU kernel not."""
    if size < 0:
        raise NotImplementedError("a size that nonzero_static refuses")
    return [Out((size, x.ndim), torch.int64)]


@row("nonzero_static", outs=_nonzero_outs)
def nonzero_static(call: Call, x, size: int, fill_value: int):
    if x.ndim == 0 or size == 0 or not x.size:
        return lax.full(call.out.shape, fill_value, INT64)
    found = jnp.nonzero(truth(x), size=size, fill_value=fill_value)
    return lax.concatenate([column(f.astype(INT64)) for f in found], 1)
