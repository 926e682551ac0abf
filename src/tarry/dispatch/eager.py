"""Eager mode: a cut after every operator.

While it is on, a second kernel stands before every kernel of the device: it runs the
first and cuts. Off, these are gone again, and recording costs nothing for them.
"""

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch

from tarry.cut.cause import Cause
from tarry.cut.sync import cut
from tarry.dispatch import seam


class Mode:
    """`kernels`: by overload, what the device registered; `lazy`: how many blocks that
    record as a whole are open."""

    kernels: ClassVar[dict[str, Callable[..., Any]]] = {}
    library: Any = None
    lazy = 0


class _Here(threading.local):
    depth = 0  # kernels at work on this thread: one may call another


_here = _Here()


def is_eager_mode() -> bool:
    """True where every operator is cut and run by itself."""
    return Mode.library is not None and not Mode.lazy


def eager_mode(enable: bool = True) -> None:
    """From here on, cut after every operator (or no longer): a program for each
    operator and shape, as PyTorch runs on other devices, and with the same results and
    random bits as lazily. `tarry.compile` records its region as a whole nevertheless.
    """
    if enable == (Mode.library is not None):
        return
    if not enable:
        Mode.library = None
        return
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # each stands before another, as it should
        for name, kernel in Mode.kernels.items():
            library.impl(name, cutting(f"aten::{name}", kernel), seam.KEY)
    Mode.library = library


@contextmanager
def eager_mode_context(enable: bool = True) -> Iterator[None]:
    """`eager_mode(enable)` for a block."""
    before = Mode.library is not None
    eager_mode(enable)
    try:
        yield
    finally:
        eager_mode(before)


@contextmanager
def recording_whole() -> Iterator[None]:
    """A block that records lazily in eager mode, too."""
    Mode.lazy += 1
    try:
        yield
    finally:
        Mode.lazy -= 1


def cutting(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """`kernel` with a cut after it, where it is not a part of another."""

    def run(*args: Any, **kwargs: Any) -> Any:
        _here.depth += 1
        try:
            result = kernel(*args, **kwargs)
        finally:
            _here.depth -= 1
        if not _here.depth and is_eager_mode():
            cut(Cause.EAGER, name)
        return result

    return run
