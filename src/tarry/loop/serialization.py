"""Saving one file a tensor: large models pass through the host a tensor at a time.

`save(data, path)` writes the structure to `path` and the tensors into `path.tensors/`.
Both carry the same random mark, so that files of two saves are never read as one.
"""

import os
import shutil
import uuid
from pathlib import Path
from typing import Any

import torch

from tarry.errors import MixedSavesError
from tarry.loop.nested import map_tensors
from tarry.loop.saving import on_cpu

MARK = "mark"


class TensorReference:
    """Stands in the structure where tensor number `tid` was."""

    def __init__(self, tid: int = 0) -> None:
        self.tid = tid


def _folder(path: str | os.PathLike) -> Path:
    return Path(f"{os.fspath(path)}.tensors")


def _file(folder: Path, tid: int) -> Path:
    return folder / f"tensor_{tid}.pt"


def save(
    data: Any, path: str | os.PathLike, master_only: bool = True,
    global_master: bool = False,
) -> None:  # fmt: skip
    """Write `data`, its tensors to one file each; they are loaded as CPU tensors.

    A tensor that occurs twice is written once, and is one again when loaded; views are
    written on their own. What was at `path` before is replaced when all is written.
    """
    folder, mark = _folder(path), uuid.uuid4().hex
    fresh = folder.with_name(f"{folder.name}.{mark}")
    part = Path(f"{os.fspath(path)}.{mark}")
    fresh.mkdir(parents=True)
    count = 0

    def write(t: torch.Tensor) -> TensorReference:
        nonlocal count
        torch.save(_alone(on_cpu(t)), _file(fresh, count))
        count += 1
        return TensorReference(count - 1)

    try:
        structure = map_tensors(data, write)
        (fresh / MARK).write_text(mark)
        torch.save({"mark": mark, "data": structure}, part)
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
        part.replace(path)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        part.unlink(missing_ok=True)
        raise


def _alone(t: torch.Tensor) -> torch.Tensor:
    """`t` without the rest of its storage."""
    whole = t.untyped_storage().nbytes() == t.numel() * t.element_size()
    if whole:
        return t
    if isinstance(t, torch.nn.Parameter):
        return torch.nn.Parameter(t.detach().clone(), t.requires_grad)
    return t.detach().clone().requires_grad_(t.requires_grad)


def load(path: str | os.PathLike) -> Any:
    """What `save` wrote to `path`, on the CPU.

    No code of the files is run: pickle.UnpicklingError for one that holds more than
    data. Raises MixedSavesError where structure and tensors are of two saves.
    """
    folder = _folder(path)
    with torch.serialization.safe_globals([TensorReference]):
        found = torch.load(path, weights_only=True)
    mark = (folder / MARK).read_text()
    if found["mark"] != mark:
        raise MixedSavesError(os.fspath(path), str(folder))
    tensors: dict[int, torch.Tensor] = {}

    def read(reference: TensorReference) -> torch.Tensor:
        tid = reference.tid
        if tid not in tensors:
            tensors[tid] = torch.load(_file(folder, tid), weights_only=True)
        return tensors[tid]

    return map_tensors(found["data"], read, kind=TensorReference)
