"""The Airy function Ai (Cephes, `airy.c`): its power series around zero, rational
approximations of its decay above 2.09 and of its waves below -2.09. Coefficients stand
from the highest power down."""

from typing import Any

import numpy as np

from tarry.lower.bessel import horner, ratio
from tarry.lower.precision import scale, shift
from tarry.lower.table import pointwise
from tarry.lower.xla import lax

_AN = (
    0.346538101525629, 12.007595273964581, 76.27960536152345, 168.08922493463058,
    159.75639135016442, 70.53609068404442, 14.026469116338967, 1.0,
)  # fmt: skip
_AD = (
    0.5675945326387702, 14.75625625848472, 84.51389701414746, 177.31808814540045,
    164.2346928715297, 71.47784008255756, 14.095913560783403, 1.0,
)  # fmt: skip
_AFN = (
    -0.1316963234183318, -0.6264565444319123, -0.6931580360369335,
    -0.2797799815451191, -0.04919001326095003, -0.004062659235948854,
    -0.0001592764962392621, -2.776491081552329e-06, -1.6778769848911465e-08,
)  # fmt: skip
_AFD = (
    13.356042070655324, 32.682503279522464, 26.736704094149957, 9.187074029072596,
    1.4752914677166642, 0.11568717379518804, 0.004402916416152112,
    7.547203482874142e-05, 4.5185009297058035e-07,
)  # fmt: skip
_AGN = (
    0.01973399320916857, 0.39110302961568827, 1.0657989759959559,
    0.9391692298166502, 0.35146565610554764, 0.06338889196289255,
    0.005858041130483885, 0.000282851600836737, 6.98793669997261e-06,
    8.117892395543892e-08, 3.415517847659236e-10,
)  # fmt: skip
_AGD = (
    9.30892908077442, 19.835292871831214, 15.564662893286462, 5.476860694229755,
    0.9542936116189619, 0.08645808263523921, 0.004126565238242226,
    0.00010125908511650914, 1.1716673321441352e-06, 4.9183457006293e-09,
)  # fmt: skip

_AT_ZERO = (0.355028053887817239260, 0.258819403792806798405)  # Ai and -Ai'
_TERMS = 14  # of the series, enough for float64 at 2.09
_LIMIT = 2.09


def _series(x: Any) -> Any:
    f, g = [1.0], [1.0]
    for k in range(1, _TERMS):
        f.append(f[-1] / ((3 * k - 1) * 3 * k))
        g.append(g[-1] / (3 * k * (3 * k + 1)))
    z = x * x * x
    value, slope = _AT_ZERO
    f, g = horner(z, f[::-1]), x * horner(z, g[::-1])
    return scale(f, value) - scale(g, slope)


def _zeta(x: Any) -> Any:
    """2/3 x ** 1.5, rounded as in PyTorch, for it is an angle; the barrier keeps XLA
    from multiplying by 1/3."""
    return scale(x, 2) * lax.sqrt(x) / lax.optimization_barrier(lax.full_like(x, 3))


def _decay(x: Any) -> Any:
    zeta = _zeta(x)
    size = ratio(1 / zeta, _AN, _AD) / (lax.sqrt(lax.sqrt(x)) * lax.exp(zeta))
    return scale(size, 0.5 / np.sqrt(np.pi))


def _waves(x: Any) -> Any:
    """Ai(-x)."""
    zeta = _zeta(x)
    z = 1 / zeta
    t, zz = shift(zeta, np.pi / 4), z * z
    sine = lax.sin(t) * shift(zz * ratio(zz, _AFN, _AFD), 1)
    wave = sine - lax.cos(t) * (z * ratio(zz, _AGN, _AGD))
    return scale(wave, 1 / np.sqrt(np.pi)) / lax.sqrt(lax.sqrt(x))


@pointwise("special_airy_ai", floats=True)
def airy_ai(x: Any) -> Any:
    limit = lax.full_like(x, _LIMIT)
    value = _series(lax.clamp(-limit, x, limit))
    value = lax.select(x >= limit, _decay(lax.max(x, limit)), value)
    value = lax.select(x < -limit, _waves(lax.max(-x, limit)), value)
    value = lax.select(x > 103.892, lax.full_like(x, 0), value)
    return lax.select(lax.abs(x) == np.inf, lax.full_like(x, np.nan), value)
