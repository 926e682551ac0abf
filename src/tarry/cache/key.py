"""The compile key: an ordered list of named parts, so that a miss can be explained by
naming the part that changed."""

from dataclasses import dataclass

from tarry.record.graph import Graph


@dataclass(frozen=True, slots=True)
class Key:
    """Two equal keys are one executable; compared by structure, not only by hash.

    `donation`: positions of the inputs whose buffers the program may overwrite.
    `environment`: platform, device kind, versions, compile options, default dtype.
    `graph`: outputs and input sequence (`f(a, a)` is not `f(a, b)`) with shapes.
    """

    donation: tuple[int, ...]
    environment: tuple[tuple[str, str], ...]
    graph: Graph

    PARTS = ("donation", "environment", "graph")
