"""Step closures: when they run, in which order, and what an error of theirs does."""

import threading

import pytest
import torch

import tarry
from harness import cuts
from tarry.errors import ClosureError, TarryError
from tarry.loop.worker import worker


def test_they_run_once_after_the_next_end_of_a_step():
    seen = []
    x = torch.ones(3).to("tarry")
    total = (x * 2).sum()
    tarry.add_step_closure(lambda t, k: seen.append((t.item(), k)), (total, "a"))
    tarry.add_step_closure(seen.append, ("b",))
    assert float(x.sum()) == 3 and seen == []  # a read ends no step
    total += 1
    tarry.sync()
    assert seen == [(7.0, "a"), "b"]
    tarry.sync()
    assert len(seen) == 2


def test_every_end_of_a_step_runs_them():
    seen = []
    weight = torch.nn.Parameter(torch.ones(2, device="tarry"))
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def train():
        weight.grad = torch.ones_like(weight)
        optimizer.step()

    tarry.dispatch.device.StepCuts.enabled = True
    tarry.add_step_closure(seen.append, (1,))
    train()
    assert seen == [1]
    with tarry.step():
        tarry.add_step_closure(seen.append, (2,))
        train()
        assert seen == [1]
    assert seen == [1, 2]
    tarry.add_step_closure(seen.append, (3,))
    tarry.mark_step()
    assert seen == [1, 2, 3]


def test_a_step_without_work_is_a_step():
    seen = []
    tarry.add_step_closure(seen.append, (1,))
    with cuts(0):
        tarry.sync()
    assert seen == [1]


def test_a_closure_may_add_one_and_may_sync():
    seen = []

    def first():
        tarry.add_step_closure(seen.append, ("second",))
        seen.append("first")

    tarry.add_step_closure(first)
    tarry.sync()
    assert seen == ["first"]
    tarry.add_step_closure(tarry.sync)
    tarry.sync()
    assert seen == ["first", "second"]


def test_an_async_one_sees_its_own_step_whatever_comes_after():
    go, seen = threading.Event(), []
    count = torch.zeros(4).to("tarry")

    def note(whole, part):
        go.wait(10)
        seen.append((whole.tolist(), part.item(), threading.current_thread().name))

    count += 1
    tarry.add_step_closure(note, (count, count[1]), run_async=True)
    tarry.sync()
    count += 1
    tarry.sync()
    count[1] = 7
    go.set()
    tarry.wait_device_ops()
    ((whole, part, thread),) = seen
    assert whole == [1.0] * 4 and part == 1.0
    assert thread != threading.current_thread().name
    assert count.tolist() == [2.0, 7.0, 2.0, 2.0]


def test_one_that_raises_stops_no_other():
    seen = []

    def fail():
        raise KeyError("missing")

    x = torch.ones(2).to("tarry") + 1
    tarry.add_step_closure(fail)
    tarry.add_step_closure(seen.append, (1,))
    with pytest.raises(KeyError, match="missing") as caught:
        tarry.sync()
    assert "test_loop_closures.py" in caught.value.__notes__[0]
    assert seen == [1] and x.tolist() == [2.0, 2.0]
    tarry.sync()
    assert seen == [1]


def test_an_async_one_that_raises_tells_the_next_end_of_a_step():
    def fail():
        raise ValueError("too late")

    tarry.add_step_closure(fail, run_async=True)
    tarry.sync()
    worker.wait()
    seen = []
    tarry.add_step_closure(seen.append, (1,))
    with pytest.raises(ClosureError, match="ValueError: too late") as caught:
        tarry.sync()
    assert isinstance(caught.value.__cause__, ValueError)
    assert "test_loop_closures.py" in str(caught.value)
    assert seen == [1]
    tarry.sync()


def test_a_failed_cut_keeps_them(monkeypatch):
    seen = []
    tarry.add_step_closure(seen.append, (1,))
    x = torch.ones(2).to("tarry") + 1
    with monkeypatch.context() as m:
        m.setattr("tarry.cut.program.launch", lambda *a: 1 / 0)
        with pytest.raises(TarryError):
            tarry.sync()
    assert seen == []
    with pytest.raises(TarryError):
        x.tolist()
    tarry.sync()
    assert seen == [1]


def test_a_keyboard_interrupt_leaves_the_rest_for_the_next_step():
    seen = []

    def interrupt():
        raise KeyboardInterrupt

    tarry.add_step_closure(interrupt)
    tarry.add_step_closure(seen.append, (1,))
    with pytest.raises(KeyboardInterrupt):
        tarry.sync()
    assert seen == []
    tarry.sync()
    assert seen == [1]
