"""Strides of results where PyTorch's CPU kernel lays them out in another way than its
meta kernel says.

Each rule receives the results as meta tensors, then the arguments of the call (of the
tensors only the geometry is looked at), and returns the strides of each result, None
to leave them as they are. `@row(strides=…)` names the rule of an operator; it is asked
once per new instruction. CPU kernels know four habits: row-major order, the order of
one operand, TensorIterator's order of all operands, and channels last where the
operand's strides look like it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tarry.record.slot import contiguous_strides
from tarry.record.views import is_dense

Strides = tuple[int, ...] | None
Rule = Callable[..., Sequence[Strides]]

_HALVES = (torch.float16, torch.bfloat16)


def row_major(metas: Sequence[Any], *_: Any) -> list[Strides]:
    return [contiguous_strides(tuple(m.shape)) for m in metas]


def column_major(*which: int) -> Rule:
    """These results are matrices as LAPACK leaves them, each in column-major order."""

    def rule(metas: Sequence[Any], *_: Any) -> list[Strides]:
        return [
            _columns(tuple(m.shape)) if i in which else None
            for i, m in enumerate(metas)
        ]

    return rule


def _columns(shape: tuple[int, ...]) -> Strides:
    if len(shape) < 2:
        return None
    *batch, first, second = contiguous_strides((*shape[:-2], shape[-1], shape[-2]))
    return (*batch, second, first)


def like(at: int) -> Rule:
    """Each result is laid out as `empty_like` of argument `at` is."""

    def rule(metas: Sequence[Any], *actual: Any) -> list[Strides]:
        made = torch.empty_like(_meta(actual[at])).stride()
        return [made if m.shape == actual[at].shape else None for m in metas]

    return rule


def iterated(*first: int) -> Rule:
    """TensorIterator's order of the tensors among the arguments, or of the named."""

    def rule(metas: Sequence[Any], *actual: Any) -> list[Strides]:
        chosen = [actual[at] for at in first] if first else actual
        tensors = [_meta(a) for a in chosen if isinstance(a, torch.Tensor)]
        made = tensors[0].neg() if len(tensors) == 1 else None
        if made is None:
            made = torch.addcmul(tensors[0], tensors[1], tensors[-1])
        return [made.stride() if m.shape == made.shape else None for m in metas]

    return rule


_iterate = iterated()


def of_halves(metas: Sequence[Any], *actual: Any) -> Sequence[Strides]:
    """Elementwise meta kernels convert halves, which loses the order of gaps."""
    tensors = [a for a in actual if isinstance(a, torch.Tensor)]
    halves = all(t.dtype in _HALVES for t in tensors)
    if not halves or all(is_dense(tuple(t.shape), t.stride()) for t in tensors):
        return [None] * len(metas)
    return _iterate(metas, *tensors)


def of_angle(metas: Sequence[Any], x: torch.Tensor) -> Sequence[Strides]:
    return (row_major if x.is_complex() else of_halves)(metas, x)


def _meta(t: torch.Tensor) -> torch.Tensor:
    """The geometry alone, in a dtype in which nothing is converted."""
    return torch.empty_strided(t.shape, t.stride(), device="meta")


def channels_last(at: int, *which: int) -> Rule:
    """These results (all, if none is named) follow the memory format that the strides
    of argument `at` suggest."""

    def rule(metas: Sequence[Any], *actual: Any) -> list[Strides]:
        wanted = which or range(len(metas))
        made = _last if _suggests_last(actual[at]) else contiguous_strides
        return [
            made(tuple(m.shape)) if i in wanted and m is not None else None
            for i, m in enumerate(metas)
        ]

    return rule


def _last(shape: tuple[int, ...]) -> tuple[int, ...]:
    outer, *inner, channels = contiguous_strides((shape[0], *shape[2:], shape[1]))
    return (outer, channels, *inner)


def _suggests_last(t: torch.Tensor) -> bool:
    """`suggest_memory_format` of c10/core/MemoryFormat.h."""
    dims, strides, shape = t.dim(), t.stride(), t.shape
    if dims not in (4, 5) or strides[1] == 0:
        return False
    least = 0
    for d in (1, *range(dims - 1, 1, -1), 0):
        if shape[d] == 0 or strides[d] < least or (d == 0 and least == strides[1]):
            return False
        least = strides[d] * max(shape[d], 1)
    return True


def _by_stride(dims: Sequence[int], x: torch.Tensor) -> list[int]:
    return sorted(dims, key=lambda d: -x.stride(d))


def _transformed(
    x: torch.Tensor, shape: Sequence[int], dims: Sequence[int]
) -> torch.Tensor:
    """What MKL leaves of a transform over `dims`: these innermost, in that order, the
    others around them as they lie in `x` (aten/src/ATen/native/mkl/SpectralOps.cpp)."""
    if not torch.backends.mkl.is_available():
        return torch.empty(tuple(shape), device="meta")
    batch = _by_stride([d for d in range(x.dim()) if d not in dims], x)
    order = [*batch, *dims]
    packed = torch.empty([shape[d] for d in order], device="meta")
    return packed.permute([order.index(d) for d in range(x.dim())])


def of_c2c(
    metas: Sequence[Any], x: Any, dims: Sequence[int], *_: Any
) -> Sequence[Strides]:
    dims = [d % x.dim() for d in dims]
    if not dims:
        return [None]
    return [_transformed(x, x.shape, _by_stride(dims, x)).stride()]


def of_r2c(
    metas: Sequence[Any], x: Any, dims: Sequence[int], *_: Any
) -> Sequence[Strides]:
    dims = [d % x.dim() for d in dims]
    order = [*_by_stride(dims[:-1], x), dims[-1]]
    return [_transformed(x, metas[0].shape, order).stride()]


def of_c2r(
    metas: Sequence[Any], x: Any, dims: Sequence[int], *_: Any
) -> Sequence[Strides]:
    """All dimensions but the last one are transformed to complex numbers first."""
    dims = [d % x.dim() for d in dims]
    if len(dims) > 1:
        x = _transformed(x, x.shape, _by_stride(dims[:-1], x))
    return [_transformed(x, metas[0].shape, dims[-1:]).stride()]
