"""The pytest plugin, in a pytest of its own."""

import subprocess
import sys

TESTS = """
import pytest, sys

def test_that_has_nothing_to_do_with_it():
    assert "tarry" not in sys.modules

@pytest.mark.tarry(compiles=1, cuts=2)
def test_within():
    import torch, tarry
    x = torch.ones(2, device="tarry") + 1
    tarry.sync()

@pytest.mark.tarry(cuts=1)
def test_over():
    import torch, tarry
    x = torch.ones(2, device="tarry") + 1
    tarry.sync()
    (x * 2).sum().item()

@pytest.mark.tarry(no_host_reads=True)
def test_reads():
    import torch
    print(torch.ones(2, device="tarry"))

@pytest.mark.tarry(full_graph=True)
def test_is_one_program():
    import torch, tarry
    x = torch.ones(2, device="tarry") + 1
    tarry.sync()

def test_fixture(tarry_budget):
    import torch, tarry
    x = torch.ones(2, device="tarry") + 1
    with pytest.raises(tarry.errors.BudgetError), tarry_budget(cuts=0):
        tarry.sync()

def test_after_it_all():
    import torch
    assert (torch.ones(2, device="tarry") + 1).sum().item() == 4
"""


def test_marks_and_fixture(tmp_path):
    (tmp_path / "test_it.py").write_text(TESTS)
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-rf",
            "--strict-markers", "-o", "addopts=", "test_it.py",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert "3 failed, 4 passed" in done.stdout, done.stdout + done.stderr
    for words in (
        "FAILED test_it.py::test_over - tarry.errors.BudgetError: more cuts than the",
        "FAILED test_it.py::test_reads - tarry.errors.HostReadError: a value was read",
        "FAILED test_it.py::test_is_one_program - tarry.errors.ExecutionNotAllowedErr",
    ):
        assert words in done.stdout, done.stdout
