"""Tensors of the device: a plain `torch.Tensor` whose storage carries a slot.

PyTorch holds no memory for them (their storages are 0 bytes long), so copying and
pickling a storage have to go through the slot; the class of the storage object is
where that belongs.
"""

from collections.abc import Callable
from typing import Any

import torch

from tarry.cut.cause import Cause
from tarry.dispatch import seam
from tarry.record.slot import Slot, Spec
from tarry.record.views import extent, is_dense


class TarryStorage(torch.UntypedStorage):
    """A storage of the device; `slot` says where its value is."""

    slot: Slot
    read_bytes: Callable[[Any, Cause], torch.UntypedStorage]  # set by `dispatch.exits`
    twin: Callable[[Any], "TarryStorage"]  # set by `dispatch.operands`

    def nbytes(self) -> int:
        spec = self.slot.spec
        return spec.numel * spec.dtype.itemsize

    def size(self) -> int:
        return self.nbytes()

    def __len__(self) -> int:
        return self.nbytes()

    def cpu(self) -> torch.UntypedStorage:
        """A CPU storage with a copy of the bytes; reads the value."""
        return TarryStorage.read_bytes(self, Cause.HOST)

    def _write_file(self, f: Any, is_real_file: bool, *rest: Any) -> None:
        TarryStorage.read_bytes(self, Cause.SAVE)._write_file(f, is_real_file, *rest)

    def _set_from_file(self, *args: Any) -> None:
        """Bytes that `torch.load` reads after it has placed the storage."""
        host = torch.UntypedStorage(self.nbytes())
        host._set_from_file(*args)
        spec = self.slot.spec  # the old format has made tensors of it by now
        flat = bytes_of(host).view(spec.dtype)
        self.slot.data = flat.as_strided(spec.shape, spec.strides)

    def clone(self) -> "TarryStorage":
        return TarryStorage.twin(self)

    def data_ptr(self) -> int:
        """No address of memory, but different for different storages."""
        return self._cdata

    def __deepcopy__(self, memo: dict) -> torch.UntypedStorage:
        plain = memo.setdefault("tarry", _PlainForNow())
        memo = memo.setdefault("torch", {})
        if self._cdata not in memo:
            memo[self._cdata] = plain.add(TarryStorage.twin(self))
        return memo[self._cdata]

    def tolist(self) -> list[int]:
        return TarryStorage.read_bytes(self, Cause.NUMPY).tolist()

    def __reduce__(self) -> tuple:
        return TarryStorage.read_bytes(self, Cause.SAVE).__reduce__()

    def __repr__(self) -> str:
        return f"<{self.nbytes()} bytes on {self.device}, {self.slot.state.value}>"

    __str__ = __repr__


class _PlainForNow:
    """Copied storages, which PyTorch only wraps as plain ones: they become ours again
    when the memo of the deep copy goes."""

    def __init__(self) -> None:
        self._storages: list[torch.UntypedStorage] = []

    def add(self, storage: torch.UntypedStorage) -> torch.UntypedStorage:
        storage.__class__ = torch.UntypedStorage
        self._storages.append(storage)
        return storage

    def __del__(self) -> None:
        for storage in self._storages:
            storage.__class__ = TarryStorage


def bytes_of(storage: torch.UntypedStorage) -> torch.Tensor:
    """The bytes of a CPU storage as a tensor, without a copy."""
    return torch.empty(0, dtype=torch.uint8).set_(storage)


def attach(tensor: torch.Tensor, slot: Slot) -> torch.Tensor:
    storage = tensor.untyped_storage()
    storage.slot = slot
    storage.__class__ = TarryStorage
    return tensor


def new_tensor(slot: Slot) -> torch.Tensor:
    """A tensor with a fresh storage whose base value is `slot`'s."""
    spec = slot.spec
    tensor = attach(seam.create_empty_tensor(spec.shape, spec.dtype), slot)
    return tensor if spec.plain else restride(tensor, spec.shape, spec.strides)


def restride(
    tensor: torch.Tensor, shape: Any, strides: Any, offset: int = 0
) -> torch.Tensor:
    """A tensor of this geometry on the same storage, by PyTorch's own metadata."""
    return torch.ops.aten.as_strided.default.redispatch(
        seam.META_KEYS, tensor, shape, strides, offset
    )


def slot_of(tensor: torch.Tensor) -> Slot:
    """The slot of a tensor of this device (AttributeError for any other)."""
    return tensor.untyped_storage().slot


def is_ours(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == seam.DEVICE


class Lazy:
    """Whether any tensor was ever made a conjugate or a negative by a flag alone."""

    seen = False


def is_lazy(tensor: torch.Tensor) -> bool:
    """True for a tensor whose values are the conjugate or the negative of those that
    its storage holds."""
    return Lazy.seen and (tensor.is_conj() or tensor.is_neg())


def is_base(tensor: torch.Tensor, spec: Spec) -> bool:
    """True where the tensor's geometry is that of the base value itself."""
    return (
        tensor.shape == spec.shape
        and not is_lazy(tensor)
        and tensor.dtype is spec.dtype
        and tensor.storage_offset() == 0
        and (
            tensor.stride() == spec.strides
            or (spec.contiguous and tensor.is_contiguous())
        )
    )


def base_geometry(shape: tuple, strides: tuple) -> tuple[tuple, tuple]:
    """Shape and strides of the base for a tensor created with these."""
    if is_dense(shape, strides):
        return shape, strides
    return (extent(shape, strides),), (1,)
