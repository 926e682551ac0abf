"""Fourier transforms over any dimensions. `normalization` is PyTorch's `fft_norm_mode`:
0 none, 1 by the square root of the signal's size, 2 by its size."""

import math
from collections.abc import Sequence
from typing import Any

from tarry.lower.layout import of_c2c, of_c2r, of_r2c
from tarry.lower.precision import scale
from tarry.lower.table import Call, convert, row
from tarry.lower.xla import jnp, lax


def _normalized(x: Any, size: int, normalization: int) -> Any:
    power = {0: 0.0, 1: -0.5, 2: -1.0}[normalization]
    return scale(x, float(size) ** power) if normalization else x


def _complex(x: Any, dims: Sequence[int], forward: bool) -> Any:
    """Without normalization; XLA transforms up to three dimensions at once."""
    for i in range(0, len(dims), 3):
        part = tuple(dims[i : i + 3])
        if forward:
            x = jnp.fft.fftn(x, axes=part)
        else:
            x = jnp.fft.ifftn(x, axes=part, norm="forward")
    return x


def _size(shape: Sequence[int], dims: Sequence[int]) -> int:
    return math.prod(shape[d] for d in dims)


@row("_fft_c2c", strides=of_c2c)
def fft_c2c(
    call: Call, x: Any, dims: Sequence[int], normalization: int, forward: bool
) -> Any:
    y = _complex(x, dims, forward)
    return _normalized(y, _size(x.shape, dims), normalization)


@row("_fft_r2c", strides=of_r2c)
def fft_r2c(
    call: Call, x: Any, dims: Sequence[int], normalization: int, onesided: bool
) -> Any:
    size = _size(x.shape, dims)
    if onesided:
        y = _complex(jnp.fft.rfft(x, axis=dims[-1]), dims[:-1], True)
    else:
        y = _complex(convert(x, call.out.dtype), dims, True)
    return _normalized(y, size, normalization)


@row("_fft_c2r", strides=of_c2r)
def fft_c2r(
    call: Call, x: Any, dims: Sequence[int], normalization: int, last: int
) -> Any:
    x = _complex(x, dims[:-1], False)
    y = jnp.fft.irfft(x, n=last, axis=dims[-1], norm="forward")
    return lax.convert_element_type(
        _normalized(y, _size(y.shape, dims), normalization), call.out.dtype
    )
