"""Loaders: what they hand out, when they cut, and how they end."""

import dataclasses
import gc
import threading
import traceback
from collections import OrderedDict, UserDict, namedtuple

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import DataLoader, TensorDataset

import tarry
from harness import compiles, cuts, same
from tarry.cut.cause import Cause
from tarry.dispatch.device import StepCuts
from tarry.dispatch.storage import slot_of
from tarry.errors import LoaderError, UnsupportedError
from tarry.ledger import ledger
from tarry.loop import pipeline

Pair = namedtuple("Pair", "x y")


@dataclasses.dataclass(frozen=True)
class Sample:
    image: torch.Tensor
    name: str


def loader_threads():
    return [t for t in threading.enumerate() if t.name.startswith("tarry loader")]


def rows(n=6):
    return [torch.arange(4.0) + i for i in range(n)]


@pytest.mark.parametrize("threads", [1, 3])
def test_batches_come_in_order_and_are_uploaded(threads):
    loader = tarry.MpDeviceLoader(
        rows(40), "tarry", host_to_device_transfer_threads=threads,
        loader_prefetch_size=2, device_prefetch_size=3,
    )  # fmt: skip
    for _ in range(2):
        got = []
        for x in loader:
            assert slot_of(x).state.value == "DEVICE"
            got.append(x)
        assert [x.tolist() for x in got] == [x.tolist() for x in rows(40)]
    assert len(loader) == 40
    assert not loader_threads()


def test_a_step_is_one_cut_that_names_the_loader():
    data = TensorDataset(torch.randn(12, 3), torch.randn(12, 1))
    model = torch.nn.Linear(3, 1).to("tarry")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loader = tarry.MpDeviceLoader(DataLoader(data, batch_size=2), "tarry")
    StepCuts.enabled = True

    def epoch():
        for x, y in loader:
            optimizer.zero_grad()
            (model(x) - y).square().mean().backward()
            optimizer.step()

    epoch()
    with cuts(6), compiles(0):
        epoch()
    last = ledger.cuts[-1]
    assert last.cause == Cause.LOADER.value
    assert "DataLoader given at" in last.detail and "test_loop_loader.py" in last.detail
    assert "test_loop_loader.py" in last.line
    x, y = (t.to("tarry") for t in data.tensors)
    with cuts(1):  # no loader is under way: the plain loop's rule holds again
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()


def test_batches_per_execution():
    seen = []
    loader = tarry.MpDeviceLoader(rows(5), "tarry", batches_per_execution=2)
    tarry.sync()
    with cuts(3):
        for x in loader:
            seen.append(x * 2)
    assert [x[0].item() for x in seen] == [0.0, 2.0, 4.0, 6.0, 8.0]


def test_structures_keep_their_shape():
    x = torch.randn(2, 3)
    packed = pack_sequence([torch.randn(3), torch.randn(2)])
    channels = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    bits = torch.tensor([1.5, 2.5], dtype=torch.bfloat16)
    batch = {
        "pair": Pair(x, [x, 3, "text"]),
        "user": UserDict(x=x),
        "ordered": OrderedDict(a=x.t(), b=None),
        "sample": Sample(channels, "one"),
        "packed": packed,
        "bits": (bits, torch.tensor(True), torch.zeros(0, 2), torch.tensor(3)),
        "grad": torch.ones(2, requires_grad=True),
    }
    (got,) = list(tarry.MpDeviceLoader([batch], "tarry"))
    assert list(got) == list(batch)
    assert type(got["pair"]) is Pair and got["pair"].y[1:] == [3, "text"]
    assert got["pair"].x is got["pair"].y[0] is got["user"]["x"]
    same(x, got["pair"].x)
    assert type(got["user"]) is UserDict and type(got["ordered"]) is OrderedDict
    same(batch["ordered"]["a"], got["ordered"]["a"])
    assert type(got["sample"]) is Sample and got["sample"].name == "one"
    same(channels, got["sample"].image)
    assert batch["sample"].image.device.type == "cpu"
    assert got["packed"].data.device.type == "tarry"
    assert got["packed"].batch_sizes.device.type == "cpu"
    same(batch["bits"], got["bits"])
    assert got["grad"].requires_grad and got["grad"].is_leaf


def test_a_batch_is_a_snapshot():
    buffer = torch.zeros(3)

    def refill():
        for i in range(5):
            buffer.fill_(i)
            yield buffer

    got = list(tarry.MpDeviceLoader(refill(), "tarry", loader_prefetch_size=1))
    assert len({id(x) for x in got}) == 5
    one = tarry.MpDeviceLoader([buffer], "tarry")
    (x,) = list(one)
    buffer.fill_(9)
    assert x.tolist() == [4.0] * 3


class Broken(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        if i == 5:
            raise LookupError(f"no sample {i}")
        return torch.tensor(float(i))


def test_an_error_of_the_dataset_is_raised_in_its_place():
    got = []
    with pytest.raises(LookupError, match="no sample 5") as caught:
        for x in tarry.MpDeviceLoader(DataLoader(Broken(), batch_size=2), "tarry"):
            got.append(x.tolist())
    assert got == [[0.0, 1.0], [2.0, 3.0]]
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert any(f.name == "__getitem__" for f in frames)
    assert any(f.name.startswith("test_an_error") for f in frames)
    assert not loader_threads()
    assert torch.ones(2).to("tarry").sum().item() == 2


def test_an_error_of_a_move_is_raised_in_its_place():
    class Stuck:
        def to(self, device):
            raise OSError(f"cannot move to {device}")

    loader = iter(tarry.MpDeviceLoader([torch.ones(1), Stuck()], "tarry"))
    assert next(loader).tolist() == [1.0]
    with pytest.raises(OSError, match="cannot move to tarry"):
        next(loader)
    with pytest.raises(StopIteration):
        next(loader)


def test_an_early_break_ends_the_threads():
    def endless():
        while True:
            yield torch.ones(2)

    for _ in tarry.MpDeviceLoader(endless(), "tarry"):
        break
    gc.collect()
    for thread in loader_threads():
        thread.join(10)
    assert not loader_threads() and not StepCuts.loaders
    parallel = tarry.ParallelLoader(endless(), ["tarry"])
    loader = parallel.per_device_loader("tarry")
    next(loader)
    parallel.close()
    assert not loader_threads()
    with pytest.raises(StopIteration):
        next(loader)


def test_a_thread_that_dies_is_noticed(monkeypatch):
    monkeypatch.setattr(pipeline, "PATIENCE", 0.05)
    monkeypatch.setattr(pipeline, "_read", lambda p, batches: None)
    with pytest.raises(LoaderError, match=r"list given at .*test_loop_loader"):
        next(iter(tarry.MpDeviceLoader(rows(), "tarry")))


def test_workers_and_an_empty_loader():
    data = TensorDataset(torch.arange(8.0))
    batches = DataLoader(
        data, batch_size=4, num_workers=1, multiprocessing_context="spawn"
    )
    got = [x.tolist() for (x,) in tarry.MpDeviceLoader(batches, "tarry")]
    assert got == [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]]
    assert list(tarry.MpDeviceLoader([], "tarry")) == []


def test_shuffling_depends_on_the_seed_alone():
    data = DataLoader(TensorDataset(torch.arange(64.0)), batch_size=64, shuffle=True)
    torch.manual_seed(3)
    (want,) = [x.tolist() for (x,) in data]
    torch.manual_seed(3)
    loader = iter(tarry.MpDeviceLoader(data, "tarry"))
    torch.rand(100)
    assert next(loader)[0].tolist() == want


def test_what_it_refuses():
    with pytest.raises(ValueError, match="one device tarry:0"):
        tarry.ParallelLoader(rows(), ["cpu"])
    with pytest.raises(ValueError, match="1 or more"):
        tarry.ParallelLoader(rows(), ["tarry"], device_prefetch_size=0)
    with pytest.raises(UnsupportedError, match="input_sharding"):
        tarry.ParallelLoader(rows(), ["tarry"], input_sharding=object())
    with pytest.raises(TypeError):
        iter(tarry.MpDeviceLoader(rows(), "tarry", prefetch=3))


class StartsAnew:
    """A loader whose iterator, asked for an iterator, is a new one."""

    def __init__(self) -> None:
        self.left = 3

    def __iter__(self) -> "StartsAnew":
        return StartsAnew()

    def __next__(self) -> torch.Tensor:
        if not self.left:
            raise StopIteration
        self.left -= 1
        return torch.ones(2) * self.left


def test_an_iterator_that_starts_anew_is_read_once():
    found = [x.sum().item() for x in tarry.MpDeviceLoader(StartsAnew(), "tarry")]
    assert found == [4, 2, 0]
