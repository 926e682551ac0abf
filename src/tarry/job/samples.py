"""Synthetic data in place of a `DataLoader`'s, and two small tools of training scripts:
a rate, and the environment as numbers. The names are those of torch_xla."""

import time
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

import torch


class SampleGenerator:
    """`sample_count` times the same `data`."""

    def __init__(self, data: Any, sample_count: int) -> None:
        self._data, self._count = data, sample_count

    def __iter__(self) -> Iterator[Any]:
        return repeat(self._data, self._count)

    def __len__(self) -> int:
        return self._count


class FnDataGenerator:
    """`count` pairs (x, func(x)): x is `gen_tensor(batch_size, *dims)`."""

    def __init__(
        self,
        func: Callable[[torch.Tensor], torch.Tensor],
        batch_size: int,
        gen_tensor: Callable[..., torch.Tensor],
        dims: Any = None,
        count: int = 1,
    ) -> None:
        self._func, self._make = func, gen_tensor
        self._shape, self._count = (batch_size, *(dims or [1])), count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for _ in range(self._count):
            x = self._make(*self._shape)
            yield x, self._func(x)


class RateTracker:
    """How many a second: `add(n)` what was done, read `rate()` and `global_rate()`.

    `smooth_factor`: the share of the old rate in a new one.
    """

    def __init__(self, smooth_factor: float = 0.4) -> None:
        self._smooth = smooth_factor
        self._started = self._read = time.time()
        self._before = self._new = 0.0
        self._rate: float | None = None

    def add(self, count: float) -> None:
        self._new += count

    def rate(self) -> float:
        """Since the last call, smoothed."""
        now = time.time()
        if now <= self._read:
            return self._rate or 0.0
        rate = self._new / (now - self._read)
        if self._rate is not None:
            rate += (self._rate - rate) * self._smooth
        self._before, self._new = self._before + self._new, 0.0
        self._read, self._rate = now, rate
        return rate

    def global_rate(self) -> float:
        """Since the beginning."""
        passed = time.time() - self._started
        return (self._before + self._new) / passed if passed > 0 else 0.0


def as_list(value: Any) -> Any:
    """A list or tuple as it is; of anything else, a list of one."""
    return value if isinstance(value, list | tuple) else [value]
