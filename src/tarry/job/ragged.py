"""Repetition whose result has a size known beforehand, so that nothing is cut."""

import torch


def repeat_to_size(
    input: torch.Tensor, repeats: torch.Tensor, total_repeat_length: int
) -> torch.Tensor:
    """Element i of `input` (1-d) `repeats[i]` times, cut off at `total_repeat_length`,
    or filled up to it with the last element.

    Raises ValueError unless both are 1-d and of one size.
    """
    if input.dim() != 1 or input.shape != repeats.shape:
        raise ValueError(
            "input and repeats are 1-d and of one size, got "
            f"{list(input.shape)} and {list(repeats.shape)}"
        )
    places = torch.arange(total_repeat_length, device=input.device)
    found = torch.searchsorted(repeats.cumsum(0), places, right=True)
    return input[found.clamp(max=len(input) - 1)]
