"""Operators whose result shape depends on data: one cut for the size they need, named
with the operator and the user's line; the rest is recorded."""

from typing import Any

import torch

from tarry.cut.cause import Cause
from tarry.dispatch import seam
from tarry.dispatch.exits import on_host, value_of
from tarry.dispatch.operands import read, record_op
from tarry.record.lines import runs_below
from tarry.record.slot import contiguous_spec
from tarry.record.trie import recorder


def count_of(mask: torch.Tensor, op: str) -> int:
    """How many are true: a cut that names `op`."""
    return int(value_of(mask.sum(), Cause.SHAPE, op))


def places_of(mask: torch.Tensor, n: int) -> torch.Tensor:
    """The places of the `n` true elements of a mask of one dimension."""
    out = contiguous_spec((1, n), torch.int64)
    with recorder.lock:
        return record_op("tarry::nonzero", (read(mask),), (out,))[0][0]


def nonzero(self: torch.Tensor) -> torch.Tensor:
    n = count_of(self != 0, "aten::nonzero")
    out = contiguous_spec((self.dim(), n), torch.int64)
    with recorder.lock:
        return record_op("tarry::nonzero", (read(self),), (out,))[0].t()


def masked_select(self: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    if mask.dtype is not torch.bool:
        raise RuntimeError(
            f"masked_select: expected BoolTensor for mask, but got {mask.dtype}"
        )
    self, mask = torch.broadcast_tensors(self, mask)
    n = count_of(mask, "aten::masked_select")
    return self.reshape(-1).index_select(0, places_of(mask.reshape(-1), n))


def _expanded(self: torch.Tensor, indices: Any) -> list[Any]:
    """Boolean and byte masks replaced by the index tensors they stand for."""
    found: list[Any] = []
    for index in indices:
        if index is None:
            found.append(None)
        elif index.dtype in (torch.bool, torch.uint8):
            at = len(found)
            for j in range(index.dim()):
                if index.shape[j] != self.shape[at + j]:
                    raise IndexError(
                        f"The shape of the mask {list(index.shape)} at index {j} does "
                        f"not match the shape of the indexed tensor "
                        f"{list(self.shape)} at index {at + j}"
                    )
            found += nonzero(index.to(self.device)).unbind(1)
        else:
            found.append(index.to(self.device))
    return found


def has_mask(indices: Any) -> bool:
    return any(
        i is not None
        and (i.dtype in (torch.bool, torch.uint8) or i.device.type == "cpu")
        for i in indices
    )


def index(plain: Any) -> Any:
    def kernel(self: torch.Tensor, indices: Any) -> torch.Tensor:
        if has_mask(indices):
            indices = _expanded(self, indices)
        return plain(self, indices)

    return kernel


def index_put(plain: Any) -> Any:
    """`x[mask] = value` with one mask and one value is a select, without a cut."""

    def kernel(
        self: torch.Tensor,
        indices: Any,
        values: Any,
        accumulate: bool = False,
        *rest: Any,
    ) -> Any:
        if values.device.type == "cpu" and values.dim() == 0:
            values = values.to(self.device)
        if has_mask(indices):
            filled = _masked(self, indices, values, accumulate)
            if filled is not None:
                return filled
            indices = _expanded(self, indices)
        return plain(self, indices, values, accumulate, *rest)

    def _masked(self: Any, indices: Any, values: Any, accumulate: bool) -> Any:
        mask = indices[0]
        single = len(indices) == 1 and mask is not None and mask.dtype is torch.bool
        if not single or values.numel() != 1 or accumulate:
            return None
        if mask.shape != self.shape[: mask.dim()]:
            return None
        mask = mask.to(self.device)
        mask = mask.reshape(*mask.shape, *[1] * (self.dim() - mask.dim()))
        value = values.reshape(()).to(self.dtype)
        if plain.__name__.startswith(("index_put_", "_index_put_impl_")):
            return self.masked_fill_(mask, value)
        return self.masked_fill(mask, value)

    return kernel


def repeat_interleave(repeats: torch.Tensor, *, output_size: Any = None) -> Any:
    if output_size is None:
        output_size = int(
            value_of(repeats.sum(), Cause.SHAPE, "aten::repeat_interleave")
        )
    ends = repeats.cumsum(0)
    places = torch.arange(output_size, device=repeats.device)
    return torch.searchsorted(ends, places, right=True).to(repeats.dtype)


def bincount(self: torch.Tensor, weights: Any = None, minlength: int = 0) -> Any:
    if self.dim() != 1 or self.dtype.is_floating_point or self.dtype.is_complex:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if minlength < 0:
        raise RuntimeError(f"minlength should be >= 0, but got: {minlength}")
    if weights is not None and weights.shape != self.shape:
        raise RuntimeError("weights should be 1-d and have the same length as input")
    size = minlength
    if self.numel():
        ends = value_of(torch.stack(self.aminmax()), Cause.SHAPE, "aten::bincount")
        if ends[0] < 0:
            raise RuntimeError(
                "bincount only supports 1-d non-negative integral inputs."
            )
        size = max(minlength, int(ends[1]) + 1)
    if weights is None:
        weights = torch.ones_like(self, dtype=torch.int64)
    elif weights.dtype is not torch.float32:
        weights = weights.to(torch.float64)
    counts = torch.zeros(size, dtype=weights.dtype, device=self.device)
    return counts.index_add_(0, self.to(torch.int64), weights)


def _off_print(op: Any, kernel: Any) -> Any:
    """`kernel`, except that formatting a tensor runs on the host."""

    def choose(*args: Any, **kwargs: Any) -> Any:
        if runs_below(seam.PRINT_CODES):
            return on_host(op, args, None, Cause.PRINT, **kwargs)
        return kernel(*args, **kwargs)

    return choose


KERNELS = {
    "nonzero": _off_print(torch.ops.aten.nonzero.default, nonzero),
    "masked_select": _off_print(torch.ops.aten.masked_select.default, masked_select),
    "repeat_interleave.Tensor": repeat_interleave,
    "bincount": bincount,
}
