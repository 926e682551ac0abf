"""Mixed precision without a read: scaler, optimizers with `found_inf`, autocast."""

import copy

import pytest
import torch
from torch import nn

import tarry
from harness import compiles, cuts, make, same
from tarry.amp import GradScaler, autocast, syncfree
from tarry.errors import HostReadError

OPTIMIZERS = {
    "SGD": {"lr": 0.1, "momentum": 0.9},
    "plain SGD": {"lr": 0.1},
    "Adam": {"lr": 0.01, "amsgrad": True},
    "AdamW": {"lr": 0.01},
}


def of(module, name, params):
    return getattr(module, name.split()[-1])(params, **OPTIMIZERS[name])


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def train(device, scaler, make_optimizer, bad=(0, 3), steps=7, unscale=False):
    """Weights and scales of some steps, of which the `bad` ones overflow."""
    model = net().to(device)
    optimizer = make_optimizer(model.parameters())
    seen = []
    for step in range(steps):
        x = make(6, 4, seed=step).to(device)
        optimizer.zero_grad()
        loss = model(x).square().mean() * (float("inf") if step in bad else 1.0)
        scaler.scale(loss).backward()
        if unscale:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        seen += [model[0].weight.detach().clone(), scaler._scale.clone()]
    return seen, optimizer


@pytest.mark.parametrize("unscale", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_scaler_reads_nothing_and_skips_what_overflowed(name, unscale):
    options = {"init_scale": 256.0, "growth_interval": 2}
    want, _ = train(
        "cpu", torch.amp.GradScaler("cpu", **options),
        lambda p: of(torch.optim, name, p), unscale=unscale,
    )  # fmt: skip
    with tarry.no_host_reads():
        ours, _ = train(
            "tarry", GradScaler(**options),
            lambda p: of(torch.optim, name, p), unscale=unscale,
        )  # fmt: skip
        torchs, _ = train(
            "tarry", torch.amp.GradScaler("tarry", **options),
            lambda p: of(syncfree, name, p), unscale=unscale,
        )  # fmt: skip
    for a, b, c in zip(want, ours, torchs, strict=True):
        torch.testing.assert_close(b.cpu(), a, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(c.cpu(), a, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad"])
def test_gradients_have_no_scale_after_the_step(name):
    def run(device, scaler, fused):
        p = torch.nn.Parameter(make(3).to(device))
        optimizer = getattr(torch.optim, name)([p], lr=0.1, fused=fused)
        for gain in (2.0, 3.0):
            optimizer.zero_grad()
            scaler.scale((p * gain).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
        return p.detach(), p.grad

    options = {"init_scale": 8.0}
    want = run("cpu", torch.amp.GradScaler("cpu", **options), fused=True)
    same(want, run("tarry", GradScaler(**options), fused=False))
    same(want, run("tarry", torch.amp.GradScaler("tarry", **options), fused=True))


def test_a_step_is_one_program():
    model = net().to("tarry")
    scaler = GradScaler()
    optimizer = torch.optim.AdamW(model.parameters())

    def step(x):
        with tarry.step(), autocast():
            optimizer.zero_grad()
            loss = model(x).float().square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    x = make(6, 4).to("tarry")
    for _ in range(3):
        step(x)
    with cuts(3), compiles(0), tarry.no_host_reads():
        for _ in range(3):
            step(x)


def test_a_trained_optimizer_is_fused_where_it_stands():
    model, plain = net().to("tarry"), net().to("tarry")
    one = torch.optim.Adam(model.parameters(), lr=0.01)
    other = torch.optim.Adam(plain.parameters(), lr=0.01)
    scaler = GradScaler(init_scale=4.0)
    for step in range(4):
        x = make(6, 4, seed=step).to("tarry")
        for m, optimizer in ((model, one), (plain, other)):
            optimizer.zero_grad()
            loss = m(x).square().mean()
            if optimizer is one and step > 1:
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
            else:
                loss.backward()
                optimizer.step()
    assert one.state_dict()["state"][0]["step"].item() == 4
    for a, b in zip(model.parameters(), plain.parameters()):
        torch.testing.assert_close(a.detach().cpu(), b.detach().cpu())


def test_other_optimizers_keep_the_read():
    model = net().to("tarry")
    optimizer = torch.optim.RMSprop(model.parameters())
    scaler = GradScaler()
    before = copy.deepcopy(model[0].weight.detach()).cpu()
    scaler.scale(model(make(2, 4).to("tarry")).sum() * float("inf")).backward()
    with tarry.no_host_reads(), pytest.raises(HostReadError):
        scaler.step(optimizer)
    scaler.step(optimizer)
    assert torch.equal(model[0].weight.detach().cpu(), before)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_found_inf_decides_on_the_device(name):
    model, reference = net().to("tarry"), net()
    ours = of(syncfree, name, model.parameters())
    theirs = of(torch.optim, name, reference.parameters())
    flags = [1.0, 0.0, torch.tensor(True).to("tarry"), torch.zeros(1).to("tarry"), None]
    with tarry.no_host_reads():
        for step, flag in enumerate(flags):
            x = make(6, 4, seed=step)
            ours.zero_grad()
            model(x.to("tarry")).square().mean().backward()
            ours.step(found_inf=flag)
            if step in (0, 2):
                continue
            theirs.zero_grad()
            reference(x).square().mean().backward()
            theirs.step()
    for a, b in zip(model.parameters(), reference.parameters()):
        torch.testing.assert_close(a.detach().cpu(), b.detach(), rtol=1e-4, atol=1e-5)
    assert not hasattr(ours, "found_inf")


def test_a_scaler_that_is_off():
    model = net().to("tarry")
    scaler = GradScaler(enabled=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = model(make(2, 4).to("tarry")).sum()
    assert scaler.scale(loss) is loss
    loss.backward()
    scaler.step(optimizer)
    scaler.update()
    assert not optimizer.param_groups[0]["fused"]


def test_autocast():
    x = make(2, 4).to("tarry")
    layer = nn.Linear(4, 3).to("tarry")
    with autocast("tarry"):
        assert layer(x).dtype is torch.bfloat16
    with autocast(tarry.device(), dtype=torch.float16):
        assert layer(x).dtype is torch.float16
    with autocast("tarry", enabled=False):
        assert layer(x).dtype is torch.float32
