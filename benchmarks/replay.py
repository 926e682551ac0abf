"""What a call of a compiled function costs beside `jax.jit` of the same function:
`python benchmarks/replay.py`.

A stack of small linear layers, so that calling outweighs computing. In one process, in
turns: the function jitted by JAX; by `torch.compile(backend="tarry")`; by a backend
that does nothing, which is what dynamo's guards cost; that one behind AOTAutograd; and
by a backend that calls the jitted function. Each round times calls whose result is
waited for; the table shows medians over the rounds.

A replay may cost 1.5 times `jax.jit` beside the guards. What `jax.jit` costs depends on
the pace: called again within a few microseconds it finds XLA's threads still awake, and
behind guards they sleep and are woken, as they are in a replay. So its cost is taken
where the replay's is, behind the guards; the first column is for comparison. Exits
with 1 above the limit. It says little on a machine that is busy: two threads take turns
in every call.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import torch

import tarry
from tarry.dispatch import seam
from tarry.dispatch.storage import slot_of

LIMIT = 1.5
WIDTH = 8


def layers(x: Any, weights: Any) -> Any:
    for w in weights:
        x = x @ w
        x = x * x
    return x


def noop(module: Any, inputs: Any) -> Callable[..., Any]:
    """A backend that computes once, and then returns that again."""
    made: list[Any] = []

    def run(*args: Any) -> Any:
        if not made:
            made.append(module(*args))
        return made[0]

    return run


def calling(jitted: Callable[[], Any], kept: list[Any]) -> Callable[..., Any]:
    """A backend that calls the jitted function, keeps its result, and returns what
    `noop` returns."""

    def backend(module: Any, inputs: Any) -> Callable[..., Any]:
        same = noop(module, inputs)

        def run(*args: Any) -> Any:
            kept[:] = [jitted()]
            return same(*args)

        return run

    return backend


def noop_behind_aot(module: Any, inputs: Any) -> Any:
    def compiler(graph: Any, _: Any) -> Any:
        inner = noop(graph, _)

        def run(args: list[Any]) -> Any:
            return inner(*args)

        run._boxed_call = True
        return run

    return seam.aot_autograd(fw_compiler=compiler, bw_compiler=compiler)(module, inputs)


def contestants(
    depth: int,
) -> dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]]:
    """For each way, the call and how to wait for its result."""
    host = [torch.randn(WIDTH, WIDTH) / WIDTH for _ in range(depth + 1)]
    ours = [t.to("tarry") for t in host]
    theirs = [jax.numpy.asarray(t.numpy()) for t in host]
    jitted = jax.jit(layers)

    def ours_by(backend: Any) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
        f = torch.compile(layers, backend=backend)
        return lambda: f(ours[0], ours[1:]), _wait

    def by_jax() -> Any:
        return jitted(theirs[0], theirs[1:])

    kept: list[Any] = []
    behind_guards, _ = ours_by(calling(by_jax, kept))
    return {
        "jax.jit": (by_jax, lambda r: r.block_until_ready()),
        "tarry": ours_by("tarry"),
        "guards": ours_by(noop),
        "guards + AOTAutograd": ours_by(noop_behind_aot),
        "guards + jax.jit": (behind_guards, lambda _: kept[0].block_until_ready()),
    }


def _wait(result: torch.Tensor) -> None:
    data = slot_of(result).data
    if data is not None:
        data.block_until_ready()


def measure(depth: int, rounds: int, calls: int) -> dict[str, float]:
    """Microseconds a call, by way."""
    ways = contestants(depth)
    times: dict[str, list[float]] = {name: [] for name in ways}
    with torch.no_grad():
        for i in range(rounds + 1):
            for name, (call, wait) in ways.items():
                for _ in range(10):
                    wait(call())
                started = time.perf_counter()
                for _ in range(calls):
                    wait(call())
                if i:
                    times[name].append((time.perf_counter() - started) / calls * 1e6)
    return {name: statistics.median(t) for name, t in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--depths", type=int, nargs="*", default=[2, 8, 32])
    args = parser.parse_args()
    is_fast = True
    print("| inputs | jax.jit µs | tarry µs | guards µs | guards + AOTAutograd µs |"
          " guards + jax.jit µs | tarry / jax.jit, beside the guards |")  # fmt: skip
    print("|--:|--:|--:|--:|--:|--:|--:|")
    for depth in args.depths:
        torch.compiler.reset()
        found = measure(depth, args.rounds, args.calls)
        guards = found["guards"]
        ratio = (found["tarry"] - guards) / (found["guards + jax.jit"] - guards)
        is_fast &= ratio <= LIMIT
        cells = " | ".join(f"{t:.1f}" for t in found.values())
        print(f"| {depth + 1} | {cells} | {ratio:.2f} |", flush=True)
    return 0 if is_fast else 1


if __name__ == "__main__":
    tarry.sync()
    sys.exit(main())
