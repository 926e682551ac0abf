"""PyTorch's operator database on tarry: one entry and one way of calling it become a
`Record`, by comparing every sample with the CPU.

`run_entry` records all samples of an entry, cuts once and then compares; only where
that fails are the samples run one by one. `python databases/opdb.py --report` runs the
database in two worker processes, which may crash, prints the counts and writes
`docs/operators.md`; `--only NAME …` runs some entries and prints their records.
"""

import argparse
import json
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import asdict, dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

import tarry
from harness import DEVICE, TOLERANCE, make, sliced, transposed
from ops_gaps import LOOSE, REASONS, VIA_CPU
from tarry.cut.cause import Cause
from tarry.ledger import ledger

# Ways of calling an entry. `reference`: PyTorch's own extended samples, among them
# NaN, ±inf, extremal integers and empty tensors; `transposed` and `sliced`: inputs are
# such views of something larger; `errors`: calls that PyTorch refuses.
KINDS = [
    "forward", "grad", "gradgrad", "inplace", "out", "transposed", "sliced",
    "reference", "errors",
]  # fmt: skip
GRADS = ("grad", "gradgrad")
DTYPES = [
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64,
    torch.int32, torch.uint8, torch.bool, torch.complex64,
]  # fmt: skip

# At most so many samples of an entry, spread over the first `LISTED` that it yields:
# convolutions, pools and interpolations yield hundreds that differ in one argument.
CAP = 24
LISTED = 400


def spell(op: Any) -> str:
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


ENTRIES = {spell(op): op for op in op_db}

# Results are random or uninitialised: shape, dtype and strides are compared.
UNDEFINED = {
    "bernoulli", "cauchy", "empty", "empty_like", "empty_permuted", "empty_strided",
    "exponential", "geometric", "log_normal", "multinomial", "new_empty",
    "new_empty_strided", "nn.functional.alpha_dropout", "nn.functional.dropout",
    "nn.functional.dropout2d", "nn.functional.dropout3d",
    "nn.functional.feature_alpha_dropout.with_train",
    "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d",
    "nn.functional.rrelu", "normal", "normal.in_place", "normal.number_mean",
    "rand_like", "randint", "randint_like", "randn", "randn_like", "resize_",
    "resize_as_", "svd_lowrank", "uniform",
}  # fmt: skip

# Results are unique up to signs, phases or a rotation of a subspace: what is compared
# is what the entry's `output_process_fn_grad` makes of them.
AMBIGUOUS = {
    "geqrf", "linalg.eig", "linalg.eigh", "linalg.qr", "linalg.svd", "pca_lowrank",
    "qr", "svd",
}  # fmt: skip

# Where values are equal, which of their indices comes first is the kernel's choice.
TIED = {"argsort", "kthvalue", "median", "mode", "msort", "nanmedian", "sort", "topk"}

# Arguments after the first that PyTorch wants on the CPU, whatever the device.
ON_HOST = {"tensor_split"}


@dataclass(slots=True)
class Record:
    """What came of one entry in one dtype and one way of calling it.

    `status`: "right"; "strides" (right but for strides, offset or aliasing); "wrong";
    "error" (tarry raised); "late" (the right error, but at the cut or in other words);
    "timeout"; "crash"; "none" (PyTorch's CPU takes no sample).
    """

    name: str
    dtype: str
    kind: str
    status: str = "none"
    samples: int = 0
    right: int = 0
    fallbacks: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    message: str = ""
    seconds: float = 0.0

    @property
    def native(self) -> bool:
        return not self.fallbacks

    @property
    def fine(self) -> bool:
        return self.status in ("right", "none")


class Timeout(BaseException):
    pass


@contextmanager
def deadline(seconds: int | None) -> Iterator[None]:
    """Raise Timeout in the block after so many seconds of CPU (None: never)."""
    if seconds is None:
        yield
        return

    def ring(*_: Any) -> None:
        raise Timeout

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def takes(op: Any, dtype: torch.dtype, kind: str) -> bool:
    """Whether PyTorch's CPU has this entry in this dtype and way of calling it."""
    if kind == "errors":
        return op.error_inputs_func is not None and dtype is torch.float32
    if not op.supports_dtype(dtype, "cpu"):
        return False
    if kind in GRADS:
        supports = op.supports_autograd if kind == "grad" else op.supports_gradgrad
        undefined = spell(op) in UNDEFINED
        return bool(
            supports and not undefined and dtype in op.supported_backward_dtypes("cpu")
        )
    if kind == "inplace":
        return op.inplace_variant is not None
    if kind == "out":
        return bool(op.supports_out)
    if kind == "reference":
        return op.reference_inputs_func is not None
    return True


def samples_of(op: Any, dtype: torch.dtype, kind: str, cap: int = CAP) -> list[Any]:
    """At most `cap` samples of the entry, spread over all; CPU tensors."""
    torch.manual_seed(0)
    if kind == "errors":
        return list(op.error_inputs("cpu"))
    grad = kind in GRADS
    source = op.reference_inputs if kind == "reference" else op.sample_inputs
    every = list(islice(source("cpu", dtype, requires_grad=grad), LISTED))
    if len(every) <= cap:
        return every
    if cap == 1:
        return every[:1]
    step = (len(every) - 1) / (cap - 1)
    return [every[round(i * step)] for i in range(cap)]


class Copies:
    """Copies of CPU values on `device`; tensors that share memory go on sharing it."""

    def __init__(self, device: str, layout: Callable | None = None) -> None:
        self.device, self.layout = device, layout
        self.memory: dict[int, torch.Tensor] = {}
        self.known: dict[int, torch.Tensor] = {}
        self.leaves: list[torch.Tensor] = []

    def __call__(self, value: Any) -> Any:
        return tree_map(self.one, value)

    def one(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, torch.device) and value.type == "cpu":
            return torch.device(self.device)
        return self.device if isinstance(value, str) and value == "cpu" else value

    def tensor(self, t: torch.Tensor) -> torch.Tensor:
        if id(t) in self.known:
            return self.known[id(t)]
        made = self.known[id(t)] = self.fresh(t.detach())
        if t.requires_grad:
            made = self.known[id(t)] = made.detach().requires_grad_()
            self.leaves.append(made)
        return made

    def fresh(self, t: torch.Tensor) -> torch.Tensor:
        if t.layout is not torch.strided:
            return t.clone() if self.device == "cpu" else t.to(self.device)
        if t.is_conj():
            return self.fresh(t.conj()).conj()
        if t.is_neg():
            return torch._neg_view(self.fresh(torch._neg_view(t)))
        if self.layout is not None:
            laid = self.layout(t, self.device)
            if laid is not None:
                return laid
        storage = t.untyped_storage()
        if storage.nbytes() == t.numel() * t.element_size():
            return t.clone() if self.device == "cpu" else t.to(self.device)
        key = storage.data_ptr()
        if key not in self.memory:
            flat = torch.empty(0, dtype=t.dtype).set_(
                storage, 0, (storage.nbytes() // t.element_size(),), (1,)
            )
            self.memory[key] = flat.clone().to(self.device)
        return self.memory[key].as_strided(t.shape, t.stride(), t.storage_offset())


LAYOUTS = {"transposed": transposed, "sliced": sliced}


def perform(op: Any, sample: Any, kind: str, device: str) -> Any:
    """The result of one call on `device`, with all that is to be compared."""
    torch.manual_seed(0)
    copies = Copies(device, LAYOUTS.get(kind))
    first = copies(sample.input)
    if op.name in ON_HOST:
        args, kwargs = Copies("cpu")(sample.args), Copies("cpu")(sample.kwargs)
    else:
        args, kwargs = copies(sample.args), copies(sample.kwargs)
    if kind == "inplace":
        result = op.inplace_variant(first, *args, **kwargs)
        return [result, first, result is first]
    if kind == "out":
        return _with_out(op, sample, (first, *args), kwargs, device)
    result = op(first, *args, **kwargs)
    if kind in GRADS:
        processed = sample.output_process_fn_grad or (lambda out: out)
        return _gradients(processed(result), copies.leaves, kind == "gradgrad")
    if spell(op) in AMBIGUOUS and sample.output_process_fn_grad is not None:
        return sample.output_process_fn_grad(result)
    return result


def _with_out(op: Any, sample: Any, args: tuple, kwargs: dict, device: str) -> Any:
    """Into a fitting `out`, and into one whose last two dimensions are swapped."""
    host = Copies("cpu")
    plain = op(host(sample.input), *host(sample.args), **host(sample.kwargs))
    process = sample.output_process_fn_grad if spell(op) in AMBIGUOUS else None
    found = []
    for swapped in (False, True):

        def target(t: torch.Tensor, swapped: bool = swapped) -> torch.Tensor:
            if swapped and t.dim() > 1:
                return torch.zeros(t.mT.shape, dtype=t.dtype).to(device).mT
            return torch.zeros(t.shape, dtype=t.dtype).to(device)

        outs = tree_map(target, plain)
        result = op(*args, **kwargs, out=outs)
        pairs = zip(tree_leaves(result), tree_leaves(outs))
        found.append(all(r is o for r, o in pairs))
        found += tree_leaves(process(outs) if process else outs)
    return found


def _gradients(result: Any, leaves: list, twice: bool) -> Any:
    outs = [
        t
        for t in tree_leaves(result)
        if isinstance(t, torch.Tensor) and t.requires_grad
    ]
    if not outs or not leaves:
        raise NotImplementedError("nothing to differentiate")
    seeds = [make(*t.shape, dtype=t.dtype, seed=5).to(t.device) for t in outs]
    first = torch.autograd.grad(
        outs, leaves, seeds, allow_unused=True, create_graph=twice
    )
    if not twice:
        return list(first)
    onward = [g for g in first if g is not None and g.requires_grad]
    if not onward:
        return [g if g is None else g.detach() for g in first]
    seeds = [make(*t.shape, dtype=t.dtype, seed=6).to(t.device) for t in onward]
    return list(torch.autograd.grad(onward, leaves, seeds, allow_unused=True))


def is_random(op: Any, sample: Any) -> bool:
    if spell(op) in UNDEFINED:
        return True
    args, kwargs = sample.args, sample.kwargs
    if op.name == "nn.functional.multi_head_attention_forward":
        return args[9] > 0 and kwargs.get("training", True)
    return (kwargs.get("dropout_p") or 0) > 0


class Different(Exception):
    """A result is not the CPU's; `geometry`: only its strides or aliasing are not."""

    def __init__(self, message: str, geometry: bool = False) -> None:
        super().__init__(message)
        self.geometry = geometry


def compare(want: Any, got: Any, values: bool, loose: Any, places: bool = True) -> None:
    """Raise Different unless `got`, on tarry, is `want`.

    `values`: compare values, too; `loose`: (rtol, atol) instead of the usual ones;
    `places`: compare device, strides, offset and whether it is a view.
    """
    wants, gots = tree_leaves(want), tree_leaves(got)
    if len(wants) != len(gots):
        raise Different(f"{len(gots)} results, want {len(wants)}")
    geometry = ""
    for i, (w, g) in enumerate(zip(wants, gots)):
        where = f"result {i}: " if len(wants) > 1 else ""
        if isinstance(w, torch.Tensor):
            _compare_tensors(w, g, values, loose, where)
            if places and not geometry:
                geometry = _geometry(w, g, where)
        elif type(w) is not type(g):
            raise Different(f"{where}{g!r}, want {w!r}")
        elif values and isinstance(w, int | float | complex):
            _compare_tensors(torch.tensor(w), torch.tensor(g), True, loose, where)
    if geometry:
        raise Different(geometry, geometry=True)


def _compare_tensors(
    w: torch.Tensor, g: Any, values: bool, loose: Any, where: str
) -> None:
    if not isinstance(g, torch.Tensor):
        raise Different(f"{where}{type(g).__name__}, want a tensor")
    if w.layout is not torch.strided:
        raise Different(f"{where}a tensor of layout {w.layout} to compare with")
    for what in ("dtype", "shape"):
        ours, theirs = getattr(g, what), getattr(w, what)
        if ours != theirs:
            raise Different(f"{where}{what} {ours}, want {theirs}")
    if not values:
        return
    w = w.detach().resolve_conj().resolve_neg()
    g = g.detach().cpu().resolve_conj().resolve_neg()
    exact = not (w.is_floating_point() or w.is_complex())
    rtol, atol = (0, 0) if exact else loose or TOLERANCE[w.dtype]
    if not exact:
        atol = atol + 8 * torch.finfo(w.dtype).eps * _scale(w)
    try:
        torch.testing.assert_close(
            g, w, rtol=rtol, atol=atol, equal_nan=True, check_stride=False
        )
    except AssertionError as error:
        text = " ".join(str(error).split())
        raise Different(f"{where}{text[:220]}") from None


def _scale(w: torch.Tensor) -> float:
    """The largest finite magnitude: cancellation leaves errors in proportion to it."""
    size = w.abs().to(torch.float64)
    size = size[size.isfinite()]
    return float(size.max()) if size.numel() else 0.0


def _geometry(w: torch.Tensor, g: torch.Tensor, where: str) -> str:
    if g.device.type != DEVICE:
        return f"{where}on {g.device}"
    if w.numel() > 0:
        pairs = [(a, b) for a, b, n in zip(g.stride(), w.stride(), w.shape) if n > 1]
        if any(a != b for a, b in pairs):
            return f"{where}strides {g.stride()}, want {w.stride()}"
    if w._is_view() and not g._is_view():
        return f"{where}not a view"
    if w._is_view() and w.numel() and w.storage_offset() != g.storage_offset():
        return f"{where}offset {g.storage_offset()}, want {w.storage_offset()}"
    return ""


def _count_fallbacks() -> dict[str, int]:
    return {k: n for k, n in ledger.counters.items() if k.startswith("aten::")}


def _count_reads() -> dict[tuple, int]:
    return {k[:2]: n for k, n in ledger.cut_totals.items() if k[0] not in OWN_CUTS}


# Causes of cuts that the harness makes itself, or that `fallbacks` lists already.
OWN_CUTS = {Cause.SYNC.value, Cause.FALLBACK.value, Cause.HOST.value}


def run_entry(
    op: Any,
    dtype: torch.dtype,
    samples: list[Any],
    kind: str = "forward",
    limit: int | None = None,
) -> Record:
    """Run `samples` on the CPU and on tarry and compare; never raises."""
    record = Record(spell(op), short(dtype), kind)
    started = time.perf_counter()
    fallbacks = _count_fallbacks()
    try:
        with warnings.catch_warnings(), deadline(limit):
            warnings.simplefilter("ignore")
            if kind == "errors":
                _run_errors(op, samples, record)
            else:
                _run_samples(op, samples, kind, record)
    except Timeout:
        record.status, record.message = "timeout", f"more than {limit} s of CPU"
    record.fallbacks = sorted(
        k for k, n in _count_fallbacks().items() if n > fallbacks.get(k, 0)
    )
    record.seconds = round(time.perf_counter() - started, 2)
    _clear()
    return record


def _clear() -> None:
    try:
        tarry.sync()
    except Exception:
        tarry.sync()


def _run_samples(op: Any, samples: list, kind: str, record: Record) -> None:
    wanted = []
    for sample in samples:
        try:
            wanted.append((sample, perform(op, sample, kind, "cpu")))
        except Exception:  # PyTorch's CPU does not take it
            continue
    if not wanted:
        return
    record.samples = len(wanted)
    if _all_at_once(op, wanted, kind, record):
        record.status, record.right = "right", len(wanted)
        return
    _one_by_one(op, wanted, kind, record)


def _check(op: Any, sample: Any, kind: str, want: Any, got: Any) -> None:
    values = not is_random(op, sample)
    loose = LOOSE.get(spell(op), {}).get(kind)
    places = kind not in GRADS and _has_tensor(sample)
    if kind not in GRADS and op.name in TIED and _has_ties(sample):
        want, got = _without_index(want, kind), _without_index(got, kind)
    try:
        compare(want, got, values, loose, places)
    except Different as different:
        if different.geometry or not values:
            raise
        compare(want, got, False, None, places)
        if not _as_near(op, sample, kind, want, got):
            raise different from None


def _has_ties(sample: Any) -> bool:
    numbers = sample.input.detach()
    return numbers.unique().numel() < numbers.numel() and not sample.kwargs.get(
        "stable"
    )


def _without_index(result: Any, kind: str) -> list[Any]:
    """The results with zeros in place of each last one, the index, if it is int64."""
    leaves = tree_leaves(result)
    ends = [len(leaves) // 2 - 1, len(leaves) - 1] if kind == "out" else [-1]
    for at in ends:
        if isinstance(leaves[at], torch.Tensor) and leaves[at].dtype is torch.int64:
            leaves[at] = torch.zeros_like(leaves[at])
    return leaves


WIDER = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}


def _widened(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return WIDER.get(value, value)
    if isinstance(value, torch.Tensor) and value.dtype in WIDER:
        wide = value.detach().to(WIDER[value.dtype])
        return wide.requires_grad_(value.requires_grad)
    return value


def _as_near(op: Any, sample: Any, kind: str, want: Any, got: Any) -> bool:
    """Whether tarry is about as near to the result in double precision as the CPU is.

    What is ill-conditioned (a gradient of eigenvectors that nearly coincide) differs
    between any two correct implementations.
    """
    wide = copy(sample)
    for part in ("input", "args", "kwargs"):
        setattr(wide, part, tree_map(_widened, getattr(sample, part)))
    try:
        exact = perform(op, wide, kind, "cpu")
    except Exception:
        return False
    rows = list(zip(tree_leaves(exact), tree_leaves(want), tree_leaves(got)))
    tensors = [r for r in rows if all(isinstance(t, torch.Tensor) for t in r)]
    return bool(tensors) and all(_nearer(e, w, g.cpu()) for e, w, g in tensors)


def _nearer(exact: torch.Tensor, want: torch.Tensor, got: torch.Tensor) -> bool:
    if want.dtype not in WIDER or exact.shape != want.shape:
        return torch.equal(want, got)
    if not torch.equal(want.isfinite(), got.isfinite()):
        return False
    theirs, ours = (
        (t.detach().to(exact.dtype) - exact).abs().nan_to_num(0, 0, 0)
        for t in (want, got)
    )
    slack = 8 * torch.finfo(want.dtype).eps * _scale(exact)
    return (
        bool((ours.max() <= 4 * theirs.max() + slack).item()) if ours.numel() else True
    )


def _has_tensor(sample: Any) -> bool:
    """Whether the call names the device at all: by a tensor or by itself."""
    values = tree_leaves((sample.input, sample.args, sample.kwargs))
    return any(isinstance(v, torch.Tensor) or str(v) == "cpu" for v in values)


def _all_at_once(op: Any, wanted: list, kind: str, record: Record) -> bool:
    before = _count_reads()
    try:
        gots = [perform(op, s, kind, DEVICE) for s, _ in wanted]
        now = _count_reads()
        tarry.sync()
        for (sample, want), got in zip(wanted, gots):
            _check(op, sample, kind, want, got)
    except Exception:
        _clear()
        return False
    record.reads = sorted(
        " ".join(k).strip() for k, n in now.items() if n > before.get(k, 0)
    )
    return True


WORST = ["right", "strides", "error", "wrong"]


def _one_by_one(op: Any, wanted: list, kind: str, record: Record) -> None:
    record.status = "right"
    for i, (sample, want) in enumerate(wanted):
        try:
            got = perform(op, sample, kind, DEVICE)
            tarry.sync()
            _check(op, sample, kind, want, got)
        except Different as error:
            status, message = "strides" if error.geometry else "wrong", str(error)
        except Exception as error:
            status, message = "error", f"{type(error).__name__}: {str(error)[:260]}"
            _clear()
        else:
            record.right += 1
            continue
        if WORST.index(status) > WORST.index(record.status):
            record.status, record.message = status, f"sample {i}: {message}"


def _error_of(op: Any, sample: Any, device: str) -> Exception | None:
    try:
        perform(op, sample, "forward", device)
        if device == DEVICE:
            tarry.sync()
    except Exception as error:
        return error
    return None


def _run_errors(op: Any, samples: list, record: Record) -> None:
    """Each refused call has to raise the CPU's exception, at once, in its words."""
    record.status = "right"
    for i, found in enumerate(samples):
        want = _error_of(op, found.sample_input, "cpu")
        if want is None:
            continue
        record.samples += 1
        got = _error_of(op, found.sample_input, DEVICE)
        if got is None:
            status, message = "wrong", f"no {type(want).__name__}: {want}"
        elif not isinstance(got, type(want)):
            status = "error"
            message = f"{type(got).__name__}: {got}, want {type(want).__name__}: {want}"
        elif not _worded(got, want, found):
            status, message = "late", f"{got}, want: {want}"
        else:
            record.right += 1
            continue
        _clear()
        order = ["right", "late", "error", "wrong"]
        if order.index(status) > order.index(record.status):
            text = " ".join(message.split())
            record.status, record.message = status, f"sample {i}: {text[:260]}"
    if record.samples == 0:
        record.status = "none"


def _worded(got: Exception, want: Exception, found: Any) -> bool:
    return bool(re.search(found.error_regex, str(got))) or str(got) == str(want)


def run_named(
    name: str, dtype: torch.dtype, kind: str, cap: int = CAP, limit: int | None = None
) -> Record:
    op = ENTRIES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = samples_of(op, dtype, kind, cap)
    return run_entry(op, dtype, samples, kind, limit)


# The report: groups of (kind, dtypes, samples an entry).
GROUPS = {
    "forward, float32": ("forward", DTYPES[:1], CAP),
    "gradients, float32": ("grad", DTYPES[:1], 12),
    "forward, other dtypes": ("forward", DTYPES[1:], 4),
}
LIMIT = 90  # seconds of CPU that an entry may take
SILENCE = 1800  # seconds after which a worker that does not answer has crashed


@dataclass(frozen=True, slots=True)
class Job:
    name: str
    dtype: str
    kind: str
    cap: int


def jobs_of(groups: list[str], dtypes: list[str], names: list[str]) -> list[Job]:
    return [
        Job(name, short(dtype), kind, cap)
        for kind, of_group, cap in (GROUPS[g] for g in groups)
        for dtype in of_group
        if not dtypes or short(dtype) in dtypes
        for name, op in ENTRIES.items()
        if (not names or name in names) and takes(op, dtype, kind)
    ]


def work() -> None:
    """A worker: a job a line in, a record a line out."""
    out = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        job = Job(**json.loads(line))
        dtype = getattr(torch, job.dtype)
        try:
            record = run_named(job.name, dtype, job.kind, job.cap, LIMIT)
        except Exception as error:
            message = f"the harness: {type(error).__name__}: {error}"
            record = Record(job.name, job.dtype, job.kind, "error", message=message)
        print(json.dumps(asdict(record)), file=out, flush=True)


def _start() -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, __file__, "--worker"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True,
    )  # fmt: skip


def run_jobs(
    jobs: list[Job], keep: Callable[[Record], None], workers: int = 2
) -> list[Record]:
    """Run jobs in `workers` processes; one that dies is a crash, and is replaced.

    `keep` gets each record as it comes; the result is in the order of the jobs.
    """
    left, records, lock = list(reversed(jobs)), [], threading.Lock()

    def serve() -> None:
        worker = _start()
        while True:
            with lock:
                if not left:
                    break
                job = left.pop()
            record = _ask(worker, job)
            with lock:
                records.append(record)
                keep(record)
            if record.status == "crash":
                worker = _start()
        worker.stdin.close()
        worker.wait()

    threads = [threading.Thread(target=serve) for _ in range(workers)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    place = {(j.name, j.dtype, j.kind): i for i, j in enumerate(jobs)}
    return sorted(records, key=lambda r: place[r.name, r.dtype, r.kind])


def _ask(worker: subprocess.Popen, job: Job) -> Record:
    # Compiles are not interruptible by the worker's own alarm.
    watch = threading.Timer(SILENCE, worker.kill)
    watch.start()
    try:
        worker.stdin.write(json.dumps(asdict(job)) + "\n")
        worker.stdin.flush()
        line = worker.stdout.readline()
    except BrokenPipeError:
        line = ""
    finally:
        watch.cancel()
    if line:
        return Record(**json.loads(line))
    code = worker.wait()
    message = f"the process ended with {code}"
    return Record(job.name, job.dtype, job.kind, "crash", message=message)


@dataclass(frozen=True, slots=True)
class Counts:
    """How many (entry, dtype) pairs came out how; `right` includes `cpu`."""

    pairs: int
    right: int
    cpu: int
    strides: int
    wrong: int
    error: int
    timeout: int
    crash: int

    @property
    def values(self) -> int:
        """Right in all but strides and aliasing, too."""
        return self.right + self.strides


def count(records: list[Record]) -> Counts:
    ran = [r for r in records if r.status != "none"]
    by = Counter(r.status for r in ran)
    cpu = sum(r.status == "right" and not r.native for r in ran)
    return Counts(
        len(ran), by["right"], cpu,
        *(by[s] for s in ("strides", "wrong", "error", "timeout", "crash")),
    )  # fmt: skip


PAGE = Path(__file__).parent.parent / "docs" / "operators.md"

HEAD = """# Operators

Written by `make ops-report`, which runs PyTorch's own operator database
(`torch.testing._internal.common_methods_invocations.op_db` of torch {torch}, {entries}
entries) on tarry, on XLA's CPU platform, and compares every sample with CPU PyTorch:
value, dtype, shape, device, strides, and whether a result is a view.
`databases/test_ops.py` runs a part of it in `make test-databases`.

## Counts

One line a group and dtype. A *pair* is an entry in a dtype that PyTorch's CPU
supports, with at most so many samples, spread over those that the entry yields:
{caps}.
*Right* is right in all respects; *native* of these ran without a CPU fallback.
*Strides*: the values are right; strides, offset or aliasing are not. *Error*: tarry
raised, or the entry took more than {limit} s of CPU. Random and uninitialised results
are compared in all but their values; eigenvectors and the like through their
invariants. Entries of which the CPU refuses every sample are left out.

"""


def counts_table(records: list[Record], groups: list[str]) -> list[str]:
    lines = [
        "| group | dtype | pairs | right | native | via CPU | strides | wrong | "
        "error | crash | right % | native % |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for group in groups:
        kind, dtypes, _ = GROUPS[group]
        ofs = [[short(d)] for d in dtypes]
        if len(ofs) > 1:
            ofs.append([short(d) for d in dtypes])
        for of in ofs:
            c = count([r for r in records if r.kind == kind and r.dtype in of])
            if not c.pairs:
                continue
            native = c.right - c.cpu
            lines.append(
                f"| {group} | {of[0] if len(of) == 1 else 'all'} | {c.pairs} | "
                f"{c.right} | {native} | {c.cpu} | {c.strides} | {c.wrong} | "
                f"{c.error + c.timeout} | {c.crash} | {100 * c.right / c.pairs:.1f} | "
                f"{100 * native / c.pairs:.1f} |"
            )
    return lines


def fallback_table(records: list[Record]) -> list[str]:
    entries: dict[str, set[str]] = {}
    for r in records:
        for op in r.fallbacks:
            entries.setdefault(op, set()).add(r.name)
    lines = ["| operator | entries | reason |", "|---|---|---|"]
    for op, names in sorted(entries.items()):
        listed = " ".join(f"`{n}`" for n in sorted(names))
        lines.append(f"| `{op}` | {listed} | {VIA_CPU.get(op, '')} |")
    return lines


def wrong_table(records: list[Record]) -> list[str]:
    grouped: dict[tuple, list[str]] = {}
    for r in records:
        if not r.fine:
            status = "error" if r.status == "timeout" else r.status
            reason = REASONS.get(_key(r), "")
            grouped.setdefault((r.name, r.kind, status, reason), []).append(r.dtype)
    lines = ["| entry | way | result | dtypes | reason |", "|---|---|---|---|---|"]
    for (name, kind, status, reason), dtypes in sorted(grouped.items()):
        listed = " ".join(dtypes)
        lines.append(f"| `{name}` | {kind} | {status} | {listed} | {reason} |")
    return lines


def reads_table(records: list[Record]) -> list[str]:
    entries: dict[str, set[str]] = {}
    for r in records:
        for cause in r.reads:
            entries.setdefault(cause, set()).add(r.name)
    lines = ["| cause of the cut | entries |", "|---|---|"]
    for cause, names in sorted(entries.items()):
        listed = " ".join(f"`{n}`" for n in sorted(names))
        lines.append(f"| {cause} | {listed} |")
    return lines


def page(records: list[Record], groups: list[str]) -> str:
    caps = ", ".join(f"{GROUPS[g][2]} ({g})" for g in groups)
    parts = [
        HEAD.format(
            torch=torch.__version__.partition("+")[0],
            entries=len(op_db),
            caps=caps,
            limit=LIMIT,
        ).rstrip(),
        *counts_table(records, groups),
        *(f"Not part of this run: {g}." for g in GROUPS if g not in groups),
        "## Operators that run on the CPU",
        "In any group above; each call cuts the graph, warns once a line, and is "
        "counted.",
        *fallback_table(records),
        "## Not right",
        *wrong_table(records),
        "## Entries that read a value",
        "They run natively but for the number or size that they need, which cuts.",
        *reads_table(records),
    ]
    text = parts[0] + "\n"
    for before, part in pairwise(parts):
        rows = part.startswith("|") and before.startswith("|")
        text += ("" if rows else "\n") + part + "\n"
    return text


def _key(r: Record) -> tuple[str, str, str]:
    return r.kind, r.name, r.dtype


def run_asked(asked: argparse.Namespace) -> list[Record]:
    jobs = jobs_of(asked.groups, asked.dtypes, asked.only)
    seen = 0

    def keep(record: Record) -> None:
        nonlocal seen
        seen += 1
        if sys.stderr.isatty():
            print(f"\r{seen}/{len(jobs)}", end="", file=sys.stderr)
        if asked.records:
            with asked.records.open("a") as file:
                print(json.dumps(asdict(record)), file=file)

    return run_jobs(jobs, keep)


def report(asked: argparse.Namespace) -> None:
    """Run the asked groups, print the counts; write the page unless only a part ran."""
    if asked.from_records:
        lines = [n for f in asked.from_records for n in f.read_text().splitlines()]
        found = {_key(r): r for r in (Record(**json.loads(n)) for n in lines)}
        jobs = jobs_of(asked.groups, asked.dtypes, asked.only)
        records = [
            found[key] for j in jobs if (key := (j.kind, j.name, j.dtype)) in found
        ]
    else:
        records = run_asked(asked)
    print("\n".join(counts_table(records, asked.groups)))
    for r in records:
        if not r.fine and _key(r) not in REASONS:
            print(f"no reason: {r.kind} {r.name} {r.dtype}: {r.status} {r.message}")
    if not asked.dtypes and not asked.only:
        PAGE.write_text(page(records, asked.groups), encoding="utf-8")
        print(f"written: {PAGE}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--groups", nargs="*", default=list(GROUPS), choices=GROUPS)
    parser.add_argument("--dtypes", nargs="*", default=[])
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--kinds", nargs="*", default=["forward"], choices=KINDS)
    parser.add_argument("--records", type=Path, help="append each record to this file")
    parser.add_argument(
        "--from-records", nargs="*", type=Path, help="report these files, run nothing"
    )
    asked = parser.parse_args()
    if asked.worker:
        work()
    elif asked.report:
        report(asked)
    else:
        show(asked)


def show(asked: argparse.Namespace) -> None:
    """Run the asked kinds and dtypes of the asked entries here; print each record."""
    dtypes = [getattr(torch, d) for d in asked.dtypes] or DTYPES[:1]
    for name in asked.only or ENTRIES:
        for kind in asked.kinds:
            for dtype in dtypes:
                if takes(ENTRIES[name], dtype, kind):
                    r = run_named(name, dtype, kind, limit=LIMIT)
                    print(
                        r.kind, r.name, r.dtype, r.status, f"{r.right}/{r.samples}",
                        *r.fallbacks, *r.reads, f"{r.seconds} s", r.message,
                    )  # fmt: skip


if __name__ == "__main__":
    main()
