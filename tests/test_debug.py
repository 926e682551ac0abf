"""Programs as text, live tensors, and records of what happened."""

import re
import sys

import pytest
import torch

import tarry
from harness import make
from tarry import debug
from tarry.cut.sync import store
from tarry.record.trie import recorder


@pytest.fixture(autouse=True)
def fresh():
    tarry.sync()
    store.clear()
    recorder.restart(0)


def line_before() -> str:
    return f"{__file__}:{sys._getframe(1).f_lineno - 1}"


def test_text_of_a_program():
    x = make(3, 4).to("tarry")
    y = (x * 2.5).sum(0)
    line = line_before()
    tarry.sync()
    del y
    assert debug.text() == (
        "2 operations, 1 input, 1 output\n"
        "  %0 = input f32[3,4]\n"
        f"  %1 = aten::mul.Tensor(%0, <f>) f32[3,4]  # {line}\n"
        f"  %2 = aten::sum.dim_IntList(%1, (0,), False, None) f32[4]  # {line}\n"
        "  return %2\n"
    )
    assert debug.text(debug.programs()[-1].program) == debug.text()


def test_names_and_donation_in_the_text():
    model = torch.nn.Linear(4, 2).to("tarry")
    tarry.sync()
    with torch.no_grad():
        model.bias.mul_(2)
    tarry.sync()
    assert "  %0 = input f32[2] `Linear.bias` donated\n" in debug.text()


def test_text_of_pending_tensors():
    x = make(3).to("tarry")
    y, z = x.sin(), x.cos()
    found = debug.text([y])
    assert "aten::sin" in found and "aten::cos" not in found
    assert "aten::cos" in debug.text(z)
    with pytest.raises(ValueError, match="nothing is pending"):
        debug.text(x)


def test_dot():
    x = make(3).to("tarry")
    y = x.sin() + x
    tarry.sync()
    del y
    found = debug.dot()
    assert found.startswith("digraph tarry {\n") and found.endswith("}\n")
    assert re.search(r'n0 \[label="input\\nf32\[3\]", shape=box\];', found)
    assert "  n0 -> n1;\n" in found and "  n1 -> n2;\n" in found
    assert re.search(r"n2 .*peripheries=2", found)


def test_stablehlo_and_hlo_name_the_line():
    x = make(3, 3).to("tarry")
    y = torch.tanh(x @ x)
    line = line_before().rpartition("/")[2]
    tarry.sync()
    del y
    assert "stablehlo.dot_general" in debug.stablehlo()
    assert "stablehlo.tanh" in debug.stablehlo()
    found = debug.hlo()
    assert "HloModule jit_tarry_" in found and f"{line}/tanh" in found
    store.clear()
    with pytest.raises(ValueError, match="evicted"):
        debug.hlo()


def test_no_such_program():
    with pytest.raises(ValueError, match=r"no program 999999 was compiled"):
        debug.text(999_999)


def test_live_tensors_by_line():
    before = {e.line: e.tensors for e in debug.live_tensors()}
    a = torch.zeros(100, device="tarry")
    first = line_before()
    b = make(50).to("tarry")
    second = line_before()
    c = [b * i for i in range(1, 4)]
    third = line_before()
    dead = a + 1
    fourth = line_before()
    del dead
    found = {e.line: e for e in debug.live_tensors()}
    assert first not in before
    assert (found[first].tensors, found[first].bytes) == (1, 400)
    assert (found[second].tensors, found[second].states) == (1, {"HOST": 1})
    assert (found[third].tensors, found[third].states) == (3, {"IR": 3})
    assert fourth not in found
    tarry.sync()
    found = {e.line: e for e in debug.live_tensors()}
    assert found[third].states == {"DEVICE": 3} and found[third].bytes == 600
    del c
    assert third not in {e.line for e in debug.live_tensors()}
