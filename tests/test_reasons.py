"""Random programs of which one thing changes between two runs: the compile's reason and
its sentence name that difference, with the lines at which it was written.

A program is a function, written to a file line by line, that is run before and after
the change; so it is known what has to be told, whatever else the function does.
"""

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

import tarry
from tarry.cut.sync import store
from tarry.report.why import Reason
from told import fresh

# What is done anywhere: (text, times the name of the value before). No operation that
# a change below adds or takes away.
WORK = [
    "v = v.sin()", "v = v * 0.5", "v = v + w", "v = v.relu()", "v = v.tanh() - v",
    "v = v * w.cos()", "v = torch.maximum(v, w)", "v = v.exp().log1p()",
]  # fmt: skip

# Operations that occur in no other line, with the names they have.
RARE = {"erf": "aten::erf", "atan": "aten::atan", "sinh": "aten::sinh"}


@dataclass
class Program:
    """`step(v, w, flag)` line by line; `run` gives the last compile's record."""

    file: Path
    lines: list[str] = field(default_factory=lambda: ["def step(v, w, flag):"])

    def add(self, *lines: str) -> str:
        """`file:line` of the last of these lines of the function."""
        self.lines += [f"    {line}" for line in lines]
        return self.here()

    def here(self) -> str:
        return f"{self.file}:{len(self.lines)}"

    def work(self, rng, least=2, most=6):
        self.add(*rng.choices(WORK, k=rng.randint(least, most)))

    def close(self, result="v"):
        self.add(f"return {result}")
        names = {"torch": torch, "tarry": tarry}
        self.file.write_text("\n".join(self.lines) + "\n")
        exec(compile("\n".join(self.lines), str(self.file), "exec"), names)
        return names["step"]


def on_device(*shape, dtype=torch.float32):
    """A tensor of the device that no line of the program made."""
    t = torch.linspace(0.1, 0.9, torch.Size(shape).numel()).reshape(shape).to(dtype)
    t = t.to("tarry")
    (t * 1).cpu()
    return t


def made_here(shape):
    """A tensor that was computed at a line of this file, and the line."""
    t = on_device(*shape) * 1
    tarry.sync()
    return t


def compiled(*calls):
    """The last compile's record of calls, each of which ends with a cut."""
    fresh()
    held = []
    for call in calls:
        held.append(call())
        tarry.sync()
        held = held[-1:]
    return tarry.explain().compiles[-1]


@pytest.fixture
def program(tmp_path):
    return Program(tmp_path / "program.py")


SEEDS = pytest.mark.parametrize("seed", range(4))


def is_told(found, reason, why, at):
    assert (found.reason, found.why) == (reason.name, why)
    assert found.differs_at == at


@SEEDS
def test_first_and_kind(program, seed):
    rng = random.Random(seed)
    program.work(rng)
    step = program.close("v if flag else w.erf().atan().sinh()")
    v, w = on_device(3, 4), on_device(3, 4)
    is_told(
        compiled(lambda: step(v, w, 1)), Reason.FIRST, "it is the first program", ""
    )
    found = compiled(lambda: step(v, w, 1), lambda: step(v, w, 0))
    why = "it is the first program of its kind (3 operations, 1 input)"
    is_told(found, Reason.KIND, why, "")


@SEEDS
def test_input(program, seed):
    rng = random.Random(seed)
    which = rng.randrange(2)
    at = [program.add("v = v.neg()"), program.add("v = v + w[:1].neg().mean()")][which]
    program.add(*rng.choices(WORK[:2], k=3))
    step = program.close()
    shapes = [[(6, 4), (3, 4)], [(6, 4), (6, 7)], [(2, 6, 4), (6, 4)]]
    was, now = rng.choice(shapes)
    pairs = [[on_device(5, 5)] * 2, [on_device(5, 5)] * 2]
    pairs[which] = [made_here(was), made_here(now)]
    found = compiled(*(lambda i=i: step(pairs[0][i], pairs[1][i], 0) for i in (0, 1)))
    line = made_here.__code__.co_firstlineno + 2
    spelt = [f"f32[{','.join(map(str, s))}]" for s in (was, now)]
    dims = {(3, 4): " (dimension 0)", (6, 7): " (dimension 1)", (6, 4): ""}[now]
    why = (
        f"an input changed: {spelt[0]} → {spelt[1]}{dims}, made at {__file__}:{line}, "
        f"first used at {at}"
    )
    is_told(found, Reason.INPUT, why, at)
    assert [found.old, found.new] == spelt


@SEEDS
def test_input_and_more(program, seed):
    """A changed input comes before what follows from it, or happens beside it."""
    rng = random.Random(seed)
    at = program.add("v = v.neg()")
    program.work(rng)
    program.add("if v.shape[0] > 1:", f"    v = v.{rng.choice(list(RARE))}()")
    step = program.close("v.sum(0)")
    w, first, second = on_device(1), on_device(6, 4), on_device(1, 4)
    found = compiled(lambda: step(first, w, 0), lambda: step(second, w, 0))
    assert found.reason == Reason.INPUT.name and found.differs_at == at
    assert "f32[6,4] → f32[1,4] (dimension 0)" in found.why


@SEEDS
@pytest.mark.parametrize("added", [True, False])
def test_added_and_removed(program, seed, added):
    rng = random.Random(seed)
    program.work(rng)
    ops = rng.sample(list(RARE), rng.randint(1, 3))
    at = program.add("if flag:", f"    v = v.{'().'.join(ops)}()")
    program.work(rng)
    step = program.close()
    v, w = on_device(3, 4), on_device(3, 4)
    calls = [lambda: step(v, w, False), lambda: step(v, w, True)]
    found = compiled(*(calls if added else calls[::-1]))
    n = len(ops)
    count, name = f"{n} operation{'s' if n > 1 else ''}", RARE[ops[0]]
    if added:
        verb = "was" if n == 1 else "were"
        why = f"{count} {verb} added, the first of them {name} at {at}"
    else:
        why = f"{count} vanished, the first of them {name} ({at})"
    is_told(found, Reason.ADDED if added else Reason.REMOVED, why, at)


@SEEDS
def test_changed(program, seed):
    rng = random.Random(seed)
    program.work(rng)
    one, other = rng.sample(list(RARE), 2)
    at = program.add("if flag:", f"    v = v.{one}()", "else:", f"    v = v.{other}()")
    before = f"{program.file}:{len(program.lines) - 2}"
    program.work(rng)
    step = program.close()
    v, w = on_device(3, 4), on_device(3, 4)
    found = compiled(lambda: step(v, w, True), lambda: step(v, w, False))
    why = f"{RARE[other]} at {at} stands where {RARE[one]} ({before}) stood before"
    is_told(found, Reason.CHANGED, why, at)


@SEEDS
def test_other_operand(program, seed):
    rng = random.Random(seed)
    program.work(rng)
    made = program.add("a = v.erf()")
    program.work(rng)
    again = program.add("b = v.erf()")
    at = program.add("v = v.hypot(b if flag else a)")
    step = program.close("v, a, b")
    v, w = on_device(3, 4), on_device(3, 4)
    found = compiled(lambda: step(v, w, False), lambda: step(v, w, True))
    why = (
        f"aten::hypot at {at} takes the result of aten::erf ({again}) where it took "
        f"the result of aten::erf ({made})"
    )
    is_told(found, Reason.CHANGED, why, at)


ARGUMENTS = [
    ("v = v.softmax(flag)", (0, 1), "argument dim of aten::_softmax", ("0", "1")),
    ("v = v.roll(flag, 0)", (1, 2), "argument shifts of aten::roll", ("(1,)", "(2,)")),
    ("v = v[flag] + v", (0, 2), "the view", ("offset 0", "offset 8")),
    ("v = v * flag", (2, 2.5), "argument other of aten::mul.Tensor",
     ("an int", "a float")),
    ("v = v + flag", (2.5, True), "argument other of aten::add.Tensor",
     ("a float", "a bool")),
    ("v = torch.cat([v] * flag)[:3]", (2, 3), "argument tensors of aten::cat",
     ("a list of 2", "a list of 3")),
]  # fmt: skip


@SEEDS
@pytest.mark.parametrize("case", ARGUMENTS, ids=lambda c: c[0])
def test_argument(program, seed, case):
    rng = random.Random(seed)
    text, (old, new), what, (was, now) = case
    program.work(rng)
    at = program.add(text)
    program.work(rng)
    step = program.close()
    v, w = on_device(3, 4), on_device(3, 4)
    found = compiled(lambda: step(v, w, old), lambda: step(v, w, new))
    is_told(found, Reason.ARGUMENT, f"{what} at {at} changed: {was} → {now}", at)
    assert (found.old, found.new) == (was, now)


@SEEDS
def test_a_tensor_for_a_number(program, seed):
    rng = random.Random(seed)
    program.work(rng)
    at = program.add("v = v * flag")
    step = program.close()
    v, w = on_device(3, 4), on_device(3, 4)
    factor = on_device(3, 4)
    found = compiled(lambda: step(v, w, factor), lambda: step(v, w, 2.0))
    what = "argument other of aten::mul.Tensor"
    why = f"{what} at {at} changed: a tensor → a float"
    is_told(found, Reason.ARGUMENT, why, at)


@SEEDS
@pytest.mark.parametrize("appears", [True, False])
def test_output(program, seed, appears):
    rng = random.Random(seed)
    program.work(rng)
    name = rng.choice(list(RARE))
    at = program.add(f"kept = v = v.{name}()")
    program.work(rng)
    step = program.close("(v, kept) if flag else v")
    v, w = on_device(3, 4), on_device(3, 4)
    found = compiled(lambda: step(v, w, not appears), lambda: step(v, w, appears))
    verb, sizes = ("appeared", "1 → 2") if appears else ("vanished", "2 → 1")
    held = "is alive at the cut now" if appears else "is no longer alive at the cut"
    why = f"1 output {verb} ({sizes}): the result of {RARE[name]} at {at}, {held}"
    is_told(found, Reason.OUTPUT, why, at)


@SEEDS
@pytest.mark.parametrize("separate", [True, False])
def test_alias(program, seed, separate):
    """Which of several inputs of one shape are one tensor."""
    rng = random.Random(seed)
    program.add("a, b, c = flag")
    lines = [program.add(f"v = v * {x}.neg()") for x in "abc"]
    program.work(rng)
    step = program.close()
    v, w, a, b, c = (on_device(3, 4) for _ in range(5))
    # c is b again, or b is a
    ones = rng.choice([(a, b, b), (a, a, c)])
    at = lines[2] if ones[2] is b else lines[1]
    calls = [lambda: step(v, w, ones), lambda: step(v, w, (a, b, c))]
    found = compiled(*(calls if separate else calls[::-1]))
    n = len(set(map(id, (v, w, a, b, c))))
    used = "w" in "".join(line for line in program.lines[5:])
    n -= not used
    what, sizes = (
        ("are separate tensors where they were one", f"{n - 1} → {n}")
        if separate
        else ("are one tensor where they were separate", f"{n} → {n - 1}")
    )
    start = (
        f"inputs alias otherwise: operands {what} ({sizes} inputs), the first of them "
        "f32[3,4], "
    )
    assert found.reason == Reason.ALIAS.name and found.why.startswith(start)
    assert found.why.endswith(f", first used at {at}") and found.differs_at == at


@SEEDS
def test_alias_of_as_many_inputs(program, seed):
    rng = random.Random(seed)
    program.add("a, b, c = flag", "v = v * a.neg()", "v = v * b.neg()")
    at = program.add("v = v.hypot(c)")
    program.add(*rng.choices(WORK[:2], k=3))
    step = program.close()
    v, w, a, b = (on_device(3, 4) for _ in range(4))
    found = compiled(lambda: step(v, w, (a, b, a)), lambda: step(v, w, (a, b, b)))
    assert found.reason == Reason.ALIAS.name and found.differs_at == at
    assert found.why.startswith(f"aten::hypot at {at} takes input 2 made at ")
    assert " where it took input 0 made at " in found.why


@SEEDS
def test_state(program, seed):
    """The first step makes what the second one is given."""
    rng = random.Random(seed)
    program.work(rng)
    n = rng.randint(1, 3)
    ops = rng.sample(list(RARE), n)
    program.add("state = flag or []", "if not flag:")
    made, *_ = [program.add(f"    state.append(w.{op}())") for op in ops]
    first = program.add("v = v.hypot(state[0])")
    for i in range(1, n):
        program.add(f"v = v.hypot(state[{i}])")
    program.work(rng)
    step = program.close("v, state")
    v, w = on_device(3, 4), on_device(3, 4)
    kept = []

    def begin():
        kept[:] = [step(v, w, None)]

    found = compiled(begin, lambda: step(v, w, kept[0][1])[0])
    assert found.reason == Reason.STATE.name, found.why
    values = "1 value" if n == 1 else f"{n} values"
    assert found.why.startswith(f"{values} that the program before computed itself ")
    assert f"f32[3,4], made at {made}, first used at {first} (" in found.why
    assert found.differs_at == first


@SEEDS
def test_a_shorter_branch_is_no_state(program, seed):
    """More inputs and fewer operations, but another operation too."""
    rng = random.Random(seed)
    program.work(rng)
    at = program.add(
        "if flag is None:", "    v = v.erf().atan().sinh()", "else:",
        "    v = v.hypot(flag)",
    )  # fmt: skip
    program.work(rng)
    step = program.close()
    before = f"{program.file}:{int(at.rpartition(':')[2]) - 2}"
    v, w, other = (on_device(3, 4) for _ in range(3))
    found = compiled(lambda: step(v, w, None), lambda: step(v, w, other))
    why = f"aten::hypot at {at} stands where aten::erf ({before}) stood before"
    is_told(found, Reason.CHANGED, why, at)


@SEEDS
def test_donation(program, seed):
    rng = random.Random(seed)
    program.add("a, b = flag")
    lines = [program.add("v = v * a.neg()"), program.add("v = v * b.neg()")]
    program.work(rng)
    program.add("a.add_(1)", "b.add_(1)")
    step = program.close()
    v, w = on_device(3, 4), on_device(3, 4)
    pairs = [(made_here((3, 4)), made_here((3, 4))) for _ in range(2)]
    which = rng.randrange(2)
    kept = pairs[1][which].clone()
    found = compiled(*(lambda p=p: step(v, w, p) for p in pairs))
    del kept
    line = made_here.__code__.co_firstlineno + 2
    why = (
        "donation changed: 1 input buffer may be overwritten, 2 before; now f32[3,4], "
        f"made at {__file__}:{line}, first used at {lines[which]}, may not (a tensor "
        "that holds an old value keeps its buffer from being reused)"
    )
    is_told(found, Reason.DONATION, why, lines[which])


@SEEDS
def test_environment(program, seed):
    rng = random.Random(seed)
    program.work(rng)
    step = program.close()
    v, w = on_device(3, 4), on_device(3, 4)
    name, value = rng.choice(
        [("xla_cpu_enable_fast_math", True), ("xla_cpu_enable_fast_min_max", False)]
    )
    other = tarry.compile(step, custom_compile_options={name: value})
    found = compiled(lambda: step(v, w, 0), lambda: other(v, w, 0))
    why = f"the compile environment changed ({name}: unset → {value})"
    is_told(found, Reason.ENVIRONMENT, why, "")


@SEEDS
def test_evicted(program, seed, monkeypatch):
    rng = random.Random(seed)
    program.work(rng)
    program.add("if flag:", "    v = v.erf()")
    step = program.close()
    v, w = on_device(3, 4), on_device(3, 4)
    monkeypatch.setattr(store, "limit", 1)
    found = compiled(*(lambda f=f: step(v, w, f) for f in (0, 1, 0)))
    why = "it was evicted from the cache, which keeps 1 programs"
    is_told(found, Reason.EVICTED, why, "")


@SEEDS
def test_the_nearest_program_is_compared(program, seed):
    """Of programs of the same operations, the one that is equal in more."""
    rng = random.Random(seed)
    program.add("v = v.neg()")
    at = program.add("kept = v = v.erf()")
    program.add(*rng.choices(WORK[:2], k=3))
    step = program.close("(v, kept) if flag else v")
    big, small, w = on_device(6, 4), on_device(3, 4), on_device(1)
    found = compiled(
        lambda: step(big, w, 0), lambda: step(small, w, 0), lambda: step(big, w, 1)
    )
    why = f"1 output appeared (1 → 2): the result of aten::erf at {at}, is alive at "
    assert found.reason == Reason.OUTPUT.name and found.why.startswith(why)
    assert found.before == tarry.explain().compiles[0].program


def test_every_reason_is_provoked():
    text = Path(__file__).read_text()
    assert not [r for r in Reason if f"Reason.{r.name}" not in text]
