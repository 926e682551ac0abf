"""One recording, several threads."""

import sys
import threading

import pytest
import torch

import tarry
from harness import make
from tarry.dispatch.device import StepCuts
from tarry.record.trie import recorder


@pytest.fixture
def switching():
    """Threads change places every microsecond."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(*works):
    """Run the functions at once; raise what any of them raised."""
    errors = []

    def guarded(work):
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(w,)) for w in works]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert not any(t.is_alive() for t in threads), "a thread hangs"
    if errors:
        raise errors[0]


def chain(n, results, syncs, seed):
    def work():
        x = make(4, seed=seed).to("tarry")
        y = x
        for i in range(n):
            y = y * 0.5 + x
            if i % 7 == 3:
                y.add_(1)
            if syncs and i % 10 == 9:
                tarry.sync()
        results[seed] = y.cpu()

    return work


def expected(n, seed):
    x = make(4, seed=seed)
    y = x
    for i in range(n):
        y = y * 0.5 + x
        if i % 7 == 3:
            y.add_(1)
    return y


def test_two_threads_record(switching):
    results = {}
    together(*[chain(60, results, False, seed) for seed in range(2)])
    for seed in range(2):
        torch.testing.assert_close(results[seed], expected(60, seed))


def test_two_threads_record_and_cut(switching):
    results = {}
    together(*[chain(30, results, True, seed) for seed in range(2)])
    for seed in range(2):
        torch.testing.assert_close(results[seed], expected(30, seed))


def test_one_records_while_another_cuts(switching):
    results, done = {}, threading.Event()

    def record():
        try:
            chain(80, results, False, 0)()
        finally:
            done.set()

    def cut():
        for _ in range(25):
            if done.is_set():
                return
            tarry.sync()

    together(record, cut)
    torch.testing.assert_close(results[0], expected(80, 0))


def test_writes_to_views_in_two_threads(switching):
    base = torch.zeros(2, 5).to("tarry")

    def add(row, times):
        def work():
            view = base[row]
            for _ in range(times):
                view.add_(1)

        return work

    together(add(0, 50), add(1, 70))
    assert base.tolist() == [[50] * 5, [70] * 5]


def test_training_in_two_threads(switching):
    StepCuts.enabled = False
    curves = {}

    def train(seed):
        def work():
            g = torch.Generator().manual_seed(seed)
            w = torch.randn(4, generator=g).to("tarry").requires_grad_()
            optimizer = torch.optim.SGD([w], lr=0.1)
            for _ in range(5):
                optimizer.zero_grad()
                (w * w).sum().backward()
                optimizer.step()
                tarry.sync()
            curves[seed] = w.detach().cpu()

        return work

    together(train(0), train(1))
    for seed, got in curves.items():
        w = torch.randn(4, generator=torch.Generator().manual_seed(seed))
        torch.testing.assert_close(got, w * 0.8**5)


def test_backward_on_its_thread_has_the_users_line():
    x = make(3, 4).to("tarry")
    w = torch.ones(4, device="tarry", requires_grad=True)
    names = set()
    loss = (x.sin() * w).sum()
    w.register_hook(lambda g: names.add(threading.current_thread().name))
    before = recorder.trace.node.count
    loss.backward()
    path = recorder.trace.node.path()[before:]
    assert path
    assert {n.line.file for n in path} == {__file__}
    assert {n.line.function for n in path} == {
        "test_backward_on_its_thread_has_the_users_line"
    }


def test_random_draws_of_two_threads_differ(switching):
    drawn = []

    def draw():
        for _ in range(20):
            drawn.append(torch.rand(8, device="tarry"))

    torch.manual_seed(0)
    together(draw, draw)
    values = torch.stack([t.cpu() for t in drawn])
    assert values.unique(dim=0).shape[0] == 40


def test_one_thread_writes_what_another_reads():
    x, seen, done = torch.zeros(4, device="tarry"), [], []

    def read():
        while not done:
            seen.append(x.tolist()[0])

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(100):
        x.add_(1)
    done.append(True)
    reader.join()
    assert x.tolist() == [100.0] * 4 and seen == sorted(seen)
