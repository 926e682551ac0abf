"""Regions: `tarry.compile`, `no_host_reads`, `budget`."""

import re
import sys

import pytest
import torch

import tarry
from harness import compiles, cuts, make, same
from tarry.cut import sync
from tarry.dispatch.device import StepCuts
from tarry.errors import (
    BudgetError,
    CompileError,
    ExecutionNotAllowedError,
    HostReadError,
    TooManyGraphsError,
)
from tarry.ledger import ledger
from tarry.region import set_allow_execution

HERE = re.escape(__file__)


@pytest.fixture
def x():
    return make(3, 4).to("tarry")


def test_a_region_is_one_program_from_border_to_border(x):
    pending = x.sin()

    @tarry.compile
    def double_then_add(a):
        return a * 2 + 1

    with cuts(2):
        y = double_then_add(x)
    assert double_then_add.__name__ == "double_then_add"
    first, second = list(ledger.cuts)[-2:]
    assert (first.cause, first.detail) == (
        "beginning of a compiled region",
        "double_then_add",
    )
    assert (second.cause, second.detail) == (
        "end of a compiled region",
        "double_then_add",
    )
    with cuts(0):
        same(make(3, 4) * 2 + 1, y)
        same(make(3, 4).sin(), pending)


def test_recorded_anew_at_every_call_compiled_once(x):
    calls = []

    @tarry.compile(full_graph=True, name="step")
    def step(a, k):
        calls.append(k)
        return a * k

    step(x, 2.0)
    with compiles(0):
        y = step(x, 3.0)
    assert calls == [2.0, 3.0]
    same(make(3, 4) * 3, y)


def test_as_wrapper_and_context_manager(x):
    negate = tarry.compile(torch.neg)
    same(-make(3, 4), negate(x))
    with cuts(1), tarry.compile(name="block"):
        y = x + 1
        z = y * 2
    same((make(3, 4) + 1) * 2, z)
    with tarry.step():
        z = x - 1
    assert ledger.cuts[-1].detail == "step"
    same(make(3, 4) - 1, z)


@pytest.mark.parametrize(
    ("read", "cause"),
    [
        (lambda t: t.sum().item(), "a number was read"),
        (lambda t: bool(t.sum() > 0), "a number was read"),
        (lambda t: t.cpu(), "a tensor was copied to the CPU"),
        (repr, "a tensor was printed"),
        (lambda t: t.nonzero(), "a result's shape depends on data: aten::nonzero"),
        (lambda t: tarry.sync(), r"tarry\.sync\(\)"),
    ],
)
def test_full_graph_refuses_a_cut_at_its_line(x, read, cause):
    @tarry.compile(full_graph=True)
    def whole(a):
        y = a + 1
        read(y)
        return y

    words = "Unexpected execution happens inside the compiled function, exiting: "
    with pytest.raises(ExecutionNotAllowedError, match=f"{words}{cause}.*{HERE}"):
        whole(x)
    same(make(3, 4) + 1, x + 1)  # the device works afterwards
    with tarry.compile(full_graph=True):
        y = x * 2
    same(make(3, 4) * 2, y)


def test_what_was_recorded_before_a_refusal_is_not_lost(x):
    kept = []
    with pytest.raises(ExecutionNotAllowedError), tarry.compile(full_graph=True):
        kept.append(x * 3)
        kept[0].sum().item()
    same(make(3, 4) * 3, kept[0])


def test_more_graphs_than_allowed(x):
    sync.store.clear()

    @tarry.compile(max_different_graphs=2)
    def rows(a):
        return a.exp().sum(0)

    for n in (1, 2, 1, 2):
        rows(x[:n].clone())
    held = []
    with pytest.raises(TooManyGraphsError) as refused:
        held.append(x.clone())
        held.append(rows(held[0]))
    words = str(refused.value)
    assert words.startswith(
        "Maximum number of different graphs allowed per function exceeded: 2\n'rows' at"
    )
    assert "an input changed: f32[2,4] → f32[3,4]" in words and __file__ in words
    same(make(3, 4), held[0])
    with cuts(2, at_most=True):
        rows(x[:1].clone())


def test_a_region_in_a_region_keeps_the_outer_borders(x):
    inner = tarry.compile(lambda a: a + 1, name="inner")
    with cuts(1), tarry.compile(full_graph=True, name="outer"):
        y = inner(inner(x))
    same(make(3, 4) + 2, y)


def test_an_exception_leaves_through_the_border(x):
    with pytest.raises(ZeroDivisionError), cuts(0), tarry.compile(name="broken"):
        y = x + 1
        1 / 0  # noqa: B018
    with cuts(1):
        same(make(3, 4) + 1, y)


def test_optimizer_step_does_not_cut_inside():
    model = torch.nn.Linear(4, 2).to("tarry")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert StepCuts.enabled

    @tarry.compile(full_graph=True)
    def step(a):
        optimizer.zero_grad()
        model(a).square().sum().backward()
        optimizer.step()

    a = make(3, 4).to("tarry")
    for _ in range(3):
        step(a)
    with cuts(1), compiles(0):
        step(a)
    assert StepCuts.enabled


def test_compile_options_are_part_of_the_key(x):
    def f(a):
        return a.tan() * 3

    plain = tarry.compile(f)
    quick = tarry.compile(
        f, custom_compile_options={"xla_backend_optimization_level": 0}
    )
    plain(x)
    with compiles(1):
        y = quick(x)
    assert "xla_backend_optimization_level: unset → 0" in ledger.compiles[-1].why
    with compiles(0):
        plain(x)
        quick(x)
    same(make(3, 4).tan() * 3, y)


def test_an_option_that_xla_does_not_have(x):
    wrong = tarry.compile(torch.cos, custom_compile_options={"xla_no_such_flag": 1})
    with pytest.raises(CompileError, match="xla_no_such_flag"):
        wrong(x)
    same(make(3, 4).cos(), x.cos())


def test_no_host_reads_refuses_computed_values_too(x):
    tarry.sync()
    y = x + 1
    refused = pytest.raises(HostReadError, match=f"a number was read.*{HERE}")
    with refused, tarry.no_host_reads():
        tarry.sync()
        z = y * 2
        y.sum().item()
    refused = pytest.raises(HostReadError, match="a tensor was printed")
    with refused, tarry.no_host_reads():
        str(y)
    same((make(3, 4) + 1) * 2, z)
    assert y[0, 0].item() == make(3, 4)[0, 0].item() + 1


def test_a_budget_of_cuts_lists_them(x):
    with pytest.raises(BudgetError) as refused, tarry.budget(cuts=1) as spent:
        y = x + 1
        start = sys._getframe().f_lineno
        y.sum().item()
        z = y * 2
        tarry.sync()
    words = str(refused.value)
    assert words.startswith("more cuts than the budget allows (1):\n  1. ")
    assert f"1. {__file__}:{start + 1}: a number was read" in words
    assert f"2. {__file__}:{start + 3}: tarry.sync()" in words
    assert len(spent.done) == 1
    same((make(3, 4) + 1) * 2, z)


def test_a_budget_of_compiles_says_why(x):
    sync.store.clear()
    y, z = x.clone(), x[:2].clone()
    tarry.sync()
    (y.exp() * 5).cpu()
    with tarry.budget(compiles=0):
        (y.exp() * 7).cpu()
    words = r"compiles .*\(0\)(.|\n)*an input changed: f32\[3,4\] → f32\[2,4\]"
    with pytest.raises(BudgetError, match=words), tarry.budget(compiles=0):
        (z.exp() * 7).cpu()
    same(make(3, 4)[:2].exp() * 7, z.exp() * 7)


def test_max_different_graphs_counts_over_all_regions_of_a_function(x):
    def double(t):
        return t + t

    tarry.compile(double, max_different_graphs=1)(x)
    tarry.compile(double, max_different_graphs=1)(x)
    with pytest.raises(TooManyGraphsError, match="exceeded: 1"):
        tarry.compile(double, max_different_graphs=1)(make(2, 2).to("tarry"))
    tarry.compile(double, max_different_graphs=2)(make(2, 2).to("tarry"))


def test_execution_can_be_forbidden(x):
    y = x + 1
    set_allow_execution(False)
    try:
        with pytest.raises(ExecutionNotAllowedError, match="Unexpected execution"):
            y.sum().item()
    finally:
        set_allow_execution(True)
    same(x.cpu() + 1, y)
