"""Jobs for the databases, run in two worker processes, which may crash."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

import modules
import optimizers
from entries import CAP, DTYPES, ENTRIES, KINDS, dtype_of, short, takes
from runs import Record, run_named

LIMIT = 90  # seconds of CPU that an entry may take
SLOW = {"gradcheck": 2, "gradgradcheck": 4}  # of these ways one entry in so many more
SILENCE = 1800  # seconds after which a worker that does not answer has crashed


@dataclass(frozen=True, slots=True)
class Group:
    """Ways of calling, dtypes, how many samples of an entry at most, and one entry in
    how many."""

    kinds: list[str]
    dtypes: list[torch.dtype]
    cap: int
    every: int = 1


# The groups of the report. Modules and optimizers are called in ways of their own.
GROUPS = {
    "forward, float32": Group(["forward"], DTYPES[:1], CAP),
    "gradients, float32": Group(["grad"], DTYPES[:1], 12),
    "forward, other dtypes": Group(["forward"], DTYPES[1:], 4),
    "other ways, float32": Group(KINDS[2:], DTYPES[:1], 4, every=4),
    "modules": Group(modules.KINDS, DTYPES[:1], 3),
    "optimizers": Group(optimizers.KINDS, DTYPES[:1], CAP),
}


@dataclass(frozen=True, slots=True)
class Job:
    name: str
    dtype: str
    kind: str
    cap: int

    @property
    def key(self) -> tuple[str, str, str]:
        return self.kind, self.name, self.dtype


def names_of(kind: str, dtype: torch.dtype) -> list[str]:
    """All that can be called in this way and dtype."""
    if kind in modules.KINDS:
        return modules.names(dtype)
    if kind in optimizers.KINDS:
        return optimizers.names(kind)
    return [name for name, op in ENTRIES.items() if takes(op, dtype, kind)]


def jobs_of(groups: list[str], dtypes: list[str], names: list[str]) -> list[Job]:
    return [
        Job(name, short(dtype_of(kind, dtype)), kind, group.cap)
        for group in (GROUPS[g] for g in groups)
        for kind in group.kinds
        for dtype in group.dtypes
        if not dtypes or short(dtype) in dtypes
        for name in names_of(kind, dtype_of(kind, dtype))[
            :: group.every * SLOW.get(kind, 1)
        ]
        if not names or name in names
    ]


def run_job(job: Job) -> Record:
    dtype = getattr(torch, job.dtype)
    if job.kind in modules.KINDS:
        return modules.run_named(job.name, dtype, job.kind, job.cap, LIMIT)
    if job.kind in optimizers.KINDS:
        return optimizers.run_named(job.name, job.kind, job.cap, LIMIT)
    return run_named(job.name, dtype, job.kind, job.cap, LIMIT)


def work() -> None:
    """A worker: a job a line in, a record a line out."""
    out = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        job = Job(**json.loads(line))
        try:
            record = run_job(job)
        except Exception as error:
            message = f"the harness: {type(error).__name__}: {error}"
            record = Record(job.name, job.dtype, job.kind, "error", message=message)
        print(json.dumps(asdict(record)), file=out, flush=True)


def _start() -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, Path(__file__).with_name("opdb.py"), "--worker"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True,
    )  # fmt: skip


def run_jobs(
    jobs: list[Job], keep: Callable[[Record], None], workers: int = 2
) -> list[Record]:
    """Run jobs in `workers` processes; one that dies is a crash, and is replaced.

    `keep` gets each record as it comes; the result is in the order of the jobs.
    """
    left, records, lock = list(reversed(jobs)), [], threading.Lock()

    def serve() -> None:
        worker = _start()
        while True:
            with lock:
                if not left:
                    break
                job = left.pop()
            record = _ask(worker, job)
            with lock:
                records.append(record)
                keep(record)
            if record.status == "crash":
                worker = _start()
        worker.stdin.close()
        worker.wait()

    threads = [threading.Thread(target=serve) for _ in range(workers)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    place = {job.key: i for i, job in enumerate(jobs)}
    return sorted(records, key=lambda r: place[r.key])


def _ask(worker: subprocess.Popen, job: Job) -> Record:
    # Compiles are not interruptible by the worker's own alarm.
    watch = threading.Timer(SILENCE, worker.kill)
    watch.start()
    try:
        worker.stdin.write(json.dumps(asdict(job)) + "\n")
        worker.stdin.flush()
        line = worker.stdout.readline()
    except BrokenPipeError:
        line = ""
    finally:
        watch.cancel()
    if line:
        return Record(**json.loads(line))
    code = worker.wait()
    message = f"the process ended with {code}"
    return Record(job.name, job.dtype, job.kind, "crash", message=message)
