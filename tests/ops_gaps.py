"""What PyTorch's databases show that tarry does not do (yet), each with its reason.

A gap has to fail: one that passes fails the run.
"""

# Entry -> kind -> (rtol, atol), where rounding is larger than `harness.TOLERANCE`.
LOOSE: dict[str, dict[str, tuple[float, float]]] = {}
