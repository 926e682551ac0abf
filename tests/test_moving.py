"""Values to the device and back: moving, copying, saving, printing, sharing."""

import copy
import io
import pickle
import threading
import weakref

import numpy as np
import pytest
import torch
import torch.nn as nn

import tarry
from harness import DTYPES, cuts, fallbacks, make, same

LAYOUTS = {
    "plain": lambda t: t,
    "transposed": lambda t: t.transpose(0, -1),
    "sliced": lambda t: t[1:, ::2],
    "expanded": lambda t: t[:1].expand(t.shape),
    "0d": lambda t: t[0, 0],
    "empty": lambda t: t[:0],
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_round_trip(dtype, layout):
    x = LAYOUTS[layout](make(3, 4, dtype=dtype))
    moved = x.to("tarry")
    assert moved.device == torch.device("tarry", 0) and moved.is_tarry
    want = x.clone() if layout == "expanded" else x
    same(want, moved, strides=layout not in ("expanded", "sliced"))
    back = moved.cpu()
    assert torch.equal(back, x) and back.dtype is dtype
    tarry.sync()
    assert torch.equal(moved.to("cpu"), x)


def test_names_of_the_device():
    assert tarry.device() == torch.device("tarry:0") == tarry.devices()[0]
    assert tarry.device_count() == torch.tarry.device_count() == 1
    with pytest.raises(ValueError, match="index 0; got 3"):
        tarry.device(3)
    x = torch.ones(2)
    assert x.tarry().device.type == "tarry" and x.to(tarry.device()).is_tarry
    assert torch.tarry.is_available()


def test_to_with_dtype_and_copy():
    x = make(3, 4)
    same(x.double(), x.to("tarry", torch.float64))
    same(x.half(), x.to("tarry").half())
    y = x.to("tarry")
    assert y.to("tarry") is y and y.to("tarry", copy=True) is not y
    assert y.to(torch.float32) is y
    same(x.int(), y.to(torch.int32))
    same(x, torch.zeros(3, 4).to("tarry").copy_(x, non_blocking=True))


def test_channels_last():
    x = make(2, 3, 4, 5).to(memory_format=torch.channels_last)
    moved = x.to("tarry")
    assert moved.is_contiguous(memory_format=torch.channels_last)
    same(x, moved)
    same(x * 2, moved * 2)
    plain = make(2, 3, 4, 5).to("tarry").contiguous(memory_format=torch.channels_last)
    same(x, plain)


def test_numbers_out():
    x = torch.tensor([[1.5, -2.0], [0.0, 4.0]]).to("tarry")
    assert x.tolist() == [[1.5, -2.0], [0.0, 4.0]]
    assert x[0, 0].item() == 1.5 and float(x[0, 1]) == -2.0 and int(x[1, 1]) == 4
    assert bool(x[1, 1]) and not bool(x[1, 0]) and len(x) == 2
    assert f"{x[0, 0]:.3f}" == "1.500" and [row.tolist() for row in x] == x.tolist()
    assert torch.tensor(7).to("tarry").item() == 7 and hash(x) == hash(x)
    assert [10, 20, 30][torch.tensor(1).to("tarry")] == 20
    assert torch.tensor(1 + 2j).to("tarry").item() == (1 + 2j)
    with pytest.raises(RuntimeError, match="ambiguous"):
        bool(x)


def test_numpy():
    x = make(3, 4)
    moved = x.to("tarry")
    with pytest.raises(TypeError, match=r"Tensor\.cpu"):
        moved.numpy()
    assert np.array_equal(moved.cpu().numpy(), x.numpy())
    assert np.array_equal(moved.numpy(force=True), x.numpy())
    same(torch.from_numpy(x.numpy()), torch.from_numpy(x.numpy()).to("tarry"))


def words(text):
    return text.replace(",", " ").replace(")", " ").split()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_text(dtype):
    x = make(3, 4, dtype=dtype)
    text = repr(x.to("tarry"))
    assert "device='tarry:0'" in text
    plain = text.replace("device='tarry:0'", "")
    assert words(plain) == words(repr(x))


def test_text_of_views_and_grads():
    x = make(3, 4).to("tarry").requires_grad_()
    assert repr(x).endswith("requires_grad=True)")
    assert "grad_fn=<MulBackward0>" in repr(x * 2)
    assert repr(x.detach().t()[1]).startswith("tensor([")
    assert repr(torch.zeros(0, 3).to("tarry")) == (
        "tensor([], device='tarry:0', size=(0, 3))"
    )
    assert "Parameter containing" in repr(nn.Parameter(torch.ones(2).to("tarry")))
    big = torch.zeros(2000).to("tarry")
    assert "..." in repr(big)


def test_made_on_the_device():
    with cuts(0):
        x = torch.tensor([[1, 2], [3, 4]], device="tarry")
        y = x.new_tensor([1.5]), x.new_zeros(2), x.new_empty(0), x.new_full((1,), 7)
        z = torch.zeros_like(x), torch.ones_like(x, dtype=torch.float16)
        w = torch.as_tensor([1.0], device="tarry"), torch.empty_like(x)
    x0 = torch.tensor([[1, 2], [3, 4]])
    same(x0, x)
    same(
        (x0.new_tensor([1]), x0.new_zeros(2), x0.new_empty(0), x0.new_full((1,), 7)), y
    )
    same((torch.zeros_like(x0), torch.ones_like(x0, dtype=torch.float16)), z)
    same(torch.tensor([1.0]), w[0])
    assert w[1].shape == (2, 2)
    with torch.device("tarry"):
        assert torch.ones(3).is_tarry and nn.Linear(2, 2).weight.is_tarry


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("scale", torch.ones(1))

    def forward(self, ids):
        return self.head(self.embedding(ids)) * self.scale


def test_module_keeps_ties_and_optimizers():
    def run(device):
        torch.manual_seed(0)
        model = Tied()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        weight = model.head.weight
        model.to(device)
        assert model.head.weight is model.embedding.weight
        assert len(list(model.parameters())) == 1
        assert model.scale.device.type == device
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.arange(5).to(device)).pow(2).sum().backward()
            optimizer.step()
        assert model.head.weight is weight
        return weight.detach()

    same(run("cpu"), run("tarry"))


class Marked(nn.Parameter):
    pass


@pytest.mark.parametrize("device", ["cpu", "tarry"])
def test_parameters_keep_what_is_theirs(device):
    """Attributes, class, hooks, weak references and gradient stay with the object."""
    layer = nn.Linear(2, 2, bias=False)
    layer.weight = weight = Marked(torch.ones(2, 2))
    weight.no_decay, seen, after = True, weakref.ref(weight), []
    halve = weight.register_hook(lambda g: g / 2)
    added = weight.register_post_accumulate_grad_hook(lambda p: after.append(p.grad))
    weight.sum().backward()
    grad = weight.grad
    layer.to(device, torch.float64 if device == "cpu" else None)
    assert layer.weight is weight is seen() and type(weight) is Marked
    assert weight.no_decay and weight.device.type == device and weight.requires_grad
    assert weight.grad is grad and grad.device.type == device
    x = torch.ones(1, 2, dtype=weight.dtype).to(device)
    layer(x).sum().backward()
    assert weight.grad.tolist() == [[1.0, 1.0]] * 2 and len(after) == 2
    halve.remove()
    added.remove()
    layer(x).sum().backward()
    assert weight.grad.tolist() == [[2.0, 2.0]] * 2 and len(after) == 2


def test_no_gradient_is_lost_by_a_move():
    layer = nn.Linear(2, 2, bias=False)
    loss = layer(torch.ones(1, 2)).sum()
    layer.to("tarry")
    with pytest.raises(RuntimeError, match="between the forward and the backward"):
        loss.backward()
    layer(torch.ones(1, 2).to("tarry")).sum().backward()
    assert layer.weight.grad.tolist() == [[1.0, 1.0]] * 2


def test_a_compiled_module_moves():
    model = Tied()
    torch.compile(model, backend="eager")(torch.arange(5))
    weight, want = model.head.weight, model(torch.arange(5)).detach()
    model.to("tarry")
    assert model.head.weight is model.embedding.weight is weight
    compiled = torch.compile(model, backend="tarry")
    same(want, compiled(torch.arange(5).to("tarry")).detach())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_modules_of_torchscript():
    x = make(2, 3)
    for make_script in (torch.jit.script, lambda m: torch.jit.trace(m, x)):
        layer = nn.Linear(3, 3)
        script, want = make_script(layer), layer(x)
        script.to("tarry")
        found = script(x.to("tarry"))
        same(want.detach(), found.detach())
        found.sum().backward()
        assert script.weight.is_tarry and script.weight.grad.is_tarry
    tied = torch.jit.script(Tied())
    with pytest.raises(RuntimeError, match="tied to another one"):
        tied.to("tarry")
    moved = Tied().to("tarry")
    ids = torch.arange(5).to("tarry")
    same(moved(ids).detach().cpu(), torch.jit.script(moved)(ids).detach())


def test_module_there_and_back():
    model = Tied()
    want = copy.deepcopy(model.state_dict())
    model.to("tarry")
    model.cpu()
    assert model.head.weight is model.embedding.weight
    assert all(torch.equal(want[k], v) for k, v in model.state_dict().items())
    half = nn.Linear(2, 2).to("tarry", torch.bfloat16)
    assert half.weight.dtype is torch.bfloat16 and half.weight.is_tarry


def test_state_dict():
    source, target = Tied(), Tied().to("tarry")
    target.load_state_dict(source.state_dict())
    same(source.state_dict()["head.weight"], target.head.weight.detach())
    again = Tied()
    again.load_state_dict(target.state_dict())
    assert torch.equal(again.head.weight, source.head.weight)
    target.load_state_dict(target.state_dict())
    assigned = Tied()
    assigned.load_state_dict(target.state_dict(), assign=True)
    assert assigned.head.weight.is_tarry


def test_optimizer_state_dict():
    def run(device):
        p = nn.Parameter(make(3).to(device))
        optimizer = torch.optim.AdamW([p], lr=0.1)
        for step in range(4):
            (p * p).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            if step == 1:
                saved = copy.deepcopy(optimizer.state_dict())
                optimizer = torch.optim.AdamW([p], lr=0.5)
                optimizer.load_state_dict(saved)
        return p.detach()

    same(run("cpu"), run("tarry"))


@pytest.mark.parametrize("where", ["cpu", "tarry", None, "tarry:0"])
@pytest.mark.parametrize("weights_only", [False, True])
def test_save_and_load(where, weights_only):
    base = make(3, 4).to("tarry")
    saved = {
        "x": base, "row": base[1], "t": base.t(), "pending": base * 2, "n": 3,
        "half": make(4, dtype=torch.bfloat16).to("tarry"),
        "complex": make(2, dtype=torch.complex64).to("tarry"),
        "empty": torch.zeros(0, 2).to("tarry"), "zero": torch.tensor(5).to("tarry"),
        "mask": make(5, dtype=torch.bool).to("tarry"),
    }  # fmt: skip
    file = io.BytesIO()
    torch.save(saved, file)
    file.seek(0)
    loaded = torch.load(file, map_location=where, weights_only=weights_only)
    for key, value in saved.items():
        if key == "n":
            assert loaded[key] == 3
            continue
        got = loaded[key]
        assert got.device.type == ("cpu" if where == "cpu" else "tarry")
        assert got.stride() == value.stride() and got.dtype is value.dtype
        assert torch.equal(got.cpu(), value.cpu()), key
    loaded["row"].fill_(9)
    assert loaded["x"][1].tolist() == [9] * 4 and loaded["t"][0, 1].item() == 9


def test_loading_a_cpu_checkpoint_onto_the_device():
    file = io.BytesIO()
    torch.save(make(3, 4), file)
    file.seek(0)
    same(make(3, 4), torch.load(file, map_location="tarry"))


def test_save_whole_module(tmp_path):
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).to("tarry")
    torch.save(model, tmp_path / "model.pt")
    loaded = torch.load(tmp_path / "model.pt", weights_only=False)
    x = make(4, 3).to("tarry")
    same(model.eval()(x).detach().cpu(), loaded.eval()(x).detach())


def test_pickle():
    x = make(3, 4).to("tarry")
    for value in (x, x[1:], x * 2, nn.Parameter(x.clone())):
        same(value.detach().cpu(), pickle.loads(pickle.dumps(value)).detach())


def test_deepcopy():
    x = make(3, 4).to("tarry")
    y = copy.deepcopy(x)
    y.add_(1)
    same((make(3, 4), make(3, 4) + 1), (x, y))
    pending = x * 2
    with cuts(0):
        z = copy.deepcopy(pending)
    z.add_(1)
    same((make(3, 4) * 2, make(3, 4) * 2 + 1), (pending, z))
    p = nn.Parameter(x)
    q = copy.deepcopy(p)
    assert isinstance(q, nn.Parameter) and q.requires_grad
    with torch.no_grad():
        q.zero_()
    same(make(3, 4), p.detach())


def test_deepcopy_keeps_sharing_inside():
    x = make(3, 4).to("tarry")
    a, b = copy.deepcopy((x, x[1]))
    b.fill_(5)
    assert a[1].tolist() == [5] * 4 and torch.equal(x.cpu(), make(3, 4))
    assert b.storage_offset() == 4
    model = copy.deepcopy(Tied().to("tarry"))
    assert model.head.weight is model.embedding.weight
    t = copy.deepcopy(x.t())
    assert t.stride() == (1, 4)
    same(make(3, 4).t(), t)


def test_copy_shares():
    x = make(3).to("tarry")
    y = copy.copy(x)
    y.add_(1)
    same(make(3) + 1, x)


def test_between_devices():
    x = make(3, 4).to("tarry")
    host = torch.zeros(3, 4)
    host.copy_(x * 2)
    assert torch.equal(host, make(3, 4) * 2)
    host[1:].copy_(x[:2])
    assert torch.equal(host[1:], make(3, 4)[:2])
    x[:, 1].copy_(torch.ones(3))
    x[0] = torch.zeros(4)
    want = make(3, 4)
    want[:, 1] = 1
    want[0] = 0
    same(want, x)
    same(want.double(), torch.zeros(3, 4, dtype=torch.float64).to("tarry").copy_(x))
    assert x.to("meta").shape == (3, 4)


def test_gradient_crosses_devices():
    x = make(3).requires_grad_()
    (x.to("tarry") * 2).cpu().sum().backward()
    assert x.grad.tolist() == [2, 2, 2]
    w = make(3).to("tarry").requires_grad_()
    (w.cpu() * 3).sum().backward()
    assert w.grad.is_tarry and w.grad.tolist() == [3, 3, 3]


def test_batches_of_a_loader():
    rows = torch.utils.data.TensorDataset(make(10, 3), torch.arange(10))
    seen = []
    for x, y in torch.utils.data.DataLoader(rows, batch_size=4):
        x, y = x.to("tarry"), y.to("tarry", non_blocking=True)
        seen.append((x.sum(1) + y).cpu())
    torch.testing.assert_close(torch.cat(seen), make(10, 3).sum(1) + torch.arange(10))


def test_dataset_on_the_device():
    rows = torch.utils.data.TensorDataset(make(6, 3).to("tarry"))
    batches = [x for (x,) in torch.utils.data.DataLoader(rows, batch_size=3)]
    same(make(6, 3), torch.cat(batches))


def test_shared_by_threads():
    x = make(3, 4).to("tarry")
    pending, got = x * 2, []

    def work():
        got.append((pending + x).sum(0).cpu())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(got) == 4
    for value in got:
        torch.testing.assert_close(value, (make(3, 4) * 3).sum(0))


def test_storage():
    x = make(3, 4).to("tarry")
    storage = x.untyped_storage()
    assert storage.nbytes() == len(storage) == 48 and storage.device.type == "tarry"
    assert x[1:].untyped_storage()._cdata == storage._cdata
    assert "HOST" in repr(storage)
    twin = storage.clone()
    x.zero_()
    y = torch.empty(0, device="tarry").set_(twin, 0, (3, 4))
    same(make(3, 4), y)


def test_nothing_falls_back_on_the_way():
    with fallbacks(0):
        x = make(2, 3).to("tarry")
        repr(x), x.tolist(), copy.deepcopy(x), pickle.dumps(x), x.to(torch.int8).cpu()


def test_dlpack_and_array_protocols():
    x = make(3).to("tarry")
    assert np.asarray(x.cpu()).tolist() == x.tolist()
    assert torch.equal(x.cpu(), make(3)) and x.is_contiguous() and not x.is_sparse
    assert x.element_size() == 4 and x.nbytes == 12 and x.nelement() == 3


@pytest.mark.parametrize("where", [None, "cpu", "tarry"])
def test_the_old_format_of_files(where):
    base = make(3, 4, dtype=torch.float64).to("tarry")
    file = io.BytesIO()
    torch.save([base, base.t()[1:]], file, _use_new_zipfile_serialization=False)
    file.seek(0)
    whole, part = torch.load(file, map_location=where)
    assert torch.equal(whole.cpu(), base.cpu())
    assert torch.equal(part.cpu(), base.cpu().t()[1:])
