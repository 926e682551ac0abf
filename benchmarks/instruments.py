"""What do tarry's records cost? `python benchmarks/instruments.py [--model M]`.

Trains in this process, in blocks of steps that are recorded as always and in blocks in
which the ledger notes nothing and no line is looked for at a cut, by turns. Prints the
ratio of the medians, and what the training thread's own CPU time says, which other work
on the machine disturbs less. `demo` is the loop of `tarry demo` itself, its reads of
the loss included; `mlp` the benchmarks' workload. Exits with 1 if the records cost more
than 3 % of a step.
"""

import argparse
import statistics
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch

import torch_peers
from data import draw
from tarry import demo
from tarry.cut import sync
from tarry.ledger import ledger
from tarry.record.trie import NOWHERE

LIMIT = 1.03
NOTES = ("count", "sample", "add_cut", "add_blocked")


def nothing(*args: Any, **kwargs: Any) -> None:
    """In place of what notes something."""


def now() -> tuple[float, float]:
    """Seconds: of the wall clock, of this thread's CPU time."""
    return time.perf_counter(), time.thread_time()


class Turns:
    """Seconds for a step (see `now`), of blocks in pairs: with records and without.
    Which of a pair comes first alternates, so that a machine that drifts favours
    neither."""

    def __init__(self) -> None:
        self.noted: list[tuple[float, ...]] = []
        self.bare: list[tuple[float, ...]] = []
        self._off = ExitStack()

    def begin(self) -> None:
        pair, second = divmod(len(self.noted) + len(self.bare), 2)
        self._notes = bool(pair % 2) == bool(second)
        if not self._notes:
            for name in NOTES:
                self._off.enter_context(patch.object(ledger, name, nothing))
            self._off.enter_context(patch.object(sync, "user_line", lambda: NOWHERE))
        self._started = now()

    def end(self, steps: int) -> None:
        took = tuple([(b - a) / steps for a, b in zip(self._started, now())])
        self._off.close()
        (self.noted if self._notes else self.bare).append(took)


def train_demo(rounds: int) -> Turns:
    """The demo reports the loss once in `every` steps: there a block ends."""
    every, turns = demo.FULL.every, Turns()
    size = replace(demo.FULL, steps=(2 * rounds + 2) * every)
    torch.manual_seed(0)
    corpus = demo.Corpus("\n".join(demo.topics.values()))
    model = demo.GPT(len(corpus.characters), size).to("tarry")

    def report(step: int, loss: float, rate: float) -> None:
        if step > 2 * every:
            turns.end(every)
        if 2 * every <= step < size.steps:
            turns.begin()

    demo.train(model, corpus, size, "tarry", report)
    return turns


def train_mlp(rounds: int, block: int = 50) -> Turns:
    backend: Any = torch_peers.load("tarry", threads=2)
    loop, turns = torch_peers.make_loop(backend, "mlp", draw("mlp")), Turns()
    for i in range(2 * rounds + 1):
        if i:
            turns.begin()
        for step in range(i * block, (i + 1) * block):
            loop.step(step, nothing)
        backend.wait()
        if i:
            turns.end(block)
    return turns


MODELS = {"demo": train_demo, "mlp": train_mlp}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=MODELS, default="demo")
    parser.add_argument("--rounds", type=int, default=20, help="pairs of blocks")
    asked = parser.parse_args()
    turns = MODELS[asked.model](asked.rounds)
    pairs = list(zip(turns.noted, turns.bare))
    step, bare = (statistics.median(t[0] for t in ts) for ts in zip(*pairs))
    ratio = statistics.median(a[0] / b[0] for a, b in pairs)
    extra = statistics.median(a[1] - b[1] for a, b in pairs)
    print(f"{asked.model}: a step with records {step * 1e3:.3f} ms, ", end="")
    print(f"without {bare * 1e3:.3f} ms")
    print(f"ratio, median of {asked.rounds} pairs: {ratio:.3f} (limit {LIMIT})")
    print(
        f"own CPU time of the records: {extra * 1e3:.3f} ms, {extra / bare:.2%} of it"
    )
    sys.exit(ratio > LIMIT)


if __name__ == "__main__":
    main()
