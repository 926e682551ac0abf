"""View kernels: PyTorch's own C++ metadata kernels, by redispatch to Meta.

They share the storage and give exact sizes, strides and offsets; all that is left to
do here is to mark the slot, so that operands are compared with their base from now on.
`alias` has no kernel here: PyTorch's own, in C++, leaves its result without a Python
object, which is what `as_subclass` needs.
"""

from collections.abc import Callable
from typing import Any

import torch

from tarry.dispatch import seam
from tarry.dispatch.operands import read
from tarry.dispatch.storage import Lazy, is_base, is_lazy, slot_of
from tarry.record.slot import HOST, contiguous_spec
from tarry.record.trie import recorder
from tarry.record.views import extent

aten = torch.ops.aten
META = seam.META_KEYS


def _through_meta(name: str) -> Any:
    redispatch = seam.redispatcher(name)

    def kernel(self: torch.Tensor, *args: Any) -> torch.Tensor:
        slot = self.untyped_storage().slot
        slot.viewed = True
        slot.at = -1
        return redispatch(META, self, *args)

    return kernel


def _lazily(name: str) -> Any:
    """A view that differs from its base by a flag of the tensor, not by geometry."""
    kernel = _through_meta(name)

    def flagged(self: torch.Tensor) -> torch.Tensor:
        Lazy.seen = True
        return kernel(self)

    return flagged


def as_strided_(self: torch.Tensor, size: Any, stride: Any, offset: Any = None) -> Any:
    slot = getattr(self.untyped_storage(), "slot", None)
    if slot is not None:  # else it stands for a tensor, in a trace of PyTorch's
        slot.mark_viewed()
    return _set_geometry(
        self, size, stride, self.storage_offset() if offset is None else offset
    )


def _set_geometry(self: Any, size: Any, stride: Any, offset: int) -> Any:
    """`self` with other metadata on the same storage, in place."""
    return aten.set_.source_Storage_storage_offset.redispatch(
        META, self, self.untyped_storage(), offset, size, stride
    )


def _with_memory(self: torch.Tensor) -> torch.Tensor:
    """A copy of `self` that keeps its place in a copy of all its memory (PyTorch's
    `clone_preserve_strides`), and with it gaps between the elements."""
    if any(s == 0 and n > 1 for s, n in zip(self.stride(), self.shape)):
        return self.clone()
    memory = self.as_strided((_elements(self),), (1,), 0).clone()
    return memory.as_strided(self.shape, self.stride(), self.storage_offset())


def _elements(t: torch.Tensor) -> int:
    """How many elements like those of `t` its memory has."""
    spec = slot_of(t).spec
    return spec.numel * spec.dtype.itemsize // t.dtype.itemsize


def zeros_with_memory_like(
    self: torch.Tensor, other: torch.Tensor, *, self_num_batch_dims: int = 0
) -> torch.Tensor:
    """The tangent of `other` (forward mode): zeros that lie in their memory as `other`
    does in its own, for each element of the batch in a memory of its own."""
    batch, strides = list(self.shape[:self_num_batch_dims]), list[int]()
    step = have = _elements(other)
    for n in reversed(batch):
        strides.insert(0, step)
        step *= n
    memory = self.new_zeros([*batch, have])
    return memory.as_strided(
        [*batch, *other.shape], [*strides, *other.stride()], other.storage_offset()
    )


def has_memory_like(self: torch.Tensor, other: torch.Tensor) -> bool:
    return _elements(self) == _elements(other)


def as_strided_scatter(
    self: torch.Tensor, src: Any, size: Any, stride: Any, storage_offset: Any = None
) -> torch.Tensor:
    """Like PyTorch's, it counts from the start of the memory of `self`."""
    out = _with_memory(self)
    out.as_strided(size, stride, storage_offset).copy_(src)
    return out


def _scatter(view: Any) -> Callable[..., Any]:
    """A copy of the first operand whose `view` is the second: by the row where that
    operand is all of its memory, by a write into a copy of that memory elsewhere."""

    def wrap(plain: Callable[..., Any]) -> Callable[..., Any]:
        def kernel(self: torch.Tensor, src: torch.Tensor, *args: Any) -> torch.Tensor:
            if is_lazy(self) or is_base(self, slot_of(self).spec):
                return plain(self, src, *args)
            out = _with_memory(self)
            part = view(out, *args)
            if part.shape != src.shape:
                return plain(self, src, *args)
            part.copy_(src)
            return out

        return kernel

    return wrap


def unsafe_view(self: torch.Tensor, size: Any) -> torch.Tensor:
    return KERNELS["view"](self, size)


def view_as_real(self: torch.Tensor) -> torch.Tensor:
    part = torch.float32 if self.dtype is torch.complex64 else torch.float64
    return _retyped(self, part, aten.view_as_real.default)


def view_as_complex(self: torch.Tensor) -> torch.Tensor:
    whole = torch.complex64 if self.dtype is torch.float32 else torch.complex128
    return _retyped(self, whole, aten.view_as_complex.default)


def view_dtype(self: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return _retyped(self, dtype, aten.view.dtype, dtype)


def _retyped(self: torch.Tensor, dtype: torch.dtype, op: Any, *args: Any) -> Any:
    slot_of(self).mark_viewed()
    return op.redispatch(META, self, *args)


def set_storage(
    self: Any, source: Any, offset: Any, size: Any, stride: Any = ()
) -> Any:
    """`set_`: `self` becomes a tensor of this geometry on another storage."""
    if source.device.type != seam.DEVICE:
        raise RuntimeError(
            f"set_: a tensor on {seam.DEVICE} cannot take a storage on "
            f"{source.device}; move it there first with .to('{seam.DEVICE}')"
        )
    slot = source.slot
    slot.mark_viewed()
    if slot.state is HOST and slot.spec.dtype is torch.uint8:
        _retype_host(slot, self.dtype)
    return aten.set_.source_Storage_storage_offset.redispatch(
        META, self, source, offset, size, stride
    )


def _retype_host(slot: Any, dtype: torch.dtype) -> None:
    """Bytes just loaded take the dtype of the first tensor that is put on them."""
    whole = slot.spec.numel // dtype.itemsize * dtype.itemsize
    slot.data = slot.data[:whole].view(dtype)
    slot.spec = contiguous_spec((slot.data.numel(),), dtype)


def set_tensor(self: Any, source: torch.Tensor) -> Any:
    return set_storage(
        self,
        source.untyped_storage(),
        source.storage_offset(),
        source.shape,
        source.stride(),
    )


def resize_(self: torch.Tensor, size: Any, *, memory_format: Any = None) -> Any:
    """Resize in place; the elements that are kept keep their values (row-major)."""
    size = tuple(size)
    if tuple(self.shape) == size:
        return self
    fresh = torch.empty(
        size, dtype=self.dtype, device="meta",
        memory_format=memory_format or torch.contiguous_format,
    )  # fmt: skip
    slot = slot_of(self)
    offset = self.storage_offset()
    need = extent(size, fresh.stride(), offset)
    if need > slot.spec.numel or self.dtype is not slot.spec.dtype:
        _enlarge(self, slot, need)
    slot.mark_viewed()
    return _set_geometry(self, size, fresh.stride(), offset)


def _enlarge(self: torch.Tensor, slot: Any, need: int) -> None:
    old = slot.spec
    flat = aten.as_strided.default.redispatch(META, self, (old.numel,), (1,), 0)
    grown = torch.zeros(need, dtype=self.dtype, device=self.device)
    if old.numel and flat.dtype is old.dtype:
        grown[: min(need, old.numel)].copy_(flat[: min(need, old.numel)])
    with recorder.lock:
        pos = read(grown)
        recorder.trace.add_result(slot)
        slot.spec = contiguous_spec((need,), self.dtype)
        slot.write(pos)
        slot.mark_viewed()


WRAPPED = {
    "diagonal_scatter": _scatter(aten.diagonal.default),
    "select_scatter": _scatter(aten.select.int),
    "slice_scatter": _scatter(aten.slice.Tensor),
}

KERNELS = {
    name: _through_meta(name)
    for name in ("view", "_reshape_alias", "as_strided", "unfold")
} | {
    "_conj": _lazily("_conj"),
    "_neg_view": _lazily("_neg_view"),
    "_unsafe_view": unsafe_view,
    "as_strided_": as_strided_,
    "as_strided_scatter": as_strided_scatter,
    "_new_zeros_with_same_feature_meta": zeros_with_memory_like,
    "_has_same_storage_numel": has_memory_like,
    "view_as_real": view_as_real,
    "view_as_complex": view_as_complex,
    "view.dtype": view_dtype,
    "set_.source_Storage_storage_offset": set_storage,
    "set_.source_Tensor": set_tensor,
    "resize_": resize_,
}
