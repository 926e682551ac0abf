"""Calls that PyTorch's meta kernels take and its CPU kernels may refuse.

Each function receives the arguments of a call and says whether it is one; the CPU then
tries it, and its refusal is raised. `@row(doubts=…)` names the one of an operator.
"""

from typing import Any

import torch


def inexact(*actual: Any) -> bool:
    """An operand that is no integer and no boolean."""
    return any(
        a.is_floating_point() or a.is_complex()
        if isinstance(a, torch.Tensor)
        else isinstance(a, float | complex)
        for a in actual
    )


def no_integers(*actual: Any) -> bool:
    """An operand that is no integer."""
    tensors = [a for a in actual if isinstance(a, torch.Tensor)]
    return inexact(*actual) or any(t.dtype is torch.bool for t in tensors)


def unequal_dtypes(*actual: Any) -> bool:
    return len({a.dtype for a in actual if isinstance(a, torch.Tensor)}) > 1


def odd_window(
    x: Any,
    w: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> bool:
    least = min((*stride, *dilation, groups), default=1)
    return (
        unequal_dtypes(x, w, bias)
        or least < 1
        or min((*padding, *output_padding), default=0) < 0
    )


def unfit_source(x: Any, dim: int, index: Any, source: Any, *_: Any) -> bool:
    """A source that is not `x` with as many slices as there are indices."""
    want = list(x.shape)
    if want and -len(want) <= dim < len(want):
        want[dim] = index.numel()
    return list(source.shape) != want or source.dtype is not x.dtype


def unfit_values(x: Any, indices: Any, values: Any, *_: Any) -> bool:
    """Values of another dtype, or that do not broadcast to the elements which the
    indices name."""
    if values.dtype is not x.dtype:
        return True
    given = [(d, i) for d, i in enumerate(indices) if i is not None]
    if not given:
        return True
    if any(i.dtype is torch.bool for _, i in given):
        return False  # how many there are is not known here
    places = [d for d, _ in given]
    rest = [n for d, n in enumerate(x.shape) if d not in places]
    at = places[0] if places == list(range(places[0], places[-1] + 1)) else 0
    try:
        named = torch.broadcast_shapes(*[i.shape for _, i in given])
        want = (*rest[:at], *named, *rest[at:])
        return tuple(torch.broadcast_shapes(values.shape, want)) != want
    except RuntimeError:
        return True


def unfit_count(x: Any, index: Any, source: Any, *_: Any) -> bool:
    """Not as many values as indices."""
    return index.numel() != source.numel()


def no_elements(x: Any, *_: Any) -> bool:
    return x.numel() == 0


def no_mask(x: Any, mask: Any, source: Any) -> bool:
    return mask.dtype is not torch.bool or x.dtype is not source.dtype


def no_list(x: Any, boundaries: Any, *_: Any) -> bool:
    return boundaries.dim() != 1
