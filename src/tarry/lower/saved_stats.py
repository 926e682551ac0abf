"""Results of normalization with the statistics that it saves, as PyTorch's CPU kernels
give them: in the dtype of a half operand, but float32 where its parameters are; those
of batch normalization in evaluation have no elements.

PyTorch's meta kernels say float32 always. A call that PyTorch refuses raises here, and
is then raised again in PyTorch's words.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch

from tarry.lower.table import Out

_HALVES = (torch.float16, torch.bfloat16)


def saved_dtype(x: Any, *params: Any) -> torch.dtype:
    """The dtype of saved statistics of `x`; the first of `params` that is given says
    whether they are mixed."""
    given = [p for p in params if p is not None]
    mixed = x.dtype in _HALVES and given and given[0].dtype is not x.dtype
    return torch.float32 if mixed else x.dtype


def _refuse_unless(fits: bool) -> None:
    if not fits:
        raise RuntimeError("operands that normalization refuses")


def layer_norm_outs(
    x: Any, normalized: Sequence[int], weight: Any, bias: Any, eps: float
) -> list[Out]:
    kept, shape = x.ndim - len(normalized), tuple(normalized)
    _refuse_unless(len(shape) > 0 and tuple(x.shape[max(kept, 0) :]) == shape)
    _refuse_unless(all(p is None or tuple(p.shape) == shape for p in (weight, bias)))
    saved = Out((*x.shape[:kept], *[1] * len(shape)), saved_dtype(x, weight, bias))
    return [Out(tuple(x.shape), x.dtype), saved, saved]


def group_norm_outs(
    x: Any, weight: Any, bias: Any, n: int, c: int, hxw: int, group: int, eps: float
) -> list[Out]:
    _refuse_unless(group > 0 and c % group == 0 and x.numel() == n * c * hxw)
    _refuse_unless(all(p is None or p.numel() == c for p in (weight, bias)))
    saved = Out((n, group), saved_dtype(x, weight, bias))
    return [Out(tuple(x.shape), x.dtype), saved, saved]


def _batch(x: Any, training: bool, *params: Any) -> list[Out]:
    _refuse_unless(x.ndim > 1 and math.prod(x.shape[1:]) > 0)
    channels = x.shape[1]
    _refuse_unless(all(p is None or p.numel() == channels for p in params))
    saved = Out((channels if training else 0,), saved_dtype(x, *params))
    return [Out(tuple(x.shape), x.dtype), saved, saved]


def _moved(*running: Any) -> list[Out]:
    return [Out(tuple(r.shape), r.dtype) for r in running]


_RESERVED = Out((0,), torch.uint8)


def functional_outs(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, *_: Any
) -> list[Out]:
    return [*_batch(x, training, weight, bias, mean, var), *_moved(mean, var)]


def with_update_outs(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, *_: Any
) -> list[Out]:
    found = _batch(x, True, weight, bias, mean, var)
    return [*found, _RESERVED, *_moved(mean, var)]


def no_update_outs(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, *_: Any
) -> list[Out]:
    return [*_batch(x, False, weight, bias, mean, var), _RESERVED]


def no_training_outs(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, *_: Any
) -> list[Out]:
    return _batch(x, False, weight, bias, mean, var)
