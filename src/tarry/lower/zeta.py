"""The Hurwitz zeta function and the polygamma functions made of it."""

import math

import numpy as np

from tarry.lower.table import Call, convert, pointwise, row
from tarry.lower.unary import digamma
from tarry.lower.xla import jnp, jsp, lax

_MOST_TERMS = 100_000  # of a sum over a negative argument


@pointwise(
    "special_zeta", "special_zeta.self_scalar", "special_zeta.other_scalar", floats=True
)
def zeta(x, q):
    return hurwitz(x, q)


def hurwitz(x, q):
    """zeta(x, q); for a negative `q` its terms are summed up to an argument above 9,
    where the asymptotic series holds (Cephes, `zeta.c`)."""

    def below(carry):
        i, a, _ = carry
        return lax.bitwise_and(jnp.any(a <= 9), i < _MOST_TERMS)

    def one_term(carry):
        i, a, total = carry
        term = lax.select(a <= 9, lax.pow(a, -x), lax.full_like(a, 0))
        return i + 1, lax.select(a <= 9, a + 1, a), total + term

    negative = q < 0
    start = lax.select(negative, q, lax.full_like(q, 10))
    carry = (np.int32(0), start, lax.full_like(q, 0))
    _, a, total = lax.while_loop(below, one_term, carry)
    rest = jsp.zeta(x, lax.select(negative, a, q))
    endless = lax.bitwise_and(lax.eq(x, lax.full_like(x, np.inf)), q > 0)
    power = lax.pow(q, -x)
    power = lax.select(
        lax.eq(power, lax.full_like(x, 0)), lax.full_like(x, np.nan), power
    )
    rest = lax.select(endless, power, rest)
    endless = lax.bitwise_and(lax.eq(x, lax.full_like(x, np.inf)), negative)
    rest = lax.select(endless, lax.full_like(x, 0), rest)
    y = lax.select(negative, total + rest, rest)
    infinity, nan = lax.full_like(x, np.inf), lax.full_like(x, np.nan)
    under = lax.bitwise_and(q <= 0, lax.ne(x, lax.floor(x)))
    y = lax.select(under, nan, y)
    y = lax.select(lax.bitwise_and(q <= 0, lax.eq(q, lax.floor(q))), infinity, y)
    y = lax.select(x < 1, nan, y)
    return lax.select(lax.eq(x, lax.full_like(x, 1)), infinity, y)


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
