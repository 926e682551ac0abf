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


def _found() -> str:
    try:
        return ", ".join(sorted({d.platform for d in jax.devices()}))
    except RuntimeError:
        return "none"


@cache
def environment() -> tuple[tuple[str, str], ...]:
    """What of the machine and its libraries is part of every compile key."""
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
