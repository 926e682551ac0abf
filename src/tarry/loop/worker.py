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

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "tarry worker")
        self._change = threading.Condition()
        self._waiting = 0
        self._thread = 0
        self._errors: list[ClosureError] = []
        atexit.register(self._report)

    def submit(self, job: Callable[[], object], what: str, line: str) -> None:
        """Queue `job`, a `what` that the user's `line` asked for."""
        with self._change:
            self._waiting += 1
        self._pool.submit(self._run, job, what, line)

    def _run(self, job: Callable[[], object], what: str, line: str) -> None:
        self._thread = threading.get_ident()
        try:
            job()
        except BaseException as error:
            failure = ClosureError(what, line, error)
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

    def make_room(self) -> None:
        """Wait while too many jobs do (not in a job itself), so that they do not pile
        up; whoever calls this holds no lock that a job may want."""
        with self._change:
            if not self._is_own():
                self._change.wait_for(lambda: self._waiting < MOST_WAITING)

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


worker = Worker()
