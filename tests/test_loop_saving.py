"""Saving and loading: values, shared memory, safety, and interrupted saves."""

import copy
import dataclasses
import io
import pickle
from collections import OrderedDict

import pytest
import torch

import tarry
from harness import cuts, make
from tarry import serialization
from tarry.errors import MixedSavesError


def channels_last():
    return make(2, 3, 4, 5).to(memory_format=torch.channels_last)


@pytest.mark.parametrize("where", ["cpu", "tarry"])
@pytest.mark.parametrize("computed", [False, True])
def test_layouts_survive_every_way_to_keep_a_tensor(where, computed):
    """Bytes go out in the order of the tensor's strides."""
    for x in (
        channels_last(),
        make(3, 4).t(),
        make(3, 4)[:, 1:],
        make(2, 2).bfloat16(),
    ):
        y = x.to("tarry")
        y = y + 0 if computed else y
        tarry.sync()
        file = io.BytesIO()
        torch.save(y, file)
        file.seek(0)
        loaded = torch.load(file, map_location=where, weights_only=True)
        for got in (loaded, pickle.loads(pickle.dumps(y)), copy.deepcopy(y)):
            assert torch.equal(got.cpu(), x) and got.stride() == y.stride()


def state():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
    model.to("tarry")
    model(make(4, 3).to("tarry")).sum().backward()
    base = make(4, 3).to("tarry") * 2
    return {
        "model": model.state_dict(),
        "views": (base, base[1], [base.t()]),
        "parameter": model[0].weight,
        "cpu": make(2),
        "layout": channels_last().to("tarry"),
        "flags": torch.tensor([True, False]).to("tarry"),
        "conjugate": torch.view_as_complex(make(3, 2)).to("tarry").conj(),
        "step": 3,
        "name": None,
    }


def equal(a, b):
    assert type(a) is type(b)
    if isinstance(a, torch.Tensor):
        assert b.device.type == "cpu" and a.requires_grad == b.requires_grad
        assert torch.equal(a.detach().cpu(), b.detach()) and a.stride() == b.stride()
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for k in a:
            equal(a[k], b[k])
    elif isinstance(a, list | tuple):
        for x, y in zip(a, b, strict=True):
            equal(x, y)
    else:
        assert a == b


@pytest.mark.parametrize("module", [tarry, serialization], ids=["one", "many"])
def test_what_is_saved_is_loaded(module, tmp_path):
    data = state()
    with cuts(1):
        module.save(data, tmp_path / "state.pt")
    got = module.load(tmp_path / "state.pt")
    equal(data, got)
    assert type(got["model"]) is OrderedDict and got["model"]._metadata
    if module is tarry:
        got["views"][0][1, 0] = 77
        assert got["views"][1][0] == 77 and got["views"][2][0][0, 1] == 77


def test_a_tensor_is_written_once(tmp_path):
    x, big = torch.ones(2).to("tarry"), torch.ones(100, 1000).to("tarry")
    serialization.save([x, {"again": x}, big[0]], tmp_path / "s")
    files = sorted((tmp_path / "s.tensors").glob("tensor_*"))
    assert [f.name for f in files] == ["tensor_0.pt", "tensor_1.pt"]
    assert all(f.stat().st_size < 10_000 for f in files)
    got = serialization.load(tmp_path / "s")
    assert got[0] is got[1]["again"]


def test_a_later_save_replaces_an_earlier_one(tmp_path):
    path = tmp_path / "s"
    serialization.save([torch.ones(2), torch.ones(3)], path)
    serialization.save(torch.zeros(1).to("tarry"), path)
    assert serialization.load(path).tolist() == [0.0]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s", "s.tensors"]
    assert len(list((tmp_path / "s.tensors").iterdir())) == 2


def test_files_of_two_saves_are_not_mixed(tmp_path):
    path = tmp_path / "s"
    serialization.save(torch.ones(2), path)
    old = path.read_bytes()
    serialization.save(torch.zeros(2), path)
    path.write_bytes(old)
    with pytest.raises(MixedSavesError, match="two different saves"):
        serialization.load(path)


def test_a_save_that_fails_leaves_the_old_one(tmp_path):
    path = tmp_path / "s"
    serialization.save(torch.ones(2), path)
    with pytest.raises((AttributeError, pickle.PicklingError)):
        serialization.save([torch.zeros(2), lambda: 0], path)
    assert serialization.load(path).tolist() == [1.0, 1.0]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s", "s.tensors"]


class Evil:
    def __reduce__(self):
        return (exec, ("raise SystemExit('the file ran code')",))


@pytest.mark.parametrize("module", [tarry, serialization], ids=["one", "many"])
def test_loading_runs_no_code(module, tmp_path):
    module.save([Evil(), torch.ones(1)], tmp_path / "s")
    with pytest.raises(pickle.UnpicklingError):
        module.load(tmp_path / "s")


@dataclasses.dataclass
class Point:
    x: torch.Tensor


def test_dataclasses_and_files(tmp_path):
    file = io.BytesIO()
    tarry.save(Point(torch.ones(2).to("tarry")), file)
    file.seek(0)
    with torch.serialization.safe_globals([Point]):
        assert tarry.load(file).x.tolist() == [1.0, 1.0]
