"""The threads behind a loader: one reads the user's batches, others move them to the
device ahead of time. Order is kept, both stages are bounded, and an error travels to
the consumer in the place of the batch that raised it."""

import atexit
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

from tarry.errors import LoaderError

PATIENCE = 1.0  # seconds between two looks whether the threads still live
GOODBYE = 10.0  # seconds to wait for a thread that is inside the user's code


@dataclass(frozen=True, slots=True)
class _Raised:
    error: BaseException


class _End:
    """Stands after the last batch."""


_running: "WeakSet[Pipeline]" = WeakSet()


class Pipeline:
    """`batches` read by a thread, `move`d by `movers` more, and given out in order.

    `ahead`: how many batches may wait to be moved, and how many moved to be taken.
    """

    def __init__(
        self, name: str, batches: Iterator[Any], move: Callable[[Any], Any],
        ahead: tuple[int, int], movers: int,
    ) -> None:  # fmt: skip
        self.name, self.ahead = name, ahead
        self.changed = threading.Condition()
        self.read: deque[Any] = deque()
        self.moved: dict[int, Any] = {}
        self.taken = self.given = 0
        self.closed = False
        targets: list[tuple[Callable[..., None], tuple]] = [(_read, (self, batches))]
        targets += [(_move, (self, move))] * movers
        self.threads = [
            threading.Thread(target=f, args=args, name=f"tarry loader {i}", daemon=True)
            for i, (f, args) in enumerate(targets)
        ]
        _running.add(self)
        for thread in self.threads:
            thread.start()

    def put(self, item: Any) -> bool:
        """Add a batch that was read; False where no one wants it any more."""
        with self.changed:
            self.changed.wait_for(lambda: self.closed or len(self.read) < self.ahead[0])
            if not self.closed:
                self.read.append(item)
                self.changed.notify_all()
            return not self.closed

    def take(self) -> tuple[int, Any]:
        """The next batch to move, and its number; `_End` where there is none."""
        with self.changed:
            self.changed.wait_for(
                lambda: (
                    self.closed
                    or (self.read and self.taken - self.given < self.ahead[1])
                )
            )
            if self.closed:
                return -1, _End
            if self.read[0] is _End:  # stays for the other movers
                self.moved[self.taken] = _End
                self.changed.notify_all()
                return -1, _End
            self.taken += 1
            item = self.read.popleft()
            self.changed.notify_all()
            return self.taken - 1, item

    def done(self, number: int, item: Any) -> None:
        with self.changed:
            self.moved[number] = item
            self.changed.notify_all()

    def next(self) -> Any:
        """The next batch, moved.

        Raises StopIteration, what the user's loader or moving its batch raised, or
        LoaderError if a thread died.
        """
        with self.changed:
            while self.given not in self.moved and not self.closed:
                if not self.changed.wait(PATIENCE) and self._is_dead():
                    self.close(wait=False)
                    raise LoaderError(self.name)
            item = _End if self.closed else self.moved[self.given]
            if item is not _End:
                del self.moved[self.given]
                self.given += 1
                self.changed.notify_all()
        if item is _End or isinstance(item, _Raised):
            self.close()
        if item is _End:
            raise StopIteration
        if isinstance(item, _Raised):
            raise item.error
        return item

    def _is_dead(self) -> bool:
        """Whether no thread is left that could bring the next batch."""
        reader, *movers = (t.is_alive() for t in self.threads)
        waiting = self.taken > self.given or bool(self.read)
        return not any(movers) or (not reader and not waiting)

    def close(self, wait: bool = True) -> None:
        """End the threads; batches that no one took are dropped."""
        with self.changed:
            self.closed = True
            self.read.clear()
            self.moved.clear()
            self.changed.notify_all()
        until = time.monotonic() + GOODBYE
        if wait and threading.current_thread() not in self.threads:
            for thread in self.threads:
                thread.join(max(0.0, until - time.monotonic()))


def _read(pipeline: Pipeline, batches: Iterator[Any]) -> None:
    try:
        for batch in batches:
            if not pipeline.put(batch):
                return
    except BaseException as error:
        pipeline.put(_Raised(error))
    pipeline.put(_End)


def _move(pipeline: Pipeline, move: Callable[[Any], Any]) -> None:
    while True:
        number, item = pipeline.take()
        if item is _End:
            return
        if not isinstance(item, _Raised):
            try:
                item = move(item)
            except BaseException as error:
                item = _Raised(error)
        pipeline.done(number, item)
        del item


def _close_all() -> None:
    for pipeline in list(_running):
        pipeline.close()


atexit.register(_close_all)
