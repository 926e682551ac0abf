"""Instruments: `tarry.debug.metrics`."""
