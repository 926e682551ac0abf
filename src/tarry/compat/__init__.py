"""torch_xla's module names on tarry's functions, so that code written for torch_xla
runs. Nothing happens before `install()`, or `python -m tarry.compat SCRIPT`."""

import os
import sys
import warnings
from importlib import metadata, util

from tarry.compat.modules import Finder
from tarry.config import config, environment_with
from tarry.dispatch import seam
from tarry.errors import TorchXlaFoundError
from tarry.report.torch_xla_blocks import as_torch_xla

NAME = "TARRY_DEVICE"


def real_torch_xla() -> str | None:
    """The version of an installed torch_xla; None if there is none."""
    try:
        return metadata.version("torch_xla")
    except metadata.PackageNotFoundError:
        return "of unknown version" if util.find_spec("_XLAC") else None


def install(force: bool = False) -> None:
    """From now on `import torch_xla` gives tarry's functions under torch_xla's names.

    The string "xla" is a device only where the variable `TARRY_DEVICE` was `xla` when
    tarry was imported (`python -m tarry.compat` sees to it); otherwise
    `torch_xla.device()` is `tarry:0`, and a warning says so.

    Raises TorchXlaFoundError if a real torch_xla is installed, unless `force`.
    """
    if any(isinstance(finder, Finder) for finder in sys.meta_path):
        return
    found = real_torch_xla()
    if found and not force:
        raise TorchXlaFoundError(found)
    for name in [n for n in sys.modules if n.partition(".")[0] == "torch_xla"]:
        del sys.modules[name]
    sys.meta_path.insert(0, Finder())
    as_torch_xla(config.debug, config.debug_file)
    if seam.DEVICE != "xla":
        warnings.warn(
            "torch_xla's names are there, but the device is called 'tarry' in this "
            "process and the string 'xla' is no device. Use torch_xla.device(), or "
            f"set {NAME}=xla before tarry is imported, as python -m tarry.compat does.",
            stacklevel=2,
        )


def as_xla() -> None:
    """Start this process again with its device called `xla`, unless it is already."""
    if seam.DEVICE == "xla":
        return
    sys.stdout.flush()
    sys.stderr.flush()
    again = [sys.executable, *sys.orig_argv[1:]]
    os.execve(sys.executable, again, environment_with(NAME, "xla"))
