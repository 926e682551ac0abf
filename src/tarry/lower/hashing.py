"""`hash_tensor`: the bits of all elements folded into one word."""

import numpy as np

from tarry.lower.reduce import Dims, axes_of, fit
from tarry.lower.table import Call, convert, row
from tarry.lower.xla import lax


@row("hash_tensor")
def hash_tensor(call: Call, x, dim: Dims, keepdim: bool, mode: int):
    """Numbers count as doubles or int64, and are folded by exclusive or."""
    wide = np.dtype(np.float64 if x.dtype.kind in "fV" else np.int64)
    bits = lax.bitcast_convert_type(convert(x, wide), np.dtype(np.uint64))
    return fit(lax.reduce_xor(bits, axes_of(dim, x.ndim)), call.out)
