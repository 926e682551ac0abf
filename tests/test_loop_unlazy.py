"""`tarry.unlazy`: these tensors and no others, nothing twice, and the rest goes on."""

import gc
import random

import pytest
import torch

import tarry
from harness import cuts, make, same
from tarry.cut.cause import Cause
from tarry.cut.program import store
from tarry.debug import programs
from tarry.dispatch.storage import slot_of
from tarry.errors import CompileError, TarryError
from tarry.ledger import ledger


def states(*tensors):
    return [slot_of(t).state.value for t in tensors]


def operations(program):
    """Names of the operations of a compiled program."""
    (found,) = [c for c in ledger.compiles if c.program == program]
    return [n.op for n in found.source.seen.key.graph.nodes if n.op != "tarry::input"]


def test_only_these_and_what_leads_to_them():
    x = make(3, 4).to("tarry")
    a = x.sin()
    b = a + 1
    c = a.cos()
    dead = x.tan() * 7
    d = torch.rand(3, device="tarry")
    del dead
    with cuts(1):
        tarry.unlazy([b])
    assert states(a, b, c, d) == ["DEVICE", "DEVICE", "IR", "IR"]
    assert ledger.cuts[-1].cause == Cause.UNLAZY.value
    assert "test_loop_unlazy.py" in ledger.cuts[-1].line
    with cuts(1):
        tarry.sync()
    assert states(c, d) == ["DEVICE", "DEVICE"]
    want = make(3, 4)
    same([want.sin(), want.sin() + 1, want.sin().cos()], [a, b, c])
    with cuts(0):
        tarry.unlazy([a, b])
        tarry.unlazy([])


def test_nothing_is_computed_twice():
    x = make(4, 4).to("tarry")
    y = x @ x  # dead at the cut, but both sides read it
    a, b = y + 1, y.t() - 1
    del y
    tarry.unlazy([a])
    first = operations(ledger.cuts[-1].program)
    tarry.sync()
    second = operations(ledger.cuts[-1].program)
    assert "mm" in first and "mm" not in second
    want = make(4, 4) @ make(4, 4)
    same([want + 1, want.t() - 1], [a, b], strides=False)


def test_writes_views_and_numbers_go_on():
    def run(device, mid):
        x, w = make(3, 4).to(device), make(3, 4, seed=1).to(device)
        tarry.sync()
        row = x[1]
        a = x * 2
        x += 3
        row.mul_(5)
        b = w.sum() * 0.5
        w.copy_(a)
        c = torch.where(row > 0, row, b)
        mid(a, b)
        row.sub_(w[1] * 1.25)
        x[:, 0] = b
        return x, w, row, a, b, c

    want = run("cpu", lambda a, b: None)
    for mid in (
        lambda a, b: tarry.unlazy([a]),
        lambda a, b: tarry.unlazy([b]),
        lambda a, b: tarry.unlazy([b, a, b]),
    ):
        same(want, run("tarry", mid))


def test_a_host_copy_into_an_input():
    x = make(3).to("tarry")
    a, b = x + 1, x * 2
    x.copy_(make(3, seed=4))
    tarry.unlazy([a])
    c = x + 0
    same([make(3) + 1, make(3) * 2, make(3, seed=4)], [a, b, c])


def test_random_bits_and_gradients():
    def run(mid):
        tarry.manual_seed(3)
        w = make(4, 4).to("tarry").requires_grad_()
        noise = torch.rand(4, device="tarry")
        hidden = torch.nn.functional.dropout(w.tanh() + noise, 0.5)
        loss = hidden.square().sum()
        mid(hidden, loss)
        loss.backward()
        return [t.detach().cpu() for t in (loss, w.grad, noise)]

    want = run(lambda hidden, loss: None)
    for mid in (
        lambda h, loss: tarry.unlazy([h]),
        lambda h, loss: tarry.unlazy([loss]),
    ):
        for a, b in zip(want, run(mid)):
            assert torch.allclose(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed):
    """Any operations, with `unlazy` of any tensors between them, give CPU's values."""

    def run(device):
        r = random.Random(seed)
        held = [make(3, 3, seed=i).to(device) for i in range(3)]
        for _ in range(25):
            x, y = r.choice(held), r.choice(held)
            op = r.randrange(8)
            if op == 0:
                held.append(x + y * 0.5)
            elif op == 1:
                x.copy_(x * 0.9 - y)
            elif op == 2:
                held.append(x.t())
            elif op == 3:
                x[r.randrange(3)] = y[0] * 0.1  # a new value, so no overlap
            elif op == 4:
                held.append((x @ y).tanh())
            elif op == 5 and len(held) > 3:
                held.pop(r.randrange(len(held)))
            elif op == 6:
                held += list(torch.stack([x, y]).sin().unbind())
            chosen = r.sample(held, r.randrange(1, 3))
            if r.random() < 0.4:
                tarry.unlazy(chosen)
            if r.random() < 0.1:
                tarry.sync()
            held = held[-8:]
        return held

    same(run("cpu"), run("tarry"), strides=False)


def test_a_failure_leaves_the_recording(monkeypatch):
    store.clear()  # or a program of another test may fit
    x = make(3).to("tarry")
    a = x * 2
    x += 1
    b = x * 3
    with monkeypatch.context() as m:
        m.setattr("tarry.cut.program.compile_graph", lambda *args: 1 / 0)
        with pytest.raises(CompileError, match="ZeroDivisionError"):
            tarry.unlazy([a])
    with monkeypatch.context() as m:
        m.setattr("tarry.cut.program.launch", lambda *args: 1 / 0)
        with pytest.raises(TarryError, match="ZeroDivisionError"):
            tarry.unlazy([a])
    assert states(a, x, b) == ["IR"] * 3
    same([make(3) * 2, make(3) + 1, (make(3) + 1) * 3], [a, x, b])


def test_memory_and_programs_stay_the_same():
    x = make(3).to("tarry")
    seen = set()
    for _ in range(5):
        a, b = x * 2, x * 3
        tarry.unlazy([a])
        x += b
        tarry.sync()
        seen.add(tuple(c.program for c in list(ledger.cuts)[-2:]))
        gc.collect()
    assert len(seen) <= 2
    assert programs() is not None
