"""The step tools under torch_xla's names: options, precision, random state, memory."""

import subprocess
import sys

import pytest
import torch

import tarry
from harness import compiles, cuts
from tarry.debug import metrics
from tarry.dispatch.storage import slot_of
from tarry.ledger import ledger


def test_mark_step_is_sync():
    x = torch.ones(2).to("tarry") + 1
    before = metrics.counter_value("MarkStep") or 0
    with cuts(1):
        tarry.mark_step()
    assert metrics.counter_value("MarkStep") == before + 1
    assert x.tolist() == [2.0, 2.0]


def test_optimizer_step():
    weight = torch.nn.Parameter(torch.ones(2, device="tarry"))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    weight.grad = torch.ones_like(weight)
    assert tarry.optimizer_step(optimizer) is None
    with cuts(1):
        got = tarry.optimizer_step(
            optimizer, barrier=True, optimizer_args={"closure": lambda: 3.0}
        )
    assert got == 3.0
    assert weight.tolist() == [0.0, 0.0]


def test_compile_options_are_part_of_the_key():
    x = torch.ones(5).to("tarry")
    try:
        for options, programs in (({}, 1), ({"xla_cpu_enable_fast_math": False}, 1)):
            tarry.set_custom_compile_options(options)
            for expected in (programs, 0):
                with compiles(expected):
                    y = x * 3 - 11
                    tarry.sync()
                assert y.tolist() == [-8.0] * 5
        assert "xla_cpu_enable_fast_math=False" in ledger.compiles[-1].options
        tarry.set_custom_compile_options({})
        with compiles(0):
            y = x * 3 - 11
            tarry.sync()
    finally:
        tarry.set_custom_compile_options({})


def test_precision_of_products():
    before = torch.get_float32_matmul_precision()
    try:
        for word in ("default", "high", "highest"):
            tarry.set_mat_mul_precision(word)
            assert tarry.get_mat_mul_precision() == word
        with pytest.raises(ValueError, match="'default', 'high', 'highest'; got 'low'"):
            tarry.set_mat_mul_precision("low")
        assert tarry.get_mat_mul_precision() == "highest"
    finally:
        torch.set_float32_matmul_precision(before)


def test_random_state_is_a_number():
    tarry.set_rng_state(2**63 + 5)
    assert tarry.get_rng_state() == 2**63 + 5
    with cuts(0):
        first = torch.rand(3, device="tarry")
        state = tarry.get_rng_state()
    assert state != 2**63 + 5
    second = torch.rand(3, device="tarry")
    tarry.sync()
    tarry.set_rng_state(state)
    assert torch.rand(3, device="tarry").tolist() == second.tolist() != first.tolist()
    tarry.set_rng_state(2**63 + 5)
    assert torch.rand(3, device="tarry").tolist() == first.tolist()
    tarry.set_rng_state(-1)
    assert tarry.get_rng_state() == 2**64 - 1


def test_fork_of_the_random_state():
    tarry.set_rng_state(7)
    wanted = torch.rand(3, device="tarry").tolist()
    tarry.set_rng_state(7)
    with tarry.fork_rng():
        tarry.set_rng_state(11)
        torch.rand(3, device="tarry")
    assert torch.rand(3, device="tarry").tolist() == wanted
    tarry.set_rng_state(7)
    with tarry.fork_rng(enabled=False):
        torch.rand(3, device="tarry")
    assert torch.rand(3, device="tarry").tolist() != wanted


def test_memory_counts_live_buffers():
    before = tarry.get_memory_info()
    x = torch.ones(1000, 1000).to("tarry") + 1
    tarry.sync(wait=True)
    during = tarry.get_memory_info()
    assert during["bytes_used"] - before["bytes_used"] >= 4_000_000
    assert during["bytes_limit"] > during["bytes_used"]
    del x
    after = tarry.get_memory_info()
    assert after["bytes_used"] <= during["bytes_used"] - 4_000_000
    assert after["peak_bytes_used"] >= during["bytes_used"]


def test_waiting_cuts_nothing():
    x = torch.ones(3).to("tarry") + 1
    with cuts(0):
        tarry.wait_device_ops()
    assert x.tolist() == [2.0] * 3


def long_work(x):
    for _ in range(40):
        x = (x @ x).tanh()
    return x


def test_waiting_although_the_last_result_is_gone():
    y = long_work(torch.ones(700, 700).to("tarry"))
    tarry.sync()
    z = torch.ones(3).to("tarry") + 1
    tarry.sync()
    del z
    tarry.wait_device_ops()
    assert slot_of(y).data.is_ready()


SCRIPT = """
import torch
import tarry

def main():
    x = torch.ones(1500, 1500).to("tarry")
    for _ in range(60):
        x = (x @ x).tanh()
    tarry.sync()

main()
"""


def test_a_process_ends_after_its_programs():
    """One that still ran while the libraries were torn down crashed it."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
