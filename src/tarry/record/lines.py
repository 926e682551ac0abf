"""Which line of the user's code is running: frames inside torch, tarry, JAX and the
standard library are passed over."""

import sys
import sysconfig
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from tarry.record.trie import NOWHERE, Line, recorder

_PACKAGE = str(Path(__file__).parent.parent) + "/"
_OWN_SCRIPTS = (_PACKAGE + "demo", _PACKAGE + "gallery")
_PATHS = sysconfig.get_paths()
_INSIDE = (
    _PACKAGE,
    *(
        f"{_PATHS[where]}/{name}/"
        for where in ("purelib", "platlib")
        for name in ("torch", "jax", "jaxlib", "numpy", "click", "rich")
    ),
)
_AUTOGRAD = tuple(
    [f"{_PATHS[where]}/torch/autograd/" for where in ("purelib", "platlib")]
)
_STDLIB = _PATHS["stdlib"] + "/"
_known: dict[str, bool] = {}


class Spans(threading.local):
    """The names of this thread's spans, the outermost first."""

    names: tuple[str, ...] = ()


spans = Spans()


def is_user_file(file: str) -> bool:
    """False for the code of torch, tarry, JAX and the standard library."""
    found = _known.get(file)
    if found is None:
        library = file.startswith(_INSIDE) and not file.startswith(_OWN_SCRIPTS)
        stdlib = file.startswith(_STDLIB) and "-packages/" not in file
        found = _known[file] = not (
            library or stdlib or file.startswith(("<frozen", "<tarry"))
        )
    return found


def _user_frame(frame: FrameType | None) -> FrameType | None:
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def _other_threads() -> list[FrameType]:
    """The other threads' frames: first of those that wait for autograd, then the main
    thread's."""
    frames = sys._current_frames()
    frames.pop(threading.get_ident(), None)
    main = frames.pop(threading.main_thread().ident or 0, None)
    found = ([main] if main is not None else []) + list(frames.values())
    return sorted(found, key=lambda f: not f.f_code.co_filename.startswith(_AUTOGRAD))


def _innermost() -> FrameType | None:
    frame = _user_frame(sys._getframe())
    if frame is None:
        frame = next(filter(None, map(_user_frame, _other_threads())), None)
    return frame


def user_line() -> Line:
    """The innermost user line of this thread; on a thread without one (autograd's),
    that of the thread that waits for it."""
    frame = _innermost()
    if frame is None:
        return NOWHERE
    code = frame.f_code
    return Line(code.co_filename, frame.f_lineno, code.co_name, spans.names)


def _user_place() -> tuple[str, int]:
    """`user_line().place`, without the making of a line."""
    frame = _innermost()
    if frame is None:
        return NOWHERE.place
    return frame.f_code.co_filename, frame.f_lineno


recorder.where = _user_place


def runs_below(codes: set[Any]) -> bool:
    """True while one of these code objects is on this thread's stack."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code in codes:
            return True
        frame = frame.f_back
    return False
