"""The Hurwitz zeta function and the polygamma functions made of it."""

import math

import numpy as np

from tarry.lower.table import Call, convert, pointwise, row
from tarry.lower.unary import digamma
from tarry.lower.xla import jnp, lax

# (2k)! / B(2k), the divisors of the Euler-Maclaurin series, k = 1 … 12.
_DIVISORS = (
    12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1307674368000 / 691, 74724249600.0,
    -10670622842880000 / 3617, 5109094217170944000 / 43867,
    -802857662698291200000 / 174611, 155112100433309859840000 / 854513,
    -1693824136731743669452800000 / 236364091,
)  # fmt: skip
_SMALL = 2.0**-53


@pointwise(
    "special_zeta", "special_zeta.self_scalar", "special_zeta.other_scalar", floats=True
)
def zeta(x, q):
    return hurwitz(x, q)


def hurwitz(x, q):
    """zeta(x, q) in double precision as PyTorch's kernel has it: terms are summed up to
    an argument above 9, where the Euler-Maclaurin series holds (Cephes, `zeta.c`)."""
    dtype, double = x.dtype, np.dtype(np.float64)
    x, q = convert(x, double), convert(q, double)
    pole = lax.bitwise_or(x == 1, lax.bitwise_and(q <= 0, q == lax.floor(q)))
    odd = lax.bitwise_and(q <= 0, lax.ne(x, lax.floor(x)))
    odd = lax.bitwise_or(x < 1, lax.bitwise_and(odd, lax.bitwise_not(pole)))
    total, done, a, b = _first_terms(x, q, lax.bitwise_or(pole, odd))
    y = _remainder(x, total, done, a, b)
    y = lax.select(pole, lax.full_like(y, np.inf), y)
    return convert(lax.select(odd, lax.full_like(y, np.nan), y), dtype)


def _first_terms(x, q, done):
    """(sum, whether it is final, the last argument, its term)."""

    def is_left(i, a, done):
        return lax.bitwise_and(lax.bitwise_or(i < 9, a <= 9), lax.bitwise_not(done))

    def goes_on(carry):
        i, a, _, _, done = carry
        return jnp.any(is_left(i, a, done))

    def one_term(carry):
        i, a, b, total, done = carry
        left = is_left(i, a, done)
        a = lax.select(left, a + 1, a)
        b = lax.select(left, lax.pow(a, -x), b)
        total = lax.select(left, total + b, total)
        low, high = -_SMALL * total < b, b < _SMALL * total
        return i + 1, a, b, total, done | (left & low & high)

    carry = (np.int32(0), q, lax.full_like(q, 0), lax.pow(q, -x), done)
    _, a, b, total, done = lax.while_loop(goes_on, one_term, carry)
    return total, done, a, b


def _remainder(x, total, done, a, b):
    """The Euler-Maclaurin series of the terms beyond `a`, added where not `done`."""
    total = lax.select(done, total, total + b * a / (x - 1) - 0.5 * b)
    rising = lax.full_like(x, 1)
    for k, divisor in enumerate(_DIVISORS):
        rising, b = rising * (x + 2 * k), b / a
        term = rising * b / divisor
        total = lax.select(done, total, total + term)
        done = done | (lax.abs(term / total) < _SMALL)
        rising, b = rising * (x + 2 * k + 1), b / a
    return total


def trigamma(x):
    """By reflection under 1/2 and recurrence up to the asymptotic series, the steps of
    PyTorch's kernel: it is finite where `pi * x` is not quite a multiple of pi."""
    below = x < 0.5
    sine = lax.sin(x * np.asarray(np.pi, x.dtype))
    start = -np.asarray(np.pi**2, x.dtype) / (sine * sine)
    total = lax.select(below, start, lax.full_like(x, 0))
    sign = lax.select(below, lax.full_like(x, -1), lax.full_like(x, 1))
    x = lax.select(below, 1 - x, x)
    for _ in range(6):
        total, x = total + 1 / (x * x), x + 1
    i = 1 / (x * x)
    series = 1 + 1 / (2 * x) + i * (1 / 6 - i * (1 / 30 - i * (1 / 42)))
    return sign * (total + series / x)


@row("polygamma")
def polygamma(call: Call, n: int, x):
    wide = np.dtype(np.float64 if call.out.dtype == np.float64 else np.float32)
    x = convert(x, wide)
    if n == 0:
        return convert(digamma(x), call.out.dtype)
    if n == 1:
        return convert(trigamma(x), call.out.dtype)
    sign = 1.0 if n % 2 else -1.0
    series = hurwitz(lax.full_like(x, n + 1), x)
    factor = lax.full_like(x, sign * math.factorial(n))
    return convert(lax.mul(factor, series), call.out.dtype)
