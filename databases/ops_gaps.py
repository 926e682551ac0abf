"""What PyTorch's databases show that tarry does not do (yet), each with its reason.

A gap has to fail: one that passes fails the run. `GAPS` is of `test_ops.py`,
`MODULES` of `test_modules.py`, `OPTIMIZERS` of `test_optimizers.py`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gap:
    """Entries that fail for one reason in one way of calling them, by dtypes."""

    kind: str
    reason: str
    entries: dict[str, str]


# Entry -> kind -> (rtol, atol), where rounding is larger than `harness.TOLERANCE`.
LOOSE: dict[str, dict[str, tuple[float, float]]] = {}

GAPS: list[Gap] = []

REASONS = {
    (gap.kind, entry, dtype): gap.reason
    for gap in GAPS
    for entry, dtypes in gap.entries.items()
    for dtype in dtypes.split()
}

# ATen operator -> why it runs on the CPU.
VIA_CPU: dict[str, str] = {}

_LAZY = "a lazy module loses its uninitialised parameters when it moves to the device"

# Module, in every mode and dtype -> why it fails.
MODULES: dict[str, str] = {
    "nn.LazyConv1d": _LAZY,
    "nn.LazyConv2d": _LAZY,
    "nn.LazyConv3d": _LAZY,
    "nn.LazyConvTranspose1d": _LAZY,
    "nn.LazyConvTranspose2d": _LAZY,
    "nn.LazyConvTranspose3d": _LAZY,
    "nn.LSTM": "the fused LSTM cell has no row for cells without bias",
}

# Optimizer, in every configuration -> why it fails.
OPTIMIZERS: dict[str, str] = {
    "SparseAdam": "it takes sparse gradients only, and tarry holds dense tensors",
}
