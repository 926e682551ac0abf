"""Modules that move: cells without biases, lazy modules, checkpoints of recurrent ones,
tied weights, and subclasses of Tensor."""

import pickle

import pytest
import torch
from torch import nn
from torch.nn.parameter import UninitializedParameter, is_lazy

import tarry
from harness import DEVICE, check, make, same


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN, nn.LSTMCell, nn.GRUCell])
def test_recurrent_without_bias(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    cpu = kind(3, 4, bias=False)
    ours = kind(3, 4, bias=False).to(DEVICE)
    ours.load_state_dict(cpu.state_dict())
    x = make(2, 3) if "Cell" in kind.__name__ else make(2, 5, 3)
    results = [cpu(x), ours(x.to(DEVICE))]
    results = [r[0] if isinstance(r, tuple) else r for r in results]
    same(*results)
    for r in results:
        r.square().sum().backward()
    for want, got in zip(cpu.parameters(), ours.parameters()):
        same(want.grad, got.grad)


def test_checkpoint_into_recurrent_on_cpu() -> None:
    """The flag that keeps tied weights tied changes nothing on the CPU."""
    first, second = nn.LSTM(3, 4), nn.LSTM(3, 4)
    second.load_state_dict(first.state_dict())
    assert torch.equal(first.weight_hh_l0, second.weight_hh_l0)
    assert not torch.__future__.get_swap_module_params_on_conversion()
    kept = first.weight_hh_l0.data_ptr()
    first.weight_hh_l0.sum().backward()
    first.float()
    assert first.weight_hh_l0.data_ptr() == kept


def test_tied_weights_stay_tied() -> None:
    m = nn.ModuleDict({"a": nn.Embedding(5, 3), "b": nn.Linear(3, 5, bias=False)})
    m["b"].weight = m["a"].weight
    weight = m["a"].weight
    for device in (DEVICE, "cpu"):
        m.to(device)
        assert m["b"].weight is m["a"].weight is weight
        assert weight.device.type == device


def lazy_network() -> nn.Sequential:
    return nn.Sequential(
        nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(),
        nn.LazyLinear(2, bias=False),
    )  # fmt: skip


def test_lazy_modules_materialise_on_the_device() -> None:
    ours, cpu = lazy_network().to(DEVICE), lazy_network()
    assert all(is_lazy(p) and isinstance(p, nn.Parameter) for p in ours.parameters())
    x = make(2, 3, 5, 5)
    ours(x.to(DEVICE))
    cpu(x)
    assert [p.device.type for p in ours.parameters()] == [DEVICE] * 5
    assert all(type(p) is nn.Parameter and not vars(p) for p in ours.parameters())
    assert [type(m) for m in ours] == [type(m) for m in cpu]
    cpu.load_state_dict(ours.state_dict())
    same(cpu(x), ours(x.to(DEVICE)))
    ours(x.to(DEVICE)).sum().backward()
    cpu(x).sum().backward()
    for want, got in zip(cpu.parameters(), ours.parameters()):
        same(want.grad, got.grad)


def test_lazy_module_moves_twice_and_back() -> None:
    m = nn.LazyBatchNorm1d().to(DEVICE).double().to("cpu")
    assert m(make(3, 4, dtype=torch.float64)).dtype is torch.float64
    assert type(m.weight) is nn.Parameter


def test_lazy_module_is_pickled_as_torch_would() -> None:
    saved = pickle.dumps(nn.LazyLinear(3))
    assert b"tarry" not in saved
    assert type(pickle.loads(saved).weight) is UninitializedParameter


class Named(torch.Tensor):
    """A subclass that PyTorch's default `__torch_function__` keeps."""


def test_subclass_of_tensor() -> None:
    x = make(3).to(DEVICE).as_subclass(Named)
    y = (x + 1)[1:]
    assert type(x) is type(y) is type(y.as_subclass(Named).exp()) is Named
    same(make(3)[1:] + 1, y.as_subclass(torch.Tensor))


def test_alias_shares_memory() -> None:
    def write(x: torch.Tensor) -> tuple:
        x = x.clone()
        other = torch.ops.aten.alias(x)
        other[1:] += 1
        x.mul_(2)
        part = torch.ops.aten.alias(x[:, 1:])
        part.add_(3)
        return x, other, part

    check(write, make(3, 4))
    tarry.sync()
