"""Whether a result on tarry is the CPU's."""

from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from harness import DEVICE, TOLERANCE, comparable


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
    dtype = w.dtype
    w, g = comparable(w), comparable(g)
    exact = not (w.is_floating_point() or w.is_complex())
    rtol, atol = (0, 0) if exact else loose or TOLERANCE[dtype]
    if not exact:
        atol = atol + 8 * torch.finfo(dtype).eps * scale(w)
    try:
        torch.testing.assert_close(
            g, w, rtol=rtol, atol=atol, equal_nan=True, check_stride=False
        )
    except AssertionError as error:
        text = " ".join(str(error).split())
        raise Different(f"{where}{text[:220]}") from None


def scale(w: torch.Tensor) -> float:
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
