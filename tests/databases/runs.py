"""One entry, in one dtype and one way of calling it, becomes a `Record`.

All samples of an entry are recorded, cut once and then compared; only where that fails
are they run one by one.
"""

import re
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

import tarry
from calls import check_gradients, perform
from compare import Different, compare, scale
from entries import CAP, ENTRIES, GRADS, TIED, UNDEFINED, samples_of, short, spell
from harness import DEVICE
from known_gaps import LOOSE
from tarry.cut.cause import Cause
from tarry.errors import UnsupportedError
from tarry.ledger import ledger


@dataclass(slots=True)
class Record:
    """What came of one entry in one dtype and one way of calling it.

    `status`: "right"; "strides" (right but for strides, offset or aliasing); "wrong";
    "refused" (tarry has no such tensors, and says so in one clear error); "error"
    (tarry raised); "late" (the right error, but at the cut or in other words);
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
    def key(self) -> tuple[str, str, str]:
        return self.kind, self.name, self.dtype

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


def is_random(op: Any, sample: Any) -> bool:
    if spell(op) in UNDEFINED:
        return True
    args, kwargs = sample.args, sample.kwargs
    if op.name == "nn.functional.multi_head_attention_forward":
        return args[9] > 0 and kwargs.get("training", True)
    return (kwargs.get("dropout_p") or 0) > 0


def _count_fallbacks() -> dict[str, int]:
    return {k: n for k, n in ledger.counters.items() if k.startswith("aten::")}


def _count_reads() -> dict[tuple, int]:
    return {k[:2]: n for k, n in ledger.cut_totals.items() if k[0] not in OWN_CUTS}


# Causes of cuts that the harness makes itself, or that `fallbacks` lists already.
OWN_CUTS = {Cause.SYNC.value, Cause.FALLBACK.value, Cause.HOST.value}


def record_run(
    record: Record, limit: int | None, run: Callable[[Record], None]
) -> Record:
    """`record` after `run(record)`, with fallbacks, seconds and the limit's doing."""
    started = time.perf_counter()
    fallbacks = _count_fallbacks()
    try:
        with warnings.catch_warnings(), deadline(limit):
            warnings.simplefilter("ignore")
            run(record)
    except Timeout:
        record.status, record.message = "timeout", f"more than {limit} s of CPU"
    record.fallbacks = sorted(
        k for k, n in _count_fallbacks().items() if n > fallbacks.get(k, 0)
    )
    record.seconds = round(time.perf_counter() - started, 2)
    clear()
    return record


def run_entry(
    op: Any,
    dtype: torch.dtype,
    samples: list[Any],
    kind: str = "forward",
    limit: int | None = None,
) -> Record:
    """Run `samples` on the CPU and on tarry and compare; never raises."""

    def run(record: Record) -> None:
        if kind == "errors":
            _run_errors(op, samples, record)
        elif kind in ("gradcheck", "gradgradcheck"):
            _run_checks(op, samples, kind, record)
        else:
            _run_samples(op, samples, kind, record)

    return record_run(Record(spell(op), short(dtype), kind), limit, run)


def clear() -> None:
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
    if (
        kind not in GRADS
        and op.name in TIED
        and (kind == "expanded" or _has_ties(sample))
    ):
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
    slack = 8 * torch.finfo(want.dtype).eps * scale(exact)
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
        clear()
        return False
    record.reads = sorted(
        " ".join(k).strip() for k, n in now.items() if n > before.get(k, 0)
    )
    return True


WORST = ["right", "strides", "refused", "error", "wrong"]


def worst(record: Record, what: str, error: Exception) -> None:
    """Note `error` of one sample, `what`, if it is worse than what is noted."""
    if isinstance(error, Different):
        status, message = "strides" if error.geometry else "wrong", str(error)
    else:
        status = "refused" if isinstance(error, UnsupportedError) else "error"
        message = f"{type(error).__name__}: {' '.join(str(error).split())[:260]}"
    if WORST.index(status) > WORST.index(record.status):
        record.status, record.message = status, f"{what}: {message}"


def _one_by_one(op: Any, wanted: list, kind: str, record: Record) -> None:
    record.status = "right"
    for i, (sample, want) in enumerate(wanted):
        try:
            got = perform(op, sample, kind, DEVICE)
            tarry.sync()
            _check(op, sample, kind, want, got)
        except Exception as error:
            worst(record, f"sample {i}", error)
            if not isinstance(error, Different):
                clear()
        else:
            record.right += 1


def _run_checks(op: Any, samples: list, kind: str, record: Record) -> None:
    """Finite differences on tarry, of samples for which they agree on the CPU."""
    for i, sample in enumerate(samples):
        try:
            check_gradients(op, sample, kind, "cpu")
        except Exception:
            continue
        record.samples += 1
        try:
            check_gradients(op, sample, kind, DEVICE)
        except Exception as error:
            text = " ".join(str(error).split())
            record.status = "error"
            record.message = f"sample {i}: {type(error).__name__}: {text[:260]}"
            clear()
        else:
            record.right += 1
    if record.samples and record.samples == record.right:
        record.status = "right"


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
        clear()
        order = ["right", "late", "error", "wrong"]
        if order.index(status) > order.index(record.status):
            text = " ".join(message.split())
            record.status, record.message = status, f"sample {i}: {text[:260]}"
    if record.samples == 0:
        record.status = "none"


def _worded(got: Exception, want: Exception, found: Any) -> bool:
    words = str(got).replace(f"{DEVICE}:0", "cpu")
    return bool(re.search(found.error_regex, words)) or words == str(want)


def run_named(
    name: str, dtype: torch.dtype, kind: str, cap: int = CAP, limit: int | None = None
) -> Record:
    op = ENTRIES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = samples_of(op, dtype, kind, cap)
    return run_entry(op, dtype, samples, kind, limit)
