"""`rrelu` in training, which draws a slope for every element that is not positive and
writes the slopes into its argument `noise`."""

from collections.abc import Callable
from typing import Any

import torch

from tarry.dispatch.operands import number_arg, read, record_op, store
from tarry.dispatch.random import DRAW, check_generator, stream
from tarry.dispatch.storage import slot_of
from tarry.record.slot import contiguous_spec
from tarry.record.trie import recorder


def _train(self: torch.Tensor, noise: torch.Tensor, lower: Any, upper: Any) -> Any:
    if self.shape != noise.shape:
        raise RuntimeError(
            f"noise tensor shape must match self tensor shape. Got self.shape = "
            f"{list(self.shape)} noise.shape = {list(noise.shape)}"
        )
    if lower > upper:
        raise RuntimeError(
            "Lower bound should be less than or equal to the upper bound"
        )
    (low, first), (high, second) = (number_arg(float(v)) for v in (lower, upper))
    outs = [contiguous_spec(t.shape, t.dtype) for t in (self, noise)]
    with recorder.lock:
        numbers = (*first, *second, *stream.next())
        args = (read(self), low, high, *DRAW)
        result, slopes = record_op("tarry::rrelu", args, tuple(outs), numbers)
        store(slot_of(noise), noise, read(slopes))
    return result


def with_noise(plain: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(
        self: torch.Tensor, noise: torch.Tensor, lower: Any = 0.125,
        upper: Any = 1 / 3, training: bool = False, generator: Any = None,
    ) -> Any:  # fmt: skip
        if not training or not self.is_floating_point():
            return plain(self, noise, lower, upper, training)
        check_generator(generator)
        return _train(self, noise, lower, upper)

    return kernel


def with_noise_(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return self.copy_(torch.ops.aten.rrelu_with_noise(self, *args, **kwargs))


WRAPPED = {"rrelu_with_noise": with_noise}
KERNELS = {"rrelu_with_noise_": with_noise_}
