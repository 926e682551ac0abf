"""Every name of torch that is private or may move: the one place to look after a new
torch release."""

import sys
import traceback
from collections.abc import Iterable
from contextlib import suppress
from operator import getitem
from typing import Any

import torch
import torch._guards
import torch._tensor_str
import torch.fx
import torch.utils._python_dispatch
import torch.utils._pytree
from torch.autograd import forward_ad
from torch.utils import backend_registration
from torch.utils.checkpoint import CheckpointPolicy

from tarry.config import config
from tarry.errors import OldTorchError, SlotTakenError

NEEDED_TORCH = "2.13"
DEVICE = config.device
KEY = "PrivateUse1"  # where the device's kernels are registered

Tensor = torch.Tensor
HigherOrderOperator = torch._ops.HigherOrderOperator
checkpointed = torch.ops.higher_order.tag_activation_checkpoint
DispatchKey = torch._C.DispatchKey
COMPOSITE_KEYS = torch._C.DispatchKeySet(DispatchKey.CompositeExplicitAutograd)
META_KEYS = torch._C.DispatchKeySet(DispatchKey.Meta)

# Formatting a tensor runs ordinary operators on it; these frames tell a print apart.
PRINT_CODES = {torch._tensor_str._str_intern.__code__}
# Saving copies a storage to the CPU; this frame tells it from a user's own copy.
SAVE_CODES = {torch.save.__code__}

# `Module._apply` and its names of the module, of a parameter's name, of what moves
# tensors, of a parameter and of what takes its place.
APPLY_CODE = torch.nn.Module._apply.__code__
APPLY_NAMES = ("self", "key", "fn", "param", "param_applied")

tree_flatten = torch.utils._pytree.tree_flatten
tree_unflatten = torch.utils._pytree.tree_unflatten

# Steps of autograd's graph are numbered in the order in which a thread takes them.
next_sequence_number = torch._C._autograd._get_sequence_nr

profiler_enabled = torch._C._autograd._profiler_enabled

create_empty_tensor = torch._C._acc.create_empty_tensor
without_torch_function = torch._C.DisableTorchFunctionSubclass


class _DeviceGuard(torch._C._acc.DeviceGuard):
    """Asked for its type around every operator, so with nothing to look up."""

    def type_(self, _types: Any = (torch._C._autograd.DeviceType.PrivateUse1,)) -> Any:
        try:
            return _types[-1]
        except BaseException as error:
            _report_lost(error)
            return _types[0]


def _report_lost(error: BaseException) -> None:
    """Show the error of a hook of autograd's, which PyTorch loses on its way.

    When a hook raises, PyTorch asks for the device's type with the error still set,
    in a place where it must not fail: or the process ends. A negative index is where
    Python notices such an error, and it is then taken off. What PyTorch raises in its
    place is a SystemError without words.
    """
    with suppress(BaseException):
        print("A hook of autograd raised (a SystemError follows):", file=sys.stderr)
        traceback.print_exception(error)


def claim_device(module: Any) -> None:
    """Register PrivateUse1 as `DEVICE`.

    Raises OldTorchError or SlotTakenError.
    """
    found = torch._C._get_privateuse1_backend_name()
    if found not in ("privateuseone", DEVICE):
        raise SlotTakenError(found)
    setup = getattr(
        backend_registration, "_setup_privateuseone_for_python_backend", None
    )
    if setup is None or not hasattr(torch._C, "_acc"):
        raise OldTorchError(torch.__version__, NEEDED_TORCH)
    if DEVICE == "xla":
        _claim_as_xla(module)
    else:
        setup(DEVICE, module, device_guard=_DeviceGuard())


def _claim_as_xla(module: Any) -> None:
    """PyTorch's setup, one step after the other, because it refuses a name for which
    `Tensor.is_xla` exists: that of a device it knows and does not bring."""
    torch.utils.rename_privateuse1_backend(DEVICE)
    torch.Tensor.is_xla = property(lambda self: self.device.type == DEVICE)
    torch.Tensor.xla = lambda self, device=None, non_blocking=False, **options: self.to(
        device or DEVICE, non_blocking=non_blocking, **options
    )
    torch.utils.generate_methods_for_privateuse1_backend(for_tensor=False)
    torch._register_device_module(DEVICE, module)
    hook = backend_registration._DummyPrivateUse1Hook()
    torch._C._acc.register_python_privateuseone_hook(hook)
    torch._C._acc.register_python_privateuseone_device_guard(_DeviceGuard())
    torch.set_autocast_dtype(DEVICE, torch.bfloat16)  # as for PyTorch's own "xla"


def wraps_tensors(tensor: torch.Tensor) -> bool:
    """True of subclasses that are made of other tensors."""
    return torch.utils._python_dispatch.is_traceable_wrapper_subclass(tensor)


def take_contents(leaf: torch.Tensor, other: torch.Tensor) -> None:
    """Give `leaf` the contents of `other`, which gets those of `leaf`. `leaf` stays the
    object it is, with attributes and hooks; a backward pass that would still add to its
    gradient raises."""
    hooks, after = leaf._backward_hooks, leaf._post_accumulate_grad_hooks
    if leaf.requires_grad and leaf._use_count() > 1:  # an older graph may lead to it
        torch.autograd.graph.get_gradient_edge(leaf).node.register_prehook(_too_late)
    torch._C._swap_tensor_impl(leaf, other)
    # Hooks belong to the contents; setting them attaches them to the new ones.
    leaf._backward_hooks, leaf._post_accumulate_grad_hooks = hooks, after


def _too_late(grads: Any) -> None:
    raise RuntimeError(
        "A parameter was moved to another device between the forward and the backward "
        "pass, so its gradient cannot be added to it. Move the module before the "
        "forward pass, or after the backward pass."
    )


def op_overload(name: str) -> Any:
    """`add.Tensor` or `relu` as a `torch._ops.OpOverload` of aten."""
    packet, _, which = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), which or "default")


def make_wrapper(cls: type, like: torch.Tensor, device: str) -> Any:
    """A tensor of the subclass `cls` without memory, with the metadata of `like`."""
    return torch.Tensor._make_wrapper_subclass(
        cls, like.shape, strides=like.stride(), dtype=like.dtype, device=device
    )


def overload_names(packet: str) -> list[str]:
    """The overloads of an operator of aten; none where it has no such operator."""
    found = getattr(torch.ops.aten, packet, None)
    return [] if found is None else found.overloads()


def has_overload(name: str) -> bool:
    """Whether this PyTorch has the overload: they come and go with its releases."""
    packet, _, which = name.partition(".")
    return (which or "default") in overload_names(packet)


def redispatcher(name: str) -> Any:
    """`(keys, *args)` -> the op's kernel for these dispatch keys, in C++."""
    return op_overload(name)._handle.redispatch_boxed


def has_kernel(name: str, key: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", key)


def without_autocast() -> Any:
    """A context in which autocast kernels of the device are passed over."""
    return torch._C._ExcludeDispatchKeyGuard(
        torch._C.DispatchKeySet(DispatchKey.AutocastPrivateUse1)
    )


def below_autograd() -> Any:
    """A context in which operators are not recorded for differentiation, but still seen
    by whoever traces them."""
    return torch._C._AutoDispatchBelowAutograd()


def all_aten_overloads() -> list[str]:
    """Names of all aten overloads, without `aten::`."""
    names = torch._C._dispatch_get_all_op_names()
    return sorted(n.removeprefix("aten::") for n in names if n.startswith("aten::"))


def decompositions() -> dict[Any, Any]:
    """PyTorch's own decompositions, by overload."""
    import torch._decomp as decomp

    return decomp.decomposition_table


def data_pointer(storage: torch.UntypedStorage) -> int:
    return storage._cdata


def overload_name(target: Any) -> str:
    """`add.Tensor` or `relu` of an overload of aten; "" of anything else."""
    schema = getattr(target, "_schema", None)
    if schema is None or not schema.name.startswith("aten::"):
        return ""
    return schema_name(schema)


def schema_name(schema: Any) -> str:
    """Operator and overload, without `aten::`; other namespaces stay."""
    name = schema.name.removeprefix("aten::")
    return f"{name}.{schema.overload_name}" if schema.overload_name else name


def carries_tangents(values: Iterable[Any]) -> bool:
    """Whether derivatives in forward mode go through one of the values."""
    if forward_ad._current_level < 0:
        return False
    tensors = [v for v in values if isinstance(v, torch.Tensor)]
    return any(forward_ad.unpack_dual(t).tangent is not None for t in tensors)


def is_view(target: Any) -> bool:
    """Whether an overload's result may share the memory of an operand."""
    schema = getattr(target, "_schema", None)
    return schema is not None and any(
        a.alias_info is not None for a in schema.arguments
    )


def keeps_graph() -> bool:
    """In a backward pass: whether its graph is to be used again."""
    return torch._C._autograd._get_current_graph_task_keep_graph()


def saves_through_hooks() -> bool:
    """Whether saved tensors pass through hooks of the user, who may keep them."""
    return torch._C._autograd._top_saved_tensors_default_hooks(False) is not None


def aot_autograd(**compilers: Any) -> Any:
    """Dynamo's AOTAutograd with these compilers of functional graphs, which hold the
    writes to arguments; what is cheap is computed again rather than saved."""
    from torch._dynamo.backends.common import aot_autograd

    return aot_autograd(
        **compilers, keep_inference_input_mutations=True, partition_fn=_partition
    )


def _partition(joint: torch.fx.GraphModule, inputs: Any, **options: Any) -> Any:
    """The forward and the backward graph. Random numbers of a checkpointed part are
    saved: to draw them again PyTorch asks devices that it knows for their state."""
    from torch._functorch import partitioners

    for node in joint.graph.nodes:
        seeded = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        if seeded and partitioners.must_recompute(node):
            parts = [u for u in node.users if u.target is getitem]
            for saved in (node, *parts):
                saved.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    return partitioners.min_cut_rematerialization_partition(joint, inputs, **options)


def allow_retained_graphs() -> None:
    """While AOTAutograd compiles: take back that the backward graph owns what is saved
    for it, or else a call with `retain_graph=True` would be PyTorch's error."""
    context = torch._guards.TracingContext.try_get()
    if context is not None and context.fw_metadata is not None:
        context.fw_metadata.bw_donated_idxs = []


def is_aot_step(node: Any) -> bool:
    """True of a step of autograd's graph that is a function of AOTAutograd's."""
    return hasattr(getattr(node, "_forward_cls", None), "_aot_id")


def dynamo_is_loaded() -> bool:
    """Whether the registry of `torch.compile`'s backends is there."""
    return "torch._dynamo.backends.registry" in sys.modules


def backend_owner(name: str) -> str:
    """The module whose function `torch.compile(backend=name)` calls; "" if none."""
    from torch._dynamo.backends import registry

    registry.list_backends()  # PyTorch's own and installed ones
    function = registry._COMPILER_FNS.get(name)
    if function is not None:
        compilers = getattr(function, "kwargs", {})
        return compilers.get("fw_compiler", function).__module__
    entry = registry._BACKENDS.get(name)
    return entry.module if entry is not None else ""


def set_backend(name: str, function: Any) -> None:
    """Make `function` what `torch.compile(backend=name)` calls."""
    from torch._dynamo.backends import registry

    registry._COMPILER_FNS.pop(name, None)
    registry.register_backend(function, name)


def do_not_trace(modules: tuple[str, ...], files: Iterable[str]) -> None:
    """Let dynamo run the functions of these modules and files as they stand: it would
    trace them where they run between the parts of a graph."""
    from torch._dynamo import trace_rules

    for module in modules:
        trace_rules.add(module)
    trace_rules.FORCE_SKIP_FILES.update(files)


def sequence_number(node: Any) -> int:
    """The number of a step of autograd's graph; of leaves one above all others."""
    return node._sequence_nr()


def register_higher_order(name: str, kernel: Any, takes: Any) -> None:
    """Make `kernel` the device's, with and without autograd, for an operator that takes
    functions (`torch.ops.higher_order`).

    Where it is traced instead of run, or `takes(*args)` is false, PyTorch's own serves.
    """
    op = getattr(torch.ops.higher_order, name)
    for key, plain in (
        (DispatchKey.PrivateUse1, DispatchKey.CompositeExplicitAutograd),
        (DispatchKey.AutogradPrivateUse1, DispatchKey.Autograd),
    ):
        op.py_impl(key)(_either(kernel, op.py_kernels[plain], takes))


def _either(kernel: Any, plain: Any, takes: Any) -> Any:
    def run(*args: Any, **kwargs: Any) -> Any:
        traced = torch._C._len_torch_dispatch_stack() > 0
        chosen = kernel if not traced and takes(*args) else plain
        return chosen(*args, **kwargs)

    return run


TORCH_STUB = "torch._dynamo.backends.torchxla"
