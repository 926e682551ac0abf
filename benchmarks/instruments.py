"""What do tarry's records cost? `python benchmarks/instruments.py [--rounds N]`.

Trains the MLP in this process, in blocks of steps that are recorded as always and in
blocks in which the ledger notes nothing, by turns; prints the ratio of the medians.
Exits with 1 if the records cost more than 3 % of a step.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch_peers
from data import draw
from tarry.ledger import Ledger, ledger

BLOCK, LIMIT = 50, 1.03
NOTES = ("count", "sample", "add_cut", "add_blocked")


def nothing(*args: Any, **kwargs: Any) -> None:
    """In place of what notes something."""


@contextmanager
def off() -> Iterator[None]:
    """The ledger notes nothing in the block."""
    for name in NOTES:
        setattr(ledger, name, nothing)
    try:
        yield
    finally:
        for name in NOTES:
            delattr(ledger, name)


def block(loop: torch_peers.Loop, backend: Any, first: int) -> float:
    """Seconds for a step, over one block."""
    started = time.perf_counter()
    for step in range(first, first + BLOCK):
        loop.step(step, nothing)
    backend.wait()
    return (time.perf_counter() - started) / BLOCK


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    assert all(hasattr(Ledger, name) for name in NOTES)
    backend: Any = torch_peers.load("tarry", threads=2)
    loop = torch_peers.make_loop(backend, "mlp", draw("mlp"))
    block(loop, backend, 0)
    noted, bare = [], []
    for i in range(rounds):
        noted.append(block(loop, backend, (2 * i + 1) * BLOCK))
        with off():
            bare.append(block(loop, backend, (2 * i + 2) * BLOCK))
    with_, without = statistics.median(noted), statistics.median(bare)
    ratio = statistics.median(a / b for a, b in zip(noted, bare))
    print(f"a step with records {with_ * 1e3:.3f} ms, without {without * 1e3:.3f} ms")
    print(f"ratio, median of {rounds} pairs: {ratio:.3f}")
    sys.exit(ratio > LIMIT)


if __name__ == "__main__":
    main()
