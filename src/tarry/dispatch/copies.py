"""Copies between the device and the host, and between tensors of the device.

A copy between whole tensors of the device moves no data: both slots take the same
value, and donation by ownership keeps a later write of one from showing in the other.
"""

from typing import Any

import torch
from torch.nn.parameter import is_lazy as is_uninitialized

from tarry.cut.cause import Cause
from tarry.dispatch import seam
from tarry.dispatch.exits import value_of
from tarry.dispatch.operands import (
    append,
    from_host,
    read,
    share,
    store,
    tensor_spec,
)
from tarry.dispatch.storage import is_base, is_ours, new_tensor, slot_of
from tarry.dispatch.trial import refuse_overlap
from tarry.errors import UnsupportedError
from tarry.record.lines import runs_below, user_line
from tarry.record.slot import HOST, Slot, contiguous_spec, spec
from tarry.record.trie import recorder
from tarry.record.views import is_dense


def copy_(self: torch.Tensor, src: Any, non_blocking: bool = False) -> torch.Tensor:
    if self is src:
        return self
    if not isinstance(src, torch.Tensor):
        return self.fill_(src)
    if is_uninitialized(src):  # a parameter of a lazy module, which hides its shape
        return self
    if src.layout is not torch.strided:
        raise UnsupportedError(
            f"copying a tensor of layout {src.layout}",
            str(user_line()),
            "make it dense first (x.to_dense())",
        )
    if not is_ours(self):
        return self.copy_(value_of(src, Cause.HOST))
    if src.is_conj() or src.is_neg():
        src = src.resolve_conj().resolve_neg()
    if is_ours(src) and not _printing(src):
        _copy_on_device(self, src)
    elif is_ours(src):
        _copy_from_host(self, value_of(src, Cause.PRINT))
    else:
        _copy_from_host(self, src)
    return self


def _printing(src: torch.Tensor) -> bool:
    """True while PyTorch formats a tensor from values that are on the host."""
    return slot_of(src).state is HOST and runs_below(seam.PRINT_CODES)


def _copy_from_host(dst: torch.Tensor, src: torch.Tensor) -> None:
    if src.device.type != "cpu":
        src = src.cpu()
    snapshot = torch.empty(dst.shape, dtype=dst.dtype).copy_(src)
    slot = slot_of(dst)
    if not slot.viewed or is_base(dst, slot.spec):
        with recorder.lock:
            recorder.trace.add_result(slot)
            slot.move(HOST, snapshot)
            slot.made = user_line()
    else:
        _copy_on_device(dst, from_host(snapshot))


def _copy_on_device(dst: torch.Tensor, src: torch.Tensor) -> None:
    if src.shape != dst.shape and not _broadcasts(src.shape, dst.shape):
        raise RuntimeError(
            f"The size of tensor a ({_first_clash(dst, src)[0]}) must match the size "
            f"of tensor b ({_first_clash(dst, src)[1]}) at non-singleton dimension "
            f"{_first_clash(dst, src)[2]}"
        )
    refuse_overlap(dst)
    with recorder.lock:
        value = read(src)
        if src.shape != dst.shape or src.dtype is not dst.dtype:
            out = contiguous_spec(dst.shape, dst.dtype)
            key = ("tarry::cast", value, out.shape, out.dtype)
            value = append(key, "tarry::cast", (value,), (out,)).base
        store(slot_of(dst), dst, value)


def _broadcasts(shape: Any, target: Any) -> bool:
    if len(shape) > len(target):
        return False
    return all(a in (1, b) for a, b in zip(reversed(shape), reversed(target)))


def _first_clash(dst: torch.Tensor, src: torch.Tensor) -> tuple[int, int, int]:
    for i in range(1, max(dst.dim(), src.dim()) + 1):
        a = dst.shape[-i] if i <= dst.dim() else 1
        b = src.shape[-i] if i <= src.dim() else 1
        if b not in (1, a):
            return a, b, dst.dim() - i
    return src.dim(), dst.dim(), 0


def clone(self: torch.Tensor, *, memory_format: Any = None) -> torch.Tensor:
    slot = slot_of(self)
    shape = tuple(self.shape)
    keep = memory_format in (None, torch.preserve_format)
    if keep and is_dense(shape, self.stride()):
        out = tensor_spec(self)
    else:
        like = torch.empty_strided(
            shape, self.stride(), dtype=self.dtype, device="meta"
        )
        strides = torch.empty_like(
            like, memory_format=memory_format or torch.preserve_format
        ).stride()
        out = spec(shape, strides, self.dtype)
    if not slot.viewed or is_base(self, slot.spec):
        return share(slot, out)
    with recorder.lock:
        s = Slot(read(self), out)
        recorder.trace.add_result(s)
        return new_tensor(s)


def copy_from(self: torch.Tensor, dst: torch.Tensor, non_blocking: bool = False) -> Any:
    return copy_(dst, self, non_blocking)


def copy_from_and_resize(self: torch.Tensor, dst: torch.Tensor) -> torch.Tensor:
    dst.resize_(self.shape)
    return copy_(dst, self)


KERNELS = {
    "copy_": copy_,
    "clone": clone,
    "_copy_from": copy_from,
    "_copy_from_and_resize": copy_from_and_resize,
}
