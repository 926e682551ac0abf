"""Memory mappings, of which Linux grants a process so many (`vm.max_map_count`, 65,530
unless set). XLA:CPU maps some ten regions for each kernel of a program, and where one
is refused the process ends without a word: old programs have to go before that.
"""

from pathlib import Path

_LIMIT = Path("/proc/sys/vm/max_map_count")
_OWN = Path("/proc/self/maps")
_PER_OPERATION = 16  # at most, as measured; the count itself takes a while


class Mappings:
    """The mappings of this process, counted only where they may have become many."""

    def __init__(self) -> None:
        self._most: int | None = None
        self._at_most = 0

    @property
    def most(self) -> int:
        """Half of what Linux grants; 0 where it does not say."""
        if self._most is None:
            try:
                self._most = int(_LIMIT.read_text()) // 2
            except (OSError, ValueError):
                self._most = 0
        return self._most

    def grow(self, operations: int) -> None:
        """Note that a program of so many operations was compiled."""
        self._at_most += 64 + _PER_OPERATION * operations

    def are_many(self) -> bool:
        """Whether it is time to drop programs."""
        if not self.most or self._at_most <= self.most:
            return False
        with _OWN.open("rb") as lines:
            self._at_most = sum(1 for _ in lines)
        return self._at_most > self.most


mappings = Mappings()
