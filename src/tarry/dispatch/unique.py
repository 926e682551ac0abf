"""`unique` and its kin: the elements are sorted on the device, equal neighbours make a
group, and one cut reads how many groups there are; the rest is recorded.

NaN equals nothing, so that each is a group of its own, as on the CPU.
"""

from typing import Any

import torch

from tarry.dispatch.dynamic import count_of, places_of

Result = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def _refuse_complex(self: torch.Tensor, op: str) -> None:
    if self.is_complex():
        name = "ComplexFloat" if self.dtype is torch.complex64 else "ComplexDouble"
        raise NotImplementedError(f"\"{op}\" not implemented for '{name}'")


def _none(like: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=torch.int64, device=like.device)


def _starts(different: torch.Tensor) -> torch.Tensor:
    """Where groups start, given which elements differ from the one before."""
    first = torch.ones(1, dtype=torch.bool, device=different.device)
    return torch.cat([first, different])


def _groups(starts: torch.Tensor, op: str) -> Result:
    """The first place of each group, each place's group, and the sizes of the groups;
    how many there are is read."""
    at = places_of(starts, count_of(starts, op))
    end = torch.full((1,), starts.numel(), device=at.device)
    return at, starts.cumsum(0) - 1, torch.cat([at[1:], end]) - at


def _back(order: torch.Tensor, group: torch.Tensor) -> torch.Tensor:
    """The groups of sorted elements, in the order before sorting."""
    return torch.empty_like(order).scatter_(0, order, group)


def unique2(
    self: torch.Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    op: str = "aten::_unique2",
) -> Result:
    _refuse_complex(self, "unique")
    flat = self.reshape(-1)
    if not flat.numel():
        inverse = torch.empty_like(self, dtype=torch.int64)
        return torch.empty_like(flat), inverse, _none(self)
    values, order = flat.sort(stable=True)
    at, group, counts = _groups(_starts(values[1:] != values[:-1]), op)
    inverse = _back(order, group).view(self.shape) if return_inverse else _none(self)
    return values[at], inverse, counts if return_counts else _none(self)


def unique(
    self: torch.Tensor, sorted: bool = True, return_inverse: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    return unique2(self, sorted, return_inverse, op="aten::_unique")[:2]


def unique_consecutive(
    self: torch.Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Result:
    if dim is not None:
        return unique_dim_consecutive(self, dim, return_inverse, return_counts)
    _refuse_complex(self, "unique")
    flat = self.reshape(-1)
    if not flat.numel():
        inverse = torch.empty_like(self, dtype=torch.int64)
        return torch.empty_like(flat), inverse, _none(self)
    starts = _starts(flat[1:] != flat[:-1])
    at, group, counts = _groups(starts, "aten::unique_consecutive")
    inverse = group.view(self.shape) if return_inverse else _none(self)
    return flat[at], inverse, counts if return_counts else _none(self)


def unique_dim(
    self: torch.Tensor,
    dim: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Result:
    """Slices along `dim`, in lexicographic order; PyTorch gives all three results,
    asked for or not."""
    return _of_slices(self, dim, "aten::unique_dim", True)


def unique_dim_consecutive(
    self: torch.Tensor,
    dim: int,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Result:
    return _of_slices(self, dim, "aten::unique_dim_consecutive", False)


def _of_slices(self: torch.Tensor, dim: int, op: str, sorting: bool) -> Result:
    _refuse_complex(self, "unique_dim")
    moved = self.movedim(dim, 0) if self.dim() else self.unsqueeze(dim)
    zeros = list(self.shape).count(0)
    if zeros and moved.shape[0]:
        raise RuntimeError(
            "There are 0 sized dimensions, and they aren't selected, so unique cannot "
            "be applied"
        )
    if zeros > 1:
        raise RuntimeError(
            "Number of zero sized dimensions is more than one, so unique cannot be "
            "applied "
        )
    if zeros:
        return torch.empty_like(self), _none(self), _none(self)
    rows = moved.reshape(moved.shape[0], -1)
    order = _ranks(rows).sort(stable=True)[1] if sorting else None
    rows = rows if order is None else rows[order]
    starts = _starts((rows[1:] != rows[:-1]).any(1))
    at, group, counts = _groups(starts, op)
    values = rows[at].view(-1, *moved.shape[1:]).movedim(0, dim)
    return values, group if order is None else _back(order, group), counts


def _ranks(rows: torch.Tensor) -> torch.Tensor:
    """Each row's rank in lexicographic order: ranks within the columns, then within
    pairs of neighbouring columns, until one is left."""
    rank = _dense(rows)
    while rank.shape[1] > 1:
        if rank.shape[1] % 2:
            rank = torch.cat([rank, torch.zeros_like(rank[:, :1])], 1)
        rank = _dense(rank[:, 0::2] * len(rows) + rank[:, 1::2])
    return rank[:, 0]


def _dense(columns: torch.Tensor) -> torch.Tensor:
    """In each column the elements' ranks, equal elements at one rank."""
    values, order = columns.sort(dim=0, stable=True)
    steps = (values[1:] != values[:-1]).cumsum(0)
    steps = torch.cat([torch.zeros_like(order[:1]), steps])
    return torch.empty_like(order).scatter_(0, order, steps)


KERNELS: dict[str, Any] = {
    "_unique": unique,
    "_unique2": unique2,
    "unique_consecutive": unique_consecutive,
    "unique_dim": unique_dim,
    "unique_dim_consecutive": unique_dim_consecutive,
}
