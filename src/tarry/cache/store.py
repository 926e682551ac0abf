"""Compiled programs by key, the least recently used out first.

A program found by its trace alone never hashes its key, so recency is a tick that the
value carries (`used`), and the oldest is looked for when one has to go.
"""

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar


class Entry(Protocol):
    used: int

    def drop(self) -> None: ...


K = TypeVar("K")
V = TypeVar("V", bound=Entry)


class Store(Generic[K, V]):
    """A mapping of at most `limit` entries; it remembers which keys were evicted."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._entries: dict[K, V] = {}
        self._evicted: dict[int, None] = {}
        self._tick = 0

    def touch(self, value: V) -> None:
        self._tick += 1
        value.used = self._tick

    def get(self, key: K) -> V | None:
        found = self._entries.get(key)
        if found is not None:
            self.touch(found)
        return found

    def put(self, key: K, value: V) -> None:
        self.touch(value)
        self._entries[key] = value
        self._evicted.pop(hash(key), None)
        while len(self._entries) > self.limit:
            self.evict_oldest()

    def evict_oldest(self) -> None:
        oldest = min(self._entries, key=lambda k: self._entries[k].used)
        self._entries.pop(oldest).drop()
        self._evicted[hash(oldest)] = None
        if len(self._evicted) > 8 * self.limit:
            self._evicted.pop(next(iter(self._evicted)))

    def recent(self) -> list[V]:
        """Programs, the most recently used first."""
        return sorted(self._entries.values(), key=lambda v: -v.used)

    def values(self) -> Iterable[V]:
        return self._entries.values()

    def was_evicted(self, key: K) -> bool:
        return hash(key) in self._evicted

    def clear(self) -> None:
        for value in self._entries.values():
            value.drop()
        self._entries.clear()
        self._evicted.clear()

    def __len__(self) -> int:
        return len(self._entries)
