"""A tensor's present value, held fast: what is written to the tensor later does not
show, and holding it records nothing."""

import torch

from tarry.dispatch.operands import share
from tarry.dispatch.storage import is_base, slot_of
from tarry.record.trie import recorder


def snapshot(t: torch.Tensor) -> torch.Tensor:
    """A tensor of the device with the value that `t` has now, without its gradient.

    It shares the buffer, which is not donated while it lives. Raises PoisonedError.
    """
    t = t.detach()
    with recorder.lock:
        slot = slot_of(t)
        held = share(slot, slot.spec)
        held.untyped_storage().slot.made = getattr(slot, "made", None)
    if not slot.viewed or is_base(t, slot.spec):
        return held
    if t.dtype is not held.dtype or t.is_conj() or t.is_neg():
        return t.clone()
    return held.as_strided(t.shape, t.stride(), t.storage_offset())
