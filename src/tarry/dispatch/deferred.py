"""`x.to("cpu", non_blocking=True)`: a CPU tensor whose value is fetched when it is
first needed, so that neither the copy nor the recording waits.

PyTorch's CUDA device hands out memory that is filled later, and shows wrong numbers to
who reads it before `synchronize()`. Here every use waits for the value instead. And
here is the kernel of all copies to another dtype or device, which begins it.
"""

import threading
from typing import Any

import torch

from tarry import dtypes
from tarry.cut.cause import Cause
from tarry.dispatch import seam
from tarry.dispatch.exits import copy_of
from tarry.dispatch.operands import append, read
from tarry.dispatch.snapshot import snapshot
from tarry.dispatch.storage import is_base, is_ours, new_tensor, slot_of
from tarry.record.lines import runs_below
from tarry.record.slot import HOST, Slot, contiguous_spec, spec
from tarry.record.trie import recorder

_redispatch = seam.redispatcher("_to_copy")


class Deferred(torch.Tensor):
    """A CPU tensor with the value that a tensor of the device had when this was made.

    The first use that needs the value waits for the device, and cuts if it is still
    pending; until then the buffer is held. All uses share one plain tensor.
    """

    _held: torch.Tensor | None
    _value: torch.Tensor | None
    _lock: Any

    @staticmethod
    def of(t: torch.Tensor) -> "Deferred":
        held = snapshot(t)
        made = seam.make_wrapper(Deferred, held, "cpu")
        made._held, made._value, made._lock = held, None, threading.Lock()
        return made

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple = (), kwargs: Any = None
    ) -> Any:
        if func in _METADATA:
            with seam.without_torch_function():
                return func(*args, **(kwargs or {}))
        if func is torch.Tensor.detach:  # a parameter is made of one of the same class
            made = seam.make_wrapper(Deferred, args[0], "cpu")
            made._held, made._lock = None, threading.Lock()
            made._value = _run(func, args, kwargs)
            return made
        return _run(func, args, kwargs)

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: tuple = (), kwargs: Any = None
    ) -> Any:
        return _run(func, args, kwargs)


def _value(d: Deferred) -> torch.Tensor:
    with seam.without_torch_function(), d._lock:
        if d._value is None:
            assert d._held is not None
            d._value, d._held = copy_of(d._held, Cause.HOST), None
        return d._value


def _run(func: Any, args: tuple, kwargs: Any) -> Any:
    """`func` on the values; one that it gives back is its own tensor again."""
    used: dict[int, Deferred] = {}

    def plain(x: Any) -> Any:
        if isinstance(x, Deferred):
            value = _value(x)
            used[id(value)] = x
            return value
        if isinstance(x, list | tuple) and type(x) in (list, tuple):
            return type(x)(map(plain, x))
        return x

    args = tuple(map(plain, args))
    result = func(*args, **{k: plain(v) for k, v in (kwargs or {}).items()})
    return used.get(id(result), result)


_STRIDED = (None, torch.strided)
_PRESERVED = (None, torch.preserve_format)
_METADATA = {
    *(getattr(torch.Tensor, name).__get__ for name in (
        "shape", "dtype", "device", "layout", "ndim", "is_sparse", "is_cuda", "is_cpu",
        "is_meta", "itemsize",
    )),
    *(getattr(torch.Tensor, name) for name in (
        "size", "dim", "stride", "numel", "element_size", "is_floating_point",
        "is_complex", "is_contiguous", "ndimension", "nelement",
    )),
}  # fmt: skip


def to_copy(
    self: torch.Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None,
    pin_memory: Any = None, non_blocking: bool = False, memory_format: Any = None,
) -> torch.Tensor:  # fmt: skip
    """`_to_copy`: a cast of a whole tensor is one instruction, a non-blocking copy to
    the CPU a `Deferred`; all else is PyTorch's own (an empty tensor, then `copy_`)."""
    kept = layout in _STRIDED and memory_format in _PRESERVED and not pin_memory
    kept = kept and is_ours(self)
    if kept and (device is None or device.type == seam.DEVICE):
        slot = slot_of(self)
        whole = not slot.viewed or is_base(self, slot.spec)
        plain = whole and dtype is not self.dtype and dtype in dtypes.SUPPORTED
        # What is formatted for a print stays on the host.
        if plain and not (slot.state is HOST and runs_below(seam.PRINT_CODES)):
            return _cast(self, slot, dtype)
    elif kept and non_blocking and device.type == "cpu" and _may_wait(self):
        return Deferred.of(self if dtype is None else self.to(dtype))
    # Where asked not to block, PyTorch would pin the memory, which no one can here.
    return _redispatch(
        seam.COMPOSITE_KEYS, self, dtype=dtype, layout=layout, device=device,
        pin_memory=pin_memory, non_blocking=False, memory_format=memory_format,
    )  # fmt: skip


def _may_wait(t: torch.Tensor) -> bool:
    """False where autograd or a module that moves needs a plain tensor."""
    if torch.is_grad_enabled() and t.requires_grad:
        return False
    return not runs_below({seam.APPLY_CODE})


def _cast(t: torch.Tensor, slot: Slot, dtype: torch.dtype) -> torch.Tensor:
    old = slot.spec
    out = contiguous_spec(old.shape, dtype)
    with recorder.lock:
        value = read(t)
        key = ("tarry::cast", value, out.shape, dtype)
        node = append(key, "tarry::cast", (value,), (out,))
        made = Slot(node.base, spec(old.shape, old.strides, dtype))
        recorder.trace.add_result(made)
        return new_tensor(made)


KERNELS = {"_to_copy": to_copy}
