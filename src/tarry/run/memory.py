"""How much memory the buffers of the device take: by the platform, or as counted."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tarry.lower.xla import jax
from tarry.run.platform import device


@dataclass(slots=True)
class Memory:
    """Bytes; the limit is 0 where no one knows it."""

    used: int
    limit: int
    peak: int


_peak = 0


def memory() -> Memory:
    """What the platform counts; where it counts nothing (XLA's CPU), the sum of the
    live buffers, the memory of the machine, and the largest sum that a call saw."""
    stats: dict[str, Any] = device().memory_stats() or {}
    if "bytes_in_use" in stats:
        used = stats["bytes_in_use"]
        peak = stats.get("peak_bytes_in_use", used)
        return Memory(used, stats.get("bytes_limit", 0), peak)
    global _peak
    used = sum(a.nbytes for a in _live_buffers())
    _peak = max(_peak, used)
    return Memory(used, _host_limit(), _peak)


def _live_buffers() -> list[Any]:
    found = {}
    for a in jax.live_arrays(device().platform):
        if not a.is_deleted() and device() in a.devices():
            found[id(a)] = a
    return list(found.values())


def _host_limit() -> int:
    """Memory of the machine, or what the container may have of it."""
    try:
        whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 0
    try:
        allowed = int(Path("/sys/fs/cgroup/memory.max").read_text())
    except (OSError, ValueError):
        return whole
    return min(whole, allowed)
