"""Every module of PyTorch's module database against the CPU, in training and in
evaluation. `make test` runs the first samples in float32, `make test-all` all of them,
and float64."""

import pytest
import torch

import modules
from entries import CAP, short
from known_gaps import REASONS

SAMPLES = 2  # of a module, in the sample


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "module_case" not in metafunc.fixturenames:
        return
    full = metafunc.config.getoption("--full")
    cases = [
        (mode, name, short(dtype))
        for dtype in modules.DTYPES[: 2 if full else 1]
        for mode in modules.KINDS
        for name in modules.names(dtype)
    ]
    metafunc.parametrize("module_case", cases, ids=["-".join(c) for c in cases])


def test_module(module_case: tuple, pytestconfig: pytest.Config) -> None:
    mode, name, dtype = module_case
    gap = REASONS.get(module_case)
    cap = CAP if gap or pytestconfig.getoption("--full") else SAMPLES
    record = modules.run_named(name, getattr(torch, dtype), mode, cap)
    if gap:
        assert not record.fine, f"a gap has closed, remove it: {gap}"
    else:
        assert record.fine, f"{record.status}: {record.message}"
