"""Small programs that lazy devices have got wrong before: values as on the CPU, within
limits on compiles and runs (a read counts as the run that it causes), every cut and
compile told as it was.

Each function takes a device and a function that cuts, and returns tensors and numbers.
"""

import copy
import io
import math

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import tarry
from harness import compile_count, cut_count, fallbacks, recent
from tarry.cut.sync import store
from tarry.dispatch.device import StepCuts
from told import check_told, fresh


def host(t):
    return t.detach().cpu().clone()


def on(device, values, **options):
    return torch.tensor(values, **options).to(device)


def learning_rate_schedule(device, cut):
    w = on(device, [1.0, 2.0]).requires_grad_()
    optimizer = torch.optim.SGD([w], lr=0.5, momentum=0.9)
    for lr in (0.5, 0.25, 0.3, 0.123, 0.07):
        optimizer.param_groups[0]["lr"] = lr
        optimizer.zero_grad()
        (w * w).sum().backward()
        optimizer.step()
        cut()
    return host(w)


def scalar_through_special_values(device, cut):
    x, kept = on(device, [1.0, 2.0, 3.0]), []
    cut()
    for a in (0.25, 0.5, 1.0, 0.0, -1.0, -0.0):
        y = x * a + 2.5 * a
        cut()
        kept.append(host(y))
    return torch.stack(kept)


def random_read_in_a_loop(device, cut):
    torch.manual_seed(0)
    sums = []
    for _ in range(5):
        a, b = torch.randn(8, 8, device=device), torch.randn(8, 8, device=device)
        sums.append(float((a @ b).sum()))
    return len(set(sums)), all(map(math.isfinite, sums))


def two_shapes_in_turn(device, cut):
    kept = []
    for n in (4, 6, 4, 6):
        y = (torch.arange(n, dtype=torch.float32).to(device) * 2).sum()
        cut()
        kept.append(host(y))
    return torch.stack(kept)


def smaller_last_batch(device, cut):
    layer, kept = nn.Linear(3, 1, bias=False), []
    nn.init.constant_(layer.weight, 0.5)
    layer = layer.to(device)
    for size in (8, 8, 8, 3):
        y = layer(torch.ones(size, 3).to(device)).sum()
        cut()
        kept.append(host(y))
    return torch.stack(kept)


def rows_written_by_number(device, cut):
    buffer = torch.zeros(4, 2).to(device)
    cut()
    for i in range(4):
        buffer[i] = torch.full((2,), float(i + 1)).to(device)
        cut()
    return host(buffer)


def different_work_before_a_step(device, cut):
    w, kept = on(device, [2.0, 3.0]), []
    cut()
    for k in range(3):
        x = torch.ones(2).to(device)
        for _ in range(k + 1):
            x = x + 1
        kept.append(host((x * w).sum()))
        cut()
    return torch.stack(kept)


def shape_from_data(device, cut):
    a = on(device, [1, 2, 0, 1, 3])
    places, doubled = torch.nonzero(a).squeeze(1), a[a > 0] * 2
    cut()
    return host(places), host(doubled), tuple(doubled.shape)


def item_then_sync(device, cut):
    x = torch.ones(16, 16).to(device)
    cut()
    h = x
    for _ in range(10):
        h = torch.tanh(h @ x / 16)
    total = h.sum().item()
    cut()
    return round(total, 4), host(h)


def printing(device, cut):
    x = torch.arange(12.0).to(device).reshape(3, 4) * 0.5
    text, number = repr(x), f"{x.sum()}"
    return text.split(", device=")[0].rstrip(")"), number.split(",")[0]


def clipping(device, cut):
    p = on(device, [3.0, 4.0]).requires_grad_()
    (p * p).sum().backward()
    norm = nn.utils.clip_grad_norm_([p], 1.0)
    cut()
    return round(float(host(norm)), 4), host(p.grad)


def checked_indices(device, cut):
    i = on(device, [0, 2, 1])
    hot = F.one_hot(i, num_classes=3).float()
    rows = F.embedding(i, torch.eye(3).to(device))
    cut()
    return host(hot), host(rows)


def step_left_out_on_the_device(device, cut):
    w, kept = on(device, [1.0, 1.0]), []
    for g in ([1.0, 2.0], [float("inf"), 0.0], [0.5, 0.5]):
        g = on(device, g)
        w = torch.where(torch.isfinite(g).all(), w - 0.1 * g, w)
        cut()
        kept.append(host(w))
    return torch.stack(kept)


def long_chain(device, cut):
    x = on(device, [1.0])
    for _ in range(3000):
        x = x * 0.5 + 1.0
    return round(float(host(x)), 4)


def dead_results(device, cut):
    x = torch.ones(4).to(device)
    cut()
    y = torch.exp(x * 100)
    del y
    cut()
    cut()
    return host(x)


def training_settles(device, cut):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    x, losses = torch.linspace(0, 1, 8).reshape(2, 4).to(device), []
    for _ in range(8):
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        cut()
        losses.append(loss.detach())
    return torch.stack([host(loss) for loss in losses])


def clone_outlives_a_donation(device, cut):
    t = torch.arange(4.0).to(device)
    cut()
    a, b = torch.clone(t), t.detach().clone()
    t += 1
    cut()
    return host(t), host(a), host(b)


def constants_are_never_donated(device, cut):
    kept = []
    for _ in range(2):
        t = on(device, 42)
        cut()
        t.add_(1)
        cut()
        kept.append(host(t))
    return torch.stack(kept)


def same_expression_other_aliases(device, cut):
    a, b = on(device, [1]), on(device, [2])
    cut()
    b.add_(a)
    cut()
    c = b + a
    cut()
    return host(b), host(c)


def write_through_an_old_view(device, cut):
    x = torch.zeros(1, 10).to(device)
    v = x.view(10, 1)
    cut()
    v[0][0] = 1
    cut()
    return host(v).flatten(), host(x).flatten()


def pieces_are_views(device, cut):
    a = torch.arange(4).to(device)
    b, c = torch.split(a, 2)
    a[0] = -1
    c.mul_(10)
    m = torch.zeros(2, 3).to(device)
    m.t()[0].add_(5)
    first, second = m.unbind(0)
    second.fill_(7)
    m.diagonal().add_(100)
    return host(a), host(b), host(c), host(m), host(first)


def filling_a_buffer(device, cut):
    buffer = torch.zeros(5).to(device)
    for i in range(5):
        a = torch.full((2, 2), float(i)).to(device)
        buffer[i] = (a @ a).mean()
        cut()
    return host(buffer)


def tied_weights(device, cut):
    parts = {"e": nn.Embedding(5, 3), "d": nn.Linear(3, 5, bias=False)}
    model = nn.ModuleDict(parts)
    model["d"].weight = model["e"].weight
    before = len(list(model.parameters()))
    model = model.to(device)
    with torch.no_grad():
        model["e"].weight.fill_(2.0)
    cut()
    tied = model["d"].weight is model["e"].weight
    return before, len(list(model.parameters())), tied, host(model["d"].weight)


def double_backward_through_views(device, cut):
    x = on(device, [[1.0, 2.0], [3.0, 4.0]]).requires_grad_()
    pieces = torch.split((x**3).view(-1), 1)
    seeds = [torch.ones(1).to(device)] * 4
    (g,) = torch.autograd.grad(pieces, x, seeds, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x)
    cut()
    return host(g), host(h)


def seeding(device, cut):
    torch.manual_seed(7)
    a, b = torch.rand(1000, device=device), torch.rand(1000, device=device)
    cut()
    torch.manual_seed(7)
    again = torch.rand(1000, device=device)
    cut()
    after = torch.rand(1000, device=device)
    u, v = host(a), host(b)
    same = torch.equal(u, host(again)), torch.equal(v, host(after))
    return same, torch.equal(u, v), 0.4 < float(u.mean()) < 0.6


def copies_of_a_module(device, cut):
    model = nn.Linear(2, 2).to(device)
    nn.init.constant_(model.weight, 0.5)
    nn.init.zeros_(model.bias)
    twin, file = copy.deepcopy(model), io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    with torch.no_grad():
        model.weight.mul_(3)
    loaded = nn.Linear(2, 2)
    loaded.load_state_dict(torch.load(file, map_location="cpu"))
    cut()
    x = torch.ones(1, 2).to(device).requires_grad_()
    y = checkpoint(lambda t: torch.tanh(twin(t)).sum(), x, use_reentrant=False)
    y.backward()
    cut()
    return [host(t) for t in (model.weight, twin.weight, loaded.weight, y, x.grad)]


# The most compiles and runs of the whole function, on an empty cache; None: no limit.
SCENARIOS = {
    learning_rate_schedule: (2, 6),
    scalar_through_special_values: (1, 6),
    random_read_in_a_loop: (1, 5),
    two_shapes_in_turn: (2, 4),
    smaller_last_batch: (2, 4),
    rows_written_by_number: (4, 5),
    different_work_before_a_step: (3, 6),
    shape_from_data: (3, 3),
    item_then_sync: (1, 1),
    printing: (2, 2),
    clipping: (1, 1),
    checked_indices: (1, 1),
    step_left_out_on_the_device: (1, 3),
    long_chain: (1, 1),
    dead_results: (0, 0),
    training_settles: (3, 8),
    clone_outlives_a_donation: (1, 1),
    constants_are_never_donated: (1, 2),
    same_expression_other_aliases: (2, 2),
    write_through_an_old_view: (1, 1),
    pieces_are_views: (1, 1),
    filling_a_buffer: (5, 5),
    tied_weights: (1, 1),
    double_backward_through_views: (1, 1),
    seeding: (3, 4),
    copies_of_a_module: (3, 3),
}


def equal(want, got):
    if isinstance(want, torch.Tensor):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5, equal_nan=True)
    elif isinstance(want, tuple | list):
        assert len(want) == len(got)
        for a, b in zip(want, got):
            equal(a, b)
    else:
        if isinstance(want, float):
            want = pytest.approx(want, rel=1e-4, abs=1e-4)
        assert got == want


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda f: f.__name__)
def test_scenario(scenario):
    most_compiles, most_runs = SCENARIOS[scenario]
    want = scenario("cpu", lambda: None)
    fresh()
    compiles, runs = compile_count(), cut_count()
    with fallbacks(0):
        got = scenario("tarry", tarry.sync)
    compiles, runs = compile_count() - compiles, cut_count() - runs
    equal(want, got)
    assert compiles <= most_compiles, f"{compiles} compiles; {recent()}"
    assert runs <= most_runs, f"{runs} runs; {recent()}"
    check_told(scenario, host)


@pytest.mark.parametrize(
    "scenario", [learning_rate_schedule, training_settles], ids=lambda f: f.__name__
)
def test_without_a_sync(scenario):
    """The same loops in plain PyTorch: the step itself cuts."""
    tarry.sync()
    StepCuts.enabled = True
    store.clear()
    compiles, runs = compile_count(), cut_count()
    equal(scenario("cpu", lambda: None), scenario("tarry", lambda: None))
    most_compiles, most_runs = SCENARIOS[scenario]
    assert compile_count() - compiles <= most_compiles, recent()
    assert cut_count() - runs <= most_runs, recent()
