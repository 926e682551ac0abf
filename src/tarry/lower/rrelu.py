"""`rrelu` in evaluation: a leaky ReLU whose slope is the middle of the range."""

from typing import Any

from tarry.lower.precision import const, scale, widen
from tarry.lower.table import Call, Out, Scalar, convert, row
from tarry.lower.xla import lax


def _outs(x: Any, noise: Any, lower: Any, upper: Any, training: bool, *rest: Any):
    if training or not x.is_floating_point():
        raise NotImplementedError("rrelu that writes its noise")
    return [Out(tuple(x.shape), x.dtype)]


@row("rrelu_with_noise", ignores=("noise",), outs=_outs)
def rrelu_with_noise(
    call: Call, x: Any, noise: Any, lower: Scalar, upper: Scalar, *rest: Any
) -> Any:
    y = widen(x)
    slope = scale(lax.add(lower.to(y.dtype), upper.to(y.dtype)), 0.5)
    y = lax.select(lax.gt(y, const(y, 0)), y, lax.mul(y, slope))
    return convert(y, call.out.dtype)
