"""Traces on demand: a server in the program that runs, a client in another process.

In: how long to trace. Out: JAX's trace of that time, as files in the client's folder.
The server listens on the loopback interface only (JAX's own, which listens on all,
speaks another protocol), writes to no path that a client names, and answers only
requests that carry a header, which no page in a browser can send unasked.
"""

import http.client
import io
import json
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary, finalize

from tarry.errors import CaptureError, PortError
from tarry.ledger import ledger
from tarry.lower.xla import jax

LOOPBACK = "127.0.0.1"
HEADER = "X-Tarry-Profiler"
LONGEST_MS = 3_600_000


@contextmanager
def tracing(log_dir: str, options: Any = None) -> Iterator[None]:
    """JAX's trace of a block, with tarry's own spans in it, into `log_dir`; `options`
    are JAX's."""
    with jax.profiler.trace(log_dir, profiler_options=options):
        outer = ledger.span

        @contextmanager
        def both(name: str) -> Iterator[None]:
            with jax.profiler.TraceAnnotation(name), outer(name):
                yield

        ledger.span = both
        try:
            yield
        finally:
            ledger.span = outer


class _Handler(BaseHTTPRequestHandler):
    """POST /trace with {"duration_ms": …, "delay_ms": …}: a zip of the files."""

    def do_POST(self) -> None:
        if self.path != "/trace" or self.headers.get(HEADER) is None:
            self.send_error(404)
            return
        try:
            size = min(int(self.headers.get("Content-Length", 0)), 4096)
            asked = json.loads(self.rfile.read(size))
            waits = [_seconds(asked.get(k, 0)) for k in ("delay_ms", "duration_ms")]
        except (ValueError, TypeError, AttributeError) as error:
            self._answer(400, "text/plain", f"{type(error).__name__}: {error}".encode())
            return
        try:
            self._answer(200, "application/zip", _traced(*waits))
        except RuntimeError as error:  # JAX's, where a trace is being made
            self._answer(409, "text/plain", str(error).encode())

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed into the program's output."""


def _seconds(milliseconds: Any) -> float:
    if not 0 <= float(milliseconds) <= LONGEST_MS:
        raise ValueError(f"{milliseconds} ms is not within 0 and {LONGEST_MS} ms")
    return float(milliseconds) / 1e3


def _traced(delay: float, duration: float) -> bytes:
    time.sleep(delay)
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # every call of a function: slow, and too many
    with tempfile.TemporaryDirectory() as folder:
        with tracing(folder, options):
            time.sleep(duration)
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as out:
            for file in sorted(Path(folder).rglob("*")):
                if file.is_file():
                    out.write(file, file.relative_to(folder))
    return packed.getvalue()


class ProfilerServer:
    """Listens on `port` until it is closed, or nothing refers to it any more."""

    def __init__(self, port: int) -> None:
        try:
            server = ThreadingHTTPServer((LOOPBACK, port), _Handler)
        except (OSError, OverflowError) as error:
            raise PortError(port, str(error)) from error
        server.daemon_threads = True
        self.host = str(server.server_address[0])
        self.port: int = server.server_address[1]
        thread = threading.Thread(
            target=server.serve_forever, args=(0.1,), name="tarry-profiler", daemon=True
        )
        thread.start()
        self.close = finalize(self, _shut, server)


_serving: WeakValueDictionary[int, ProfilerServer] = WeakValueDictionary()


def _shut(server: ThreadingHTTPServer) -> None:
    server.shutdown()
    server.server_close()


def start_server(port: int, only_on_master: bool = True) -> ProfilerServer:
    """Serve traces of this process to `capture` on `port` of the loopback interface;
    0 chooses a free one. The server of that port, where this process has it already.
    `only_on_master` is torch_xla's; one process is the master.

    Raises PortError, a RuntimeError, if the port is invalid or busy.
    """
    found = _serving.get(port)
    if found is None or not found.close.alive:
        found = ProfilerServer(port)
        _serving[found.port] = found
    return found


def capture(
    service_addr: str,
    logdir: str,
    duration_ms: int = 1000,
    num_tracing_attempts: int = 3,
    host_tracer_level: int = 2,
    device_tracer_level: int = 1,
    delay_ms: int = 0,
    timeout_s: int = 120,
    interval_s: int = 5,
) -> None:
    """Trace the process that serves at `service_addr` ("localhost:9012") for
    `duration_ms`, into `logdir`, which TensorBoard and Perfetto read. Blocks until
    then. The order is torch_xla's, and so are the levels, which JAX chooses itself.

    Raises CaptureError, a RuntimeError, if nothing answers after so many attempts, or
    if that process makes a trace already.
    """
    host, _, port = service_addr.rpartition(":")
    body = json.dumps({"duration_ms": duration_ms, "delay_ms": delay_ms})
    patience = timeout_s + (duration_ms + delay_ms) / 1e3
    for attempt in range(max(num_tracing_attempts, 1)):
        if attempt:
            time.sleep(interval_s)
        try:
            connection = http.client.HTTPConnection(host, int(port), timeout=patience)
            connection.request("POST", "/trace", body, {HEADER: "1"})
            answer = connection.getresponse()
            found = answer.read()
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = f"{type(error).__name__}: {error}"
            continue
        if answer.status == 200:
            with zipfile.ZipFile(io.BytesIO(found)) as files:
                files.extractall(logdir)
            return
        reason = found.decode(errors="replace")[:500]
    raise CaptureError(service_addr, reason)


def capture_detached(*args: Any, **kwargs: Any) -> threading.Thread:
    """`capture` on a thread of its own, which is returned."""
    thread = threading.Thread(target=capture, args=args, kwargs=kwargs)
    thread.start()
    return thread
