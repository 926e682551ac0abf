"""The processes and devices of a job, as torch_xla's `runtime` and `xla_model` name
them: one process with one device, so that most answers are 0, 1, or what went in."""

import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any, TextIO

import torch

from tarry.api import device, sync
from tarry.config import config
from tarry.cut.sync import store
from tarry.dispatch import seam
from tarry.errors import UnsupportedError
from tarry.loop.nested import map_tensors
from tarry.record.lines import user_line
from tarry.run import platform
from tarry.version import __version__

REDUCE_SUM, REDUCE_MUL, REDUCE_AND = "sum", "mul", "and"
REDUCE_OR, REDUCE_MIN, REDUCE_MAX = "or", "min", "max"
Groups = Sequence[Sequence[int]] | None


def zero() -> int:
    """The number of this process, and of its device, among all."""
    return 0


def one() -> int:
    """How many processes, and devices, there are."""
    return 1


def default_device() -> str:
    return f"{seam.DEVICE}:0"


def is_device_tensor(tensor: torch.Tensor) -> bool:
    return tensor.device.type == seam.DEVICE


def device_names(max_devices: int | None = None) -> list[str]:
    """Names of the devices, at most `max_devices`."""
    return [default_device()][:max_devices]


def device_type() -> str:
    """The platform in capitals: `CPU`, `CUDA`, `TPU`, …"""
    return platform.device().platform.upper()


def real_devices(devices: Any = None) -> list[str]:
    """What stands behind the devices: `["CPU:0"]`."""
    for asked in devices or ():
        _check(asked)
    return [f"{device_type()}:0"]


def device_hardware(which: Any = None) -> str:
    """The kind of hardware behind a device: `CPU`, …

    Raises ValueError for anything but the device.
    """
    _check(which)
    return device_type()


def device_kind(which: Any = None) -> str:
    """The vendor's name of the hardware."""
    _check(which)
    return platform.device().device_kind


def device_attributes(which: Any = None) -> dict[str, object]:
    """What the runtime tells of a device."""
    found = platform.device()
    return {"name": real_devices()[0], "kind": found.device_kind, "id": found.id}


def all_device_attributes() -> list[dict[str, object]]:
    return [device_attributes()]


def _check(which: Any) -> None:
    known = ("", seam.DEVICE, default_device(), f"{device_type()}:0")
    if which is not None and str(which) not in known:
        raise ValueError(f"invalid device: {which}; the only one is {default_device()}")


def set_device_type(name: str) -> None:
    """Compute on this platform (`CPU`, `TPU`, …).

    Raises RuntimeError once a program has run on another.
    """
    if platform.is_chosen() and platform.device().platform != name.lower():
        raise RuntimeError(
            "Can't change device type after XLA runtime is initialized: it is "
            f"{device_type()}, not {name}. Call this before the first program runs, or "
            f"set TARRY_PLATFORM={name.lower()}."
        )
    config.platform = name.lower()


def is_bf16_supported() -> bool:
    return True


def is_spmd() -> bool:
    return False


def versions() -> dict[str, str]:
    """What identifies the builds of tarry (`xla`) and of PyTorch."""
    return {"xla": __version__, "torch": str(torch.version.git_version)}


def master_address() -> str:
    """Of the first process: this machine."""
    return "127.0.0.1"


def cached_programs() -> int:
    """How many compiled programs are in memory."""
    return len(store)


def runtime_is_initialized() -> bool:
    return platform.is_chosen()


def initialize_runtime() -> None:
    """Load JAX and find the device, which otherwise happens at the first program.

    Raises PlatformError if there is none.
    """
    platform.device()


def current_device(index: int | None = None, devkind: str | None = None) -> Any:
    """`tarry.device(index)`; `devkind` has no effect."""
    return device(index)


def is_master(local: bool = True) -> bool:
    return True


def master_print(
    *values: Any, fd: TextIO | None = None, local: bool = False, flush: bool = False
) -> None:
    print(*values, file=fd or sys.stdout, flush=flush)


def launch(
    fn: Callable[..., Any],
    args: tuple = (),
    start_method: str = "spawn",
    debug_single_process: bool = False,
) -> None:
    """Run `fn(0, *args)` in this process, which is the only one."""
    fn(0, *args)


def spawn(
    fn: Callable[..., Any],
    args: tuple = (),
    nprocs: int | None = None,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> None:
    """Run `fn(0, *args)` in this process.

    Raises ValueError for another number of processes than 1 or None.
    """
    if nprocs not in (None, 1):
        raise ValueError(
            f"Unsupported nprocs ({nprocs}): tarry has one device, use 1 or None"
        )
    fn(0, *args)


class SharedModel:
    """A module that several processes would share: `to(device)` moves it once."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model

    def to(self, where: Any) -> torch.nn.Module:
        self._model.to(where)
        return self._model


class InTurn:
    """`run(fn)`: what one process after the other would run."""

    def __init__(self, max_concurrency: int = 1) -> None:
        """`max_concurrency` has no effect."""

    def run(self, fn: Callable[[], Any]) -> Any:
        return fn()


def rendezvous(tag: str, payload: bytes = b"", replicas: Any = ()) -> list[bytes]:
    """What every process brings: the own payload. Cuts, as a barrier does."""
    return meet(payload, replicas, tag)


def meet(
    payload: bytes = b"", ordinals: Any = None, tag: str | None = None
) -> list[bytes]:
    if not isinstance(payload, bytes):
        raise TypeError(f"`payload` must be bytes, not {type(payload)}")
    if ordinals and list(ordinals) != [0]:
        raise ValueError(f"Only global rendezvous is supported, got {ordinals}")
    sync()
    if tag:
        logging.getLogger("tarry").info("rendezvous '%s'", tag)
    return [payload]


def all_reduce(
    reduce_type: str,
    inputs: Any,
    scale: float = 1.0,
    groups: Groups = None,
    pin_layout: bool = True,
) -> Any:
    """`inputs`, scaled: a new tensor for a tensor, in place for a list."""
    _check_reduction(reduce_type)
    if isinstance(inputs, torch.Tensor):
        return inputs.clone() if scale == 1 else inputs * scale
    if scale != 1:
        for t in inputs:
            t.mul_(scale)
    return None


def _check_reduction(name: str) -> None:
    known = (
        REDUCE_SUM, REDUCE_MUL, REDUCE_AND, REDUCE_OR, REDUCE_MIN, REDUCE_MAX,
    )  # fmt: skip
    if name not in known:
        raise ValueError(f"no such reduction: {name!r}; there are {', '.join(known)}")


def all_gather(
    value: Any,
    dim: int = 0,
    groups: Groups = None,
    output: Any = None,
    pin_layout: bool = True,
    **ignored: Any,
) -> Any:
    """`value`, or into `output`: the concatenation of one part."""
    if output is None:
        return value.clone() if isinstance(value, torch.Tensor) else list(value)
    pairs = [(output, value)] if isinstance(value, torch.Tensor) else zip(output, value)
    for target, part in pairs:
        target.copy_(part)
    return output


def all_to_all(
    value: torch.Tensor,
    split_dimension: int,
    concat_dimension: int,
    split_count: int,
    groups: Groups = None,
    pin_layout: bool = True,
) -> torch.Tensor:
    """The one part this process has and gets.

    Raises ValueError for another `split_count` than 1.
    """
    if split_count != 1:
        raise ValueError(f"split_count is {split_count}, but there is one process")
    return value.clone()


def reduce_scatter(
    reduce_type: str,
    input: Any,
    scale: float,
    scatter_dim: int,
    shard_count: int,
    groups: Groups = None,
    output: Any = None,
    pin_layout: bool = True,
) -> Any:
    """`input`, scaled, or into `output`.

    Raises ValueError for another `shard_count` than 1.
    """
    if shard_count != 1:
        raise ValueError(f"shard_count is {shard_count}, but there is one process")
    if isinstance(input, torch.Tensor):
        scaled: Any = all_reduce(reduce_type, input, scale)
    else:
        scaled = [all_reduce(reduce_type, t, scale) for t in input]
    return scaled if output is None else all_gather(scaled, output=output)


def collective_permute(value: torch.Tensor, pairs: Any) -> torch.Tensor:
    """`value` where a pair sends from 0 to 0, else zeros."""
    sent = any(tuple(pair) == (0, 0) for pair in pairs)
    return value.clone() if sent else torch.zeros_like(value)


def collective_broadcast(tensors: Any, root_ordinal: int = 0, **ignored: Any) -> None:
    """Nothing to do: the root is this process."""


def broadcast_parameters(model: torch.nn.Module) -> None:
    """Every process takes the parameters of the first. Ends with a cut."""
    sync()


def set_replication(device: Any, devices: Sequence[Any]) -> None:
    """Nothing to do for the one device. Raises UnsupportedError for several."""
    for each in devices:
        _check(each)
    if len(devices) > 1:
        needs_processes("set_replication over several devices")()
    _check(device)


def gradients_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """The gradients there are of the optimizer's parameters."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    return [p.grad for p in parameters if p.grad is not None]


def reduce_gradients(
    optimizer: Any, groups: Any = None, pin_layout: Any = True
) -> None:
    """Nothing to do: the gradients of one process are those of all."""


def on_ordinals(
    target: Callable[..., Any], data: Any = (), ordinals: Any = (0,)
) -> Any:
    """`target(*data)` if 0 is among `ordinals`; `data` gets to the CPU before."""
    chosen = ordinals if isinstance(ordinals, list | tuple | set) else (ordinals,)
    result = target(*on_cpu(data)) if 0 in chosen else None
    sync()
    return result


def mesh_reduce(tag: str, data: Any, reduce_fn: Callable[[list], Any]) -> Any:
    """`reduce_fn` of what every process brings: a list of `data`, on the CPU."""
    found = on_cpu(data)
    sync()
    return reduce_fn([found])


def on_cpu(data: Any) -> Any:
    """`data` with tensors of the device copied to the CPU."""
    return map_tensors(data, torch.Tensor.cpu)


def needs_processes(what: str) -> Callable[..., Any]:
    """A function that says that `what` takes more processes than there are."""

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise UnsupportedError(
            what, str(user_line()), "tarry runs in one process, with one device"
        )

    return refuse


send, recv = needs_processes("send"), needs_processes("recv")
