"""Tensors to files and back: values on the CPU, whatever device they are loaded for.

`save` writes one file; `serialization` one file a tensor, so that no more than one
tensor has to be on the host at a time. Loading runs no code of the file.
"""

from os import PathLike
from typing import IO, Any, TypeAlias

import torch

from tarry.cut.cause import Cause
from tarry.dispatch.exits import read_bytes
from tarry.dispatch.storage import is_ours
from tarry.loop.nested import leaves, map_tensors

File: TypeAlias = str | PathLike | IO[bytes]


def save(
    data: Any, file_or_path: File, master_only: bool = True, global_master: bool = False
) -> None:
    """`torch.save` of `data` with its tensors of the device on the CPU, all of them
    computed by one cut.

    Tensors that share memory share it in the file. `master_only` and `global_master`
    choose among processes, of which there is one. Structures: lists, tuples, mappings,
    dataclasses.
    """
    torch.save(on_cpu(data), file_or_path)


def load(file_or_path: File, **options: Any) -> Any:
    """`torch.load(file_or_path, weights_only=True)`: what `save` wrote, on the CPU.

    Raises pickle.UnpicklingError for a file that holds more than data.
    """
    return torch.load(file_or_path, **{"weights_only": True, **options})


def on_cpu(data: Any) -> Any:
    """`data` with CPU copies of its tensors of the device, shared memory kept."""
    storages: dict[int, torch.UntypedStorage] = {}
    held = [t.untyped_storage() for t in leaves(data) if is_ours(t)]

    def host(t: torch.Tensor) -> torch.Tensor:
        if not is_ours(t):
            return t
        key = t.untyped_storage().data_ptr()
        if key not in storages:
            storages[key] = read_bytes(t.untyped_storage(), Cause.SAVE)
        return _as(t, storages[key])

    result = map_tensors(data, host)
    del held  # until now, so that no two storages had one number
    return result


def _as(t: torch.Tensor, storage: torch.UntypedStorage) -> torch.Tensor:
    """`t` on this storage, a parameter where it is one."""
    made = torch.empty(0, dtype=t.dtype)
    made.set_(storage, t.storage_offset(), t.shape, t.stride())
    if t.is_conj():
        made = made.conj()
    if t.is_neg():
        made = -made.resolve_conj()
    if isinstance(t, torch.nn.Parameter):
        return torch.nn.Parameter(made, t.requires_grad)
    return made.requires_grad_() if t.requires_grad else made
