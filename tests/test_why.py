"""Why a program was compiled: every reason, provoked, with the true difference, the
user's line, and what to do."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import tarry
from harness import make
from tarry.cut.sync import store
from tarry.ledger import ledger
from tarry.record.trie import recorder
from tarry.report.why import Reason


def here(back: int = 0) -> str:
    """File and number of the line `back` lines before the call."""
    return f"{__file__}:{sys._getframe(1).f_lineno - back}"


@pytest.fixture(autouse=True)
def empty():
    """No program is known, and no recording: equal ones share their lines."""
    tarry.sync()
    store.clear()
    recorder.restart(0)


@pytest.fixture
def x():
    return made(3, 4)


def made(*shape, **options):
    t = make(*shape, **options).to("tarry")
    (t * 1).cpu()  # it is on the device now
    store.clear()
    return t


def ran(f, *args):
    """The record of the last compile after `f` ran and its results were cut."""
    held = f(*args)
    tarry.sync()
    del held
    return ledger.compiles[-1]


def test_first(x):
    found = ran(lambda a: a + 1, x)
    assert found.reason == Reason.FIRST.name
    assert found.why == "it is the first program" and found.before == -1


def test_first_of_its_kind(x):
    before = ran(lambda a: a + 1, x)
    found = ran(lambda a: a.sin().exp().cos().tan(), x)
    assert found.reason == Reason.KIND.name and found.before == before.program
    assert found.why == "it is the first program of its kind (4 operations, 1 input)"


def test_an_input_of_another_shape():
    big, small, line = made(8, 6), made(3, 6), here()

    def step(a):
        return a.exp().sum(1), here()

    ran(step, big)
    found = ran(step, small)
    place = step(small)[1]
    assert found.reason == Reason.INPUT.name
    assert (found.old, found.new) == ("f32[8,6]", "f32[3,6]")
    assert found.why.startswith(
        "an input changed: f32[8,6] → f32[3,6] (dimension 0), made at "
    )
    assert found.why.endswith(f", first used at {place}")
    assert found.differs_at == place and line.split(":")[0] in found.why
    assert found.advice == (
        "pad dimension 0 to one size, or to a few; if it is the last, shorter batch: "
        "drop_last=True in the DataLoader"
    )


def test_the_line_that_made_an_input():
    first = torch.ones(5).to("tarry")
    second = torch.ones(7).to("tarry")
    line = here(1)
    ran(torch.exp, first)
    found = ran(torch.exp, second)
    assert f"f32[5] → f32[7] (dimension 0), made at {line}, first used" in found.why


def test_a_computed_input_was_made_by_its_operation(x):
    first, second = x[:1] * 2, x[:2] * 2
    line = here(1)
    tarry.sync()
    store.clear()
    ran(torch.exp, first)
    found = ran(torch.exp, second)
    assert f"f32[1,4] → f32[2,4] (dimension 0), made at {line}," in found.why


def test_an_input_of_another_dtype(x):
    y = made(3, 4, dtype=torch.float64)
    ran(torch.exp, x)
    found = ran(torch.exp, y)
    assert found.reason == Reason.INPUT.name
    assert (found.old, found.new) == ("f32[3,4]", "f64[3,4]")
    assert found.advice == "convert it to one dtype before the step"


def test_parameters_have_their_names():
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU()).to("tarry")
    a, weight, bias = made(2, 4), made(5, 4), made(5)
    ran(model, a)
    model[0].weight.data, model[0].bias.data = weight, bias
    found = ran(model, a)
    assert found.reason == Reason.INPUT.name
    assert "an input changed: `Sequential.0." in found.why
    assert "and 1 more input" in found.why


def test_state_that_a_first_step_makes():
    model = nn.Linear(4, 3).to("tarry")
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    a = made(2, 4)

    def step():
        optimizer.zero_grad()
        model(a).square().sum().backward()
        optimizer.step()

    step()
    tarry.sync()
    step()
    tarry.sync()
    found = ledger.compiles[-1]
    assert found.reason == Reason.STATE.name
    assert "that the program before computed itself are inputs now" in found.why
    assert "Adam's " in found.why and " of Linear." in found.why


def one_more(a, more):
    """One operation more if `more`; and its line."""
    b = a.sin()
    if more:
        b = b.cosh()
    line = here(1)
    return b.exp().sum(), line


def test_an_operation_was_added(x):
    ran(one_more, x, False)
    found = ran(one_more, x, True)
    line = one_more(x, True)[1]
    assert found.reason == Reason.ADDED.name
    assert found.why == f"1 operation was added, the first of them aten::cosh at {line}"
    assert found.differs_at == line and found.new == "aten::cosh"
    assert "torch.where" in found.advice


def test_operations_vanished(x):
    ran(one_more, x, True)
    found = ran(one_more, x, False)
    line = one_more(x, False)[1]
    assert found.reason == Reason.REMOVED.name
    assert found.why == f"1 operation vanished, the first of them aten::cosh ({line})"


def test_another_operation(x):
    def step(a, other):
        b = a.sin()
        c = b.cosh() if other else b.tanh()
        return (c * 2).exp().sum(), here(1)

    ran(step, x, False)
    found = ran(step, x, True)
    line = step(x, True)[1]
    assert found.reason == Reason.CHANGED.name
    assert found.why == (
        f"aten::cosh at {line} stands where aten::tanh ({line}) stood before"
    )


def test_an_argument(x):
    def step(a, dim):
        return a.exp().softmax(dim).sin(), here()

    ran(step, x, 0)
    found = ran(step, x, 1)
    line = step(x, 1)[1]
    assert found.reason == Reason.ARGUMENT.name
    assert (found.old, found.new, found.differs_at) == ("0", "1", line)
    assert found.why == f"argument dim of aten::_softmax at {line} changed: 0 → 1"


def test_a_place_that_is_a_python_number(x):
    def step(a, i):
        return a.exp()[i].sin(), here()

    ran(step, x, 0)
    found = ran(step, x, 2)
    line = step(x, 2)[1]
    assert found.reason == Reason.ARGUMENT.name
    assert found.why == f"the view at {line} changed: offset 0 → offset 8"
    assert "index with a tensor instead of a number" in found.advice
    place = torch.tensor(1).to("tarry")
    ran(lambda a: a.exp()[place].sin(), x)
    other = torch.tensor(2).to("tarry")
    before = len(ledger.compiles)
    ran(lambda a: a.exp()[other].sin(), x)
    assert len(ledger.compiles) == before


def test_a_number_of_another_type(x):
    def step(a, k):
        return (a.exp() * k).sin(), here()

    ran(step, x, 2.0)
    found = ran(step, x, 2)
    line = step(x, 2)[1]
    assert found.reason == Reason.ARGUMENT.name
    assert found.why == (
        f"argument other of aten::mul.Tensor at {line} changed: a float → an int"
    )


def test_an_output_appeared_and_vanished(x):
    kept = []

    def step(a, keep):
        b = a.sin()
        line = here(1)
        if keep:
            kept.append(b)
        return b.exp().sum(), line

    ran(step, x, False)
    found = ran(step, x, True)
    line = step(x, True)[1]
    assert found.reason == Reason.OUTPUT.name
    assert found.why == (
        f"1 output appeared (1 → 2): the result of aten::sin at {line}, is alive at "
        "the cut now"
    )
    assert found.differs_at == line and (found.old, found.new) == ("1", "2")
    kept.clear()
    store.clear()
    ran(step, x, True)
    kept.clear()
    found = ran(step, x, False)
    assert found.why == (
        f"1 output vanished (2 → 1): the result of aten::sin at {line}, is no longer "
        "alive at the cut"
    )
    assert "del" in found.advice


def test_an_output_that_has_a_name(x):
    model = nn.Linear(4, 4).to("tarry")
    (model.weight * 1).cpu()
    store.clear()

    def step(write):
        with torch.no_grad():
            y = model.weight.exp()
            if write:
                model.bias.copy_(y[0])
        return y

    ran(step, False)
    found = ran(step, True)
    assert "`Linear.bias`" in found.why


def test_another_order(x):
    y = made(3, 4)

    def after(a, b):
        unused = a * b  # both are inputs before the first view
        del unused
        return a[1:] + b[1:]

    ran(lambda a, b: a[1:] + b[1:], x, y)
    found = ran(after, x, y)
    place = f"{__file__}:{after.__code__.co_firstlineno + 3}"
    assert found.reason == Reason.CHANGED.name
    assert "the same operations were recorded in another order: " in found.why
    assert f"an input f32[3,4] at {place} comes where tarry::view" in found.why
    assert found.advice == "do the same in the same order at every step"


def test_inputs_alias_otherwise(x):
    y = made(3, 4, seed=1)

    def step(a, b):
        return (a.exp() + b.sin()).sum(), here()

    ran(step, x, y)
    found = ran(step, x, x)
    assert found.reason == Reason.ALIAS.name
    assert (
        "operands are one tensor where they were separate (2 → 1 inputs)" in found.why
    )
    store.clear()
    ran(step, x, x)
    found = ran(step, x, y)
    line = step(x, y)[1]
    assert (
        "operands are separate tensors where they were one (1 → 2 inputs)" in found.why
    )
    assert found.differs_at == line


def test_donation():
    def step(a):
        a.mul_(2)
        return a

    y, z = made(3, 4), made(3, 4)
    ran(step, y)
    kept = z.clone()  # the old value lives on, so its buffer may not be overwritten
    found = ran(step, z)
    del kept
    assert found.reason == Reason.DONATION.name
    assert found.why.startswith(
        "donation changed: 0 input buffers may be overwritten, 1 before"
    )


def test_another_setting(x):
    def step(a):
        return a.exp().sin()

    ran(step, x)
    found = ran(
        tarry.compile(step, custom_compile_options={"xla_cpu_enable_fast_math": False}),
        x,
    )
    assert found.reason == Reason.ENVIRONMENT.name
    assert "xla_cpu_enable_fast_math: unset → False" in found.why


def test_evicted(x, monkeypatch):
    monkeypatch.setattr(store, "limit", 1)
    ran(torch.exp, x)
    ran(torch.sin, x)
    found = ran(torch.exp, x)
    assert found.reason == Reason.EVICTED.name
    assert found.why == "it was evicted from the cache, which keeps 1 programs"
    assert found.advice == "raise TARRY_COMPILATION_CACHE_SIZE to keep it"


def test_every_reason_is_tested():
    text = Path(__file__).read_text()
    assert all(f"Reason.{r.name}.name" in text for r in Reason)
