"""Compare peers on workloads: `python benchmarks/run.py [WORKLOAD …]`.

Of each workload, every peer is started in a process of its own, one at a time, so that
nothing else disturbs its cold start; then all take turns, a round each, in an order
that rotates. A machine that drifts slows all of a round alike, so ratios are taken per
round. Prints a markdown table a workload; `--out` also writes everything as JSON. Exits
with 1 if a peer failed or is wrong.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from threading import Timer
from typing import Any

import table
from peer import PEERS
from records import End, Outcome, Round, Start, is_wrong
from workloads import DEFAULT, is_workload, steps_per_round

PEER = Path(__file__).with_name("peer.py")
XLA_VARIABLE = "TARRY_BENCH_XLA_PYTHON"
START_S, ROUND_S = 600, 300  # a process that takes longer is ended
GRACE_S = 10


class Process:
    """A peer's process; `ask` raises RuntimeError if it ends or takes too long."""

    def __init__(self, python: str, peer: str, workload: str, threads: int) -> None:
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [python, PEER, peer, workload, "--threads", str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=environment(threads),
        )

    def ask(self, command: str, answer: str, limit: float) -> dict[str, Any]:
        timer = Timer(limit, self.process.kill)
        timer.start()
        try:
            if command:
                self.process.stdin.write(command + "\n")
                self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        if not line.startswith(f"@{answer} "):
            raise RuntimeError(self.why_ended())
        return json.loads(line.removeprefix(f"@{answer} "))

    def why_ended(self) -> str:
        """The exit code (-9: it took too long) and the end of what it printed."""
        try:
            code = self.process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            return "an answer was expected, but something else was printed"
        self.errors.seek(0)
        return f"exit code {code}\n{self.errors.read()[-2000:]}".strip()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        with suppress(BrokenPipeError):  # what a dead process has not read
            self.process.stdin.close()
        self.process.stdout.close()
        self.errors.close()


def environment(threads: int) -> dict[str, str]:
    """The same for all peers: the CPU, so many threads, no compile cache on disk."""
    count = dict.fromkeys(
        ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads)
    )
    own = {
        "JAX_PLATFORMS": "cpu",
        "PJRT_DEVICE": "CPU",
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    rest = {k: v for k, v in os.environ.items() if k != XLA_VARIABLE}
    return {**rest, **count, **own}


def pin(threads: int) -> None:
    """This process and its children on so many cores, where the system can do that:
    XLA takes its number of threads from there."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


class Comparison:
    """The peers of one workload: their processes and what they have told."""

    def __init__(self, workload: str, args: argparse.Namespace) -> None:
        self.workload, self.args = workload, args
        self.outcomes: dict[str, Outcome] = {}
        self.live: dict[str, Process] = {}

    def run(self) -> dict[str, Outcome]:
        try:
            for peer in self.peers():
                self.start(peer)
            for i in range(self.args.rounds):
                self.round(i)
            for peer in list(self.live):
                answer = self.ask(peer, "done", "done", ROUND_S)
                self.outcomes[peer].end = answer and End(**answer)
        finally:
            for process in self.live.values():
                process.close()
        return self.outcomes

    def peers(self) -> list[str]:
        """Those asked for; by default also JAX's better way where there is one."""
        if self.args.peers:
            return self.args.peers
        names = ["tarry", "eager", "jax"]
        names += ["jax_nofusion"] if self.workload == "lstm" else []
        return names + (["torch_xla"] if self.args.torch_xla_python else [])

    def start(self, peer: str) -> None:
        is_xla = peer == "torch_xla"
        python = self.args.torch_xla_python if is_xla else sys.executable
        self.outcomes[peer] = Outcome(peer)
        self.live[peer] = Process(python, peer, self.workload, self.args.threads)
        answer = self.ask(peer, "", "ready", START_S)
        self.outcomes[peer].start = answer and Start(**answer)

    def round(self, i: int) -> None:
        names = list(self.live)
        steps = self.args.steps or steps_per_round(self.workload)
        at = i % max(len(names), 1)
        for peer in names[at:] + names[:at]:
            answer = self.ask(peer, f"run {steps}", "run", ROUND_S)
            if answer:
                self.outcomes[peer].rounds.append(Round(**answer))

    def ask(self, peer: str, *question: Any) -> dict[str, Any] | None:
        """The answer; None, and the peer out of the running, if there is none."""
        try:
            return self.live[peer].ask(*question)
        except RuntimeError as error:
            self.outcomes[peer].error = str(error)
            self.live.pop(peer).close()
            return None


def machine() -> dict[str, Any]:
    return {
        "system": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workloads", nargs="*", default=DEFAULT, metavar="workload")
    parser.add_argument(
        "--peers", type=lambda text: text.split(","), help=", ".join(PEERS)
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, help="a round; default by workload")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write JSON")
    parser.add_argument(
        "--torch-xla-python",
        metavar="PATH",
        default=os.environ.get(XLA_VARIABLE),
        help=f"an interpreter that has torch_xla; default ${XLA_VARIABLE}",
    )
    args = parser.parse_args()
    check(parser, args)
    return args


def check(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    peers = args.peers or []
    wrong = [w for w in args.workloads if not is_workload(w)]
    wrong += [p for p in peers if p not in PEERS]
    if wrong:
        parser.error(f"no workload or peer: {', '.join(wrong)}")
    python = args.torch_xla_python
    if "torch_xla" in peers and not python:
        parser.error(f"torch_xla needs --torch-xla-python or {XLA_VARIABLE}")
    if python and not shutil.which(python):
        parser.error(f"--torch-xla-python: {python} is not a program")
    if args.rounds < 1 or (args.steps is not None and args.steps < 1):
        parser.error("--rounds and --steps are at least 1")


def main() -> int:
    args = arguments()
    pin(args.threads)
    results, is_sound = {}, True
    for workload in args.workloads:
        outcomes = Comparison(workload, args).run()
        print(table.markdown(workload, outcomes), flush=True)
        results[workload] = table.as_json(outcomes)
        eager = outcomes.get("eager")
        is_sound &= not any(o.error or is_wrong(o, eager) for o in outcomes.values())
    if args.out:
        about = {"machine": machine(), "rounds": args.rounds, "threads": args.threads}
        args.out.write_text(json.dumps({**about, "results": results}, indent=1))
    return 0 if is_sound else 1


if __name__ == "__main__":
    sys.exit(main())
