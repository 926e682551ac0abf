"""What a tensor of the device is at the moment: its identity, state, IR, buffer."""

from typing import Any

import torch

from tarry.debug.programs import pending, xla_text
from tarry.dispatch.storage import is_ours, slot_of
from tarry.dtypes import SHORT
from tarry.job.world import real_devices
from tarry.ledger import ledger
from tarry.record.graph import Graph, Node
from tarry.record.slot import DEVICE, HOST, IR, POISONED, Slot, spec
from tarry.record.trie import INPUT
from tarry.report.ir import dot_text
from tarry.report.lazy_ir import lazy_text, operation, shape_text


def tensor_id(tensor: torch.Tensor) -> int:
    """A number for the tensor's memory, as long as it lives; views share it."""
    return id(slot_of(tensor))


def view_alias_id(tensor: torch.Tensor) -> int:
    """The number of the memory, 0 where no view of it was made."""
    slot = slot_of(tensor)
    return id(slot) if slot.viewed else 0


def is_placeholder(tensor: torch.Tensor) -> bool:
    """Whether there is no value: it was donated, or its program failed."""
    slot = slot_of(tensor)
    if slot.state is DEVICE:
        return bool(slot.data.is_deleted())
    return slot.state not in (IR, HOST)


def is_pending(tensor: torch.Tensor) -> bool:
    """Whether its value has yet to be computed."""
    return slot_of(tensor).state is IR


def buffer_address(tensor: torch.Tensor) -> int:
    """Where the value is in the device's memory, 0 if it is not there yet."""
    slot = slot_of(tensor)
    if slot.state is DEVICE:
        return slot.data.unsafe_buffer_pointer()
    return slot.data.data_ptr() if slot.state is HOST else 0


def handles(tensors: list[torch.Tensor]) -> list[int]:
    """A number for the value of each; RuntimeError if one has none."""
    for tensor in tensors:
        if is_placeholder(tensor):
            raise RuntimeError("this tensor has no value: its buffer is deleted")
    return [tensor_id(t) for t in tensors]


def debug_info(tensor: torch.Tensor) -> str:
    """Identity, shape and state, a line each; of another tensor, that it is none."""
    if not is_ours(tensor):
        return "Not a XLATensor\n"
    slot = slot_of(tensor)
    own = spec(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)
    rows = {
        "TensorID": str(id(slot)),
        "AliasID": str(view_alias_id(tensor)),
        "Device": real_devices()[0],
        "XLA Shape": shape_text(own),
        "ShardingSpec": "None",
        "IR": _ir(tensor) if slot.state is IR else "None",
        "XLAData": "None",
        "Tensor on host": "None",
    }
    if slot.state in (DEVICE, POISONED):
        rows["XLAData"] = _data(slot)
    if slot.state is HOST:
        rows["Tensor on host"] = f"with size {list(tensor.shape)}"
    return "XLATensor {\n" + "".join(f"{k}: {v}\n" for k, v in rows.items()) + "}\n"


def _ir(tensor: torch.Tensor) -> str:
    graph = pending([tensor])
    if graph is None:
        return f"[] xla::device_data, xla_shape={shape_text(slot_of(tensor).spec)}"
    node = graph.nodes[-1]
    return f"[] {operation(node.op)}, xla_shape={shape_text(node.specs[0])}"


def _data(slot: Slot) -> str:
    gone = slot.state is POISONED or slot.data.is_deleted()
    handle = "Deleted" if gone else hex(slot.data.unsafe_buffer_pointer())
    return (
        f"\n  Data Device: {real_devices()[0]}\n"
        f"  Data Shape: {shape_text(slot.spec)}\n  Data Handle: {handle}"
    )


def _whole(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors; in place of those that see part of a memory, or see it otherwise,
    copies that are recorded."""
    return [
        t if t.shape == slot_of(t).spec.shape and t.dtype is slot_of(t).spec.dtype
        else t.clone()
        for t in tensors
    ]  # fmt: skip


def _graph(tensors: list[torch.Tensor]) -> Graph:
    """The graph that computes the tensors, of inputs alone where nothing is pending."""
    graph = pending(_whole(tensors))
    if graph is not None:
        return graph
    specs = [slot_of(t).spec for t in tensors]
    nodes = [
        Node(INPUT, s.shape, (s.dtype,), (s.shape,), (s,), None)  # type: ignore[arg-type]
        for s in specs
    ]
    return Graph(tuple(nodes), tuple(range(len(nodes))))


def text(tensors: list[torch.Tensor]) -> str:
    """torch_xla's IR text of what computes the tensors."""
    return lazy_text(_graph(tensors), real_devices()[0])


def dot(tensors: list[torch.Tensor]) -> str:
    """The same for Graphviz."""
    return dot_text(_graph(tensors), ())


def hlo(tensors: list[torch.Tensor]) -> str:
    """The HLO, not optimized, of what computes the tensors."""
    return xla_text(_graph(tensors), "hlo")


def stablehlo(tensors: list[torch.Tensor] | None = None, *ignored: Any) -> str:
    """The StableHLO of what computes the tensors; of all that is pending if none."""
    graph = pending(tensors or None) if not tensors else _graph(tensors)
    return "" if graph is None else xla_text(graph, "stablehlo")


def graph_hash(tensors: list[torch.Tensor]) -> str:
    """A number for what computes the tensors: equal graphs have equal ones."""
    return f"{hash(_graph(tensors)) & (1 << 64) - 1:016x}"


def shape_type(tensor: torch.Tensor) -> str:
    """XLA's name of the dtype: `f32`."""
    return SHORT[tensor.dtype]


def size_tensor(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    """The size of a dimension, as a tensor of the device."""
    return torch.tensor(tensor.shape[dim], device=tensor.device)


def pending_flags(tensors: list[torch.Tensor]) -> list[bool]:
    """For every tensor, whether its value has yet to be computed."""
    return [is_pending(t) for t in tensors]


def count(name: str, n: int = 1) -> None:
    """Add `n` to a counter."""
    ledger.count(name, n)
