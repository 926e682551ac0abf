"""Does a long training run on tarry grow? `python benchmarks/memory.py [--steps N]`.

Trains the MLP in this process, keeping the last ten losses and reading them all every
tenth step, as a progress display does. Prints by how much the resident memory has grown
over each hundred steps; exits with 1 if it has grown by more than 2 MB after the first
hundred.
"""

import argparse
import gc
import os
import sys
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch

import torch_peers
from data import draw
from peer import memory_mb

EVERY, TAIL, LIMIT_MB = 100, 10, 2.0


def train(loop: torch_peers.Loop) -> Iterator[int]:
    """Steps without end; yields how many have been made."""
    tail: deque[torch.Tensor] = deque(maxlen=TAIL)
    step = 0
    while True:
        loop.step(step, ignore)
        tail.append(loop.last)
        step += 1
        if step % TAIL == 0:
            check([loss.item() for loss in tail])
        yield step


def ignore(phase: str) -> None:
    """Nothing is timed here."""


def check(losses: list[float]) -> None:
    if any(loss != loss for loss in losses):
        raise ValueError(f"the loss is not a number: {losses}")


def sizes(steps: int) -> list[float]:
    """Resident megabytes after each hundred steps; prints their growth."""
    backend: Any = torch_peers.load("tarry", threads=2)
    found: list[float] = []
    for step in train(torch_peers.make_loop(backend, "mlp", draw("mlp"))):
        if step % EVERY == 0:
            backend.wait()
            gc.collect()
            found.append(memory_mb("VmRSS"))
            grown = f"{found[-1] - found[-2]:+.2f}" if len(found) > 1 else ""
            print(f"{step:6d} steps {found[-1]:8.1f} MB {grown}", flush=True)
        if step == steps:
            return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=500)
    args = parser.parse_args()
    if args.steps < 2 * EVERY:
        parser.error(f"--steps is at least {2 * EVERY}")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # read when the first program is cut
    found = sizes(args.steps)
    grown = found[-1] - found[0]
    print(f"{grown:+.2f} MB after the first {EVERY} steps; allowed: {LIMIT_MB} MB")
    return 1 if grown > LIMIT_MB else 0


if __name__ == "__main__":
    sys.exit(main())
