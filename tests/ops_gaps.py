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

MODULES: dict[str, str] = {}

OPTIMIZERS: dict[str, str] = {}
