"""Step closures: functions that run when the step that is being recorded has ended.

A step ends with `tarry.sync()`, the automatic cut of `optimizer.step()`, the end of a
compiled region, or a batch of a loader. Closures run once, in the order in which they
were added; those on the worker thread are handed over first.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tarry.cut.cause import STEP_ENDS, Cause
from tarry.cut.sync import after_cut
from tarry.dispatch.snapshot import snapshot
from tarry.dispatch.storage import is_ours
from tarry.loop.nested import map_tensors
from tarry.loop.worker import worker
from tarry.record.lines import user_line


@dataclass(frozen=True, slots=True)
class _Closure:
    run: Callable[..., Any]
    args: tuple
    line: str


_lock = threading.Lock()
_next: list[_Closure] = []
_next_async: list[_Closure] = []


def add_step_closure(
    closure: Callable[..., Any], args: Sequence[Any] = (), run_async: bool = False
) -> None:
    """Call `closure(*args)` when this step has ended: after the next cut that ends one.

    Tensors among `args` have the values of the end of the step; reading one in the
    closure waits for the device, and cuts nothing. `run_async`: on a worker thread,
    beside the next steps, which change nothing in what the closure sees.

    An error of a closure is raised by the call that ended the step, after the others
    have run, with a note that names this line; that of an asynchronous one by the next
    end of a step, as tarry.errors.ClosureError. The step itself is done. If the cut
    fails, the closures wait for the next one that does not.
    """
    made = _Closure(closure, tuple(args), str(user_line()))
    with _lock:
        (_next_async if run_async else _next).append(made)


def _frozen(args: tuple) -> tuple:
    def hold(t: torch.Tensor) -> torch.Tensor:
        return snapshot(t) if is_ours(t) else t

    return map_tensors(args, hold)


def _hand_over(c: _Closure) -> None:
    args = _frozen(c.args)
    worker.submit(lambda: c.run(*args), "step closure", c.line)
    worker.make_room()


def _call(c: _Closure) -> None:
    c.run(*c.args)


def _at_cut(cause: Cause) -> None:
    if cause not in STEP_ENDS:
        return
    if not _next and not _next_async:
        worker.check()
        return
    with _lock:
        now, later = list(_next), list(_next_async)
        _next.clear()
        _next_async.clear()
    error: BaseException | None = worker.error()
    jobs = [(_hand_over, c) for c in later] + [(_call, c) for c in now]
    while jobs:
        run, c = jobs.pop(0)
        try:
            run(c)
        except Exception as raised:
            raised.add_note(f"Raised in the step closure that was added at {c.line}.")
            error = error or raised
        except BaseException:
            with _lock:
                _next_async[:0] = [c for run, c in jobs if run is _hand_over]
                _next[:0] = [c for run, c in jobs if run is _call]
            raise
    if error is not None:
        raise error


after_cut.append(_at_cut)
