"""Orthogonal polynomials of degree `n` at `x`, by their three-term recurrences, which
run as far as the largest degree asks. A negative degree gives 0; inside (-1, 1) the
Chebyshev polynomials of a high degree are taken from their trigonometric form, from
the degrees on at which PyTorch does so (`aten/src/ATen/native/Math.h`)."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tarry.lower.precision import const, scale, shift
from tarry.lower.table import convert, pointwise
from tarry.lower.xla import jnp, lax

_I64 = np.dtype(np.int64)


def _register(name: str) -> Callable[[Callable], Callable]:
    name = f"special_{name}"
    return pointwise(name, f"{name}.x_scalar", f"{name}.n_scalar", floats=True)


def _degree(n: Any) -> Any:
    """`n` cut to a whole number; -1 where it is none that fits in 64 bits."""
    valid = lax.abs(n) < 2.0**63
    return convert(lax.select(valid, n, lax.full_like(n, -1)), _I64)


def _recur(n: Any, zeroth: Any, first: Any, step: Callable[..., Any]) -> Any:
    """The polynomial of degree `n`; `step(k, p, q)` makes number k + 1 of two before.

    An element that has become NaN is not followed further: an overflow ends the loop.
    """

    def active(carry: Any) -> Any:
        k, _, q = carry
        return lax.bitwise_and(k < n, q == q)

    def advance(carry: Any) -> Any:
        k, p, q = carry
        on = active(carry)
        r = step(convert(k, q.dtype), p, q)
        return k + 1, lax.select(on, q, p), lax.select(on, r, q)

    carry = (_I64.type(1), zeroth, first)
    _, _, last = lax.while_loop(lambda c: jnp.any(active(c)), advance, carry)
    value = lax.select(n == 0, zeroth, last)
    return lax.select(n < 0, lax.full_like(value, 0), value)


def _sign(n: Any, dtype: np.dtype) -> Any:
    """(-1) ** n."""
    odd = lax.bitwise_and(n, lax.full_like(n, 1))
    return shift(scale(convert(odd, dtype), -2), 1)


# Of each kind: P_1(x) - 2 x, from which degree on it is trigonometric (plain, shifted),
# the trigonometric form in n and the angle, and its values at 1 and, but for the sign
# of (-1) ** n, at -1.
def _wave_t(n: Any, angle: Any) -> Any:
    return lax.cos(n * angle)


def _wave_u(n: Any, angle: Any) -> Any:
    return lax.sin((n + 1) * angle) / lax.sin(angle)


def _wave_v(n: Any, angle: Any) -> Any:
    half = scale(angle, 0.5)
    wave = lax.cos(shift(n, 0.5) * angle) / lax.cos(half)
    end = _sign(convert(n, _I64), n.dtype) * (n + n + 1)
    return lax.select(lax.sin(half) == 1, end, wave)


def _wave_w(n: Any, angle: Any) -> Any:
    half = scale(angle, 0.5)
    wave = lax.sin(shift(n, 0.5) * angle) / lax.sin(half)
    return lax.select(lax.cos(half) == 1, n + n + 1, wave)


_ONE, _NEXT, _ODD = (
    lambda n: lax.full_like(n, 1),
    lambda n: n + 1,
    lambda n: 2 * n + 1,
)
_KINDS: dict[str, tuple[Any, ...]] = {
    "t": (None, 6, 6, _wave_t, _ONE, _ONE),
    "u": (0, 8, 6, _wave_u, _NEXT, _NEXT),
    "v": (-1, 8, 6, _wave_v, _ONE, _ODD),
    "w": (1, 8, 4, _wave_w, _ODD, _ONE),
}


def _chebyshev(kind: str, x: Any, n: Any, shifted: bool) -> Any:
    offset, plain_limit, shifted_limit, wave, at_one, at_minus_one = _KINDS[kind]
    limit = shifted_limit if shifted else plain_limit
    n = _degree(n)
    real, one = convert(n, x.dtype), lax.full_like(x, 1)
    inside = lax.abs(x) < 1
    waves = lax.bitwise_and(n > limit, inside)
    ends = lax.abs(x) == 1
    first = x if offset is None else shift(x + x, offset)
    steps = lax.select(lax.bitwise_or(waves, ends), lax.full_like(n, 0), n)
    steps = lax.select(n < 0, n, steps)
    value = _recur(steps, one, first, lambda k, p, q: (x + x) * q - p)
    angle = lax.acos(lax.select(inside, x, lax.full_like(x, 0)))
    end = lax.select(x > 0, at_one(real), _sign(n, x.dtype) * at_minus_one(real))
    value = lax.select(waves, wave(real, angle), value)
    return lax.select(lax.bitwise_and(ends, n >= 0), end, value)


def _register_chebyshev(kind: str) -> None:
    @_register(f"chebyshev_polynomial_{kind}")
    def plain(x: Any, n: Any) -> Any:
        return _chebyshev(kind, x, n, False)

    @_register(f"shifted_chebyshev_polynomial_{kind}")
    def shifted(x: Any, n: Any) -> Any:
        return _chebyshev(kind, shift(x + x, -1), n, True)


for _kind in _KINDS:
    _register_chebyshev(_kind)


def _limited(n: Any, value: Any) -> Any:
    """NaN beyond the degree up to which PyTorch computes Hermite polynomials."""
    limit = 512 if value.dtype == np.float64 else 128
    return lax.select(n > limit, lax.full_like(value, np.nan), value)


def _hermite(x: Any, n: Any, slope: int) -> Any:
    """H for the slope 2, He for the slope 1."""
    n = _degree(n)
    y, few = scale(x, slope), lax.min(n, const(n, 512))
    value = _recur(
        few, lax.full_like(x, 1), y, lambda k, p, q: y * q - const(x, slope) * k * p
    )
    return _limited(n, value)


@_register("hermite_polynomial_h")
def hermite_h(x: Any, n: Any) -> Any:
    return _hermite(x, n, 2)


@_register("hermite_polynomial_he")
def hermite_he(x: Any, n: Any) -> Any:
    return _hermite(x, n, 1)


@_register("laguerre_polynomial_l")
def laguerre(x: Any, n: Any) -> Any:
    n, one = _degree(n), lax.full_like(x, 1)

    def step(k: Any, p: Any, q: Any) -> Any:
        return ((k + k + (one - x)) * q - k * p) / (k + 1)

    value = _recur(n, one, one - x, step)
    return lax.select(lax.bitwise_and(x == 0, n >= 0), one, value)


@_register("legendre_polynomial_p")
def legendre(x: Any, n: Any) -> Any:
    n, one = _degree(n), lax.full_like(x, 1)

    def step(k: Any, p: Any, q: Any) -> Any:
        return ((k + k + 1) * x * q - k * p) / (k + 1)

    ends = lax.bitwise_and(lax.abs(x) == 1, n >= 0)
    value = _recur(lax.select(ends, lax.full_like(n, 0), n), one, x, step)
    end = lax.select(x > 0, one, _sign(n, x.dtype))
    return lax.select(ends, end, value)
