"""Giving a tensor's memory away, under torch_xla's names."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from tarry.cut.donation import Marks, marked
from tarry.dispatch.storage import slot_of
from tarry.ledger import ledger


def set_buffer_donation(tensor: torch.Tensor, should_donate: bool = True) -> bool:
    """Let the next step that reads `tensor` overwrite its memory with a result.

    After that step the tensor has no value, and reading it raises an error. Gives True.
    Memory that an in-place operation has left behind is reused without being asked.
    """
    if should_donate:
        marked.add(slot_of(tensor))
    else:
        marked.discard(slot_of(tensor))
    ledger.count("XlaSetBufferDonation")
    return True


def get_buffer_donation(tensor: torch.Tensor) -> bool:
    """Whether the tensor is marked, and its memory is still there."""
    return slot_of(tensor) in marked


def donate_at_every_cut(on: bool) -> None:
    """True: marks count where a value is read, too, and not only where a step ends."""
    Marks.at_every_cut = on


def donates_at_every_cut() -> bool:
    return Marks.at_every_cut


@contextmanager
def alias_with_buffer_donor_config(should_alias: bool = True) -> Iterator[bool]:
    """`donate_at_every_cut(should_alias)` in the block; gives what held before."""
    before, Marks.at_every_cut = Marks.at_every_cut, should_alias
    try:
        yield before
    finally:
        Marks.at_every_cut = before
