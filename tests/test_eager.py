"""Eager mode: a program for each operator, with lazy tensors' results and bits."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tarry
from harness import make, same
from tarry.cut.cause import Cause
from tarry.debug import metrics
from tarry.dispatch.storage import slot_of
from tarry.errors import ExecutionNotAllowedError
from tarry.experimental import eager_mode, eager_mode_context, is_eager_mode
from tarry.ledger import ledger
from tarry.record.slot import DEVICE
from tarry.record.trie import recorder
from test_scenarios import SCENARIOS, equal


@pytest.fixture(autouse=True)
def lazy_again():
    tarry.sync()
    yield
    eager_mode(False)


def eager_cuts(f):
    """What `f` gives in eager mode, and the operators that were cut."""
    start = len(ledger.cuts)
    with eager_mode_context():
        result = f()
    found = list(ledger.cuts)[start:]
    assert {c.cause for c in found} <= {Cause.EAGER.value}
    return result, [c.detail.removeprefix("aten::") for c in found]


def test_every_operator_is_a_program():
    x = make(3, 4).to("tarry")
    y, ops = eager_cuts(lambda: (x * 2 + 1).sin_().t())
    assert ops == ["mul.Tensor", "add.Tensor", "sin_"]
    assert slot_of(y).state is DEVICE
    same((make(3, 4) * 2 + 1).sin_().t(), y)


def test_a_result_of_several_tensors_is_computed_once():
    x = make(3, 4).to("tarry")
    (values, places), ops = eager_cuts(lambda: x.max(1))
    assert ops == ["max.dim"] and ledger.cuts[-1].outputs == 2
    want = make(3, 4).max(1)
    same(want[0], values)
    same(want[1], places)


def test_an_operator_of_several_parts_is_one():
    x, y = make(6).to("tarry"), make(6, seed=1).to("tarry")
    _, ops = eager_cuts(lambda: torch._foreach_addcmul([x, y], [y, x], [x, x]))
    assert len(ops) == 1
    _, ops = eager_cuts(lambda: torch.trapezoid(y, x))
    assert len(ops) == len(set(ops))


def test_the_same_operator_compiles_once_for_a_shape():
    a, b = make(3, 4).to("tarry"), make(5).to("tarry")
    with eager_mode_context():
        compiles = len(ledger.compiles)
        for n in range(3):
            a, b = a * (n + 0.5), b * 2
        assert len(ledger.compiles) - compiles <= 2
    assert len(ledger.compiles) - compiles <= 2


def test_the_mode_is_left():
    assert not is_eager_mode()
    with eager_mode_context():
        assert is_eager_mode()
        with eager_mode_context(False):
            assert not is_eager_mode()
        eager_mode(True)
        assert is_eager_mode()
    assert not is_eager_mode()
    cuts = len(ledger.cuts)
    y = make(3).to("tarry") + 1
    assert len(ledger.cuts) == cuts and recorder.trace.node.count > 0
    same(make(3) + 1, y)


def test_pending_values_are_computed_with_the_first_operator():
    y = make(3).to("tarry") + 1
    with eager_mode_context():
        z = y * 2
        assert slot_of(y).state is slot_of(z).state is DEVICE
    same((make(3) + 1) * 2, z)


def test_the_metrics_are_those_of_eager_mode():
    metrics.clear_all()
    x = make(7, 3).to("tarry")
    with eager_mode_context():
        (x @ x.t()).exp()
    assert metrics.metric_data("EagerOpExecuteTime")[0] == 2
    assert metrics.metric_data("EagerOpCompileTime")[0] == 2
    assert metrics.metric_data("CompileTime") is None
    assert metrics.metric_data("ExecuteTime") is None


def test_a_region_is_recorded_whole():
    x = make(3, 4).to("tarry")
    step = tarry.compile(lambda t: (t * 2).sin().sum(), full_graph=True, name="f")
    with eager_mode_context():
        y = step(x)
        last = ledger.cuts[-1]
        assert (last.cause, last.detail) == (Cause.REGION_END.value, "f")
        assert last.instructions >= 3
        y = y + 1
        assert ledger.cuts[-1].cause == Cause.EAGER.value
        with pytest.raises(ExecutionNotAllowedError):
            tarry.compile(lambda t: t.sum().item(), full_graph=True)(x)
        assert is_eager_mode()
    same((make(3, 4) * 2).sin().sum() + 1, y)


def train(steps=3):
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Dropout(0.4), nn.Linear(8, 2))
    net = net.to("tarry")
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
    x = torch.rand(5, 6, device="tarry")
    for _ in range(steps):
        optimizer.zero_grad()
        F.mse_loss(net(x), x[:, :2]).backward()
        optimizer.step()
    return [p.detach().cpu() for p in net.parameters()], torch.rand(3, device="tarry")


def test_training_and_random_bits_are_those_of_lazy_tensors():
    lazy, bits = train()
    with eager_mode_context():
        eager, same_bits = train()
    for a, b in zip(lazy, eager):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    assert torch.equal(bits.cpu(), same_bits.cpu())


def test_an_error_comes_at_its_operator():
    x = make(3, 4).to("tarry")
    with eager_mode_context():
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            x @ x
        same(make(3, 4) + 1, x + 1)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda f: f.__name__)
def test_scenario(scenario):
    want = scenario("cpu", lambda: None)
    with eager_mode_context():
        equal(want, scenario("tarry", tarry.sync))
