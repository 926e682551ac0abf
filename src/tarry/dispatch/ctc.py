"""`ctc_loss` of targets that stand one behind the other: they are padded to the longest
of them, by indices made from the lengths, which PyTorch gives as Python integers."""

from collections.abc import Callable, Sequence
from typing import Any

import torch


def _padded(targets: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
    """(batch, longest); what is behind a target is never looked at."""
    if targets.dim() != 1 or min(lengths, default=0) < 0:
        return targets
    starts = torch.tensor([0, *lengths[:-1]]).cumsum(0)
    place = starts[:, None] + torch.arange(max(lengths, default=0))
    if sum(lengths) > targets.shape[0] or not targets.shape[0]:
        return targets
    return targets[place.clamp(max=targets.shape[0] - 1).to(targets.device)]


def forward(plain: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(
        log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any,
        blank: int = 0, zero_infinity: bool = False,
    ) -> Any:  # fmt: skip
        targets = _padded(targets, target_lengths)
        lengths = input_lengths, target_lengths
        return plain(log_probs, targets, *lengths, blank, zero_infinity)

    return kernel


def backward(plain: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(
        grad: Any, log_probs: Any, targets: Any, input_lengths: Any,
        target_lengths: Any, *rest: Any,
    ) -> Any:  # fmt: skip
        targets = _padded(targets, target_lengths)
        return plain(grad, log_probs, targets, input_lengths, target_lengths, *rest)

    return kernel


WRAPPED = {"_ctc_loss": forward, "_ctc_loss_backward": backward}
