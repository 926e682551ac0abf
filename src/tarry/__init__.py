"""tarry: a lazy-tensor device for PyTorch that says why it cut and why it compiled.

Importing it registers the device `tarry`; JAX is loaded when the first program is cut.
"""

from tarry.config import config
from tarry.dispatch.device import register
from tarry.dispatch.seam import dynamo_is_loaded
from tarry.report.live import install

register()
install(config.debug, config.debug_file)
if config.metrics_file:
    from tarry.debug.metrics import EveryStep
    from tarry.ledger import ledger

    ledger.watchers.append(EveryStep())

from tarry import amp  # noqa: E402, F401
from tarry.api import (  # noqa: E402
    device,
    device_count,
    devices,
    explain,
    manual_seed,
    sync,
)
from tarry.debug.live import live_tensors  # noqa: E402
from tarry.flow import hops  # noqa: E402
from tarry.flow.exchange import (  # noqa: E402
    from_dlpack,
    from_jax,
    to_dlpack,
    to_jax,
)
from tarry.flow.foreign import call_jax  # noqa: E402
from tarry.loop import serialization  # noqa: E402
from tarry.loop.barrier import optimization_barrier_  # noqa: E402
from tarry.loop.checkpoint import checkpoint  # noqa: E402
from tarry.loop.closures import add_step_closure  # noqa: E402
from tarry.loop.later import later  # noqa: E402
from tarry.loop.loader import MpDeviceLoader, ParallelLoader  # noqa: E402
from tarry.loop.random_state import (  # noqa: E402
    fork_rng,
    get_rng_state,
    set_rng_state,
)
from tarry.loop.saving import load, save  # noqa: E402
from tarry.loop.stepping import (  # noqa: E402
    get_mat_mul_precision,
    mark_step,
    optimizer_step,
    set_custom_compile_options,
    set_mat_mul_precision,
)
from tarry.loop.waiting import get_memory_info, unlazy, wait_device_ops  # noqa: E402
from tarry.region import budget, compile, no_host_reads, step  # noqa: E402
from tarry.version import __version__  # noqa: E402

hops.register()

if dynamo_is_loaded():
    from tarry.dynamo.backend import claim_free_names

    claim_free_names()

__all__ = [
    "MpDeviceLoader",
    "ParallelLoader",
    "__version__",
    "add_step_closure",
    "budget",
    "call_jax",
    "checkpoint",
    "compile",
    "device",
    "device_count",
    "devices",
    "explain",
    "fork_rng",
    "from_dlpack",
    "from_jax",
    "get_mat_mul_precision",
    "get_memory_info",
    "get_rng_state",
    "later",
    "live_tensors",
    "load",
    "manual_seed",
    "mark_step",
    "no_host_reads",
    "optimization_barrier_",
    "optimizer_step",
    "save",
    "serialization",
    "set_custom_compile_options",
    "set_mat_mul_precision",
    "set_rng_state",
    "step",
    "sync",
    "to_dlpack",
    "to_jax",
    "unlazy",
    "wait_device_ops",
]
