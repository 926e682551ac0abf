"""Instruments: programs as text, live tensors, metrics, profilers."""

from tarry.debug.live import LiveTensors, live_tensors
from tarry.debug.programs import dot, hlo, programs, stablehlo, text

__all__ = [
    "LiveTensors",
    "dot",
    "hlo",
    "live_tensors",
    "programs",
    "stablehlo",
    "text",
]
