"""Steps under torch_xla's names."""

from collections.abc import Mapping
from typing import Any

import torch

from tarry.api import sync
from tarry.run.options import custom

_PRECISIONS = {"default": "medium", "high": "high", "highest": "highest"}


def mark_step(wait: bool = False, reset_scope: bool = True) -> None:
    """torch_xla's older name of `tarry.sync`."""
    sync(wait, reset_scope)


def optimizer_step(
    optimizer: torch.optim.Optimizer,
    barrier: bool = False,
    optimizer_args: Mapping[str, Any] | None = None,
    groups: Any = None,
    pin_layout: bool = True,
) -> Any:
    """`optimizer.step(**optimizer_args)`, and its result; then `tarry.sync()` if
    `barrier`. With one device there are no gradients to sum: `groups` and `pin_layout`
    say how torch_xla does that, and change nothing here."""
    loss = optimizer.step(**(optimizer_args or {}))
    if barrier:
        sync()
    return loss


def set_custom_compile_options(options: Mapping[str, Any]) -> None:
    """Compile with these options of XLA from the next cut on; `{}` takes them back.

    They are a part of the compile key: other options, another program. Inside a region
    they hold until its end.
    """
    custom.clear()
    custom.update({name: str(value) for name, value in options.items()})


def set_mat_mul_precision(precision: str) -> None:
    """'default' (fastest), 'high' or 'highest' (all bits of float32), for products and
    convolutions of float32: PyTorch's own setting, under torch_xla's words.

    It is `torch.set_float32_matmul_precision`, whose 'medium' is torch_xla's 'default',
    and which begins with 'highest'. Raises ValueError for another word.
    """
    if precision not in _PRECISIONS:
        raise ValueError(
            f"a precision is one of {', '.join(map(repr, _PRECISIONS))}; "
            f"got {precision!r}"
        )
    torch.set_float32_matmul_precision(_PRECISIONS[precision])


def get_mat_mul_precision() -> str:
    """What `set_mat_mul_precision` set."""
    now = torch.get_float32_matmul_precision()
    return next(word for word, torch_word in _PRECISIONS.items() if torch_word == now)
