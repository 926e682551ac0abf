"""The device's random state as one number, under torch_xla's names."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tarry.dispatch.random import stream

_BITS = 64


def set_rng_state(seed: int, device: Any = None) -> None:
    """Set the device's random state: a 64-bit seed, or what `get_rng_state` gave."""
    stream.set(seed, int(seed) >> _BITS if seed > 0 else 0)


def get_rng_state(device: Any = None) -> int:
    """The random state, without running anything: the seed, and above its 64 bits the
    number of draws since it was set. So right after `set_rng_state(seed)`, and until
    the first draw, it is the seed."""
    return stream.seed | stream.draws << _BITS


@contextmanager
def fork_rng(device: Any = None, enabled: bool = True) -> Iterator[None]:
    """Draws in the block leave the random state as it was, if `enabled`."""
    if not enabled:
        yield
        return
    before = get_rng_state(device)
    try:
        yield
    finally:
        set_rng_state(before, device)
