"""Buffers shared with JAX, and through DLPack with everything else, without a copy."""

from typing import Any

import torch

from tarry import dtypes
from tarry.cut.cause import Cause
from tarry.cut.sync import cut
from tarry.dispatch.storage import is_base, is_ours, new_tensor, slot_of
from tarry.dtypes import FROM_NUMPY
from tarry.errors import AsideError, PoisonedError
from tarry.record.lines import user_line
from tarry.record.slot import DEVICE, HOST, IR, POISONED, Slot, contiguous_spec
from tarry.record.trie import recorder
from tarry.run.arrays import from_dlpack as array_of
from tarry.run.arrays import is_array, placed
from tarry.run.transfer import upload


def to_jax(tensor: torch.Tensor) -> Any:
    """The JAX array that holds the tensor's value: its own buffer, or, for a view that
    is not all of its memory, one of its own.

    Computes what is pending (a cut), without waiting for it. The array never changes:
    what is written to the tensor later goes to another buffer. Do not donate it to a
    JAX function, which would take the value away from the tensor.

    Raises TypeError for anything but a tensor of the device and for complex32,
    RuntimeError for one that requires a gradient (pass `tensor.detach()`).
    """
    if not is_ours(tensor):
        what = f"a tensor on {tensor.device}" if isinstance(tensor, torch.Tensor) else (
            type(tensor).__name__
        )  # fmt: skip
        raise TypeError(f"to_jax takes a tensor on tarry, got {what}")
    if tensor.dtype is torch.complex32:
        raise TypeError(
            "to_jax: JAX has no complex32; convert with .to(torch.complex64)"
        )
    if tensor.requires_grad:
        raise RuntimeError(
            "to_jax: the tensor requires a gradient, which would be lost in JAX: pass "
            "tensor.detach(), or call the JAX function with tarry.call_jax"
        )
    if recorder.trace.private:
        raise AsideError(Cause.EXPORT.value, str(user_line()))
    if not is_base(tensor, slot_of(tensor).spec):
        tensor = tensor.resolve_conj().resolve_neg()
        tensor = tensor.clone(memory_format=torch.contiguous_format)
    return _buffer(slot_of(tensor))


def _buffer(slot: Slot) -> Any:
    if slot.state is IR:
        cut(Cause.EXPORT)
    if slot.state is POISONED:
        raise PoisonedError(slot.data.error) from slot.data.error
    with recorder.lock:
        if slot.state is HOST:
            (slot.data,) = upload([dtypes.host_array(slot.data)])
            slot.state = DEVICE
            entry = recorder.trace.inputs.get(slot.pos)
            if entry is not None:
                entry.data, entry.host = slot.data, False
        return slot.data


def from_jax(array: Any) -> torch.Tensor:
    """A tensor of the device with the value of a JAX array: on the same buffer where
    that is on tarry's device, else a copy there.

    What is written to the tensor does not change the array. Do not donate the array to
    a JAX function while the tensor is in use.

    Raises TypeError for anything but a concrete JAX array, or for a dtype that PyTorch
    lacks; ValueError for an array that was deleted or donated.
    """
    if not is_array(array):
        raise TypeError(f"from_jax takes a JAX array, got {type(array).__name__}")
    if array.dtype not in FROM_NUMPY:
        raise TypeError(f"from_jax: PyTorch has no dtype for {array.dtype}")
    dtype = dtypes.from_numpy(array.dtype)
    slot = Slot(-1, contiguous_spec(array.shape, dtype))
    slot.state, slot.data, slot.made = DEVICE, placed(array), user_line()
    recorder.trace.bear(slot)
    return new_tensor(slot)


def to_dlpack(tensor: torch.Tensor) -> Any:
    """A DLPack capsule of `to_jax(tensor)`."""
    return to_jax(tensor).__dlpack__()


def from_dlpack(value: Any) -> torch.Tensor:
    """A tensor of the device on the memory of `value`: an object with `__dlpack__` (a
    CPU tensor, a NumPy or JAX array), or a DLPack capsule of tarry's device.

    What is written to the tensor does not change `value`; `value` must not change while
    the tensor is in use.
    """
    return from_jax(array_of(value))
