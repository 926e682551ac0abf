"""Recording: the trie, run-time numbers, identities of values, host snapshots."""

import gc
import weakref

import pytest
import torch

import tarry
from harness import compiles, cuts, make, same
from tarry.config import config
from tarry.dispatch.storage import slot_of
from tarry.ledger import ledger
from tarry.record.slot import DEVICE, HOST, IR, Slot, spec
from tarry.record.trie import Num, const, recorder, token


@pytest.fixture
def x():
    value = make(3, 4).to("tarry")
    tarry.sync()
    return value


def test_the_same_trace_adds_nothing(x):
    def step():
        y = (x * 2).sin() + x[1:].sum()
        x.mul_(0.5)
        tarry.sync()
        return y

    step()
    size = recorder.size
    for _ in range(3):
        step()
    assert recorder.size == size


def test_other_traces_share_their_beginning(x):
    sizes = []
    for further in (False, True):
        y = x.exp()
        if further:
            y = y.cos()
        tarry.sync()
        sizes.append(recorder.size)
    assert sizes[1] == sizes[0] + 1


def test_each_place_that_records_has_its_own_lines(x):
    def first():
        y = x.exp()
        return y.cos()

    def second():
        y = x.exp()
        return y.cos()

    for function in (first, second, first):
        y = function()  # noqa: F841
        start = function.__code__.co_firstlineno
        lines = [(n.line.function, n.line.number) for n in recorder.trace.node.path()]
        assert lines[-2:] == [(function.__name__, start + i) for i in (1, 2)]
        tarry.sync()
    assert [c.compiled for c in list(ledger.cuts)[-2:]] == [False, False]


def test_trie_is_bounded(x, monkeypatch):
    monkeypatch.setattr(config, "trie_limit", 40)
    for n in range(30):
        y = x
        for _ in range(n % 6):
            y = y + 1
        y = y.reshape(-1)[n % 12 :] * 2
        tarry.sync()
        assert recorder.size < 40 + 20
    assert y.tolist() == (x.cpu() + 5).reshape(-1)[5:].mul(2).tolist()


def test_trie_starts_afresh_without_a_compile(x, monkeypatch):
    y = x * 3 - 1
    tarry.sync()
    monkeypatch.setattr(config, "trie_limit", 0)
    tarry.sync()
    with compiles(0):
        y = x * 3 - 1
        tarry.sync()
    same(make(3, 4) * 3 - 1, y)


NUMBERS = [2.5, 0.0, 1.0, -1.0, -0.0, float("nan"), float("inf"), 1e300, 5e-324]


def test_float_values_never_compile(x):
    for i, a in enumerate(NUMBERS):
        with compiles(0 if i else 1):
            y, z = x * a, x + a
            tarry.sync()
        same((make(3, 4) * a, make(3, 4) + a), (y, z))


def test_int_values_never_compile():
    x = torch.arange(6).to("tarry")
    tarry.sync()
    for i, a in enumerate([3, 0, 1, -1, 2**40, -(2**63)]):
        with compiles(0 if i else 1):
            y = x * a + a
            tarry.sync()
        same(torch.arange(6) * a + a, y)


def test_negative_zero_stays_negative(x):
    y = torch.zeros(3).to("tarry") * -0.0
    assert torch.signbit(y).all().item()


def test_types_of_numbers_are_different_programs():
    x = torch.arange(4).to("tarry")
    tarry.sync()
    kinds = (1, 1.0, True)
    for a in kinds:
        with compiles(1):
            y = x + a
            tarry.sync()
        same(torch.arange(4) + a, y)
    for a in kinds:
        with compiles(0):
            y = x + a
            tarry.sync()


def test_equal_numbers_stay_two(x):
    def f(a, b):
        y = x * a + b
        tarry.sync()
        return y

    f(2.0, 2.0)
    with compiles(0):
        same(make(3, 4) * 2 + 3, f(2.0, 3.0))


def test_numbers_of_many_calls_never_compile(x):
    torch.manual_seed(0)
    optimizers = []
    for lr, betas in ((0.1, (0.9, 0.99)), (0.2, (0.8, 0.9))):
        p = torch.nn.Parameter(make(3).to("tarry"))
        optimizers.append(torch.optim.Adam([p], lr=lr, betas=betas))
    for i, optimizer in enumerate(optimizers):
        for step in range(2):
            before = ledger.counters["UncachedCompile"]
            (p,) = optimizer.param_groups[0]["params"]
            optimizer.zero_grad()
            (p * p).sum().backward()
            optimizer.step()
            tarry.sync()
            new = ledger.counters["UncachedCompile"] - before
            assert not (i and new), f"step {step} of the second optimizer compiled"


def test_cpu_0d_tensor_is_a_number(x):
    for i, a in enumerate((2.0, 3.0)):
        with compiles(0 if i else 1):
            y = x * torch.tensor(a)
            tarry.sync()
        same(make(3, 4) * a, y)


def test_static_arguments_shape_the_program(x):
    for dim in (0, 1):
        with compiles(1):
            y = x.cumsum(dim)
            tarry.sync()
        same(make(3, 4).cumsum(dim), y)


def test_tokens_tell_types_and_bits_apart():
    values = [1, 1.0, True, 0.0, -0.0, float("nan"), None, "1", (1,), (1.0,), 1 + 0j]
    assert len({token(v) for v in values}) == len(values)
    assert const(float("nan")) == const(float("nan"))
    assert const(1) != const(1.0) and Num("i") != Num("f")


def test_host_value_is_a_snapshot():
    source = torch.ones(3)
    x = source.to("tarry")
    assert slot_of(x).state is HOST
    source.add_(5)
    y = x + 0
    source.add_(5)
    tarry.sync()
    assert x.tolist() == y.tolist() == [1, 1, 1]
    source.zero_()
    assert x.tolist() == y.tolist() == [1, 1, 1]


def test_host_result_is_a_copy():
    x = torch.ones(3).to("tarry")
    for _ in range(2):
        x.cpu().add_(5)
        assert x.tolist() == [1, 1, 1]
        tarry.sync()
        y = x + 1
        y.cpu().add_(5)
        assert y.tolist() == [2, 2, 2]


def test_copy_into_snapshot_does_not_reach_it(x):
    host = make(3, 4)
    x.copy_(host)
    host.zero_()
    same(make(3, 4), x)


def test_states_of_a_slot():
    x = torch.ones(2).to("tarry")
    assert slot_of(x).state is HOST
    y = x + 1
    assert slot_of(y).state is IR
    tarry.sync()
    assert slot_of(x).state is slot_of(y).state is DEVICE
    x.add_(1)
    assert slot_of(x).state is IR
    x.copy_(torch.zeros(2))
    assert slot_of(x).state is HOST


def test_transitions_are_checked():
    slot = Slot(-1, spec((2,), (1,), torch.float32))
    slot.move(HOST, torch.ones(2))
    slot.move(DEVICE, object())
    with pytest.raises(AssertionError):
        slot.move("elsewhere")


def test_slot_lives_as_long_as_its_storage(x):
    y = x + 1
    slot = weakref.ref(slot_of(y))
    view = y[1:]
    del y
    tarry.sync()
    assert slot() is not None
    del view
    tarry.sync()
    gc.collect()
    assert slot() is None


def test_recording_is_constant_in_steady_state(x):
    w = torch.ones(4, requires_grad=True, device="tarry")
    sizes, live = [], []
    for _ in range(6):
        loss = (x * w).sum()
        loss.backward()
        with torch.no_grad():
            w -= 0.1 * w.grad
        w.grad = None
        nodes = recorder.trace.node.count
        tarry.sync()
        del loss
        gc.collect()
        sizes.append((nodes, recorder.size))
        live.append(sum(type(o) is Slot for o in gc.get_objects()))
    assert len(set(sizes[2:])) == 1 and len(set(live[2:])) == 1


def test_every_instruction_has_a_line_of_this_file(x):
    y = (x.exp() @ x.t()).softmax(-1)  # noqa: F841
    lines = {n.line.file for n in recorder.trace.node.path()}
    assert lines == {__file__}


def test_backward_has_the_line_that_called_it(x):
    w = x.detach().clone().requires_grad_()
    loss = (w * w).sum()
    before = recorder.trace.node.count
    loss.backward()
    path = recorder.trace.node.path()[before:]
    assert path and {n.line.file for n in path} == {__file__}


def test_writes_of_a_whole_tensor_need_no_old_value(x):
    y = torch.empty(3, 4, device="tarry")
    y.fill_(2)
    y.zero_()
    with cuts(1):
        assert y.sum().item() == 0


def test_default_dtype_is_part_of_what_is_recorded():
    x = torch.arange(3).to("tarry")
    torch.set_default_dtype(torch.float64)
    try:
        same(torch.arange(3) / 2, x / 2)
    finally:
        torch.set_default_dtype(torch.float32)
    same(torch.arange(3) / 2, x / 2)
