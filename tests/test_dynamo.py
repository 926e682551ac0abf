"""`torch.compile(backend="tarry")`: values and gradients as on the CPU, how many
programs run, the lazy path's random bits, and clear errors."""

import copy
import gc
import subprocess
import sys

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import tarry
import tarry.cut.program as program_module
import tarry.experimental
from harness import compiles, cuts, fallbacks, make, same
from tarry.cut.cause import Cause
from tarry.debug import metrics
from tarry.dispatch.random import stream
from tarry.dispatch.storage import slot_of
from tarry.errors import (
    BackendTakenError,
    CompileError,
    ExecutionNotAllowedError,
    FallbackWarning,
    PoisonedError,
    RunError,
    TarryWarning,
)
from tarry.ledger import ledger
from tarry.record.slot import DEVICE

pytestmark = [
    pytest.mark.usefixtures("fresh_dynamo"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def fast(f=None, **options):
    return torch.compile(f, backend="tarry", **options)


def place(x):
    """On the device, as a value that is there."""
    x = x.to("tarry")
    tarry.sync()
    return x


def ran(n):
    """Exactly `n` programs of compiled functions run, and nothing else."""
    return cuts(n)


def last_details(n):
    return [(c.cause, c.detail) for c in list(ledger.cuts)[-n:]]


def test_one_program_replayed():
    def f(x, y):
        return torch.tanh(x @ y) * 2 + 1, x - 1

    g, x, y = fast(f), make(3, 4), make(4, 3)
    with compiles(1), ran(3), fallbacks(0):
        for _ in range(3):
            got = g(place(x), place(y))
    same(f(x, y), got)
    assert last_details(1) == [(Cause.DYNAMO.value, "inference of f")]
    assert slot_of(got[0]).state is DEVICE


def test_numbers_are_inputs():
    g = fast(lambda x, a: x * a + a)
    x = make(3)
    g(place(x), 2.0)
    g(place(x), 3.0)
    with compiles(0):
        for a in (4.0, 5.0, 0.0, 1.0):
            same(x * a + a, g(place(x), a))


def test_pending_inputs_are_cut_first():
    g = fast(lambda x: x * 2)
    g(place(make(3)))
    before = ledger.counters["DynamoSyncInputExecuteTime"]
    x = place(make(3)) + 1
    with cuts(2):
        y = g(x)
    same((make(3) + 1) * 2, y)
    assert ledger.counters["DynamoSyncInputExecuteTime"] == before + 1
    assert last_details(2)[0][0] == Cause.DYNAMO_INPUT.value


def test_what_is_pending_stays_pending():
    g, x, other = fast(lambda x: x.exp()), place(make(3)), place(make(2))
    pending = other + 1
    with ran(1):
        y = g(x)
    more = pending * y.sum()
    same((make(2) + 1) * make(3).exp().sum(), more)


def model():
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
        nn.Linear(36, 5), nn.LayerNorm(5), nn.Linear(5, 3),
    )  # fmt: skip


def test_training_with_batch_norm():
    reference = model()
    ours = copy.deepcopy(reference).to("tarry")
    fitted = fast(ours)
    losses = []
    for m, f, device in ((reference, reference, "cpu"), (ours, fitted, "tarry")):
        optimizer = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
        losses.append([])
        for i in range(5):
            x, y = make(4, 2, 5, 5, seed=i).to(device), torch.tensor([0, 1, 2, 0])
            optimizer.zero_grad()
            loss = F.cross_entropy(f(x), y.to(device))
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.detach())
    same(losses[0], losses[1])
    same(list(reference.parameters()), list(ours.parameters()))
    same(list(reference.buffers()), list(ours.buffers()))
    assert int(ours[1].num_batches_tracked) == 5
    with torch.no_grad():
        ours.eval(), reference.eval()
        same(reference(make(2, 2, 5, 5)), fitted(place(make(2, 2, 5, 5))))


def test_training_settles_on_the_same_programs():
    m = model().to("tarry")
    f, optimizer = fast(m), torch.optim.SGD(m.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        f(make(4, 2, 5, 5).to("tarry")).square().sum().backward()
        optimizer.step()

    for _ in range(3):
        step()
    with compiles(0), cuts(8, at_most=True):
        step()
        step()


def test_loss_inside():
    def loss(x, w, b):
        return F.mse_loss(torch.sigmoid(x @ w + b), torch.ones_like(b).expand(3, -1))

    def run(f, device):
        x, w, b = (make(*s).to(device) for s in ((3, 4), (4, 2), (2,)))
        w.requires_grad_(), b.requires_grad_()
        out = f(x, w, b)
        out.backward()
        return out.detach(), w.grad, b.grad

    same(run(loss, "cpu"), run(fast(loss), "tarry"))


def test_dropout_and_draws_equal_the_lazy_ones():
    def f(x):
        y = F.dropout(x, 0.3) + torch.rand_like(x)
        return y + torch.randn(x.shape, device=x.device), torch.bernoulli(y.sigmoid())

    x = place(make(40))
    g = fast(f)

    def three(h):
        torch.manual_seed(11)
        first = [h(x), h(x)]
        return [first, torch.rand(5, device="tarry"), h(x)], stream.draws

    want, draws = three(f)
    got, draws_too = three(g)
    for a, b in zip(torch.utils._pytree.tree_leaves(want),
                    torch.utils._pytree.tree_leaves(got)):  # fmt: skip
        torch.testing.assert_close(a.cpu(), b.cpu(), rtol=1e-6, atol=1e-6)
    assert draws == draws_too
    assert not torch.equal(got[0][0][1].cpu(), got[0][1][1].cpu())


def test_dropout_trains_on_its_own_mask():
    drop, x = fast(lambda x: F.dropout(x * 2, 0.5)), place(make(50).abs() + 1)
    x.requires_grad_()
    y = drop(x)
    y.sum().backward()
    same((y.detach().cpu() != 0) * 4.0, x.grad)


def test_key_value_cache():
    def step(cache, position, new):
        cache[:, position] = new
        cache.index_copy_(1, position + 1, new * 2)
        return (cache * 2).sum(), cache[:, :2]

    cache, reference = place(torch.zeros(2, 6)), torch.zeros(2, 6)
    g = fast(step)
    for i in range(4):
        index, new = torch.tensor([i]), make(2, 1, seed=i)
        want = step(reference, index, new)
        index, new = place(index), place(new)
        held = slot_of(cache).data if i == 3 else None
        with cuts(1), compiles(int(i in (0, 3))):
            got = g(cache, index, new)
        same(want, got)
        same(reference, cache)
        assert held is None or not held.is_deleted()


def test_a_buffer_given_away_is_written_in_place():
    g, x = fast(lambda x: x.mul_(2).sum()), place(make(100))
    g(x)
    alone = slot_of(x).data.unsafe_buffer_pointer()
    g(x)
    assert slot_of(x).data.unsafe_buffer_pointer() == alone
    shared = x.clone()
    g(x)
    same([make(100) * 8, make(100) * 4], [x, shared])


def test_views_and_aliases():
    def f(base, part, other):
        part.add_(1)
        other.copy_(base.t()[:2, :2])
        return base[0], part * 2, other.view(-1), base

    def run(f, device):
        base, wide = make(3, 3).to(device), make(4, 4, seed=1).to(device)
        if device == "tarry":
            tarry.sync()
        part, other = base[1:], wide[1:3, ::2]
        out = f(base, part, other)
        out[0].mul_(10)
        return base, wide, *out

    g = fast(f)
    same(run(f, "cpu"), run(g, "tarry"))
    with compiles(1, at_most=True):
        same(run(f, "cpu"), run(g, "tarry"))


def test_inputs_that_are_views_of_other_places():
    def parts(x):
        return x[:2], x[2:4], x[::3], x.t()[:2, :4].t(), x[1:3].t().contiguous().t()

    g, x, ours = fast(lambda x: x * 2), make(6, 4), place(make(6, 4))
    got = [g(part) for part in parts(ours)]
    same([part * 2 for part in parts(x)], got)
    with compiles(0), cuts(4):
        same([part * 2 for part in parts(x)[:4]], [g(p) for p in parts(ours)[:4]])


def test_the_same_tensor_twice():
    def f(x, y):
        x.add_(1)
        return x * y

    g = fast(f)
    x, y = make(3), make(3, seed=1)
    same(f(x.clone(), y), g(place(x), place(y)))
    both = x.clone()
    want, ours = f(both, both), place(x)
    same([want, both], [g(ours, ours), ours])


def test_results_that_are_inputs_or_constants():
    def f(x):
        return (
            x,
            x.detach(),
            x.clone(),
            torch.arange(3),
            torch.ones(2, device=x.device),
            7,
        )

    g, x = fast(f), place(make(4))
    for _ in range(2):
        got = g(x)
        assert got[0] is x and got[5] == 7
        assert got[3].device.type == "cpu" and got[3].tolist() == [0, 1, 2]
        got[3].zero_(), got[4].zero_()
        got[2].add_(1)
        same([make(4), make(4) + 1], [got[1], got[2]])


def test_old_values_outlive_a_write():
    def f(x, y):
        before, also = x.clone(), x * 1
        x.add_(1)
        y.copy_(before)
        return before, also

    g = fast(f)
    for _ in range(3):
        x, y = place(make(4)), place(make(4, seed=1))
        got = g(x, y)
        same([make(4), make(4), make(4) + 1, make(4)], [*got, x, y])


def test_dynamic_sizes_compile_once_each():
    g = fast(lambda x: (x * 2).sum(0) + x.shape[0], dynamic=True)
    before = len(ledger.compiles)
    for n in (3, 5, 3, 7, 5):
        same((make(n, 2) * 2).sum(0) + n, g(place(make(n, 2))))
    why = [c.why for c in list(ledger.compiles)[before:]]
    assert len(why) == 3
    assert all("2]" in w for w in why[1:])


def test_a_marked_dimension_traces_once():
    torch._dynamo.utils.counters.clear()
    g = fast(lambda x: x.relu().mean(1))
    for n in (4, 6, 8):
        x = place(make(n, 3))
        torch._dynamo.mark_dynamic(x, 0)
        same(make(n, 3).relu().mean(1), g(x))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_metrics_of_graphs_and_calls():
    metrics.clear_all()
    x = place(make(4, 3)).requires_grad_()
    g = fast(lambda x: x.sigmoid().sum(), dynamic=True)
    for n in (1, 2):
        g(x).backward()
        assert metrics.counter_value("DynamoExtractCompiledGraph") == 2
        assert metrics.counter_value("xla::sigmoid") == 1  # recorded once
        for name in ("RunCachedGraphInputData", "RunCachedGraphOutputData"):
            assert metrics.metric_data(name)[0] == 2 * n
    g(place(make(5, 3)))
    assert metrics.counter_value("DynamoExtractCompiledGraph") == 3  # without gradients


def test_integers_change_without_a_compile():
    g, x = fast(lambda x, i: x * i + i), place(make(4))
    for i in (2, 3):
        g(x, i)
    with compiles(0):
        for i in (4, 5, 6, 4):
            same(make(4) * i + i, g(x, i))


def test_backward_with_dynamic_sizes():
    w = place(make(3, 2)).requires_grad_()
    g = fast(lambda x: (x @ w).square().sum(), dynamic=True)
    for n in (2, 4, 3):
        w.grad = None
        g(place(make(n, 3))).backward()
        v = make(3, 2).requires_grad_()
        (make(n, 3) @ v).square().sum().backward()
        same(v.grad, w.grad)


def test_host_operations_stand_between_programs():
    def f(x):
        y = (x * 2).exp() + torch.eye(3, device=x.device) * 50
        z, pivots, _ = torch.linalg.ldl_factor_ex(y @ y.t())
        return z.abs().sum() + y.mean(), y, pivots

    x = make(3, 3)
    g = fast(f)
    with pytest.warns(FallbackWarning, match="ldl_factor_ex"):
        same(f(x), g(place(x)))
    x = make(3, 3, seed=4)
    ours = place(x)
    with fallbacks(1), compiles(0), cuts(3):  # the fallback makes its results first
        got = g(ours)
    same(f(x), got)


def test_reads_inside():
    def f(x):
        y = x * 2
        if y.sum() > 0:
            y = y + 1
        return y * y.max().item()

    g = fast(f)
    for x in (make(5).abs(), -make(5).abs()):
        same(f(x), g(place(x)))
    assert any("graph break" in d for _, d in last_details(8))


def test_a_graph_break_is_named():
    def f(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    with pytest.raises(torch._dynamo.exc.Unsupported, match="graph break"):
        fast(f, fullgraph=True)(place(make(3)))
    same((make(3) + 1) * 2, fast(f)(place(make(3))))
    details = [d for c, d in last_details(2) if c == Cause.DYNAMO.value]
    assert f"up to a graph break at {__file__}" in details[0]


def test_tensors_of_the_cpu():
    def f(x, bias, scale):
        return x * scale + bias.to(x.device), (bias + 1).sum(), x.cpu() * 2

    x, bias, scale = make(4), make(4, seed=1), torch.tensor(2.5)
    g = fast(f)
    for _ in range(2):
        got = g(place(x), bias, scale)
    want = f(x, bias, scale)
    same(want[0], got[0])
    assert got[1].device.type == got[2].device.type == "cpu"
    torch.testing.assert_close(list(want[1:]), list(got[1:]))
    with compiles(0), cuts(1):
        scale = torch.tensor(3.5)
        x = place(x)
        same(f(make(4), bias, scale)[0], g(x, bias, scale)[0])
    with cuts(0), pytest.warns(TarryWarning, match=r"test_dynamo.py:\d+ has no tensor"):
        same_on_cpu = fast(lambda x: x * 2 + 1)(make(3))
    assert torch.equal(same_on_cpu, make(3) * 2 + 1)


def test_modes_and_options():
    x = place(make(3))
    assert fast(lambda x: x + 1, mode="reduce-overhead")(x).device.type == "tarry"
    with pytest.raises(CompileError, match="no_such_option"):
        fast(lambda x: x + 2, options={"xla_no_such_option": True})(x)
    g = fast(lambda x: x + 3, options={"xla_cpu_enable_fast_math": True})
    same(make(3) + 3, g(x))
    assert "xla_cpu_enable_fast_math=True" in list(ledger.compiles)[-1].options


def test_activations_are_given_away():
    def f(x, w):
        return torch.tanh(x @ w).sum()

    w = place(make(4, 4)).requires_grad_()
    g = fast(f)
    for retain in (True, False, False):
        y = g(place(make(4, 4)), w)
        y.backward(retain_graph=retain)
        if retain:
            y.backward()
    v = make(4, 4).requires_grad_()
    for _ in range(4):
        f(make(4, 4), v).backward()
    same(v.grad, w.grad)


def test_hooks_keep_what_is_saved():
    kept = []

    def pack(t):
        kept.append(t)
        return t

    x = place(make(6)).requires_grad_()
    g = fast(lambda x: torch.sigmoid(torch.sin(x)).prod())
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = g(x)
    y.backward()
    for t in kept:
        t.cpu()


def test_checkpointing_and_inference_mode():
    def f(x, w):
        return checkpoint(lambda a: torch.sin(a @ w), x, use_reentrant=False).sum()

    def run(f, device):
        w = make(3, 3).to(device).requires_grad_()
        f(make(3, 3).to(device), w).backward()
        return w.grad

    same(run(f, "cpu"), run(fast(f), "tarry"))
    with torch.inference_mode():
        same(make(3) * 3, fast(lambda x: x * 3)(make(3).to("tarry")))


def test_a_retained_graph_after_one_that_was_not():
    f = fast(lambda x: (x.sin() * x.exp()).sum())
    x = place(make(3)).requires_grad_()
    (want,) = torch.autograd.grad(f(x), x)
    y = f(x)
    for retained in (True, True, False):
        (g,) = torch.autograd.grad(y, x, retain_graph=retained)
        same(want.cpu(), g)


def test_random_numbers_in_a_checkpoint():
    def inner(x):
        mask = torch.bernoulli(x.sigmoid())
        return (F.dropout((x * x).sin(), 0.5) * torch.rand_like(x) + mask * x).tanh()

    def run(f):
        torch.manual_seed(1)
        x = make(4, 5).to("tarry").requires_grad_()
        f(x).sum().backward()
        return x.grad, torch.rand(3, device="tarry")

    f = lambda x: checkpoint(inner, x, use_reentrant=False)  # noqa: E731
    same(run(f), run(fast(f)))


def test_a_compiled_optimizer():
    def run(device, wrap):
        w = make(4, 3).to(device).requires_grad_()
        optimizer = torch.optim.Adam([w], lr=0.1, capturable=device != "cpu")
        step = wrap(optimizer.step)
        for i in range(3):
            w.grad = make(4, 3, seed=i).to(device)
            step()
        return w

    same(run("cpu", lambda f: f), run("tarry", fast))


def test_autocast_and_half():
    def f(x, w):
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            return x @ w

    same(f(make(3, 3), make(3, 3)), fast(f)(place(make(3, 3)), place(make(3, 3))))


def test_complex_and_conjugates():
    def f(z):
        return z.conj() * 2, z.conj(), torch.view_as_real(z) + 1

    z = make(3, dtype=torch.complex64)
    g = fast(f)
    same(f(z), [t.resolve_conj() for t in g(place(z))])
    h = fast(lambda z: z * 2j)
    same(z.conj() * 2j, h(place(z).conj()))
    same(z * 2j, h(place(z)))
    pairs = place(make(3, 2))
    same(torch.view_as_complex(make(3, 2)) * 2j, h(torch.view_as_complex(pairs)))


def test_inside_a_region():
    g, x = fast(lambda x: x * 2), place(make(3))
    with tarry.compile(name="both"):
        y = g(x + 1) + 1
    same((make(3) + 1) * 2 + 1, y)
    region = tarry.compile(lambda: g(x), full_graph=True)
    with pytest.raises(ExecutionNotAllowedError, match=r"torch\.compile"):
        region()
    with tarry.budget() as spent:
        g(x)
    assert len(spent.done) == 1 and "torch.compile" in spent.done[0]


def test_eager_mode_outside():
    g = fast(lambda x: (x * 2).exp().sum())
    x = place(make(3))
    with tarry.experimental.eager_mode_context(True), cuts(1):
        y = g(x)
    same((make(3) * 2).exp().sum(), y)


def test_a_sync_inside_breaks_the_graph():
    def f(x):
        y = x + 1
        tarry.sync()
        return y * 2

    same((make(3) + 1) * 2, fast(f)(place(make(3))))


def test_steady_state():
    g, x = fast(lambda x: (x * 1.5).relu()), place(make(8))
    g(x)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(50):
        g(x)
    gc.collect()
    assert len(gc.get_objects()) - before < 400


def test_precision_is_part_of_the_key():
    g, x = fast(lambda x: x @ x), place(make(3, 3))
    g(x)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        with compiles(1):
            g(x)
    finally:
        torch.set_float32_matmul_precision(before)


def test_a_failed_compile_names_the_line(broken):
    def f(x):
        y = x + 1
        return y.sinh()  # the line

    g, x = fast(f), place(make(3))
    line = f.__code__.co_firstlineno + 2
    for _ in range(2):
        with pytest.raises(CompileError, match=f"{__file__}:{line}.*no such thing"):
            g(x)
    same(make(3) * 3, x * 3)
    same(make(3) * 4, fast(lambda x: x * 4)(x))


def test_a_failed_backward_compile(broken):
    g, x = fast(lambda x: x.cosh().sum()), place(make(3)).requires_grad_()
    y = g(x)
    with pytest.raises(CompileError, match="sinh"):
        y.backward()
    same(make(3).cosh().sum(), y)
    same(make(3) * 3, x * 3)


def test_a_failed_run(monkeypatch):
    g, x = fast(lambda x: x.mul_(3)), place(make(3))
    real, left = program_module.launch, [RuntimeError("RESOURCE_EXHAUSTED: memory")]

    def launch(*args):
        if left:
            raise left.pop()
        return real(*args)

    monkeypatch.setattr(program_module, "launch", launch)
    with pytest.raises(RunError, match="RESOURCE_EXHAUSTED"):
        g(x)
    same(make(3), x)
    same(make(3) * 3, g(x))


def test_a_poisoned_input(broken):
    x = place(make(3)).sinh()
    with pytest.raises(CompileError):
        tarry.sync()
    with pytest.raises(PoisonedError, match="sinh"):
        fast(lambda x: x + 1)(x)


def test_openxla():
    from tarry.dynamo import backend

    backend.register()
    same(make(3) * 5, torch.compile(lambda x: x * 5, backend="openxla")(place(make(3))))
    backend.register()
    torch._dynamo.reset()


def test_openxla_is_taken(monkeypatch):
    from torch._dynamo.backends import registry

    from tarry.dynamo import backend

    def other(graph, inputs):
        return graph

    other._tags = ()
    monkeypatch.setitem(registry._COMPILER_FNS, "openxla", other)
    with pytest.raises(BackendTakenError, match=f"openxla.*{__name__}"):
        backend.register()


def test_importing_tarry_loads_no_dynamo():
    code = "import sys, tarry; print('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["False"], done.stderr
