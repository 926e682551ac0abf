"""The optimization barrier: XLA neither merges nor moves operations across it."""

from typing import Any

from tarry.lower.table import Call, row
from tarry.lower.xla import lax

BARRIER = "tarry::barrier"


@row(BARRIER)
def barrier(call: Call, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values as they are; each result waits for all of them."""
    return tuple(lax.optimization_barrier(values))
