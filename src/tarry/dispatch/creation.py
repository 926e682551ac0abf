"""Factories: tensors made from sizes and numbers, as instructions without operands.

Numbers that only fill or space the values are run-time inputs; the sizes shape the
program.
"""

import math
from typing import Any

import torch

from tarry.dispatch.operands import (
    number_arg,
    record_op,
)
from tarry.dispatch.storage import base_geometry, restride
from tarry.dtypes import SUPPORTED
from tarry.errors import UnsupportedError
from tarry.record.lines import user_line
from tarry.record.slot import contiguous_spec, contiguous_strides, spec
from tarry.record.trie import const


def _check(layout: Any, dtype: Any = None) -> None:
    if dtype is not None and dtype not in SUPPORTED:
        raise UnsupportedError(
            f"dtype {dtype}", str(user_line()), "use one of PyTorch's plain dtypes"
        )
    if layout not in (None, torch.strided):
        raise RuntimeError(
            f"tarry holds dense tensors only, not layout {layout}: build it on the CPU "
            "and move x.to_dense() to the device"
        )


def empty(
    size: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    memory_format: Any = None,
) -> torch.Tensor:
    _check(layout, dtype)
    dtype = dtype or torch.get_default_dtype()
    shape = tuple(size)
    if any(n < 0 for n in shape):
        raise RuntimeError(
            f"Trying to create tensor with negative dimension "
            f"{min(shape)}: {list(shape)}"
        )
    if memory_format in (None, torch.contiguous_format):
        strides = contiguous_strides(shape)
    else:
        meta = torch.empty(
            shape, dtype=dtype, device="meta", memory_format=memory_format
        )
        strides = meta.stride()
    return record_op("tarry::empty", (), (spec(shape, strides, dtype),))[0]


def empty_strided(
    size: Any,
    stride: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
) -> torch.Tensor:
    _check(layout, dtype)
    dtype = dtype or torch.get_default_dtype()
    shape, strides = tuple(size), tuple(stride)
    base, base_strides = base_geometry(shape, strides)
    made = record_op("tarry::empty", (), (spec(base, base_strides, dtype),))[0]
    if base_strides == strides:
        return made
    made.untyped_storage().slot.mark_viewed()
    return restride(made, shape, strides)


def _number_dtype(dtype: Any, *numbers: Any) -> torch.dtype:
    if dtype is not None:
        return dtype
    if any(isinstance(n, float) for n in numbers):
        return torch.get_default_dtype()
    return torch.int64


def arange(end: Any, **options: Any) -> torch.Tensor:
    return arange_step(0, end, 1, **options)


def arange_start(start: Any, end: Any, **options: Any) -> torch.Tensor:
    return arange_step(start, end, 1, **options)


def arange_step(
    start: Any, end: Any, step: Any = 1, *, dtype: Any = None, **options: Any
) -> torch.Tensor:
    _check(options.get("layout"))
    dtype = _number_dtype(dtype, start, end, step)
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if not (math.isfinite(start) and math.isfinite(end)):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if (end - start) * step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    if dtype is torch.int64:  # what PyTorch counts in whole numbers, as no other dtype
        start, end, step = int(start), int(end), int(step)
        if step == 0:
            raise ValueError("step must be nonzero")
    whole = all(isinstance(n, int) for n in (start, end, step))
    size = -((start - end) // step) if whole else math.ceil((end - start) / step)
    return _numbered("tarry::iota", (start, step), contiguous_spec((size,), dtype))


def _numbered(op: str, numbers: tuple, out: Any, *static: Any) -> torch.Tensor:
    args, values = [], ()
    for n in numbers:
        arg, brought = number_arg(n)
        args.append(arg)
        values += brought
    args += [const(s) for s in static]
    return record_op(op, tuple(args), (out,), values)[0]


def linspace(
    start: Any, end: Any, steps: int, *, dtype: Any = None, **options: Any
) -> torch.Tensor:
    _check(options.get("layout"))
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    out = contiguous_spec((steps,), dtype or torch.get_default_dtype())
    return _numbered("tarry::linspace", (start, end), out)


def logspace(
    start: Any,
    end: Any,
    steps: int,
    base: float = 10.0,
    *,
    dtype: Any = None,
    **options: Any,
) -> torch.Tensor:
    _check(options.get("layout"))
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    out = contiguous_spec((steps,), dtype or torch.get_default_dtype())
    return _numbered("tarry::logspace", (start, end), out, float(base))


def eye(n: int, **options: Any) -> torch.Tensor:
    return eye_m(n, n, **options)


def eye_m(n: int, m: int, *, dtype: Any = None, **options: Any) -> torch.Tensor:
    _check(options.get("layout"))
    for name, size in (("n", n), ("m", m)):
        if size < 0:
            raise RuntimeError(f"{name} must be greater or equal to 0, got {size}")
    out = contiguous_spec((n, m), dtype or torch.get_default_dtype())
    return record_op("tarry::eye", (), (out,))[0]


def full(size: Any, fill_value: Any, *, dtype: Any = None, **options: Any) -> Any:
    _check(options.get("layout"))
    if dtype is None:
        dtype = (
            torch.bool
            if isinstance(fill_value, bool)
            else _number_dtype(None, fill_value)
        )
        if isinstance(fill_value, complex):
            dtype = torch.complex64
    out = contiguous_spec(size, dtype)
    if type(fill_value) is int and dtype.is_floating_point:
        fill_value = float(fill_value)  # it may have more than 63 bits
    arg, numbers = number_arg(fill_value)
    return record_op("tarry::full", (const(out.shape), arg), (out,), numbers)[0]


def zeros(size: Any, *, dtype: Any = None, **options: Any) -> torch.Tensor:
    """Forward-mode AD's zero tangents."""
    return full(size, 0, dtype=dtype or torch.get_default_dtype(), **options)


KERNELS = {
    "_efficientzerotensor": zeros,
    "empty.memory_format": empty,
    "empty_strided": empty_strided,
    "arange": arange,
    "arange.start": arange_start,
    "arange.start_step": arange_step,
    "linspace": linspace,
    "logspace": logspace,
    "eye": eye,
    "eye.m": eye_m,
    "full": full,
}
