"""Reads that stall no step: `tarry.later`, and `to("cpu", non_blocking=True)`."""

import copy
import io
import pickle
import threading

import numpy as np
import pytest
import torch

import tarry
from harness import DTYPES, compiles, cuts, make, same
from tarry.errors import ClosureError, HostReadError, TarryError
from tarry.loop.worker import worker


def test_values_come_in_order_and_are_those_of_the_call():
    seen = []
    x = torch.zeros(2, 3).to("tarry")
    with cuts(4), tarry.no_host_reads():
        for step in range(4):
            x += 1
            tarry.later(x, lambda v, step=step: seen.append((step, v)))
            tarry.later(x[:, 1], lambda v, step=step: seen.append((step, v)))
            x *= 10
            tarry.sync()
    tarry.wait_device_ops()
    assert [step for step, _ in seen] == [0, 0, 1, 1, 2, 2, 3, 3]
    for (_, whole), (_, part), want in zip(seen[::2], seen[1::2], (1, 11, 111, 1111)):
        assert whole.tolist() == [[want] * 3] * 2 and part.tolist() == [want] * 2
        assert whole.device.type == "cpu"
    assert threading.current_thread().name != "tarry worker_0"


def test_what_is_computed_is_delivered_without_a_cut():
    seen = []
    x = torch.ones(2).to("tarry") + 1
    tarry.sync()
    with cuts(0):
        tarry.later(x, seen.append)
        tarry.later(torch.ones(1).to("tarry"), seen.append)
        worker.wait()
    assert [v.tolist() for v in seen] == [[2.0, 2.0], [1.0]]
    seen[0].fill_(7)
    assert x.tolist() == [2.0, 2.0]


def test_steady_programs_do_not_depend_on_the_worker():
    """Whether a buffer is donated is the same however fast its callback is."""
    total = torch.zeros(3).to("tarry")
    gate = threading.Event()
    for step in range(8):
        total += 1
        tarry.later(total, lambda v, step=step: step % 3 or gate.wait(0.05))
        with compiles(0 if step > 2 else 1, at_most=True):
            tarry.sync()
    assert total.tolist() == [8.0] * 3
    gate.set()
    tarry.wait_device_ops()


def test_an_error_of_a_callback():
    def fail(value):
        raise KeyError(value.item())

    x = torch.ones(1).to("tarry") * 5
    tarry.later(x, fail)
    tarry.sync()
    with pytest.raises(ClosureError, match=r"later asked for at .*KeyError: 5.0"):
        tarry.wait_device_ops()
    tarry.wait_device_ops()
    assert x.item() == 5


def test_a_callback_of_a_program_that_fails(monkeypatch):
    seen = []
    x = torch.ones(1).to("tarry") * 5
    tarry.later(x, seen.append)
    with monkeypatch.context() as m:
        m.setattr("tarry.cut.program.launch", lambda *a: 1 / 0)
        with pytest.raises(TarryError, match="ZeroDivisionError"):
            tarry.sync()
    tarry.later(torch.ones(1).to("tarry"), seen.append)
    tarry.sync()
    tarry.wait_device_ops()
    assert [v.tolist() for v in seen] == [[1.0]]


def test_a_callback_may_call_later():
    seen = []
    x = torch.ones(1).to("tarry") * 5
    tarry.later(x, lambda v: tarry.later(x, seen.append))
    tarry.sync()
    tarry.wait_device_ops()
    assert [v.tolist() for v in seen] == [[5.0]]


def test_later_takes_tensors_of_the_device():
    with pytest.raises(TypeError, match="got cpu"):
        tarry.later(torch.ones(1), print)


def deferred(x):
    return x.to("cpu", non_blocking=True)


def test_a_non_blocking_copy_waits_at_its_first_use():
    x = torch.zeros(2, 3).to("tarry") + 1
    with cuts(0), tarry.no_host_reads():
        d, part = deferred(x), deferred(x[:, 1])
        assert d.shape == (2, 3) and d.device.type == "cpu" and d.stride() == (3, 1)
        assert d.dtype is torch.float32 and d.numel() == 6 and part.dim() == 1
    x += 1
    with cuts(1):
        assert d.sum().item() == 6
    x += 1
    tarry.sync()
    with cuts(0):
        assert part.tolist() == [1.0, 1.0] and d.tolist() == [[1.0] * 3] * 2
    late = deferred(x)
    with tarry.no_host_reads(), pytest.raises(HostReadError):
        late.sum()
    assert late.sum() == 18


@pytest.mark.parametrize("dtype", DTYPES)
def test_it_has_the_value_of_a_blocking_copy(dtype):
    for x in (make(3, 4, dtype=dtype), make(3, 4, dtype=dtype).t(), make(dtype=dtype)):
        y = x.to("tarry")
        got = deferred(y)
        assert torch.equal(got, x) and got.dtype is dtype and got.stride() == x.stride()
        assert torch.equal(
            deferred(y[..., :2] if x.dim() else y), x[..., :2] if x.dim() else x
        )
    y = make(4, dtype=dtype).to("tarry")
    wide = y.to("cpu", torch.complex128, non_blocking=True)
    assert torch.equal(wide, make(4, dtype=dtype).to(torch.complex128))


def test_it_is_used_like_any_tensor():
    x = torch.arange(3.0).to("tarry")
    d = deferred(x)
    assert isinstance(d, torch.Tensor) and (d + 1).tolist() == [1.0, 2.0, 3.0]
    assert np.asarray(deferred(x)).tolist() == deferred(x).numpy().tolist() == [0, 1, 2]
    assert repr(deferred(x)) == repr(torch.arange(3.0))
    assert torch.stack([deferred(x), deferred(x)]).shape == (2, 3)
    assert deferred(x)[2].item() == 2 and len(deferred(x)) == 3
    assert type(pickle.loads(pickle.dumps(d))) is torch.Tensor
    assert torch.equal(copy.deepcopy(d), d.clone())
    file = io.BytesIO()
    torch.save(deferred(x), file)
    file.seek(0)
    assert torch.load(file).tolist() == [0.0, 1.0, 2.0]
    assert d.add_(1) is d
    view = d[1:]
    view.zero_()
    d[0] = 7
    assert d.tolist() == [7.0, 0.0, 0.0] and x.tolist() == [0.0, 1.0, 2.0]
    out = torch.empty(3)
    torch.add(d, 1, out=out)
    assert out.tolist() == [8.0, 1.0, 1.0]
    assert d.to("tarry").sum().item() == 7
    d.requires_grad_()
    (d * 3).sum().backward()
    assert d.grad.tolist() == [3.0] * 3
    with pytest.raises(RuntimeError, match="same device"):
        x + deferred(x.reshape(3, 1))


def test_gradients_and_modules_get_plain_tensors():
    w = torch.ones(2).to("tarry").requires_grad_()
    copied = (w * 2).to("cpu", non_blocking=True)
    assert type(copied) is torch.Tensor
    copied.sum().backward()
    assert w.grad.tolist() == [2.0, 2.0]
    model = torch.nn.Linear(2, 2).to("tarry").to("cpu", non_blocking=True)
    assert type(model.weight.data) is torch.Tensor
    assert model(torch.ones(2)).shape == (2,)
    into = torch.empty(2)
    into.copy_(w.detach() * 3, non_blocking=True)
    assert into.tolist() == [3.0, 3.0]


def test_parameters_are_made_of_copies():
    saved = torch.nn.Linear(3, 2).to("tarry")
    state = {k: v.to("cpu", non_blocking=True) for k, v in saved.state_dict().items()}
    layer = torch.nn.Linear(3, 2)
    layer.load_state_dict(state, assign=True)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    before = saved.weight.detach().cpu()
    layer(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    assert torch.equal(saved.weight.detach().cpu(), before)
    torch.testing.assert_close(
        torch.Tensor(layer.weight.detach().numpy()), before - 0.1
    )
    assert isinstance(torch.nn.Parameter(state["bias"]), torch.nn.Parameter)


def test_casts_are_one_instruction_and_keep_layouts():
    for x in (make(2, 3, 4, 5).to(memory_format=torch.channels_last), make(3, 4).t()):
        y = x.to("tarry")
        for got in (
            y.to(torch.float64),
            y.half(),
            y.long(),
            y.bool(),
            y.to(torch.cfloat),
        ):
            same(x.to(got.dtype), got)
        same(x[1:].double(), y[1:].double())
        same(x.double(memory_format=torch.contiguous_format),
             y.double(memory_format=torch.contiguous_format))  # fmt: skip
    assert y.to(y.dtype) is y and y.to(y.dtype, copy=True) is not y
    w = make(3).to("tarry").requires_grad_()
    w.double().square().sum().backward()
    same(make(3) * 2, w.grad)
