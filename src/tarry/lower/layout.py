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

from tarry.dtypes import promote
from tarry.record.slot import contiguous_strides
from tarry.record.views import is_dense

Strides = tuple[int, ...] | None
Rule = Callable[..., Sequence[Strides]]


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
        made = _packed(actual[at])
        return [made if m.shape == actual[at].shape else None for m in metas]

    return rule


def iterated(*first: int, floats: bool = False) -> Rule:
    """TensorIterator's order of the tensors among the arguments, or of the named.

    On the CPU it converts operands to their common dtype first, which closes the gaps
    between their elements. `floats`: integers become the default float.
    """

    def rule(metas: Sequence[Any], *actual: Any) -> Sequence[Strides]:
        chosen = [actual[at] for at in first] if first else actual
        tensors = [a for a in chosen if isinstance(a, torch.Tensor)]
        if all(t.stride() == contiguous_strides(tuple(t.shape)) for t in tensors):
            return [None] * len(metas)
        common = _common(actual, floats)
        shape = tuple(torch.broadcast_shapes(*(t.shape for t in tensors)))
        given = [
            (t.shape, t.stride() if t.dtype is common else _packed(t)) for t in tensors
        ]
        made = _iterated_strides(shape, given)
        return [made if m.shape == shape else None for m in metas]

    return rule


def _iterated_strides(
    shape: tuple[int, ...], given: Sequence[tuple[Sequence[int], Sequence[int]]]
) -> tuple[int, ...]:
    """Strides of a result, given the operands' shapes and strides (`build` in
    aten/src/ATen/TensorIterator.cpp)."""
    same = all(s == shape and steps == given[0][1] for s, steps in given)
    if same and is_dense(shape, tuple(given[0][1])):
        return tuple(given[0][1])
    lined = [_lined_up(shape, *g) for g in given]

    def is_inner(d: int, e: int) -> bool | None:
        """Whether dimension `e` lies inside `d`; None where no operand tells."""
        for steps in lined:
            if steps[d] and steps[e]:
                if steps[d] != steps[e]:
                    return steps[d] > steps[e]
                if shape[d] > shape[e]:
                    return True
        return None

    order = list(reversed(range(len(shape))))  # from the innermost outwards
    for i in range(1, len(order)):
        at = i
        for before in reversed(range(i)):
            inner = is_inner(order[before], order[at])
            if inner is False:
                break
            if inner:
                order[before], order[at] = order[at], order[before]
                at = before
    strides, step = [0] * len(shape), 1
    for d in order:
        strides[d] = step
        step *= shape[d]
    return tuple(strides)


def _lined_up(
    shape: tuple[int, ...], own: Sequence[int], strides: Sequence[int]
) -> list[int]:
    """An operand's strides once it is broadcast to `shape`."""
    lead = len(shape) - len(own)
    kept = [
        s if n == shape[lead + d] else 0 for d, (n, s) in enumerate(zip(own, strides))
    ]
    return [0] * lead + kept


def _common(actual: Sequence[Any], floats: bool) -> torch.dtype:
    tensors = [(a.dtype, a.dim()) for a in actual if isinstance(a, torch.Tensor)]
    numbers = [_KINDS[type(a)] for a in actual if type(a) in _KINDS]
    common = promote(tensors, numbers)
    assert common is not None
    if floats and not (common.is_floating_point or common.is_complex):
        return torch.get_default_dtype()
    return common


_KINDS = {bool: "b", int: "i", float: "f", complex: "c"}


def of_angle(metas: Sequence[Any], x: torch.Tensor) -> Sequence[Strides]:
    return (row_major if x.is_complex() else iterated(floats=True))(metas, x)


def _packed(t: torch.Tensor) -> tuple[int, ...]:
    """The strides of a copy in another dtype: the same order, without gaps."""
    meta = torch.empty_strided(t.shape, t.stride(), device="meta")
    return meta.to(torch.float64).stride()


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
