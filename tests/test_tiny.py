"""One test a stage, in the order of the pipeline; a few seconds in all."""

import torch

import tarry
from harness import compiles, cuts
from tarry.cache.key import Key
from tarry.cut.sync import store
from tarry.debug import metrics
from tarry.dispatch.storage import slot_of
from tarry.ledger import ledger
from tarry.record.graph import bind
from tarry.record.slot import State
from tarry.record.trie import live_slots, recorder


def ones(*shape: int) -> torch.Tensor:
    return torch.ones(shape).to("tarry")


def test_record():
    with cuts(0):
        y = ones(2, 3) + 1
    assert slot_of(y).state is State.IR
    assert [n.op for n in recorder.trace.node.path()][-2:] == [
        "tarry::input",
        "add.Tensor",
    ]


def test_view():
    x = torch.arange(6.0).reshape(2, 3).to("tarry")
    v = x.t()[1:]
    assert v.untyped_storage()._cdata == x.untyped_storage()._cdata
    assert (v.shape, v.stride(), v.storage_offset()) == ((2, 2), (1, 3), 1)
    assert v.tolist() == [[1, 4], [2, 5]]


def test_write():
    x = torch.zeros(2, 3).to("tarry")
    x[1].add_(5)
    assert x.tolist() == [[0, 0, 0], [5, 5, 5]]


def test_cut():
    x = ones(3)
    y = x * 2
    with cuts(1):
        tarry.sync()
        tarry.sync()
    assert slot_of(y).state is State.DEVICE
    assert recorder.trace.node is recorder.root


def test_key():
    def key() -> Key:
        y = ones(3) * 3  # noqa: F841
        found = live_slots(recorder.trace)
        inputs = recorder.trace.inputs
        wanted = tuple(v for v in found if v not in inputs)
        graph = bind(recorder.trace.node, wanted).graph
        tarry.sync()
        return Key((), (), graph)

    assert key() == key()
    assert Key.PARTS == ("donation", "environment", "graph")


def test_build():
    before = len(store)
    y = ones(5).sin().cos()
    with compiles(1):
        tarry.sync()
    assert len(store) == before + 1
    torch.testing.assert_close(y.cpu(), torch.ones(5).sin().cos())


def test_run():
    results = []
    for a in (2.0, 3.0):
        y = ones(7) * a - 1
        with compiles(0 if results else 1):
            tarry.sync()
        results.append(y.sum().item())
    assert results == [7.0, 14.0]


def test_report():
    y = ones(2) * 8
    tarry.sync()
    assert y.tolist() == [8.0, 8.0]
    assert ledger.cuts[-1].cause == "tarry.sync()"
    assert ledger.cuts[-1].line.startswith(__file__)
    report = metrics.metrics_report()
    assert "Metric: ExecuteTime" in report and "Counter: UncachedCompile" in report
