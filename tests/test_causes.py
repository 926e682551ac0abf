"""Every cut of random programs that provoke each cause: the cause is the true one, and
the line is the user's.

The random programs are written to a file line by line, so it is known which line has
to be named, whatever stands around it: a function, a lambda, another thread, a mode of
torch's between the line and the device.
"""

import io
import math
import pickle
import random
import re
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import tarry
from tarry.config import config
from tarry.cut.cause import Cause
from tarry.debug.profiler import StepTrace
from tarry.dispatch.device import StepCuts
from tarry.experimental import eager_mode_context
from told import fresh

# (cause, expression that reads the pending tensor `v`, of what)
READS = [
    *[
        (Cause.ITEM, text, "")
        for text in (
            "v.sum().item()", "float(v[0, 0])", "int(v.sum())", "7.0 in v",
            "bool((v > 9).any())", "f'{v.sum():.2f}'", "1 if v.sum() > 0 else 2",
            "torch.equal(v, v + 1)", "[1, 2][(v.sum() * 0).long()]",
            "math.floor(v.sum())", "[float(x) for x in v[0, :1]]",
            "torch.allclose(v, v)",
        )
    ],
    *[
        (Cause.HOST, text, "")
        for text in (
            "v.cpu()", "v.to('cpu')", "torch.empty(3, 4, device='cpu').copy_(v)",
            "v.to(torch.empty(0, device='cpu'))", "v.type('torch.FloatTensor')",
            "v.cpu().numpy()",
            "v.cpu().tolist()", "np.asarray(v.cpu())", "v.untyped_storage().cpu()",
            "v.sum().cpu().item()",
        )
    ],
    *[
        (Cause.NUMPY, text, "")
        for text in (
            "v.tolist()", "v.sum().tolist()", "v.numpy(force=True)",
            "np.asarray(v[0].numpy(force=True))", "v.untyped_storage().tolist()",
            "sum(v.exp().sum(0).tolist())", "torch.Tensor.tolist(v)",
        )
    ],
    *[
        (Cause.PRINT, text, "")
        for text in (
            "repr(v)", "str(v[0])", "f'{v}'", "'%s' % v",
            "print(v.sum(), file=io.StringIO())", "repr([v, v > 0])",
        )
    ],
    *[
        (Cause.SAVE, text, "")
        for text in (
            "torch.save(v, io.BytesIO())", "pickle.dumps(v)",
            "torch.save({'v': [v]}, io.BytesIO())",
            "torch.save(v, io.BytesIO(), _use_new_zipfile_serialization=False)",
        )
    ],
    *[
        (Cause.SHAPE, text, f"aten::{op}")
        for text, op in (
            ("v.nonzero()", "nonzero"), ("v[v > 0]", "nonzero"),
            ("torch.where(v > 0)", "nonzero"),
            ("v.masked_select(v > 0)", "masked_select"),
            ("torch.bincount((v[0] > 0).long())", "bincount"),
            ("v[0].repeat_interleave((v[0] > 0).long())", "repeat_interleave"),
        )
    ],
    (
        Cause.FALLBACK,
        "torch.ops.aten.linalg_ldl_factor_ex(v[:, :3])",
        "aten::linalg_ldl_factor_ex",
    ),
    (Cause.SYNC, "tarry.sync()", ""),
    (Cause.SYNC, "torch.tarry.synchronize()", "synchronize"),
]  # fmt: skip

# What stands around an expression: the lines, `@` at the one that has to be named.
AROUND = [
    ["@kept = EXPR"],
    ["kept = [", "    0,", "    v.neg(),", "@    EXPR,", "    1,", "]"],
    ["def read(v):", "    v = v + 1", "@    return EXPR", "kept = read(v)"],
    ["@kept = (lambda v: EXPR)(v)"],
    ["@kept = [EXPR for v in [v]]"],
    ["@kept = sorted([v], key=lambda v: (EXPR) is None)"],
    ["with torch.device('tarry'):", "@    kept = EXPR"],
    ["with torch.no_grad(), torch.device('tarry'):", "@    kept = EXPR"],
    ["try:", "@    kept = EXPR", "finally:", "    kept = None"],
    [
        "def work(v):", "@    return EXPR", "thread = Thread(target=work, args=(v,))",
        "thread.start()", "thread.join()",
    ],
    ["class Reader:", "    def __len__(self):", "@        return 0 * len([EXPR])",
     "kept = len(Reader())"],
]  # fmt: skip

PENDING = [
    "v = v.sin()", "v = v + 0.5", "v = v * x", "v = (v @ x.t()) @ x / 12",
    "v = v.relu() + 1", "v = torch.where(v > x, v, x)", "v = v - v.mean(1, True)",
    "v = v.clone().mul_(1.5)",
]  # fmt: skip


class Program:
    """Source text, and the cuts that it has to cause: (cause, number of its line, of
    what)."""

    def __init__(self, file):
        self.file, self.lines, self.cuts = file, [], []

    def add(self, *lines, cause=None, of=""):
        """Lines; those with an `@` in front cause a cut."""
        for line in lines:
            if line.startswith("@"):
                self.cuts.append((cause, len(self.lines) + 1, of))
            self.lines.append(line.removeprefix("@"))

    def run(self):
        self.file.write_text("\n".join(self.lines) + "\n")
        code = compile("\n".join(self.lines), str(self.file), "exec")
        fresh()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(code, dict(NAMES))


class Thread(threading.Thread):
    """One that does not hide an error."""

    def run(self):
        self.error = None
        try:
            super().run()
        except BaseException as error:
            self.error = error

    def join(self, timeout=None):
        super().join(timeout)
        if self.error is not None:
            raise self.error


# What the programs know.
NAMES = {
    "StepCuts": StepCuts, "StepTrace": StepTrace,
    "eager_mode_context": eager_mode_context, "Thread": Thread, "config": config,
    "io": io, "math": math, "np": np, "pickle": pickle, "tarry": tarry, "torch": torch,
}  # fmt: skip


def reading(program, rng, cause, expression, of):
    around = [line.replace("EXPR", expression) for line in rng.choice(AROUND)]
    program.add(*around, cause=cause, of=of)


def stepping(program, rng):
    program.add("StepCuts.enabled = True", "(w * v).sum().backward()")
    program.add("@optimizer.step()", cause=Cause.STEP)
    program.add("StepCuts.enabled = False")


def region(program, rng):
    of = f"region{rng.randrange(9)}"
    if rng.random() < 0.5:
        program.add(f"with tarry.compile(name={of!r}):", "    v = v.cos()")
        line = len(program.lines) - 1
    else:
        program.add(f"@tarry.compile(name={of!r})".replace("@", "at = "))
        program.add("f = at(lambda v: v.cos())", "v = f(v)")
        line = len(program.lines)
    program.cuts += [(Cause.REGION_BEGIN, line, of), (Cause.REGION_END, line, of)]


def flooding(program, rng):
    program.add("config.node_budget = 60", "for _ in range(30):")
    here = f"{program.file}:{len(program.lines) + 1}"
    program.add("@    v = (v * 0.5).add(0.25)", cause=Cause.BUDGET, of=here)
    program.add("config.node_budget = 50_000")


def profiling(program, rng):
    program.add("@with StepTrace('step'):", "    v = v.cos()", cause=Cause.STEP_TRACE)


def loading(program, rng):
    """A cut before each batch, and one after the last."""
    program.add("loader = tarry.MpDeviceLoader([torch.ones(3, 4)] * 2, 'tarry')")
    of = f"list given at {program.file}:{len(program.lines)}"
    program.add("for batch in loader:", "    v = v + batch")
    program.cuts += [(Cause.LOADER, len(program.lines) - 1, of)] * 3


def eager(program, rng):
    program.add("with eager_mode_context(True):")
    program.add("@    v = v.cos()", cause=Cause.EAGER, of="aten::cos")
    program.add("@    v = v.add(1)", cause=Cause.EAGER, of="aten::add.Tensor")


OTHERS = {
    Cause.STEP: stepping, Cause.REGION_BEGIN: region, Cause.REGION_END: region,
    Cause.BUDGET: flooding, Cause.STEP_TRACE: profiling, Cause.LOADER: loading,
    Cause.EAGER: eager,
}  # fmt: skip


def random_program(file, seed):
    """One of every cause, in random order, with random work before each."""
    rng = random.Random(seed)
    program = Program(file)
    program.add(
        "x = torch.linspace(-1, 1, 12).reshape(3, 4).to('tarry')",
        "w = torch.nn.Parameter(torch.ones(3, 4).to('tarry'))",
        "optimizer = torch.optim.SGD([w], lr=0.5, momentum=0.5)",
        "v = x * 2",
    )
    by_cause = {}
    for each in READS:
        by_cause.setdefault(each[0], []).append(each)
    jobs = [("read", rng.choice(by_cause[c])) for c in by_cause for _ in range(2)]
    jobs += [("do", f) for f in dict.fromkeys(OTHERS.values())]
    rng.shuffle(jobs)
    for kind_, job in jobs:
        program.add(*rng.choices(PENDING, k=rng.randint(1, 4)))
        if kind_ == "read":
            reading(program, rng, *job)
        else:
            job(program, rng)
    return program


@pytest.mark.parametrize("seed", range(5))
def test_random_program(tmp_path, monkeypatch, seed):
    monkeypatch.setattr(config, "node_budget", config.node_budget)
    program = random_program(tmp_path / "program.py", seed)
    program.run()
    assert [(c.cause, c.line, c.detail) for c in tarry.explain().cuts] == [
        (cause.value, f"{program.file}:{line}", of) for cause, line, of in program.cuts
    ]


@pytest.mark.parametrize("read", READS, ids=lambda r: r[1])
def test_every_read_around_everything(tmp_path, read):
    """Each expression once within each kind of surroundings."""
    program = Program(tmp_path / "program.py")
    program.add("x = torch.linspace(-1, 1, 12).reshape(3, 4).to('tarry')")
    cause, expression, of = read
    for around in AROUND:
        program.add("v = (x * 2).exp()")
        lines = [line.replace("EXPR", expression) for line in around]
        program.add(*lines, cause=cause, of=of)
    program.run()
    assert [(c.cause, c.line, c.detail) for c in tarry.explain().cuts] == [
        (cause.value, f"{program.file}:{line}", of) for cause, line, of in program.cuts
    ]


def test_backward_on_another_thread_than_the_main_one(tmp_path):
    """Autograd records on a thread of its own; the line is that of who waits for it."""
    program = Program(tmp_path / "program.py")
    program.add(
        "w = torch.ones(3).to('tarry').requires_grad_()",
        "def work():",
        "    (w.exp() * 2).sum().backward()",
        "thread = Thread(target=work)",
        "thread.start()",
        "thread.join()",
        "tarry.sync()",
    )
    program.run()
    (compiled,) = tarry.explain().compiles
    graph = compiled.source.seen.key.graph
    assert {str(n.line) for n in graph.nodes} == {f"{program.file}:3"}


def test_no_host_reads_names_what_was_called():
    v = torch.ones(3).to("tarry") * 2
    for read, cause in (
        (lambda: v.tolist(), Cause.NUMPY), (lambda: repr(v), Cause.PRINT),
        (lambda: v.cpu(), Cause.HOST),
        (lambda: torch.save(v, io.BytesIO()), Cause.SAVE),
    ):  # fmt: skip
        for _ in ("pending", "computed"):
            with (
                tarry.no_host_reads(),
                pytest.raises(tarry.errors.HostReadError, match=re.escape(cause.value)),
            ):
                read()
            tarry.sync()


def test_every_cause_is_provoked():
    """Each that something passes on: here, or in a test of what passes it on."""
    here = {cause for cause, *_ in READS} | set(OTHERS)
    source = [p for p in Path(tarry.__file__).parent.rglob("*.py") if p.stem != "cause"]
    tests = [p for p in Path(__file__).parent.glob("test_*.py") if p != Path(__file__)]
    used, tested = ("".join(p.read_text() for p in each) for each in (source, tests))
    missing = [c for c in Cause if c not in here and f"Cause.{c.name}" not in tested]
    assert not [c for c in missing if f"Cause.{c.name}" in used]
