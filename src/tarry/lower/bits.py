"""Counter-based random bits and the uniform numbers made of them.

The key is the seed; the draw number is the high word of a 64-bit counter and the
element the low word, so that draws are disjoint stretches of one stream: the bits
depend on nothing but (seed, draw, shape). ThreeFry-2x32 rather than Philox: on
XLA:CPU it is 14 times faster (2.6 against 37 ms for 2^20 words), and both are
specified bit by bit, so every platform draws the same.
"""

from typing import Any

import numpy as np

from tarry.lower.precision import const, scale
from tarry.lower.table import Scalar
from tarry.lower.xla import lax

U32, U64 = np.dtype(np.uint32), np.dtype(np.uint64)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _word(value: Scalar) -> Any:
    return lax.bitcast_convert_type(value.to(np.dtype(np.int64)), U64)


def random_bits(seed: Scalar, draw: Scalar, shape: tuple[int, ...], dtype: Any) -> Any:
    """Random words (`U32` or `U64`) of draw number `draw` under `seed`."""
    key, counter = _word(seed), _word(draw)
    high = lax.shift_right_logical(counter, np.uint64(32))
    key = lax.bitwise_xor(key, lax.mul(high, _GOLDEN))
    counter = lax.shift_left(counter, np.uint64(32))
    state = lax.concatenate([lax.reshape(w, (1,)) for w in (key, counter)], 0)
    algorithm = lax.RandomAlgorithm.RNG_THREE_FRY
    return lax.rng_bit_generator(state, shape, dtype, algorithm=algorithm)[1]


def _integers(
    seed: Scalar, draw: Scalar, shape: tuple[int, ...], dtype: np.dtype, spare: int
) -> tuple[Any, int]:
    """Signed integers in [0, 2^n), n the mantissa's bits less `spare`, and n."""
    word, bits = (U64, 53) if dtype == np.float64 else (U32, 24)
    bits -= spare
    x = random_bits(seed, draw, shape, word)
    x = lax.shift_right_logical(x, word.type(word.itemsize * 8 - bits))
    return lax.bitcast_convert_type(x, np.dtype(f"i{word.itemsize}")), bits


def unit(seed: Scalar, draw: Scalar, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """Uniform in [0, 1): 24 bits for f32, 53 for f64."""
    x, bits = _integers(seed, draw, shape, dtype, 0)
    return scale(lax.convert_element_type(x, dtype), 2.0**-bits)


def open_unit(
    seed: Scalar, draw: Scalar, shape: tuple[int, ...], dtype: np.dtype
) -> Any:
    """Uniform in (0, 1), symmetric: the odd multiples of 2^-24 (f32) or 2^-53."""
    x, bits = _integers(seed, draw, shape, dtype, 1)
    x = lax.convert_element_type(x, dtype)
    return scale(lax.add(x, const(x, 0.5)), 2.0**-bits)


def gaussian(
    seed: Scalar, draw: Scalar, shape: tuple[int, ...], dtype: np.dtype
) -> Any:
    """Standard normal numbers, by the inverse of the error function."""
    x, bits = _integers(seed, draw, shape, dtype, 1)
    x = lax.add(lax.mul(x, const(x, 2)), const(x, 1 - 2**bits))
    x = scale(lax.convert_element_type(x, dtype), 2.0**-bits)
    return scale(lax.erf_inv(x), 2**0.5)


def below(seed: Scalar, draw: Scalar, shape: tuple[int, ...], limit: Any) -> Any:
    """Integers in [0, limit), `limit` a u64 scalar (0 stands for 2^64), as u64.

    The high word of the 128-bit product of random bits and `limit`.
    """
    x = random_bits(seed, draw, shape, U64)
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    x1, x0 = lax.shift_right_logical(x, half), lax.bitwise_and(x, low)
    y1, y0 = lax.shift_right_logical(limit, half), lax.bitwise_and(limit, low)
    cross = lax.add(lax.mul(x1, y0), lax.shift_right_logical(lax.mul(x0, y0), half))
    middle = lax.add(lax.mul(x0, y1), lax.bitwise_and(cross, low))
    product = lax.add(
        lax.add(lax.mul(x1, y1), lax.shift_right_logical(cross, half)),
        lax.shift_right_logical(middle, half),
    )
    return lax.select(lax.eq(limit, np.uint64(0)), x, product)
