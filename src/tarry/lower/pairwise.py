"""Distances between all pairs of the rows of one matrix (`pdist`): what lies above the
diagonal of the distance matrix, row by row."""

from typing import Any

import numpy as np

from tarry.lower.distance import cdist_backward, distances
from tarry.lower.table import Call, row
from tarry.lower.xla import jnp, lax

_DIRECT = 2  # not by a matrix product


def _above(n: int) -> np.ndarray:
    """Flat places in an (n, n) matrix of what is above its diagonal."""
    i, j = np.triu_indices(n, 1)
    return i * n + j


@row("_pdist_forward")
def pdist(call: Call, x: Any, p: float) -> Any:
    n = x.shape[0]
    if n < 2:
        return lax.full(call.out.shape, 0, call.out.dtype)
    d = distances(x, x, p, _DIRECT, skips=False)
    return jnp.take(lax.reshape(d, (n * n,)), _above(n), mode="clip")


@row("_pdist_backward")
def pdist_backward(call: Call, g: Any, x: Any, p: float, distance: Any) -> Any:
    n = x.shape[0]
    if n < 2 or not x.size:
        return lax.full(call.out.shape, 0, call.out.dtype)

    def symmetric(pairs: Any) -> Any:
        full = lax.full((n * n,), 0, pairs.dtype).at[_above(n)].set(pairs)
        full = lax.reshape(full, (n, n))
        return lax.add(full, lax.transpose(full, (1, 0)))

    return cdist_backward(call, symmetric(g), x, x, p, symmetric(distance))
