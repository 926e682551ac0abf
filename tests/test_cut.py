"""Cuts: their causes and lines, what they compute, donation, the node budget."""

import gc
import sys
import threading
import warnings
import weakref

import pytest
import torch

import tarry
from harness import compiles, cut_count, cuts, fallbacks, make, same
from tarry.config import config
from tarry.cut.cause import Cause
from tarry.cut.sync import cut, store
from tarry.dispatch.device import StepCuts
from tarry.dispatch.storage import slot_of
from tarry.errors import FallbackWarning, TarryWarning
from tarry.ledger import ledger
from tarry.record.lines import user_line
from tarry.record.slot import DEVICE, IR
from tarry.record.trie import recorder


@pytest.fixture
def x():
    value = make(3, 4).to("tarry")
    tarry.sync()
    return value


def here(offset=0):
    """`file:line` of the caller, `offset` lines on."""
    frame = sys._getframe(1)
    return f"{frame.f_code.co_filename}:{frame.f_lineno + offset}"


def last_cut(cause):
    record = ledger.cuts[-1]
    assert record.cause == cause.value, record
    return record


def test_sync(x):
    y = x + 1  # noqa: F841
    tarry.sync()
    assert last_cut(Cause.SYNC).line == here(-1)


READS = {
    "item": lambda t: t.item(),
    "float": lambda t: float(t),
    "int": lambda t: int(t),
    "bool": lambda t: bool(t),
    "format": lambda t: f"{t:.2f}",
    "index": lambda t: [0, 1, 2][(t * 0).long()],
    "equal": lambda t: torch.equal(t, t + 1),
}


@pytest.mark.parametrize("name", READS)
def test_item(x, name):
    with cuts(1):
        READS[name]((x * 2).sum())
    assert last_cut(Cause.ITEM).line.startswith(f"{__file__}:")


def test_bool_in_if(x):
    with cuts(1):
        if (x > 100).any():
            raise AssertionError
    assert last_cut(Cause.ITEM).line == here(-2)


def test_cpu(x):
    with cuts(1):
        (x * 2).cpu()
    assert last_cut(Cause.HOST).line == here(-1)
    with cuts(1):
        (x * 2).to("cpu", torch.float64)
    assert last_cut(Cause.HOST).line == here(-1)
    with cuts(1):
        torch.empty(3, 4).copy_(x * 2)
    assert last_cut(Cause.HOST).line == here(-1)


def test_print(x):
    with cuts(1):
        repr(x * 2)
    assert last_cut(Cause.PRINT).line == here(-1)
    y = x[0] * 3
    with cuts(1):
        text = str(y)
    assert text.startswith("tensor([") and "device='tarry:0'" in text
    with cuts(0):
        assert str(y) == text


def test_print_computes_the_rest_once(x):
    y = x * 2
    z = y.sum()
    with cuts(1):
        repr(z)
        tarry.sync()
        repr(y)


def test_shape(x):
    for call in (
        lambda t: t.nonzero(), lambda t: t[t > 0], lambda t: t.masked_select(t > 0),
        lambda t: t.unique(), lambda t: torch.where(t > 0),
        lambda t: torch.arange(3).to("tarry").repeat_interleave((t[:, 0] > 0).long()),
        lambda t: (t[0] > 0).long().bincount(),
    ):  # fmt: skip
        with cuts(1), fallbacks(0):
            call(x * 2)
        assert last_cut(Cause.SHAPE).line.startswith(f"{__file__}:")
    with cuts(1):
        (x * 2).nonzero()
    record = last_cut(Cause.SHAPE)
    assert record.line == here(-2) and record.detail == "aten::nonzero"


def unknown(t):
    """An operator without a lowering: its results' sizes and types are the CPU's."""
    return torch.ops.aten.linalg_ldl_factor_ex(t[:, :3])


def test_fallback(x):
    with cuts(1), pytest.warns(FallbackWarning, match="aten::linalg_ldl_factor_ex"):
        unknown(x * 2)
    record = last_cut(Cause.FALLBACK)
    assert record.line.startswith(f"{__file__}:")
    assert record.detail == "aten::linalg_ldl_factor_ex"


def test_fallback_warns_once_per_line_and_counts(x):
    name = "aten::linalg_ldl_factor_ex"
    before = ledger.counters[name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            unknown(x)
    assert len(caught) <= 1
    assert ledger.counters[name] - before == 3


def test_saving(x, tmp_path):
    with cuts(1):
        torch.save(x * 2, tmp_path / "x.pt")
    assert last_cut(Cause.SAVE).line == here(-1)


def test_step_cuts_a_plain_loop():
    w = torch.nn.Parameter(torch.ones(3).to("tarry"))
    optimizer = torch.optim.SGD([w], lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        (w * w).sum().backward()
        with cuts(1):
            optimizer.step()
        assert last_cut(Cause.STEP).line == here(-1)


def test_step_stops_cutting_after_a_sync():
    w = torch.nn.Parameter(torch.ones(3).to("tarry"))
    optimizer = torch.optim.SGD([w], lr=0.1)
    (w * w).sum().backward()
    tarry.sync()
    with cuts(0):
        optimizer.step()
    with cuts(1):
        tarry.sync()
    assert not StepCuts.enabled


def test_step_of_a_cpu_optimizer_does_not_cut(x):
    w = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([w], lr=0.1)
    w.sum().backward()
    y = x + 1  # noqa: F841
    with cuts(0):
        optimizer.step()


def test_synchronize_cuts(x):
    y = x + 1
    with cuts(1):
        torch.tarry.synchronize()
    assert slot_of(y).state is DEVICE


def test_cut_of_nothing_is_none(x):
    with cuts(0):
        tarry.sync()
        x.view(-1)[1:]
        tarry.sync()
        y = x + 1
        del y
        tarry.sync()


def test_dead_code_is_not_computed(x):
    y = x + 1
    z = x.exp().sin().cos()
    del z
    tarry.sync()
    assert slot_of(y).state is DEVICE
    program = max(store.values(), key=lambda e: e.used)
    assert [n.op for n in program.graph.nodes] == ["tarry::input", "add.Tensor"]


def test_what_is_saved_for_backward_lives(x):
    w = x.clone().requires_grad_()
    y = (w.exp() * 2).sum()
    tarry.sync()
    with cuts(1):
        y.backward()
        tarry.sync()
    same(2 * make(3, 4).exp(), w.grad)


def test_nothing_is_computed_twice(x):
    h = x @ x.t()
    total = h.sum()
    total.item()
    with cuts(0):
        h.cpu()
        total.item()
        tarry.sync()
        h[0].tolist()
        assert slot_of(h).state is DEVICE


def test_a_read_shares_the_program_of_a_sync(x):
    for i, end in enumerate((tarry.sync, None, tarry.sync, "print")):
        h = (x @ x.t()).tanh()
        total = h.sum()
        with compiles(0 if i else 1), cuts(1):
            if end is None:
                total.item()
            elif end == "print":
                repr(total)
            else:
                end()
        del h, total


def test_outputs_do_not_depend_on_who_holds_them(x):
    def f():
        y = x * 2
        return y, y.view(-1), y[0]

    with compiles(1, at_most=True):
        kept = f()
        tarry.sync()
    with compiles(0):
        kept = f()[2]
        tarry.sync()
    same(make(3, 4)[0] * 2, kept)


def test_budget(x, monkeypatch):
    monkeypatch.setattr(config, "node_budget", 30)
    y = x
    with pytest.warns(TarryWarning) as caught, cuts(7):
        for _ in range(100):
            y = y * 0.5 + 1
        tarry.sync()
        tarry.sync()
    text = str(caught[0].message)
    assert "TARRY_NODE_BUDGET=30" in text and "tarry.sync()" in text
    assert f"{__file__}:" in text
    want = make(3, 4)
    for _ in range(100):
        want = want * 0.5 + 1
    same(want, y)


@pytest.fixture
def budget_cuts(monkeypatch):
    monkeypatch.setattr(config, "node_budget", 10)


@pytest.mark.filterwarnings("ignore::tarry.errors.TarryWarning")
def test_budget_inside_a_backward(x, budget_cuts):
    w = x.clone().requires_grad_()
    y = w
    for _ in range(20):
        y = y.sin()
    y.sum().backward()
    want = make(3, 4).requires_grad_()
    y = want
    for _ in range(20):
        y = y.sin()
    y.sum().backward()
    same(want.grad, w.grad)


def aliased():
    """How many inputs of the last program were donated."""
    program = max(store.values(), key=lambda e: e.used)
    return len(program.donated)


def test_overwritten_buffer_is_donated(x):
    buffer = weakref.ref(slot_of(x).data)
    x.mul_(2)
    tarry.sync()
    assert aliased() == 1 and buffer() is None
    same(make(3, 4) * 2, x)


def parameter():
    p = make(3, 4).to("tarry")
    tarry.sync()
    return p


def test_clone_keeps_the_buffer():
    p = parameter()
    kept = p.clone()
    p.mul_(2)
    tarry.sync()
    assert aliased() == 0
    same([make(3, 4) * 2, make(3, 4)], [p, kept])
    del kept
    p.mul_(2)
    tarry.sync()
    assert aliased() == 1
    same(make(3, 4) * 4, p)


def test_clone_within_the_recording_keeps_the_old_value():
    p = parameter()
    p.mul_(2)
    kept = p.clone()
    p.mul_(2)
    tarry.sync()
    same([make(3, 4) * 4, make(3, 4) * 2], [p, kept])


def test_detached_alias_sees_the_write():
    p = parameter()
    alias, view = p.detach(), p[1]
    p.mul_(2)
    tarry.sync()
    assert aliased() == 1
    same([make(3, 4) * 2] * 2, [p, alias])
    same(make(3, 4)[1] * 2, view)


def test_saved_for_backward_keeps_the_buffer():
    p = parameter()
    w = torch.ones(3, 4, device="tarry", requires_grad=True)
    held = p.clone()
    y = (w * held).sum()
    del held
    p.zero_()
    tarry.sync()
    y.backward()
    tarry.sync()
    same([torch.zeros(3, 4), make(3, 4)], [p, w.grad])


def test_swapped_buffers_keep_their_values():
    a, b = torch.zeros(3).to("tarry"), torch.ones(3).to("tarry")
    tarry.sync()
    for _ in range(3):
        t = a.clone()
        a.copy_(b)
        b.copy_(t)
        tarry.sync()
    assert a.tolist() == [1, 1, 1] and b.tolist() == [0, 0, 0]


def test_copy_shares_and_then_parts():
    a, b = torch.zeros(3).to("tarry"), torch.ones(3).to("tarry")
    tarry.sync()
    a.copy_(b)
    b.add_(1)
    tarry.sync()
    a.add_(5)
    tarry.sync()
    assert a.tolist() == [6, 6, 6] and b.tolist() == [2, 2, 2]


def test_donated_every_step():
    w = torch.nn.Parameter(make(4).to("tarry"))
    optimizer = torch.optim.SGD([w], lr=0.1, momentum=0.9)
    for _ in range(4):
        optimizer.zero_grad()
        (w * w).sum().backward()
        optimizer.step()
    assert aliased() >= 2


def test_donation_is_part_of_the_key():
    p = torch.ones(7, 3).to("tarry")
    tarry.sync()
    p.mul_(3)
    tarry.sync()
    kept = p.clone()
    with compiles(1):
        p.mul_(3)
        tarry.sync()
    assert "donation" in ledger.compiles[-1].why
    del kept
    with compiles(0):
        p.mul_(3)
        tarry.sync()


def test_same_operands_and_different_ones_are_two_programs():
    a, b = torch.ones(5).to("tarry"), torch.full((5,), 2.0).to("tarry")
    tarry.sync()
    with compiles(2):
        y = a * 3 + a
        tarry.sync()
        z = a * 3 + b
        tarry.sync()
    assert y.sum().item() == 20 and z.sum().item() == 25


def test_a_record_says_what_a_cut_cost(x):
    y = x.sinh() + 1  # noqa: F841
    tarry.sync()
    record = ledger.cuts[-1]
    assert record.compiled and record.compile_s > 0 and record.outputs == 1
    assert record.instructions == 3 and record.run_s >= 0


def test_cut_waits_when_asked(x):
    y = x + 1
    tarry.sync(wait=True)
    assert slot_of(y).data.is_ready()


def test_other_thread_has_a_line(x):
    y = x * 2
    thread = threading.Thread(target=lambda: y.sum().item())
    thread.start()
    thread.join()
    assert ledger.cuts[-1].line.startswith(f"{__file__}:")


def test_pending_slots_leave_the_trace(x):
    y = x + 1
    assert slot_of(y).state is IR
    before = cut_count()
    cut(Cause.EXPORT, "by hand")
    assert cut_count() == before + 1
    assert ledger.cuts[-1].detail == "by hand"
    assert slot_of(y).pos == -1 and not recorder.trace.inputs


def test_memory_is_given_back():
    gc.collect()
    x = torch.zeros(1000).to("tarry")
    for _ in range(3):
        x = x + 1
        tarry.sync()
    import jax

    gc.collect()
    live = sum(a.shape == (1000,) for a in jax.live_arrays())
    assert live <= 2


def test_user_line_of_here():
    assert str(user_line()) == here()
