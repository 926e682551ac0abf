"""Connectionist temporal classification: the likelihood of labels under all alignments
with the frames, summed in log space frame by frame (Graves et al., 2006).

Lengths are run-time numbers, so a new batch is no new program: the saved forward
variables are as wide as the padded targets allow, not as the longest of them.
"""

from typing import Any

import numpy as np

from tarry.lower.activation import zero_unless
from tarry.lower.precision import spread
from tarry.lower.table import Call, Out, Scalar, convert, row
from tarry.lower.xla import jnp, lax

_I64 = np.dtype(np.int64)
_LENGTHS = ("input_lengths", "target_lengths")


def _padded(lp: Any, targets: Any) -> None:
    if lp.ndim != 3 or not lp.numel() or (targets.ndim == 1 and lp.shape[1] > 1):
        raise NotImplementedError("ctc_loss of targets that are not padded")


def _forward_outs(lp: Any, targets: Any, *rest: Any) -> list[Out]:
    _padded(lp, targets)
    frames, batch, _ = lp.shape
    width = 2 * targets.shape[-1] + 1
    return [Out((batch,), lp.dtype), Out((batch, frames, width), lp.dtype)]


def _backward_outs(g: Any, lp: Any, targets: Any, *rest: Any) -> list[Out]:
    _padded(lp, targets)
    return [Out(tuple(lp.shape), lp.dtype)]


def _runtime(lengths: Any) -> Any:
    if hasattr(lengths, "aval"):
        return convert(lengths, _I64)

    def one(v: Any) -> Any:
        return v.to(_I64) if isinstance(v, Scalar) else jnp.asarray(v, _I64)

    return jnp.stack([one(v) for v in lengths])


class _Lattice:
    """Labels with blanks between them: (N, W), and what the lengths leave of them."""

    def __init__(
        self, lp: Any, targets: Any, frames: Any, lengths: Any, blank: int
    ) -> None:
        self.frames, self.lengths = _runtime(frames), _runtime(lengths)
        batch, most = lp.shape[1], targets.shape[-1]
        targets = convert(lax.reshape(targets, (batch, most)), _I64)
        blanks = lax.full_like(targets, blank)
        pairs = lax.reshape(jnp.stack([blanks, targets], 2), (batch, 2 * most))
        end = lax.full((batch, 1), blank, _I64)
        self.labels = labels = lax.concatenate([pairs, end], 1)
        self.place = lax.broadcasted_iota(_I64, labels.shape, 1)
        self.last = spread(2 * self.lengths, labels.shape, (0,))
        # Whether a path may leave out the blank before a label.
        before = lax.concatenate([labels[:, :2], labels[:, :-2]], 1)
        self.skips = (self.place >= 2) & (labels != blank) & (labels != before)
        index = lax.broadcast(labels, lp.shape[:1])
        self.emitted = jnp.take_along_axis(lp, index, 2, mode="fill")
        self.time = lax.iota(_I64, lp.shape[0])
        valid = (self.frames >= 0) & (self.frames <= lp.shape[0])
        self.valid = valid & (self.lengths >= 0) & (self.lengths <= most)

    def only(self, keep: Any, x: Any) -> Any:
        return lax.select(keep, x, lax.full_like(x, -np.inf))


def _moved(x: Any, by: int) -> Any:
    """`x` moved along the labels; what comes in is impossible."""
    n = x.shape[1]
    gap = lax.full((x.shape[0], min(abs(by), n)), -np.inf, x.dtype)
    if by > 0:
        return lax.concatenate([gap, x[:, : max(n - by, 0)]], 1)
    return lax.concatenate([x[:, min(-by, n) :], gap], 1)


def _log_sum(*terms: Any) -> Any:
    most = terms[0]
    for t in terms[1:]:
        most = lax.max(most, t)
    most = lax.select(most == -np.inf, lax.full_like(most, 0), most)
    total = lax.exp(terms[0] - most)
    for t in terms[1:]:
        total = total + lax.exp(t - most)
    return lax.log(total) + most


def _forward(at: _Lattice) -> Any:
    """(T, N, W): log of the sum over paths that are at a label at a frame."""

    def step(alpha: Any, emitted: Any) -> tuple[Any, Any]:
        skip = at.only(at.skips, _moved(alpha, 2))
        alpha = emitted + _log_sum(alpha, _moved(alpha, 1), skip)
        return alpha, alpha

    start = (at.place <= 1) & (at.place <= at.last)
    first = at.only(start, at.emitted[0])
    _, rest = lax.scan(step, first, at.emitted[1:])
    return lax.concatenate([first[None], rest], 0)


def _backward(at: _Lattice) -> Any:
    """(T, N, W): the same for the paths from a label and frame on."""
    skips = jnp.roll(at.skips, -2, 1)
    ends = (at.place <= at.last) & (at.place >= at.last - 1)

    def step(beta: Any, frame: Any) -> tuple[Any, Any]:
        time, emitted = frame
        skip = at.only(skips, _moved(beta, -2))
        beta = emitted + _log_sum(beta, _moved(beta, -1), skip)
        is_last = spread(time == at.frames - 1, beta.shape, (0,))
        beta = lax.select(is_last, at.only(ends, emitted), beta)
        beta = at.only(at.place <= at.last, beta)
        return beta, beta

    start = lax.full_like(at.emitted[0], -np.inf)
    return lax.scan(step, start, (at.time, at.emitted), reverse=True)[1]


@row("_ctc_loss", "_ctc_loss.Tensor", scalars=_LENGTHS, outs=_forward_outs)
def ctc_loss(
    call: Call, lp: Any, targets: Any, frames: Any, lengths: Any, blank: int, *rest: Any
) -> tuple[Any, Any]:
    at = _Lattice(lp, targets, frames, lengths, blank)
    alpha = lax.transpose(_forward(at), (1, 0, 2))
    final = lax.clamp(_I64.type(0), at.frames - 1, _I64.type(lp.shape[0] - 1))
    row = jnp.take_along_axis(alpha, final[:, None, None], 1)[:, 0]
    ends = (at.place <= at.last) & (at.place >= at.last - 1)
    row = at.only(ends, row)
    most = lax.reduce_max(row, (1,))
    most = zero_unless(most > -np.inf, most)
    total = lax.exp(row - spread(most, row.shape, (0,))).sum(1)
    nll = -(lax.log(total) + most)
    nothing = lax.select(
        at.lengths == 0, lax.full_like(nll, 0), lax.full_like(nll, np.inf)
    )
    nll = lax.select(at.frames == 0, nothing, nll)
    nll = lax.select(at.valid, nll, lax.full_like(nll, np.nan))
    return nll, alpha


@row(
    "_ctc_loss_backward",
    "_ctc_loss_backward.Tensor",
    scalars=_LENGTHS,
    outs=_backward_outs,
)
def ctc_loss_backward(
    call: Call,
    g: Any,
    lp: Any,
    targets: Any,
    frames: Any,
    lengths: Any,
    nll: Any,
    alpha: Any,
    blank: int,
    zero_infinity: bool,
) -> Any:
    """exp(lp) less the share of the paths that emit a class at a frame."""
    at = _Lattice(lp, targets, frames, lengths, blank)
    paths = lax.transpose(alpha, (1, 0, 2)) + _backward(at) - at.emitted
    shape = paths.shape
    share = lax.exp(paths + spread(nll, shape, (1,)))
    share = zero_unless(lax.broadcast(at.place <= at.last, shape[:1]), share)
    time, sample = (lax.broadcasted_iota(_I64, shape, d) for d in (0, 1))
    labels = lax.broadcast(at.labels, shape[:1])
    shares = lax.full_like(lp, 0).at[time, sample, labels].add(share, mode="drop")
    value = lax.exp(lp) - shares
    none = lax.full_like(lp, 0 if zero_infinity else np.nan)
    value = lax.select(spread(nll == np.inf, lp.shape, (1,)), none, value)
    value = value * spread(g, lp.shape, (1,))
    used = at.time[:, None] < at.frames[None, :]
    return zero_unless(spread(used, lp.shape, (0, 1)), value)
