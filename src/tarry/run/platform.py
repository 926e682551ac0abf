"""The JAX device tarry runs on, and JAX's own versions; loaded at the first use."""

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import numpy as np

from tarry.config import config
from tarry.errors import PlatformError
from tarry.lower.xla import jax


def x64() -> AbstractContextManager:
    """64-bit types for tarry's own traces and calls, and no one else's."""
    return jax.enable_x64(True)


@cache
def device() -> Any:
    """The PJRT device of `TARRY_PLATFORM`, or JAX's first.

    Raises PlatformError if that platform has no device.
    """
    asked = config.platform
    try:
        return (jax.devices(asked) if asked else jax.devices())[0]
    except (RuntimeError, IndexError) as error:
        raise PlatformError(asked, _found(), str(error).split("\n")[0]) from error


def is_chosen() -> bool:
    """Whether the device was looked for, and found, before."""
    return device.cache_info().currsize > 0


def _found() -> str:
    try:
        return ", ".join(sorted({d.platform for d in jax.devices()}))
    except RuntimeError:
        return "none"


# PyTorch's word -> JAX's: all bits of f32; three passes or TF32; one pass of bf16 or
# TF32, as the platform has it.
_PRECISIONS = {"highest": "highest", "high": "high", "medium": "default"}


def products(precision: str) -> AbstractContextManager:
    """Products and convolutions that are traced in the block have this precision."""
    return jax.default_matmul_precision(_PRECISIONS[precision])


def environment(precision: str) -> tuple[tuple[str, str], ...]:
    """What of the machine, its libraries and PyTorch's settings is part of a key."""
    return (*_machine(), ("float32_matmul_precision", precision))


@cache
def _machine() -> tuple[tuple[str, str], ...]:
    import jaxlib

    from tarry.version import __version__

    d = device()
    return (
        ("platform", d.platform),
        ("device kind", d.device_kind),
        ("jax", jax.__version__),
        ("jaxlib", jaxlib.__version__),
        ("tarry", __version__),
        ("numpy", np.__version__),
    )
