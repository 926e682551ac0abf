"""Tensors into the recording and out of it: operands are read, results written back.

Reading gives a value number: the slot's own where the tensor is the whole storage, a
view instruction's where PyTorch's metadata say otherwise. Writing is its inverse, so
every alias of a storage sees every write.
"""

from typing import Any
from weakref import ref

import torch

from tarry.dispatch import seam
from tarry.dispatch.storage import Lazy, TarryStorage, is_base, is_lazy, new_tensor
from tarry.errors import PoisonedError
from tarry.record.lines import user_line
from tarry.record.slot import (
    ABSENT,
    HOST,
    IR,
    POISONED,
    Slot,
    Spec,
    contiguous_spec,
    geometry_number,
    spec,
)
from tarry.record.slot import _geometries as GEOMETRIES
from tarry.record.trie import (
    INPUT,
    VIEW,
    WRITE,
    Const,
    Input,
    Instr,
    Num,
    const,
    recorder,
)
from tarry.record.views import extent

KINDS = {float: "f", int: "i", bool: "b", complex: "c"}


def append(key: Any, op: str, args: tuple, specs: tuple[Spec, ...]) -> Instr:
    """Record an instruction whose operands are read; call with the lock held."""
    while True:
        trace = recorder.trace
        node = trace.node
        found = node.next.get(key)
        if found is None:
            found = recorder.grow(node, key, op, args, specs, user_line())
        if recorder.trace is trace and trace.node is node:
            trace.node = found
            return found


def spec_const(s: Spec) -> Const:
    return Const(s, ("spec", s.shape, s.strides, str(s.dtype)))


def geometry(t: torch.Tensor) -> tuple:
    return tuple(t.shape), t.stride(), t.storage_offset(), t.dtype


def geometry_const(g: tuple) -> Const:
    return Const(g, ("geometry", *g[:3], str(g[3])))


def tensor_spec(t: torch.Tensor) -> Spec:
    return spec(tuple(t.shape), t.stride(), t.dtype)


def read(t: torch.Tensor) -> int:
    """The value number of `t` in the current recording."""
    if Lazy.seen and is_lazy(t):
        t = plain(t)
    s = t.untyped_storage().slot
    pos = s.pos
    if pos >= 0 and s.viewed:
        g = (t.shape, t.stride(), t.storage_offset(), t.dtype)
        number = GEOMETRIES.get(g)
        if number == s.spec.geometry:
            return pos
        found = recorder.trace.views.get((pos, number))
        if found is not None:
            return found
    return _read(t, s)


def plain(t: torch.Tensor) -> torch.Tensor:
    """A tensor that holds the values which a lazy conjugate or negative stands for."""
    aten = torch.ops.aten
    if t.is_conj():
        return aten._conj_physical(aten._conj(t))
    return aten.neg(aten._neg_view(t))


def _read(t: torch.Tensor, s: Slot) -> int:
    with recorder.lock:
        pos = s.pos if s.pos >= 0 else enter(s)
        if not s.viewed:
            s.at = pos
            return pos
        return pos if is_base(t, s.spec) else _read_view(t, s, pos)


def enter(s: Slot) -> int:
    """Bring a value from before the recording into it as an input (lock held)."""
    if s.state is POISONED:
        raise PoisonedError(s.data.error) from s.data.error
    trace = recorder.trace
    last = trace.node
    base = s.spec
    node = last.next.get((INPUT, base.geometry))
    if node is not None and trace.node is last:
        trace.node = node
    else:
        shape = base.shape
        plain = contiguous_spec(shape, base.dtype)
        node = append((INPUT, base.geometry), INPUT, (const(shape),), (plain,))
    pos = s.pos = node.base
    trace.inputs[pos] = Input(ref(s), s.data, base, s.state is HOST)
    return pos


def _read_view(t: torch.Tensor, s: Slot, pos: int) -> int:
    g = geometry(t)
    number = geometry_number(g)
    trace = recorder.trace
    found = trace.views.get((pos, number))
    if found is None:
        key = (VIEW, pos, number, s.spec.geometry)
        node = trace.node
        edge = node.next.get(key)
        if edge is None:
            check_in_bounds(g, s.spec)
            args = (pos, spec_const(s.spec), geometry_const(g))
            edge = append(key, VIEW, args, (tensor_spec(t),))
        elif trace.node is node:
            trace.node = edge
        else:
            return _read_view(t, s, pos)
        found = trace.views[pos, number] = edge.base
    return found


def check_in_bounds(g: tuple, base: Spec) -> None:
    """PyTorch's error for a geometry that reaches past its storage."""
    shape, strides, offset, dtype = g
    have = base.numel * base.dtype.itemsize
    need = extent(shape, strides, offset) * dtype.itemsize
    if need > have:
        raise RuntimeError(
            f"setStorage: sizes {list(shape)}, strides {list(strides)}, storage offset "
            f"{offset}, and itemsize {dtype.itemsize} requiring a storage size of "
            f"{need} are out of bounds for storage of size {have}"
        )


def foreign(value: Any) -> tuple[Any, tuple]:
    """Key part and run-time numbers of an operand that is not one of our tensors."""
    kind = KINDS.get(value.__class__)
    if kind is not None:
        return kind, (value,)
    if isinstance(value, torch.Tensor):
        if value.device.type == "cpu" and value.dim() == 0:
            return value.dtype, (value.item(),)
        if value.device.type == seam.DEVICE:
            raise AttributeError("a tensor on tarry without a slot")
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two "
            f"devices, {seam.DEVICE}:0 and {value.device}! Move the operand there "
            f"with .to('{seam.DEVICE}')."
        )
    if value is None:
        return None, ()
    raise TypeError(f"an operand of type {type(value).__name__} on {seam.DEVICE}")


def store(s: Slot, t: torch.Tensor, value: int) -> None:
    """Make the value number `value` the content of `t` (lock held, value recorded)."""
    for op in _pending(t):
        out = contiguous_spec(t.shape, t.dtype)
        value = append((op, value), op, (value,), (out,)).base
    if s.viewed and not is_base(t, s.spec):
        pos = s.pos if s.pos >= 0 else enter(s)
        g = geometry(t)
        check_in_bounds(g, s.spec)
        key = (WRITE, pos, value, geometry_number(g), s.spec.geometry)
        args = (pos, value, spec_const(s.spec), geometry_const(g))
        value = append(key, WRITE, args, (s.spec,)).base
    recorder.trace.add_result(s)
    s.write(value)


def _pending(t: torch.Tensor) -> list[str]:
    """The operations that a lazy conjugate or negative owes to its storage."""
    if not is_lazy(t):
        return []
    return ["_conj_physical"] * t.is_conj() + ["neg"] * t.is_neg()


def share(source: Slot, out: Spec) -> torch.Tensor:
    """A new tensor with a new storage whose value is now that of `source`."""
    with recorder.lock:
        if source.state is POISONED:
            raise PoisonedError(source.data.error) from source.data.error
        if source.pos < 0 and recorder.trace.private:
            enter(source)
        elif source.state is not IR and not recorder.trace.private:
            s = Slot(-1, out)
            s.state, s.data = source.state, source.data
            return new_tensor(s)
        s = Slot(source.pos, out)
        recorder.trace.add_result(s)
        return new_tensor(s)


def twin(storage: TarryStorage) -> TarryStorage:
    """A new storage with the value that `storage` has now."""
    return share(storage.slot, storage.slot.spec).untyped_storage()


TarryStorage.twin = staticmethod(twin)


def host_slot(data: torch.Tensor, out: Spec) -> Slot:
    """A slot whose value is host memory that no one else will change."""
    s = Slot(-1, out)
    s.state, s.data, s.made = HOST, data, user_line()
    if recorder.trace.private:
        recorder.trace.bear(s)
    return s


def from_host(data: torch.Tensor) -> torch.Tensor:
    """A tensor of the device with a snapshot of a CPU tensor, strides kept."""
    strided = torch.empty_like(data, device="meta")
    out = spec(tuple(data.shape), strided.stride(), data.dtype)
    copy = data.detach().resolve_conj().resolve_neg()
    copy = copy.clone(memory_format=torch.contiguous_format)
    return new_tensor(host_slot(copy, out))


def record_op(
    op: str, args: tuple, outs: tuple[Spec, ...], numbers: tuple = ()
) -> list[torch.Tensor]:
    """Record one instruction from arguments in instruction form; its new tensors.

    `args` holds value numbers, None, `Num`, `Const` and tuples of these. Operands must
    have been read under the same hold of the lock.
    """
    with recorder.lock:
        key = (op, args, *[o.geometry for o in outs])
        node = append(key, op, args, outs)
        trace = recorder.trace
        if numbers:
            trace.numbers[node.base] = numbers
        tensors: list[Any] = []
        for i, out in enumerate(outs):
            if out is ABSENT:
                tensors.append(None)
                continue
            s = Slot(node.base + i, out)
            trace.add_result(s)
            tensors.append(new_tensor(s))
        return tensors


def number_arg(value: Any) -> tuple[Any, tuple]:
    """A Python number as an instruction argument and the run-time numbers it brings."""
    kind, numbers = foreign(value)
    return Num(kind), numbers
