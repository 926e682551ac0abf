"""A script run as `python SCRIPT ARGS…` would run it: in goes its path and arguments,
out comes its exit code. Its exceptions end here, printed from the script's own frame.
"""

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

INTERRUPTED = 130
_OURS = (__file__, "<frozen runpy>", runpy.__file__)


def run_script(script: str, args: Sequence[str]) -> int:
    """Run `script` as `__main__`; its exit code."""
    sys.argv = [script, *args]
    if not sys.flags.safe_path:
        sys.path[0] = str(Path(script).resolve().parent)
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as leave:
        return _exit_code(leave.code)
    except BaseException as error:
        sys.excepthook(type(error), _from_script(error), error.__traceback__)
        return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    finally:
        sys.stdout.flush()
    return 0


def _exit_code(code: object) -> int:
    """What Python makes of the argument of `sys.exit`."""
    if code is None or isinstance(code, int):
        return int(code or 0)
    print(code, file=sys.stderr)
    return 1


def _from_script(error: BaseException) -> BaseException:
    """`error` without the frames that led to the script."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in _OURS:
        trace = trace.tb_next
    return error.with_traceback(trace)
