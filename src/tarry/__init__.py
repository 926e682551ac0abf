"""tarry: a lazy-tensor device for PyTorch that says why it cut and why it compiled.

Importing it registers the device `tarry`; JAX is loaded when the first program is cut.
"""

from tarry.config import config
from tarry.dispatch.device import register
from tarry.report.live import install

register()
install(config.debug, config.debug_file)
if config.metrics_file:
    from tarry.debug.metrics import EveryStep
    from tarry.ledger import ledger

    ledger.watchers.append(EveryStep())

from tarry.api import (  # noqa: E402
    device,
    device_count,
    devices,
    explain,
    manual_seed,
    sync,
)
from tarry.debug.live import live_tensors  # noqa: E402
from tarry.region import budget, compile, no_host_reads, step  # noqa: E402
from tarry.version import __version__  # noqa: E402

__all__ = [
    "__version__",
    "budget",
    "compile",
    "device",
    "device_count",
    "devices",
    "explain",
    "live_tensors",
    "manual_seed",
    "no_host_reads",
    "step",
    "sync",
]
