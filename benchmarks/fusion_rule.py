"""The measure behind `tarry.run.options`: what XLA:CPU's fusion pass does to a step.

For each workload: what the rule looks at, the options it chooses, and the steady step
and the compile time with the pass on and off, interleaved in one process.

    python benchmarks/fusion_rule.py lstm gpt mlp adam300 resnet
"""

import argparse
import statistics
import time

import tarry
import torch_peers
from data import draw
from tarry.cut import sync as cut
from tarry.record.trie import recorder
from tarry.run import options

CHOICES: dict[str, dict[str, str]] = {"on": {}, "off": options.NO_FUSION}


def no_lap(phase: str) -> None:
    """Phases are not looked at here."""


def steady(loop: torch_peers.Loop, steps: int) -> float:
    """Median time of a step, in milliseconds."""
    times = []
    for i in range(steps):
        loop.prepare(i)
        started = time.perf_counter()
        loop.step(i, no_lap)
        loop.finish()
        times.append((time.perf_counter() - started) * 1e3)
    return statistics.median(times)


def choose(chosen: dict[str, str]) -> None:
    """These options from here on; a trace seen before is looked up by its key again."""
    cut.choose = lambda graph, platform: chosen
    tarry.sync()
    recorder.restart(0)


def measure(workload: str, rounds: int, steps: int) -> None:
    """Print one workload's lines."""
    backend, data = torch_peers.load("tarry", 2), draw(workload)
    loops, seconds, graph = {}, {}, None
    for name, chosen in CHOICES.items():
        choose(chosen)
        loops[name] = torch_peers.make_loop(backend, workload, data)
        steady(loops[name], 3)
        largest = max(cut.store.values(), key=lambda p: (len(p.graph.nodes), p.number))
        seconds[name], graph = largest.compile_s, largest.graph
    chosen = "off" if options.is_recurrence(graph) else "on"
    print(f"{workload}: {options.shape_of(graph)}; the rule says fusion {chosen}")
    times: dict[str, list[float]] = {name: [] for name in CHOICES}
    for _ in range(rounds):
        for name, loop in loops.items():
            choose(CHOICES[name])
            times[name].append(steady(loop, steps))
    for name in CHOICES:
        step = statistics.median(times[name])
        print(
            f"  fusion {name}: {step:.2f} ms a step, {seconds[name]:.1f} s to compile"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="*", default=["lstm", "gpt", "mlp"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    asked = parser.parse_args()
    tarry.sync()
    for workload in asked.workloads:
        measure(workload, asked.rounds, asked.steps)


if __name__ == "__main__":
    main()
