"""Bessel functions of order 0 and 1 and the spherical one of order 0, by the rational
approximations of Cephes (`j0.c`, `j1.c`): around zero up to 5, beyond as modulus and
phase in 5 / x. Coefficients stand from the highest power down."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tarry.lower.precision import const, scale, shift
from tarry.lower.table import pointwise
from tarry.lower.xla import lax

_PP0 = (
    0.0007969367292973471, 0.08283523921074408, 1.239533716464143,
    5.447250030587687, 8.74716500199817, 5.303240382353949, 1.0,
)  # fmt: skip
_PQ0 = (
    0.0009244088105588637, 0.08562884743544745, 1.2535274390105895,
    5.470977403304171, 8.761908832370695, 5.306052882353947, 1.0,
)  # fmt: skip
_QP0 = (
    -0.011366383889846916, -1.2825271867050931, -19.553954425773597,
    -93.20601521237683, -177.68116798048806, -147.07750515495118,
    -51.41053267665993, -6.050143506007285,
)  # fmt: skip
_QQ0 = (
    64.3178256118178, 856.4300259769806, 3882.4018360540163, 7240.467741956525,
    5930.727011873169, 2062.0933166032783, 242.0057402402914,
)  # fmt: skip
_RP0 = (
    -4794432209.782018, 1956174919465.5657, -249248344360967.72, 9708622510473064.0,
)  # fmt: skip
_RQ0 = (
    499.563147152651, 173785.4016763747, 48440965.83399621, 11185553704.535683,
    2112775201154.892, 310518229857422.56, 3.1812195594320496e16,
    1.7108629408104315e18,
)  # fmt: skip
_YP0 = (
    15592.436785523574, -14663929.59039716, 5435264770.518765, -982136065717.9115,
    87590639439536.7, -3466283033847297.0, 4.4273326857256984e16,
    -1.8495080043698668e16,
)  # fmt: skip
_YQ0 = (
    1041.2835366425984, 626107.330137135, 268919633.39381415, 86400248710.3935,
    20297961275010.555, 3171577528429750.5, 2.5059625617265306e17,
)  # fmt: skip
_PP1 = (
    0.0007621256162081731, 0.07313970569409176, 1.1271960812968493,
    5.112079511468076, 8.424045901417724, 5.214515986823615, 1.0,
)  # fmt: skip
_PQ1 = (
    0.0005713231280725487, 0.06884559087544954, 1.105142326340617,
    5.073863861286015, 8.399855543276042, 5.209828486823619, 1.0,
)  # fmt: skip
_QP1 = (
    0.05108625947501766, 4.982138729512334, 75.82382841325453, 366.7796093601508,
    710.8563049989261, 597.4896124006136, 211.68875710057213, 25.207020585802372,
)  # fmt: skip
_QQ1 = (
    74.23732770356752, 1056.4488603826283, 4986.410583376536, 9562.318924047562,
    7997.041604473507, 2826.1927851763908, 336.0936078106983,
)  # fmt: skip
_RP1 = (
    -899971225.7055594, 452228297998.19403, -72749424522181.83, 3682957328638529.0,
)  # fmt: skip
_RQ1 = (
    620.8364781180543, 256987.25675774884, 83514679.14319493, 22151159547.97925,
    4749141220799.914, 784369607876235.9, 8.952223361846274e16,
    5.322786203326801e18,
)  # fmt: skip
_YP1 = (
    1263204747.9017804, -647355876379.1603, 114509511541823.73, -8127702555013251.0,
    2.024394757135949e17, -7.788771962659501e17,
)  # fmt: skip
_YQ1 = (
    594.3015923461282, 235564.09294306856, 73481194.44597217, 18760131610.870617,
    3882312774962.3857, 620557727146953.8, 6.871410873553005e16,
    3.9727060811656064e18,
)  # fmt: skip

_ZEROS_J0 = (5.783185962946784521, 30.47126234366208640)
_ZEROS_J1 = (14.6819706421238932572, 49.2184563216946036703)
_TWO_OVER_PI = 2 / np.pi


def horner(x: Any, coefficients: Sequence[float]) -> Any:
    total = lax.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        total = shift(total * x, c)
    return total


def ratio(x: Any, above: Sequence[float], below: Sequence[float]) -> Any:
    return horner(x, above) / horner(x, below)


def _waves(x: Any, order: int) -> tuple[Any, Any, Any]:
    """For x > 5: the parts in and out of phase, and the phase; but for sqrt(2/pi x)."""
    z = lax.square(const(x, 5) / x)
    p = ratio(z, _PP1, _PQ1) if order else ratio(z, _PP0, _PQ0)
    q = ratio(z, _QP1, _QQ1) if order else ratio(z, _QP0, _QQ0)
    phase = shift(x, -(2 * order + 1) * np.pi / 4)
    return p, const(x, 5) / x * q, phase


def _damped(x: Any, y: Any) -> Any:
    return scale(y, np.sqrt(_TWO_OVER_PI)) / lax.sqrt(x)


def _j_far(x: Any, order: int) -> Any:
    p, q, phase = _waves(x, order)
    return _damped(x, p * lax.cos(phase) - q * lax.sin(phase))


def _y_far(x: Any, order: int) -> Any:
    p, q, phase = _waves(x, order)
    return _damped(x, p * lax.sin(phase) + q * lax.cos(phase))


def _j0_near(x: Any) -> Any:
    z = x * x
    a, b = _ZEROS_J0
    value = shift(z, -a) * shift(z, -b) * ratio(z, _RP0, _RQ0)
    return lax.select(x < 1e-5, 1 - scale(z, 0.25), value)


def _j1_near(x: Any) -> Any:
    z = x * x
    a, b = _ZEROS_J1
    return ratio(z, _RP1, _RQ1) * x * shift(z, -a) * shift(z, -b)


def _split(x: Any, near: Any, far: Any) -> Any:
    """`near` up to 5, `far` beyond, each on arguments of its own."""
    five, small = lax.full_like(x, 5), x <= 5
    return lax.select(small, near(lax.min(x, five)), far(lax.max(x, five)))


@pointwise("special_bessel_j0", floats=True)
def bessel_j0(x: Any) -> Any:
    return _split(lax.abs(x), _j0_near, lambda x: _j_far(x, 0))


@pointwise("special_bessel_j1", floats=True)
def bessel_j1(x: Any) -> Any:
    value = _split(lax.abs(x), _j1_near, lambda x: _j_far(x, 1))
    return lax.select(x < 0, -value, value)


def from_zero(x: Any, value: Any, at_zero: float) -> Any:
    """`value` of a function that has a pole at 0 and is not defined below."""
    value = lax.select(x < 0, lax.full_like(x, np.nan), value)
    return lax.select(x == 0, lax.full_like(x, at_zero), value)


@pointwise("special_bessel_y0", floats=True)
def bessel_y0(x: Any) -> Any:
    def near(x: Any) -> Any:
        wave = scale(lax.log(x), _TWO_OVER_PI) * _j0_near(x)
        return ratio(x * x, _YP0, _YQ0) + wave

    return from_zero(x, _split(x, near, lambda x: _y_far(x, 0)), -np.inf)


@pointwise("special_bessel_y1", floats=True)
def bessel_y1(x: Any) -> Any:
    def near(x: Any) -> Any:
        wave = scale(_j1_near(x) * lax.log(x) - 1 / x, _TWO_OVER_PI)
        return x * ratio(x * x, _YP1, _YQ1) + wave

    return from_zero(x, _split(x, near, lambda x: _y_far(x, 1)), -np.inf)


@pointwise("special_spherical_bessel_j0", floats=True)
def spherical_bessel_j0(x: Any) -> Any:
    """sin(x) / x, by its series below 0.5."""
    series = [1.0]
    for k in range(1, 7):
        series.append(-series[-1] / (2 * k * (2 * k + 1)))
    value = lax.select(lax.abs(x) < 0.5, horner(x * x, series[::-1]), lax.sin(x) / x)
    return lax.select(lax.abs(x) == np.inf, lax.full_like(x, 0), value)
