"""PyTorch's own control flow on tensors of the device: `torch.while_loop`,
`torch.cond` and `torch._higher_order_ops.scan`, as one operation each."""

from collections.abc import Callable, Sequence
from typing import Any

from tarry.dispatch import seam
from tarry.dispatch.storage import is_ours
from tarry.flow.branch import cond
from tarry.flow.loops import while_loop
from tarry.flow.scan import scan
from tarry.flow.trees import flatten


def _while(
    cond_fn: Callable, body_fn: Callable, carried: Sequence, additional: Sequence = (),
    mutated_arg_indices: str = "",
) -> tuple:  # fmt: skip
    return while_loop(
        lambda *values: cond_fn(*values, *additional),
        lambda *values: body_fn(*values, *additional),
        tuple(carried),
    )


def _cond(pred: Any, true_fn: Callable, false_fn: Callable, operands: Sequence) -> Any:
    return cond(pred, true_fn, false_fn, tuple(operands))


def _scan(
    fn: Callable, init: Sequence, xs: Sequence, additional: Sequence = ()
) -> tuple:
    """Flat in and out: the carries, then what is stacked."""

    def step(carry: list, slices: list) -> tuple[list, list]:
        found = list(fn(*carry, *slices, *additional))
        return found[: len(carry)], found[len(carry) :]

    state, stacked = scan(step, list(init), list(xs))
    return (*state, *stacked)


def register() -> None:
    """Make them the device's kernels, with and without autograd."""
    kernels = {"while_loop": _while, "cond": _cond, "scan": _scan}
    for name, kernel in kernels.items():
        seam.register_higher_order(name, kernel, _are_real)


def _are_real(*args: Any) -> bool:
    """True where the tensors are the device's, and not what tracing puts for them."""
    tensors, _ = flatten(args)
    return all(hasattr(t.untyped_storage(), "slot") for t in tensors if is_ours(t))
