"""Spans in the traces of torch.profiler and of JAX; metrics saved per step."""

import gc
import gzip
import http.client
import ipaddress
import json
import os
import re
import socket
import subprocess
import sys

import pytest
import torch

import tarry
from harness import make
from tarry.debug import hlo, metrics, profiler
from tarry.errors import CaptureError, PortError
from tarry.experimental import assume_pure


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


def test_kernels_have_the_names_of_spans():
    @assume_pure
    def inner(x):
        with profiler.Trace("the tangent"):
            return x.tan()

    x = torch.linspace(0, 1, 19).to("tarry")
    with profiler.Trace("outer"), profiler.Trace("middle"):
        y = x.sinh()
    z = inner(y) + x.cosh()
    tarry.sync()
    assert z.shape == (19,)
    names = re.findall(r'op_name="([^"]*)"', hlo())
    kernels = {n.rpartition("/")[2]: n.split("/")[1:-1] for n in names}
    assert kernels["sinh"][:2] == ["outer", "middle"] and len(kernels["sinh"]) == 3
    assert kernels["tan"][1] == "the tangent" and "outer" not in kernels["tan"]
    assert len(kernels["cosh"]) == 1


def test_a_trace_on_demand(tmp_path):
    server = profiler.start_server(0)
    thread = profiler.capture_detached(
        f"localhost:{server.port}", str(tmp_path), duration_ms=1000
    )
    while thread.is_alive():
        work(17)
    (file,) = tmp_path.rglob("*.trace.json.gz")
    with gzip.open(file) as opened:
        names = {e.get("name") for e in json.load(opened)["traceEvents"]}
    assert {"tarry::cut", "tarry::run"} <= names
    busy = pytest.raises(CaptureError, match="Only one profile")
    with profiler.trace(str(tmp_path / "other")), busy:
        profiler.capture(f"localhost:{server.port}", str(tmp_path), 10, 1)
    assert profiler.start_server(server.port) is server
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        with pytest.raises(PortError, match=f"port {taken} "):
            profiler.start_server(taken)
    port = server.port
    del server  # and it listens no longer
    gc.collect()
    with pytest.raises(CaptureError, match=f"localhost:{port} .*refused"):
        profiler.capture(f"localhost:{port}", str(tmp_path), num_tracing_attempts=1)


def test_the_server_of_traces_answers_nothing_else():
    server = profiler.start_server(0)
    assert ipaddress.ip_address(server.host).is_loopback
    for path, headers, body, status in (
        ("/trace", {}, "{}", 404),  # as a browser would ask
        ("/other", {"X-Tarry-Profiler": "1"}, "{}", 404),
        ("/trace", {"X-Tarry-Profiler": "1"}, "no JSON", 400),
        ("/trace", {"X-Tarry-Profiler": "1"}, '{"duration_ms": -1}', 400),
        ("/trace", {"X-Tarry-Profiler": "1"}, '{"duration_ms": 1e12}', 400),
    ):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        connection.request("POST", path, body, headers)
        assert connection.getresponse().status == status


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
