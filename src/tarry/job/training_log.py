"""Lines and TensorBoard entries of a training loop, as torch_xla's examples print them
(`torch_xla.test.test_utils`)."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from tarry.ledger import ledger


def now(format: str = "%H:%M:%S") -> str:
    return datetime.now().strftime(format)


def _line(*parts: tuple[str, Any], kind: str) -> None:
    said = " ".join(f"{name}={value}" for name, value in parts if value is not None)
    print(f"| {kind} {said} Time={now()}", flush=True)


def _rounded(value: float | None, digits: int) -> str | None:
    return None if value is None else f"{value:.{digits}f}"


def print_training_update(
    device: Any,
    step: int,
    loss: float,
    rate: float,
    global_rate: float,
    epoch: int | None = None,
    summary_writer: Any = None,
) -> None:
    """One line of a training step: loss, and examples a second, now and so far."""
    _line(
        ("Device", f"{device}/0"),
        ("Epoch", epoch),
        ("Step", step),
        ("Loss", _rounded(loss, 5)),
        ("Rate", _rounded(rate, 2)),
        ("GlobalRate", _rounded(global_rate, 2)),
        kind="Training",
    )
    rates = {"examples/sec": rate, "average_examples/sec": global_rate}
    write_to_summary(summary_writer, dict_to_write=rates)


def print_test_update(
    device: Any, accuracy: float | None, epoch: int | None = None,
    step: int | None = None,
) -> None:  # fmt: skip
    """One line of a test: the accuracy in percent."""
    _line(
        ("Device", f"{device}/0"),
        ("Step", step),
        ("Epoch", epoch),
        ("Accuracy", _rounded(accuracy, 2)),
        kind="Test",
    )


def get_summary_writer(logdir: str | None) -> Any:
    """A writer of TensorBoard's files; None without a folder.

    Raises ImportError if the package tensorboard is not installed.
    """
    if not logdir:
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(log_dir=logdir)


def write_to_summary(
    summary_writer: Any,
    global_step: int | None = None,
    dict_to_write: Mapping[str, float] | None = None,
    write_xla_metrics: bool = False,
) -> None:
    """Write numbers, and, if asked for, all counters; to no writer, nothing."""
    if summary_writer is None:
        return
    found = dict(dict_to_write or {})
    if write_xla_metrics:
        found |= ledger.counters
        fallbacks = [n for name, n in found.items() if name.startswith("aten::")]
        found["aten_ops_sum"] = sum(fallbacks)
    for name, value in found.items():
        summary_writer.add_scalar(name, value, global_step)


def close_summary_writer(summary_writer: Any) -> None:
    if summary_writer is not None:
        summary_writer.flush()
        summary_writer.close()


def in_process(test: Callable[..., Any]) -> Callable[..., Any]:
    """`test` as it is: there is one process, and one device."""
    return test
