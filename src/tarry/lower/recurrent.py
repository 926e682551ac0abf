"""LSTM and GRU cells after their matrix products, with the gradients from what the
forward saved (PyTorch's `_thnn_fused_*` ops; gates in the order PyTorch keeps them)."""

from typing import Any

from tarry.lower.table import Call, Out, broadcast, row
from tarry.lower.xla import lax


def _gates(x: Any, n: int) -> list[Any]:
    width = x.shape[1] // n
    return list(lax.split(x, (width,) * n, axis=1))


def _with_bias(gates: Any, bias: Any) -> Any:
    return gates if bias is None else lax.add(gates, broadcast(bias, gates.shape))


def _minus(x: Any) -> Any:
    """1 - x."""
    return lax.sub(lax.full_like(x, 1), x)


def _through_sigmoid(g: Any, y: Any) -> Any:
    return lax.mul(g, lax.mul(_minus(y), y))


def _through_tanh(g: Any, y: Any) -> Any:
    return lax.mul(g, _minus(lax.mul(y, y)))


def _lstm_outs(from_x: Any, from_h: Any, c: Any, *biases: Any) -> list[Out]:
    """PyTorch's meta kernel does not take cells without biases."""
    state = Out(tuple(c.shape), c.dtype)
    return [state, state, Out(tuple(from_x.shape), from_x.dtype)]


@row("_thnn_fused_lstm_cell", outs=_lstm_outs)
def lstm_cell(
    call: Call, from_x: Any, from_h: Any, c: Any, b_x: Any, b_h: Any
) -> tuple:
    """(h, c, workspace of the activated gates)."""
    total = lax.add(_with_bias(from_x, b_x), _with_bias(from_h, b_h))
    i, f, g, o = _gates(total, 4)
    i, f, o, g = lax.logistic(i), lax.logistic(f), lax.logistic(o), lax.tanh(g)
    c = lax.add(lax.mul(f, c), lax.mul(i, g))
    return lax.mul(o, lax.tanh(c)), c, lax.concatenate([i, f, g, o], 1)


@row("_thnn_fused_lstm_cell_backward_impl")
def lstm_cell_backward(
    call: Call, g_h: Any, g_c: Any, c: Any, c_new: Any, workspace: Any, has_bias: bool
) -> tuple:
    """(gradient of the gates, of c, of a bias)."""
    i, f, g, o = _gates(workspace, 4)
    zero = lax.full_like(c, 0)
    g_h, g_c = (zero if x is None else x for x in (g_h, g_c))
    t = lax.tanh(c_new)
    g_c = lax.add(g_c, _through_tanh(lax.mul(g_h, o), t))
    parts = [
        _through_sigmoid(lax.mul(g_c, g), i),
        _through_sigmoid(lax.mul(g_c, c), f),
        _through_tanh(lax.mul(g_c, i), g),
        _through_sigmoid(lax.mul(g_h, t), o),
    ]
    gates = lax.concatenate(parts, 1)
    bias = lax.reduce_sum(gates, (0,)) if has_bias else None
    return gates, lax.mul(g_c, f), bias


def _gru_outs(from_x: Any, from_h: Any, h: Any, *rest: Any) -> list[Out]:
    batch, width = h.shape
    return [Out((batch, width), h.dtype), Out((batch, 5 * width), h.dtype)]


@row("_thnn_fused_gru_cell", outs=_gru_outs)
def gru_cell(call: Call, from_x: Any, from_h: Any, h: Any, b_x: Any, b_h: Any) -> tuple:
    """(h, workspace of the gates, the old h and the hidden part of the new gate)."""
    x_r, x_z, x_n = _gates(_with_bias(from_x, b_x), 3)
    h_r, h_z, h_n = _gates(_with_bias(from_h, b_h), 3)
    r, z = lax.logistic(lax.add(x_r, h_r)), lax.logistic(lax.add(x_z, h_z))
    n = lax.tanh(lax.add(x_n, lax.mul(r, h_n)))
    new = lax.add(n, lax.mul(z, lax.sub(h, n)))
    return new, lax.concatenate([r, z, n, h, h_n], 1)


def _gru_backward_outs(g: Any, workspace: Any, has_bias: bool) -> list[Out | None]:
    batch, width = g.shape
    gates, bias = Out((batch, 3 * width), g.dtype), Out((3 * width,), g.dtype)
    biases = [bias, bias] if has_bias else [None, None]
    return [gates, gates, Out((batch, width), g.dtype), *biases]


@row("_thnn_fused_gru_cell_backward", outs=_gru_backward_outs)
def gru_cell_backward(call: Call, g: Any, workspace: Any, has_bias: bool) -> tuple:
    """Gradients of the gates from x and from h, of h, and of both biases."""
    r, z, n, h, h_n = _gates(workspace, 5)
    g_z = _through_sigmoid(lax.mul(g, lax.sub(h, n)), z)
    g_n = _through_tanh(lax.mul(g, _minus(z)), n)
    g_r = _through_sigmoid(lax.mul(g_n, h_n), r)
    from_x = lax.concatenate([g_r, g_z, g_n], 1)
    from_h = lax.concatenate([g_r, g_z, lax.mul(g_n, r)], 1)
    biases = (None, None)
    if has_bias:
        biases = lax.reduce_sum(from_x, (0,)), lax.reduce_sum(from_h, (0,))
    return from_x, from_h, lax.mul(g, z), *biases
