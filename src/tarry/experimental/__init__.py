"""What torch_xla keeps under `torch_xla.experimental`, by the same names."""

from tarry.dispatch.eager import eager_mode, eager_mode_context, is_eager_mode
from tarry.flow.accumulate import gradient_accumulation
from tarry.flow.branch import cond
from tarry.flow.foreign import call_jax
from tarry.flow.layers import scan_layers
from tarry.flow.loops import fori_loop, while_loop
from tarry.flow.pure import assume_pure
from tarry.flow.scan import scan

__all__ = [
    "assume_pure",
    "call_jax",
    "cond",
    "eager_mode",
    "eager_mode_context",
    "fori_loop",
    "gradient_accumulation",
    "is_eager_mode",
    "scan",
    "scan_layers",
    "while_loop",
]
