"""Loaders that bring batches to the device beside the step, and cut once a batch.

They take any iterable of batches, such as a `torch.utils.data.DataLoader`. Names and
keywords are those of torch_xla's `distributed.parallel_loader`.
"""

import weakref
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import torch

from tarry.cut.cause import Cause
from tarry.cut.sync import cut
from tarry.dispatch import seam
from tarry.dispatch.device import StepCuts
from tarry.errors import UnsupportedError
from tarry.ledger import ledger
from tarry.loop.pipeline import Pipeline
from tarry.loop.upload import to_device
from tarry.record.lines import user_line
from tarry.record.trie import Line

Device: TypeAlias = str | torch.device


class ParallelLoader:
    """One pass over `cpu_loader`, its batches on the device ahead of time.

    `devices`: the device. `batches_per_execution`: cut once in so many batches.
    `loader_prefetch_size`, `device_prefetch_size`: how many batches may wait on the
    host and, uploaded, on the device. `host_to_device_transfer_threads`: how many
    threads upload; the order of batches is kept. `batchdim` is not looked at.

    The first batch is read at once and by the caller, the others by a thread: what a
    sampler draws from PyTorch's generator at its start does not depend on the threads.
    Raises ValueError for another device or a size below 1, UnsupportedError for
    `input_sharding`.
    """

    def __init__(
        self,
        cpu_loader: Iterable[Any],
        devices: Sequence[Device],
        batchdim: int = 0,
        batches_per_execution: int = 1,
        loader_prefetch_size: int = 16,
        device_prefetch_size: int = 8,
        host_to_device_transfer_threads: int = 1,
        input_sharding: Any = None,
        *,
        made: Line | None = None,
    ) -> None:
        sizes = (
            batches_per_execution, loader_prefetch_size, device_prefetch_size,
            host_to_device_transfer_threads,
        )  # fmt: skip
        _check(devices, sizes, input_sharding)
        self.batchdim, self.batches_per_execution = batchdim, batches_per_execution
        self.cpu_loader = cpu_loader
        made = made or user_line()
        self.name = f"{type(cpu_loader).__name__} given at {made}"
        self._pipeline = Pipeline(
            self.name,
            _started(cpu_loader),
            partial(to_device, device=torch.device(devices[0]), made=made),
            (loader_prefetch_size, device_prefetch_size),
            host_to_device_transfer_threads,
        )
        weakref.finalize(self, self._pipeline.close, wait=False)

    def per_device_loader(self, device: Device) -> "PerDeviceLoader":
        """The iterator over the batches on `device`."""
        _check([device], (), None)
        return PerDeviceLoader(self)

    def next_item(self, device: Device) -> Any:
        """The next batch on `device`, without a cut; None after the last."""
        try:
            return self._pipeline.next()
        except StopIteration:
            return None

    def close(self) -> None:
        """End the threads; it happens by itself after the last batch, after an error,
        and when no one holds the loader any more."""
        self._pipeline.close()


class PerDeviceLoader:
    """Iterator over the batches of a `ParallelLoader`, which cuts before it hands one
    out, so that what the step before recorded runs while the next one is recorded."""

    def __init__(self, loader: ParallelLoader) -> None:
        self._loader = loader
        self._since = 0

    def __iter__(self) -> "PerDeviceLoader":
        return self

    def __len__(self) -> int:
        return len(self._loader.cpu_loader)  # type: ignore[arg-type]

    def __next__(self) -> Any:
        StepCuts.loaders.add(self)
        begins = self._since == 0
        if begins:
            self._cut()
        try:
            batch = self._loader._pipeline.next()
        except BaseException as error:
            StepCuts.loaders.discard(self)
            if isinstance(error, StopIteration) and not begins:
                self._cut()
            raise
        self._since = (self._since + 1) % self._loader.batches_per_execution
        return batch

    next = __next__

    def _cut(self) -> None:
        ledger.count("MarkStep")
        cut(Cause.LOADER, self._loader.name)

    def close(self) -> None:
        """End the threads."""
        StepCuts.loaders.discard(self)
        self._loader.close()


class MpDeviceLoader:
    """`loader` with its batches on `device`, for as many passes as it is iterated.

    Every batch ends a step: one cut, so that `optimizer.step()` does not cut while a
    pass is under way. Keywords are those of `ParallelLoader`. Leaving a pass early ends
    its threads; an error in `loader` is raised here as it was raised there.
    """

    def __init__(self, loader: Iterable[Any], device: Device, **kwargs: Any) -> None:
        self._loader, self._device = loader, device
        self._parallel_loader_kwargs = kwargs
        self._made = user_line()

    def __iter__(self) -> Iterator[Any]:
        once = ParallelLoader(
            self._loader, [self._device], **self._parallel_loader_kwargs,
            made=self._made,
        )  # fmt: skip
        return once.per_device_loader(self._device)

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]


def _started(batches: Iterable[Any]) -> Iterator[Any]:
    iterator = iter(batches)
    try:
        first = next(iterator)
    except StopIteration:
        return iter(())
    return _from(first, iterator)


def _from(first: Any, iterator: Iterator[Any]) -> Iterator[Any]:
    """`first` and what comes after it, without `iter(iterator)`: there are loaders
    whose iterators start anew for it."""
    yield first
    while True:
        try:
            batch = next(iterator)
        except StopIteration:
            return
        yield batch


def _check(devices: Sequence[Device], sizes: Sequence[int], sharding: Any) -> None:
    if len(devices) != 1 or torch.device(devices[0]).type != seam.DEVICE:
        raise ValueError(
            f"a loader feeds the one device {seam.DEVICE}:0; got {devices}"
        )
    if any(n < 1 for n in sizes):
        raise ValueError(
            f"prefetch sizes and counts of a loader are 1 or more: {sizes}"
        )
    if sharding is not None:
        what, instead = (
            "input_sharding of a loader",
            "leave it out: there is one device",
        )
        raise UnsupportedError(what, str(user_line()), instead)
