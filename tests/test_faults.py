"""What goes wrong: the error's words and line, and what is left afterwards."""

import dataclasses
import os
import re
import subprocess
import sys

import pytest
import torch

import tarry
import tarry.cut.program as program_module
import tarry.cut.sync as sync_module
from harness import make, same
from tarry.dispatch.storage import slot_of
from tarry.errors import (
    CompileError,
    PoisonedError,
    RunError,
    TarryError,
    UnsupportedError,
)
from tarry.lower.table import TABLE
from tarry.record.slot import POISONED

HERE = re.escape(__file__)


@pytest.fixture
def x():
    value = make(3, 4).to("tarry")
    tarry.sync()
    return value


def works_afterwards(x):
    same(make(3, 4) * 3 - 1, x * 3 - 1)


def test_operands_on_different_devices(x):
    host = torch.ones(3, 4)
    for call in (
        lambda: x + host, lambda: host + x, lambda: x @ host.t(), lambda: x.add_(host),
        lambda: torch.cat([x, host]), lambda: torch.where(x > 0, x, host),
        lambda: torch.nn.functional.linear(x, host),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match="same device"):
            call()
    works_afterwards(x)


def test_shapes_that_do_not_fit_raise_at_once(x):
    with pytest.raises(RuntimeError, match="must match the size of tensor b"):
        x + torch.ones(5).to("tarry")
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        x @ x
    with pytest.raises(IndexError, match="Dimension out of range"):
        x.softmax(3)
    with pytest.raises(RuntimeError, match="is invalid for input of size 12"):
        x.view(5)
    works_afterwards(x)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")  # PyTorch retires it
def test_sparse_and_quantized_are_refused(x):
    sparse = torch.eye(3).to_sparse()
    with pytest.raises((RuntimeError, NotImplementedError)):
        sparse.to("tarry") + 1
    with pytest.raises(RuntimeError):
        x.copy_(torch.eye(4)[:3].to_sparse())
    with pytest.raises(RuntimeError):
        torch.zeros(2, 2, layout=torch.sparse_coo, device="tarry")
    quantized = torch.quantize_per_tensor(torch.ones(3, 4), 0.1, 0, torch.qint8)
    with pytest.raises((RuntimeError, NotImplementedError)):
        quantized.to("tarry") + 1
    works_afterwards(x)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_quantizing_and_strided_nested_tensors_are_refused(x):
    with pytest.raises(UnsupportedError, match="quantized dtype is not supported"):
        torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
    nested = torch.nested.nested_tensor([x[0], x[1, :2]])
    for use in (lambda: nested * 2, nested.sum, nested.cpu, lambda: repr(nested)):
        with pytest.raises(UnsupportedError, match=r"strided nested .*torch\.jagged"):
            use()


def test_jagged_nested_tensors_work(x):
    rows = [x[0], x[1, :2]]
    jagged = torch.nested.nested_tensor(rows, layout=torch.jagged) * 2
    want = torch.stack([2 * x[0].cpu(), 2 * x[1].cpu()])
    want[1, 2:] = -1
    assert torch.equal(jagged.to_padded_tensor(-1.0).cpu(), want)
    assert torch.allclose(jagged.sum().cpu(), want[0].sum() + want[1, :2].sum())


def test_writing_to_an_expanded_tensor(x):
    wide = x[:1].expand(3, 4)
    for call in (lambda: wide.add_(1), lambda: wide.copy_(x), lambda: wide.mul_(x)):
        with pytest.raises(RuntimeError, match="single memory location"):
            call()
    works_afterwards(x)


def test_view_beyond_its_storage(x):
    with pytest.raises(RuntimeError, match="out of bounds for storage of size 48"):
        x.as_strided((4, 4), (4, 1)).sum().item()
    with pytest.raises(RuntimeError, match="out of bounds for storage of size 48"):
        x.as_strided((3, 4), (4, 1), 1).add_(1)
    works_afterwards(x)


def test_a_row_that_raises(x, broken):
    held = x * 2
    tarry.sync()
    x.add_(1)
    good = held + 1
    bad = x.sinh()
    line = sys._getframe().f_lineno - 1
    worse = bad + held
    with pytest.raises(CompileError, match="aten::sinh") as caught:
        tarry.sync()
    text = str(caught.value)
    assert f"{__file__}:{line}" in text and "no such thing" in text
    same(make(3, 4) * 2, held)
    same(make(3, 4) * 2 + 1, good)
    same(make(3, 4) + 1, x)
    for value in (bad, worse):
        assert slot_of(value).state is POISONED
        with pytest.raises(PoisonedError, match=f"{HERE}:{line}"):
            value.cpu()
        with pytest.raises(PoisonedError):
            value + 1
    x.sub_(1)
    works_afterwards(x)


def test_a_failed_write_leaves_the_old_value(x, broken):
    x.copy_(x.sinh())
    with pytest.raises(CompileError):
        x.sum().item()
    works_afterwards(x)


def test_a_poisoned_tensor_can_be_overwritten(x, broken):
    bad = x.sinh()
    with pytest.raises(CompileError):
        tarry.sync()
    bad.copy_(torch.ones(3, 4))
    same(torch.ones(3, 4), bad)
    bad = x.sinh()
    with pytest.raises(CompileError):
        tarry.sync()
    bad.copy_(x)
    same(make(3, 4), bad)


def test_poison_prints_its_cause(x, broken):
    bad = x.sinh()
    with pytest.raises(CompileError):
        bad.sum().item()
    with pytest.raises(PoisonedError, match="sinh"):
        repr(bad)


def failing_once(monkeypatch, name, error):
    """`<name>` of the pipeline raises `error` the first time."""
    module = program_module if hasattr(program_module, name) else sync_module
    real, left = getattr(module, name), [error]

    def fail(*args, **kwargs):
        if left:
            raise left.pop()
        return real(*args, **kwargs)

    monkeypatch.setattr(module, name, fail)


def test_failing_compile(x, monkeypatch):
    held = x.clone()
    x.mul_(2)
    y = x + 1.5
    failing_once(monkeypatch, "compile_graph", RuntimeError("INTERNAL: broken"))
    with pytest.raises(CompileError, match="INTERNAL: broken") as caught:
        tarry.sync()
    assert f"{__file__}:" in str(caught.value)
    same([make(3, 4), make(3, 4)], [held, x])
    with pytest.raises(PoisonedError):
        y.cpu()
    works_afterwards(x)


def test_failing_launch(x, monkeypatch):
    y = x * 5
    x.add_(1)
    failing_once(monkeypatch, "launch", RuntimeError("RESOURCE_EXHAUSTED: memory"))
    with pytest.raises(RunError, match="RESOURCE_EXHAUSTED") as caught:
        tarry.sync()
    text = str(caught.value)
    assert f"{__file__}:" in text and "tarry.sync()" in text
    with pytest.raises(PoisonedError, match="RESOURCE_EXHAUSTED"):
        y.sum().item()
    same(make(3, 4), x)
    works_afterwards(x)


def test_failing_read(x, monkeypatch):
    import tarry.dispatch.exits as exits

    y = x * 6
    tarry.sync()

    def fail(buffer, beside=False):
        raise RuntimeError("INTERNAL: device lost")

    monkeypatch.setattr(exits, "fetch", fail)
    with pytest.raises(RunError, match="device lost"):
        y.cpu()
    monkeypatch.undo()
    with pytest.raises(PoisonedError, match="device lost"):
        y.cpu()
    works_afterwards(x)


@pytest.mark.parametrize("stage", ["compile_graph", "launch", "bind", "upload"])
def test_interrupt_keeps_the_recording(monkeypatch, stage):
    start = make(len(stage), 2)
    x = start.to("tarry")
    y = (x * 2 + torch.ones(2).to("tarry")).exp()
    x.add_(1)
    failing_once(monkeypatch, stage, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        tarry.sync()
    z = y + x
    same((start * 2 + 1).exp() + start + 1, z)
    same([(start * 2 + 1).exp(), start + 1], [y, x])


def test_error_surfaces_once(x, broken):
    bad = x.sinh()  # noqa: F841
    with pytest.raises(CompileError):
        tarry.sync()
    tarry.sync()
    tarry.sync()
    works_afterwards(x)


def test_error_in_a_step_names_the_line_that_recorded(x, monkeypatch):
    row = dataclasses.replace(TABLE["tanh_backward"], lower=lambda *_: [][0])
    monkeypatch.setitem(TABLE, "tanh_backward", row)
    w = torch.nn.Parameter(torch.ones(4).to("tarry"))
    optimizer = torch.optim.SGD([w], lr=0.1)
    loss = (x * w).tanh().sum()
    loss.backward()
    line = sys._getframe().f_lineno - 1
    with pytest.raises(CompileError, match=f"tanh_backward.*{HERE}:{line}"):
        optimizer.step()
        tarry.sync()
    same(torch.ones(4), w.detach())


def test_all_errors_are_tarrys():
    for kind in (CompileError, RunError, PoisonedError):
        assert issubclass(kind, TarryError) and issubclass(kind, RuntimeError)


def python(code, **environment):
    """Run Python code in a fresh process: (exit status, output)."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    "name, value, wanted",
    [
        ("TARRY_COMPILATION_CACHE_SIZE", "many", "a positive whole number"),
        ("TARRY_COMPILATION_CACHE_SIZE", "0", "a positive whole number"),
        ("TARRY_NODE_BUDGET", "-5", "a positive whole number"),
        ("TARRY_AUTO_STEP", "perhaps", "0 or 1"),
        ("TARRY_XLA_OPTIONS", "all", "'auto' or 'none'"),
    ],
)
def test_wrong_setting(name, value, wanted):
    status, output = python("import tarry", **{name: value})
    assert status == 1
    assert f"ConfigError: {name}='{value}' is not {wanted}." in output


def test_settings_are_read():
    code = """
import torch, tarry
from tarry.config import config
print(config.cache_size, config.auto_step)
w = torch.nn.Parameter(torch.ones(2).to("tarry"))
w.sum().backward()
torch.optim.SGD([w], lr=1.0).step()
print(sum(tarry.ledger.ledger.cut_totals.values()))
"""
    status, output = python(code, TARRY_COMPILATION_CACHE_SIZE="7", TARRY_AUTO_STEP="0")
    assert status == 0, output
    assert output.split("\n")[:2] == ["7 False", "0"]


def test_unknown_platform():
    code = "import torch, tarry; torch.ones(2).to('tarry').add_(1).cpu()"
    status, output = python(code, TARRY_PLATFORM="nonsense")
    assert status == 1
    assert "PlatformError: TARRY_PLATFORM=nonsense has no device here" in output
    assert "set TARRY_PLATFORM=cpu" in output


def test_slot_taken():
    code = """
import torch
torch.utils.rename_privateuse1_backend("other")
import tarry
"""
    status, output = python(code)
    assert status == 1
    assert "SlotTakenError: PyTorch's one slot for external devices" in output
    assert "'other'" in output


def test_exit_with_work_pending_is_quiet():
    status, output = python("import torch, tarry; x = torch.ones(2).to('tarry') * 2")
    assert (status, output) == (0, "")


HOOKS = {
    "tensor": lambda x, y, h: y.register_hook(h),
    "leaf": lambda x, y, h: x.register_hook(h),
    "after": lambda x, y, h: x.register_post_accumulate_grad_hook(h),
    "step": lambda x, y, h: y.grad_fn.register_prehook(h),
}


@pytest.mark.parametrize("kind", HOOKS)
def test_a_hook_that_raises_does_not_end_the_process(kind, capfd):
    """PyTorch takes its error for none; it is shown, and values stay readable."""
    x = torch.ones(3).to("tarry").requires_grad_()
    y = x * 2

    def raising(_):
        raise ValueError("my own words")

    HOOKS[kind](x, y, raising)
    with pytest.raises((SystemError, ValueError)):
        (y * y).sum().backward()
    assert "my own words" in capfd.readouterr().err
    assert y.tolist() == [2.0] * 3 and (x.detach() + 1).tolist() == [2.0] * 3
