"""What `tarry doctor` shows: versions, devices, the compile cache and settings."""

import platform
from collections.abc import Iterator
from importlib import metadata
from typing import Any

from rich.table import Table
from rich.text import Text

from tarry.config import settings, unknown
from tarry.cut.sync import store
from tarry.lower.xla import Deferred
from tarry.run.platform import device
from tarry.version import __version__

PACKAGES = ("torch", "jax", "jaxlib", "numpy")
backend: Any = Deferred("jax.extend.backend")


def examine() -> Iterator[Table | Text]:
    """The sections, in order.

    Raises PlatformError, after what does not need a device, if there is none.
    """
    yield _table("Versions", _versions())
    yield _table("Settings", _settings())
    for name in unknown():
        yield Text(f"  {name} is set, but tarry has no such setting", style="yellow")
    used = device()
    yield _table("Devices", _devices(used))
    yield _table("Compile cache", [("in memory", f"{len(store)} of {store.limit}")])
    yield Text(f"tarry computes on {used.platform}:{used.id} ({used.device_kind}).")


def _table(title: str, rows: list[tuple[str, str]]) -> Table:
    table = Table(title=Text(title, style="bold"), box=None, show_header=False)
    table.title_justify = "left"
    for name, value in rows:
        table.add_row(Text(name), Text(value))
    return table


def _versions() -> list[tuple[str, str]]:
    found = [("tarry", __version__), ("python", platform.python_version())]
    for name in PACKAGES:
        try:
            found.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            found.append((name, "not installed"))
    return found


def _settings() -> list[tuple[str, str]]:
    """Every variable with the value in force; a flag is spelt as it is set."""
    return [
        (name, f"{_spell(s.value)}{'' if s.given else '  (default)'}")
        for name, s in sorted(settings.items())
    ]


def _spell(value: object) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return str(value) or "not set"


def _devices(used: Any) -> list[tuple[str, str]]:
    """Each PJRT platform that JAX finds, with its devices; JAX's choice among them."""
    found = []
    for name, client in backend.backends().items():
        kinds = ", ".join(f"{d.id}: {d.device_kind}" for d in client.local_devices())
        found.append((name, kinds))
    return found or [(used.platform, used.device_kind)]
