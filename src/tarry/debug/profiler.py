"""Profilers: tarry's cuts, compiles, transfers and runs are spans of `torch.profiler`
wherever it is at work; here are JAX's traces, which show the device as well, of a block
or, through a server, of a program that runs.

The names are those of torch_xla's `debug.profiler`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from tarry.api import end_step, sync
from tarry.cut.cause import Cause
from tarry.debug.capture import capture, capture_detached, start_server, tracing
from tarry.lower.xla import jax
from tarry.record.lines import spans

__all__ = [
    "StepTrace", "Trace", "capture", "capture_detached", "start_server", "start_trace",
    "stop_trace", "trace", "trace_me",
]  # fmt: skip


@contextmanager
def trace(log_dir: str) -> Iterator[None]:
    """Record a trace of JAX and the device for TensorBoard or Perfetto into `log_dir`.

    Pending work is cut before and after, so that the trace holds the block's own.
    """
    sync(wait=True)
    with tracing(log_dir):
        yield
        sync(wait=True)


def start_trace(log_dir: str) -> None:
    """Begin a trace that `stop_trace` ends."""
    jax.profiler.start_trace(log_dir)


def stop_trace() -> None:
    jax.profiler.stop_trace()


@contextmanager
def Trace(name: str, **notes: Any) -> Iterator[None]:
    """A span of this name in the traces of JAX and of `torch.profiler`.

    What is recorded in it runs later: its kernels have the name, and their line, where
    a trace shows the device. A program keeps the names that it was compiled with.
    """
    around = spans.names
    spans.names = (*around, name)
    try:
        with jax.profiler.TraceAnnotation(name, **notes), _record(name):
            yield
    finally:
        spans.names = around


@contextmanager
def StepTrace(name: str, step_num: int | None = None) -> Iterator[None]:
    """A step in the traces, ended by `tarry.sync()`."""
    notes = {} if step_num is None else {"step_num": step_num}
    with jax.profiler.StepTraceAnnotation(name, **notes), _record(name):
        yield
        end_step(Cause.STEP_TRACE)


def trace_me(scope: str) -> Any:
    """A decorator: every call of the function is a span of this name."""
    return Trace(scope)


def _record(name: str) -> Any:
    return torch.profiler.record_function(name)
