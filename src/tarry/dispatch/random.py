"""Random numbers: counter-based, keyed by (seed, draw number), both run-time inputs.

The bits depend on the seed and on how many draws came before, never on where the
graph was cut. `torch.manual_seed` sets the seed; a `torch.Generator` is not consulted.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from tarry.dispatch import seam
from tarry.dispatch.exits import cpp_name
from tarry.dispatch.operands import (
    append,
    number_arg,
    read,
    record_op,
    store,
)
from tarry.dispatch.storage import slot_of
from tarry.dispatch.trial import refuse_overlap, try_fill
from tarry.record.slot import contiguous_spec, spec
from tarry.record.trie import Num, const, recorder

DEFAULT_SEED = 0
HALF_MAX = torch.finfo(torch.float16).max


class Stream:
    """The device's random state: a 64-bit seed and the number of draws so far."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.seed, self.draws = DEFAULT_SEED, 0

    def set(self, seed: int, draws: int = 0) -> None:
        with self._lock:
            self.seed, self.draws = int(seed) & (2**64 - 1), draws

    def rewind(self, draws: int) -> None:
        """Take back the draws after the first `draws`, made by a recording aside."""
        with self._lock:
            self.draws = draws

    @contextmanager
    def at(self, seed: int, draws: int) -> Iterator[None]:
        """Draws in the block are those after `draws` draws with `seed`."""
        before = self.seed, self.draws
        self.set(seed, draws)
        try:
            yield
        finally:
            self.set(*before)

    def skip(self, draws: int) -> None:
        """So many draws more (or, if negative, fewer) count as made."""
        with self._lock:
            self.draws += draws

    def renumbered(self, numbers: tuple, kinds: Sequence[Num], after: int) -> tuple:
        """Run-time numbers of kinds `kinds`, of which those of draws, and the seeds
        that stand before them, were taken after `after` draws, as if taken now."""
        found, shift = list(numbers), self.draws - after
        for i, kind in enumerate(kinds):
            if kind.draw:
                found[i - 1 : i + 1] = _signed(self.seed), found[i] + shift
        return tuple(found)

    def next(self) -> tuple[int, int]:
        with self._lock:
            self.draws += 1
            return _signed(self.seed), self.draws


def _signed(n: int) -> int:
    return n if n < 2**63 else n - 2**64


stream = Stream()
DRAW = (Num("i"), Num("i", draw=True))


def _numbers(values: tuple) -> tuple[tuple, tuple]:
    args: tuple = ()
    numbers: tuple = ()
    for v in values:
        arg, brought = number_arg(v)
        args += (arg,)
        numbers += brought
    return args, numbers


def check_generator(generator: Any) -> None:
    """The device has one random stream of its own; another's generator is an error."""
    if generator is not None and generator.device.type != seam.DEVICE:
        raise RuntimeError(
            f"Expected a '{seam.DEVICE}' device type for generator but found "
            f"'{generator.device.type}'. Seed the device with torch.manual_seed, or "
            f"draw on the CPU and move the result."
        )


def _checked(kernel: Any) -> Any:
    def call(*args: Any, generator: Any = None, **kwargs: Any) -> Any:
        check_generator(generator)
        return kernel(*args, **kwargs)

    return call


_METHODS = {"tarry::randint": "random_"}


def _fill(self: torch.Tensor, op: str, values: tuple, *static: Any) -> torch.Tensor:
    """`self` becomes a draw of `op` with these run-time parameters."""
    refuse_overlap(self)
    if not self.dtype.is_floating_point:
        name = _METHODS.get(op) or f"{op.removeprefix('tarry::')}_"
        try_fill(name, self.dtype, values)
    args, numbers = _numbers(values)
    args = (*DRAW, *args, *[const(s) for s in static])
    out = contiguous_spec(self.shape, self.dtype)
    with recorder.lock:
        key = (op, args, out.shape, out.dtype)
        node = append(key, op, args, (out,))
        recorder.trace.numbers[node.base] = (*stream.next(), *numbers)
        store(slot_of(self), self, node.base)
    return self


def _check_range(ok: bool, message: str) -> None:
    if not ok:
        raise RuntimeError(message)


def uniform_(self: Any, low: float = 0.0, high: float = 1.0) -> Any:
    _check_range(
        low <= high,
        f"uniform_ expects to return a [from, to) range, but found from={low:g} > "
        f"to={high:g}",
    )
    return _fill(self, "tarry::uniform", (float(low), float(high)))


def normal_(self: Any, mean: float = 0.0, std: float = 1.0) -> Any:
    _check_range(std >= 0.0, f"normal expects std >= 0.0, but found std {std:g}")
    return _fill(self, "tarry::normal", (float(mean), float(std)))


def bernoulli_(self: Any, p: float = 0.5) -> Any:
    _check_range(0 <= p <= 1, f"bernoulli_ expects p to be in [0, 1], but got p={p:g}")
    return _fill(self, "tarry::bernoulli", (float(p),))


def _from_tensors(op: str, tensors: tuple, out: Any) -> torch.Tensor:
    with recorder.lock:
        args = tuple([read(t) for t in tensors])
        return record_op(op, (*args, *DRAW), (out,), stream.next())[0]


def bernoulli_tensor_(self: Any, p: torch.Tensor) -> Any:
    p = p.to(self.device).expand(self.shape)
    drawn = _from_tensors(
        "tarry::bernoulli_tensor", (p,), contiguous_spec(self.shape, self.dtype)
    )
    return self.copy_(drawn)


def bernoulli(self: torch.Tensor) -> torch.Tensor:
    out = contiguous_spec(self.shape, self.dtype)
    return _from_tensors("tarry::bernoulli_tensor", (self,), out)


def bernoulli_p(self: torch.Tensor, p: float) -> Any:
    return bernoulli_(torch.empty_like(self), p)


def _limit(dtype: torch.dtype) -> int:
    if dtype is torch.bool:
        return 2
    if dtype.is_floating_point:
        return {torch.float64: 2**53, torch.float32: 2**24}.get(
            dtype, 2**11 if dtype is torch.float16 else 2**8
        ) + 1
    return min(torch.iinfo(dtype).max, 2**63 - 2) + 1


def random_(self: Any) -> Any:
    if self.is_complex():
        try_fill("random_", self.dtype, ())
    return random_from(self, 0, _limit(self.dtype))


def random_to(self: Any, to: int) -> Any:
    return random_from(self, 0, to)


def random_from(self: Any, low: int, high: Any = None) -> Any:
    high = _limit(self.dtype) if high is None else high
    _check_range(
        low < high,
        f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}",
    )
    if self.dtype is torch.float16:  # the one float whose range an integer can leave
        for name, value in (("from", low), ("to - 1", high - 1)):
            inside = abs(value) <= HALF_MAX
            _check_range(inside, f"{name} is out of bounds for c10::Half")
    return _fill(self, "tarry::randint", (int(low), int(high)))


def exponential_(self: Any, lambd: float = 1.0) -> Any:
    _check_range(
        lambd > 0.0, f"exponential_ expects lambda > 0.0, but found lambda={lambd:g}"
    )
    return _fill(self, "tarry::exponential", (float(lambd),))


def geometric_(self: Any, p: float) -> Any:
    _check_range(0 < p < 1, f"geometric_ expects p to be in (0, 1), but got p={p:g}")
    return _fill(self, "tarry::geometric", (float(p),))


def cauchy_(self: Any, median: float = 0.0, sigma: float = 1.0) -> Any:
    _check_range(sigma > 0.0, f"cauchy_ expects sigma > 0.0, but found sigma={sigma:g}")
    return _fill(self, "tarry::cauchy", (float(median), float(sigma)))


def log_normal_(self: Any, mean: float = 1.0, std: float = 2.0) -> Any:
    _check_range(std > 0.0, f"log_normal_ expects std > 0.0, but found std={std:g}")
    return _fill(self, "tarry::log_normal", (float(mean), float(std)))


def randperm(n: int, *, dtype: Any = torch.int64, **options: Any) -> torch.Tensor:
    _check_range(n >= 0, "n must be non-negative, got " + str(n))
    out = contiguous_spec((n,), dtype or torch.int64)
    return record_op("tarry::randperm", DRAW, (out,), stream.next())[0]


def randperm_generator(n: int, **options: Any) -> Any:
    return randperm(n, **options)


def multinomial(
    self: torch.Tensor,
    num_samples: int,
    replacement: bool = False,
) -> torch.Tensor:
    _check_range(
        self.is_floating_point(),
        "multinomial only supports floating-point dtypes for input, got: "
        + cpp_name(self.dtype),
    )
    _check_range(self.dim() in (1, 2), "prob_dist must be 1 or 2 dim")
    _check_range(num_samples > 0, "cannot sample n_sample <= 0 samples")
    _check_range(
        replacement or num_samples <= self.shape[-1],
        "cannot sample n_sample > prob_dist.size(-1) samples without replacement",
    )
    _check_range(self.shape[-1] <= 1 << 24, "number of categories cannot exceed 2^24")
    out = contiguous_spec((*self.shape[:-1], num_samples), torch.int64)
    with recorder.lock:
        args = (read(self), const(num_samples), const(bool(replacement)), *DRAW)
        return record_op("tarry::multinomial", args, (out,), stream.next())[0]


def native_dropout(self: torch.Tensor, p: float, train: Any = True) -> Any:
    if train is False or p == 0:
        return self.clone(), torch.ones_like(self, dtype=torch.bool)
    out = spec(tuple(self.shape), self.contiguous().stride(), self.dtype)
    mask = contiguous_spec(self.shape, torch.bool)
    with recorder.lock:
        args = (read(self), Num("f"), *DRAW)
        numbers = (float(p), *stream.next())
        return tuple(record_op("tarry::dropout", args, (out, mask), numbers))


def normal_tensors(mean: Any, std: Any = 1.0) -> torch.Tensor:
    like = mean if isinstance(mean, torch.Tensor) else std
    shape = torch.broadcast_shapes(
        *[t.shape for t in (mean, std) if isinstance(t, torch.Tensor)]
    )
    drawn = normal_(torch.empty(shape, dtype=like.dtype, device=like.device))
    return drawn * std + mean


_DRAWS = {
    "uniform_": uniform_,
    "normal_": normal_,
    "bernoulli_.float": bernoulli_,
    "bernoulli_.Tensor": bernoulli_tensor_,
    "bernoulli": bernoulli,
    "bernoulli.p": bernoulli_p,
    "random_": random_,
    "random_.to": random_to,
    "random_.from": random_from,
    "exponential_": exponential_,
    "geometric_": geometric_,
    "cauchy_": cauchy_,
    "log_normal_": log_normal_,
    "randperm": randperm,
    "randperm.generator": randperm_generator,
    "multinomial": multinomial,
    "native_dropout": native_dropout,
    "normal.Tensor_float": normal_tensors,
    "normal.float_Tensor": normal_tensors,
    "normal.Tensor_Tensor": normal_tensors,
}
KERNELS = {name: _checked(kernel) for name, kernel in _DRAWS.items()}
