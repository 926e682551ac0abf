"""The device as PyTorch sees it: registration, `torch.tarry`, and checkpoints.

`register()` runs once, at import. It loads no JAX and changes nothing process-wide
beyond PrivateUse1, and what lets modules move whole (`dispatch/moving.py`).
"""

import warnings
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any, ClassVar
from weakref import WeakSet

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

import tarry.lower.rows  # noqa: F401  (fills the table)
from tarry.config import config
from tarry.cut.cause import Cause
from tarry.cut.program import Naming
from tarry.cut.sync import cut
from tarry.dispatch import (
    attention,
    autocast,
    copies,
    creation,
    ctc,
    deferred,
    dynamic,
    eager,
    exits,
    fused,
    histogramdd,
    linalg,
    moving,
    names,
    random,
    refused,
    rrelu,
    seam,
    unique,
    views,
)
from tarry.dispatch.kernels import all_kernels
from tarry.dispatch.lists import foreach_kernels
from tarry.dispatch.operands import host_slot
from tarry.dispatch.storage import bytes_of, is_ours, new_tensor
from tarry.ledger import ledger, no_span
from tarry.record.slot import contiguous_spec
from tarry.run.execute import block

_library: list[Any] = []


class DeviceModule(ModuleType):
    """What `torch.tarry` offers, and what PyTorch asks of a device."""

    _initialized = True  # torch.utils.checkpoint keeps the random state only then

    def is_initialized(self) -> bool:
        return True

    def device(self, index: Any) -> AbstractContextManager:
        """A context in which device `index` is the current one; there is only 0."""
        return nullcontext()

    def is_available(self) -> bool:
        return True

    def current_device(self) -> int:
        return 0

    def set_device(self, index: Any) -> None:
        """Only device 0 exists."""

    def device_count(self) -> int:
        return 1

    def _is_in_bad_fork(self) -> bool:
        return False

    def synchronize(self, device: Any = None) -> None:
        """Cut, and wait until everything has run."""
        cut(Cause.SYNC, "synchronize")
        block()

    def manual_seed(self, seed: int) -> None:
        random.stream.set(seed)

    def manual_seed_all(self, seed: int) -> None:
        random.stream.set(seed)

    def seed(self) -> int:
        fresh = torch.seed()
        random.stream.set(fresh)
        return fresh

    def initial_seed(self) -> int:
        return random.stream.seed

    def get_rng_state(self, device: Any = seam.DEVICE) -> torch.Tensor:
        """The random state: 16 bytes, seed and number of draws (little-endian)."""
        state = random.stream
        data = state.seed.to_bytes(8, "little") + state.draws.to_bytes(8, "little")
        return torch.tensor(list(data), dtype=torch.uint8)

    def set_rng_state(self, new_state: torch.Tensor, device: Any = seam.DEVICE) -> None:
        if new_state.numel() != 16 or new_state.dtype is not torch.uint8:
            raise ValueError(
                "a random state of tarry is a uint8 tensor of 16 elements, got "
                f"{new_state.dtype} with {new_state.numel()}"
            )
        data = bytes(new_state.tolist())
        random.stream.set(
            int.from_bytes(data[:8], "little"), int.from_bytes(data[8:], "little")
        )

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    def is_autocast_enabled(self) -> bool:
        return torch.is_autocast_enabled(seam.DEVICE)


WRAPPED = linalg.WRAPPED | views.WRAPPED | ctc.WRAPPED | rrelu.WRAPPED


def explicit(kernels: dict[str, Any]) -> dict[str, Any]:
    """The kernels written by hand, those that wrap a generated one included."""
    wrapped: dict[str, Any] = {
        name: wrap(kernels[name]) for name, wrap in WRAPPED.items()
    }
    for name in ("index.Tensor", "_unsafe_index.Tensor"):
        if name in kernels:
            wrapped[name] = dynamic.index(kernels[name])
    for name in ("index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put"):
        if name in kernels:
            wrapped[name] = dynamic.index_put(kernels[name])
    return {
        **views.KERNELS,
        **copies.KERNELS,
        **creation.KERNELS,
        **deferred.KERNELS,
        **random.KERNELS,
        **fused.KERNELS,
        **dynamic.KERNELS,
        **exits.KERNELS,
        **histogramdd.KERNELS,
        **rrelu.KERNELS,
        **unique.KERNELS,
        **attention.KERNELS,
        **refused.KERNELS,
        "_local_scalar_dense": exits.local_scalar_dense,
        "equal": equal,
        **wrapped,
    }


def equal(self: torch.Tensor, other: torch.Tensor) -> bool:
    if self.shape != other.shape:
        return False
    return bool((self == other).all())


def register() -> None:
    """Make `tarry` (or what `TARRY_DEVICE` says) a device of this process.

    Raises OldTorchError or SlotTakenError.
    """
    module = DeviceModule(f"torch.{seam.DEVICE}")
    seam.claim_device(module)
    library = torch.library.Library("aten", "IMPL")
    generated = all_kernels()
    table = {**generated, **foreach_kernels(), **explicit(generated)}
    table = {name: kernel for name, kernel in table.items() if seam.has_overload(name)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, kernel in table.items():
            library.impl(name, kernel, seam.KEY)
        for name, kernel in attention.AUTOGRAD_KERNELS.items():
            library.impl(name, kernel, "AutogradPrivateUse1")
        for name, kernel in autocast.kernels().items():
            library.impl(name, kernel, "AutocastPrivateUse1")
        for name, kernel in refused.CPU_KERNELS.items():
            library.impl(name, kernel, "CPU")
        rest = torch.library.Library("_", "IMPL")
        rest.fallback(exits.boxed_fallback, seam.KEY)
        rest.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
        for key, kernel in refused.BOXED.items():
            rest.fallback(kernel, key)
    _library.extend((library, rest))
    eager.Mode.kernels = table
    keep: Any = moving.KeepOnMove()
    torch.__future__.set_swap_module_params_on_conversion(keep)
    register_module_parameter_registration_hook(moving.make_movable)
    torch.serialization.register_package(15, _location, _restore)
    register_optimizer_step_post_hook(_after_step)
    Naming.names_of = staticmethod(names.names_of)
    ledger.span = _span


def _location(storage: Any) -> str | None:
    return f"{seam.DEVICE}:0" if storage.device.type == seam.DEVICE else None


def _restore(storage: Any, location: str) -> Any:
    """A storage being loaded: its bytes become a host value of the device."""
    if not location.startswith(seam.DEVICE):
        return None
    data = bytes_of(storage.clone())
    out = contiguous_spec((storage.nbytes(),), torch.uint8)
    return new_tensor(host_slot(data, out)).untyped_storage()


def _span(name: str) -> AbstractContextManager:
    """A span of `torch.profiler`, while it is at work."""
    if seam.profiler_enabled():
        return torch.profiler.record_function(name)
    return no_span(name)


class StepCuts:
    """`optimizer.step()` ends with a cut as long as the program never cut by itself,
    and no loader that cuts at every batch is under way."""

    enabled = config.auto_step
    loaders: ClassVar[WeakSet[Any]] = WeakSet()


def _after_step(optimizer: Any, args: tuple, kwargs: dict) -> None:
    if any(is_ours(p) for g in optimizer.param_groups for p in g["params"][:1]):
        names.optimizers.add(optimizer)
        if StepCuts.enabled and not StepCuts.loaders:
            cut(Cause.STEP)
