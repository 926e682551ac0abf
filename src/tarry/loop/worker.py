"""One thread that does jobs in order; what a job raises is kept until someone asks."""

import atexit
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tarry.errors import ClosureError

MOST_WAITING = 100


class Worker:
    """The thread begins with the first job and ends with the process, all jobs done."""

    def __init__(self, what: str) -> None:
        self.what = what
        self._pool = ThreadPoolExecutor(1, f"tarry {what}")
        self._change = threading.Condition()
        self._waiting = 0
        self._thread = 0
        self._errors: list[ClosureError] = []
        atexit.register(self._report)

    def submit(self, job: Callable[[], object], line: str) -> None:
        """Queue `job`, which the user's `line` asked for; waits where too many are."""
        with self._change:
            if not self._is_own():
                self._change.wait_for(lambda: self._waiting < MOST_WAITING)
            self._waiting += 1
        self._pool.submit(self._run, job, line)

    def _run(self, job: Callable[[], object], line: str) -> None:
        self._thread = threading.get_ident()
        try:
            job()
        except BaseException as error:
            failure = ClosureError(self.what, line, error)
            failure.__cause__ = error
            with self._change:
                self._errors.append(failure)
        finally:
            del job
            with self._change:
                self._waiting -= 1
                self._change.notify_all()

    def _is_own(self) -> bool:
        return threading.get_ident() == self._thread

    def wait(self) -> None:
        """Return when every job so far is done (at once in a job itself)."""
        with self._change:
            if not self._is_own():
                self._change.wait_for(lambda: self._waiting == 0)

    def error(self) -> ClosureError | None:
        """The oldest error of a job that was not asked for yet."""
        with self._change:
            return self._errors.pop(0) if self._errors else None

    def check(self) -> None:
        """Raise the oldest error of a job that was not raised yet."""
        error = self.error()
        if error is not None:
            raise error

    def _report(self) -> None:
        """At exit: the errors that no cut came to raise."""
        for error in self._errors:
            traceback.print_exception(error, file=sys.stderr)
