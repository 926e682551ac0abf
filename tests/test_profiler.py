"""Spans in the traces of torch.profiler and of JAX; metrics saved per step."""

import gzip
import json
import os
import subprocess
import sys

import pytest
import torch

import tarry
from harness import make
from tarry.debug import metrics, profiler
from tarry.errors import UnsupportedError


def work(size: int) -> None:
    x = make(size, size).to("tarry")
    y = (x @ x).exp()
    tarry.sync()
    y.cpu()


def test_spans_in_torch_profiler():
    with torch.profiler.profile() as found, profiler.Trace("mine"):
        work(11)
    names = {e.name for e in found.events()}
    spans = {"mine", "tarry::cut", "tarry::compile", "tarry::transfer", "tarry::run"}
    assert spans | {"tarry::wait"} <= names


def test_spans_in_a_trace_of_jax(tmp_path):
    with profiler.trace(str(tmp_path)), profiler.StepTrace("train", step_num=3):
        work(13)
    (file,) = tmp_path.rglob("*.trace.json.gz")
    with gzip.open(file) as opened:
        names = {e.get("name") for e in json.load(opened)["traceEvents"]}
    assert {"train", "tarry::cut", "tarry::compile", "tarry::run"} <= names
    work(13)  # and no span is left behind


def test_no_server_that_others_can_reach():
    with pytest.raises(UnsupportedError, match="profiler server"):
        profiler.start_server(9012)


def test_samples_of_every_cut():
    x = make(4).to("tarry")
    tarry.sync()
    metrics.clear_metrics()
    y = x * 2.0 + 3.0
    tarry.sync()
    del y
    assert metrics.metric_data("InstructionsPerCut")[:2] == (1, 3)
    assert metrics.metric_data("ScalarInputs")[:2] == (1, 2)
    total, nanoseconds, _ = metrics.metric_data("RecordTimePerInstruction")
    assert total == 1 and 0 < nanoseconds < 1e9


SCRIPT = """
import torch, tarry
x = torch.ones(3, device="tarry")
for _ in range(3):
    x = x + 1
    tarry.sync()
x.sum().item()
"""


@pytest.mark.parametrize("variable", ["TARRY_METRICS_FILE", "XLA_METRICS_FILE"])
def test_metrics_are_saved_every_step(variable, tmp_path):
    file = tmp_path / "metrics.txt"
    done = run({variable: str(file)})
    assert done.returncode == 0, done.stderr
    text = file.read_text()
    heads = [line for line in text.splitlines() if line.startswith("[MetricsData")]
    assert heads == [f"[MetricsData; step={n}]" for n in (1, 2, 3)]
    assert text.count("Metric: CompileTime\n") == 3


def test_metrics_that_cannot_be_saved(tmp_path):
    done = run({"TARRY_METRICS_FILE": str(tmp_path)})
    assert done.returncode == 0
    assert done.stderr.count("metrics cannot be saved to") == 1


def test_metrics_to_stderr():
    assert run({"TARRY_METRICS_FILE": "STDERR"}).stderr.count("[MetricsData") == 3


def run(variables):
    return subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )
