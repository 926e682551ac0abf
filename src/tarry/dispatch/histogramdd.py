"""`histogramdd`: the edges of each dimension are those of `histogram`; a sample's bins
in all dimensions make one index, by which the weights are added up."""

import math
from collections.abc import Callable, Sequence
from operator import gt
from typing import Any

import torch

from tarry.dispatch.exits import cpu_fallback


def _fits(self: torch.Tensor, bins: Sequence[Any], limits: Any, weight: Any) -> bool:
    """False for what PyTorch refuses: its CPU kernel then says why."""
    if self.dim() < 2 or not self.is_floating_point() or len(bins) != self.shape[-1]:
        return False
    low, high = (limits or ())[::2], (limits or ())[1::2]
    if limits and (len(limits) != 2 * len(bins) or any(map(gt, low, high))):
        return False
    if weight is not None and (weight.shape, weight.dtype) != (
        self.shape[:-1], self.dtype
    ):  # fmt: skip
        return False
    return all(
        b.dim() == 1 and b.numel() > 0 and b.dtype is self.dtype
        if isinstance(b, torch.Tensor)
        else b > 0
        for b in bins
    )


def _checked(op: Any, kernel: Callable[..., Any]) -> Callable[..., Any]:
    def checked(self: torch.Tensor, bins: Sequence[Any], **kwargs: Any) -> Any:
        limits, weight = kwargs.get("range"), kwargs.get("weight")
        if not _fits(self, bins, limits, weight):
            return cpu_fallback(op, (self, bins), kwargs)
        return kernel(self, bins, **kwargs)

    return checked


def bin_edges(
    self: torch.Tensor, bins: Sequence[int], *, range: Any = None, weight: Any = None,
    density: bool = False,
) -> list[torch.Tensor]:  # fmt: skip
    columns = self.reshape(-1, self.shape[-1]).unbind(1)
    limits = [range and list(range[2 * d : 2 * d + 2]) for d, _ in enumerate(bins)]
    return [
        torch.ops.aten.histogram.bin_ct(x, n, range=pair)[1]
        for x, n, pair in zip(columns, bins, limits)
    ]


def from_bin_counts(self: torch.Tensor, bins: Sequence[int], **kwargs: Any) -> Any:
    edges = bin_edges(self, bins, range=kwargs.pop("range", None))
    return from_edges(self, edges, **kwargs)


def from_edges(
    self: torch.Tensor,
    bins: Sequence[torch.Tensor],
    *,
    weight: Any = None,
    density: bool = False,
) -> torch.Tensor:
    shape = [b.numel() - 1 for b in bins]
    columns = self.reshape(-1, self.shape[-1]).unbind(1)
    at, inside = 0, True
    for x, edges, n in zip(columns, bins, shape):
        x = x.contiguous()
        place = torch.searchsorted(edges, x, right=True) - 1
        at = at * n + place.clamp(0, max(n - 1, 0))
        inside = (x >= edges[0]) & (x <= edges[-1]) & inside
    ones = torch.ones_like(columns[0]) if weight is None else weight.reshape(-1)
    counts = torch.zeros(math.prod(shape), dtype=self.dtype, device=self.device)
    if counts.numel():
        counts.index_add_(0, at, torch.where(inside, ones, 0))
    counts = counts.view(shape)
    if density:
        counts = counts / counts.sum()
        for d, edges in enumerate(bins):
            widths = edges.diff().view([-1] + [1] * (len(bins) - d - 1))
            counts = counts / widths
    return counts


_aten = torch.ops.aten
KERNELS = {
    op._schema.name.removeprefix("aten::"): _checked(op, kernel)
    for op, kernel in (
        (_aten._histogramdd_bin_edges.default, bin_edges),
        (_aten._histogramdd_from_bin_cts.default, from_bin_counts),
        (_aten._histogramdd_from_bin_tensors.default, from_edges),
    )
}
