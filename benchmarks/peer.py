"""One peer on one workload in one process.

`python benchmarks/peer.py PEER WORKLOAD` imports the peer's libraries, runs five steps
and answers `@ready`; then it answers `run N` on its input with a round of N steps, and
`done` with its totals, each one line of JSON. What libraries print goes to stderr.
"""

import time

BEGUN = time.perf_counter()

import argparse  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from dataclasses import asdict  # noqa: E402
from statistics import median  # noqa: E402
from types import ModuleType  # noqa: E402
from typing import Any, TextIO  # noqa: E402

from data import draw  # noqa: E402
from records import PHASES, End, Round, Start  # noqa: E402

JAX_PEERS = ("jax", "jax_nofusion")
PEERS = ("tarry", "eager", *JAX_PEERS, "torch_xla")
FIRST, WARM, WARM_S = 5, 10, 3.0


class Stopwatch:
    """Seconds since the last lap, by the name of the phase that ends."""

    def start(self) -> None:
        self.phases = dict.fromkeys(PHASES, 0.0)
        self.last = time.perf_counter()

    def lap(self, phase: str) -> None:
        now = time.perf_counter()
        self.phases[phase] += now - self.last
        self.last = now


class Session:
    """The loop, and how many steps it has made."""

    def __init__(self, backend: Any, loop: Any) -> None:
        self.backend, self.loop = backend, loop
        self.steps, self.watch = 0, Stopwatch()

    def step(self) -> dict[str, float]:
        """Make a step and wait for it; the seconds of its phases."""
        self.loop.prepare(self.steps)
        self.watch.start()
        self.loop.step(self.steps, self.watch.lap)
        self.loop.finish()
        self.watch.lap("wait")
        self.steps += 1
        return self.watch.phases

    def first(self) -> tuple[float, list[float]]:
        """Seconds of the first step, and the losses of the first five."""
        times, losses = [], []
        for _ in range(FIRST):
            times.append(sum(self.step().values()))
            losses.append(self.loop.loss())
        return times[0], losses

    def warm_up(self) -> None:
        begun = time.perf_counter()
        while self.steps < WARM and time.perf_counter() - begun < WARM_S:
            self.step()

    def round(self, steps: int) -> Round:
        laps = [self.step() for _ in range(steps)]
        phases = {p: 1e3 * median(lap[p] for lap in laps) for p in PHASES}
        return Round(1e3 * median(sum(lap.values()) for lap in laps), phases)

    def totals(self) -> End:
        end = End(peak_rss_mb=memory_mb("VmHWM"))
        self.backend.count(end)
        return end


def memory_mb(name: str) -> float:
    """A line of Linux's status of this process: VmHWM (peak) or VmRSS (now)."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(name):
                return int(line.split()[1]) / 1024
    raise OSError(f"/proc/self/status has no line {name}")


def load(peer: str, threads: int) -> tuple[ModuleType, Any]:
    """The module of the peer's loops, and its backend."""
    if peer in JAX_PEERS:
        import jax_peers

        return jax_peers, jax_peers.load(peer)
    import torch_peers

    return torch_peers, torch_peers.load(peer, threads)


def serve(session: Session, early: int | None, out: TextIO) -> None:
    for line in sys.stdin:
        if line.startswith("done"):
            break
        say(out, "run", session.round(int(line.split()[1])))
    end = session.totals()
    if end.compiles is not None and early is not None:
        end.late_compiles = end.compiles - early
    say(out, "done", end)


def say(out: TextIO, what: str, record: Start | Round | End) -> None:
    print(f"@{what} {json.dumps(asdict(record))}", file=out, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("workload")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    loops, backend = load(args.peer, args.threads)
    imported = time.perf_counter()
    data = draw(args.workload)
    drawn = time.perf_counter()
    session = Session(backend, loops.make_loop(backend, args.workload, data))
    placed = time.perf_counter()
    first_s, losses = session.first()
    early = session.totals().compiles
    session.warm_up()
    say(out, "ready", Start(imported - BEGUN, placed - drawn, first_s, losses))
    serve(session, early, out)
    out.flush()
    os._exit(0)  # some runtimes hang or crash at exit, after all is said


if __name__ == "__main__":
    main()
