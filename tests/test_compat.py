"""torch_xla's names on tarry's functions: the table, and scripts run through it."""

import os
import subprocess
import sys

import pytest
from torch import nn

from tarry.compat import modules, table
from tarry.compat.rows import Value

ROWS = [
    (module, name, row)
    for module, rows in table.MODULES.items()
    for name, row in rows.items()
    if not isinstance(row, Value) and not row.startswith("torch_xla.")
]


def test_every_row_is_there():
    for module, name, row in ROWS:
        assert modules.resolve(row) is not None, f"torch_xla.{module}.{name}: {row}"


def test_no_name_is_both_there_and_not():
    for module, names in table.NOT_YET.items():
        both = names.keys() & table.MODULES.get(module, {}).keys()
        assert not both, (module, both)
        assert set(names.values()) <= table.REASONS.keys()


def run(script: str, tmp_path, command=("-m", "tarry.compat"), **env: str):
    """The output of `script`, run as a script of torch_xla."""
    file = tmp_path / "script.py"
    file.write_text(script)
    done = subprocess.run(
        [sys.executable, *command, str(file), "one", "two"],
        capture_output=True, text=True, timeout=200, cwd=tmp_path,
        env={**os.environ, **env},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


TRAINING = """
import sys
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
import torch_xla.distributed.parallel_loader as pl
import torch_xla.utils.utils as xu
from torch_xla import runtime as xr
from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel as FSDP

assert "jax" not in sys.modules
assert sys.argv[1:] == ["one", "two"]
device = torch_xla.device()
assert device == torch.device("xla:0") and str(device) == "xla:0"
torch.manual_seed(0)
model = torch.nn.Linear(3, 2)
data = torch.randn(8, 3), torch.randint(2, (8,))


def train(model, device):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = xu.SampleGenerator(data, 4)
    if device == "xla":
        loader = pl.MpDeviceLoader(loader, device)
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        if device == "xla":
            xm.optimizer_step(optimizer)
        else:
            optimizer.step()
    return loss


import copy
want = train(copy.deepcopy(model), "cpu")
loss = train(model.to("xla"), "xla")
assert loss.is_xla and loss.device.type == "xla"
torch.testing.assert_close(loss.cpu(), want)
assert met.counter_value("UncachedCompile") <= 3
assert met.metric_data("CompileTime")[0] == met.counter_value("UncachedCompile")
assert xr.world_size() == 1 and xm.is_master_ordinal() and xr.device_type() == "CPU"
assert not isinstance(model, FSDP)
try:
    FSDP(model)
except RuntimeError as error:
    print("refused:", error)
xm.save(model.state_dict(), "model.pt")
print(sorted(torch.load("model.pt")))
"""


def test_a_script_of_torch_xla_runs(tmp_path):
    done = run(TRAINING, tmp_path)
    assert "fsdp.XlaFullyShardedDataParallel is not supported on tarry" in done.stdout
    assert f"{tmp_path / 'script.py'}:" in done.stdout
    assert "['bias', 'weight']" in done.stdout


DEBUG = """
import torch, torch_xla
x = torch.randn(2, 2, device="xla")
torch_xla.sync()
f = torch_xla.compile(lambda t: t + t, name="double")
f(x + 1)
print(x)
"""


def test_the_command_runs_it_too_with_blocks_as_torch_xla_prints_them(tmp_path):
    command = "-m", "tarry", "run", "--as-torch-xla"
    done = run(DEBUG, tmp_path, command, PT_XLA_DEBUG_LEVEL="2")
    assert "device='xla:0'" in done.stdout
    blocks = done.stderr
    for prefix, cause in (
        ("Compilation", "user torch_xla.sync"),
        ("Execution", "user torch_xla.sync"),
        ("Compilation", "torch_xla.compile clear the pending graph prior calling"),
        ("Execution", "torch_xla.compile\n"),
    ):
        assert (
            f"{prefix} Analysis: {prefix} Cause\n{prefix} Analysis:   {cause}" in blocks
        )
    assert "Graph Name: double_clear_pending" in blocks
    assert "  Number of Graph Inputs: 1\n" in blocks
    assert f"({tmp_path / 'script.py'}:4)" in blocks
    assert "Post Compilation Analysis: Graph input size: 0.0000" in blocks


def test_a_real_torch_xla_is_not_replaced_unasked(tmp_path):
    (tmp_path / "torch_xla-9.9.dist-info").mkdir()
    (tmp_path / "torch_xla-9.9.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: torch_xla\nVersion: 9.9\n"
    )
    code = """
import tarry.compat
try:
    tarry.compat.install()
except RuntimeError as error:
    print(error)
tarry.compat.install(force=True)
import torch_xla
print(torch_xla.device())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert "torch_xla 9.9 is installed" in done.stdout, done.stderr
    assert done.stdout.endswith("tarry:0\n")
    assert "the string 'xla' is no device" in done.stderr


def test_nothing_is_there_before_it_is_asked_for():
    code = "import tarry, importlib.util as u; print(u.find_spec('torch_xla'))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100
    )
    assert done.stdout == "None\n", done.stderr


def test_names_that_are_not_there_say_why():
    mesh = modules.refused("torch_xla.distributed.spmd", "Mesh", "one device")
    assert not isinstance(nn.Linear(1, 1), mesh)
    for use in (lambda: mesh(1), lambda: mesh.from_str("x")):
        with pytest.raises(RuntimeError, match=r"spmd\.Mesh is not supported.*one dev"):
            use()
