"""`scaled_dot_product_attention` as one instruction, forward and backward.

Where dropout is off, the op that PyTorch leaves to devices (with its own derivative)
is called, else PyTorch's composition of smaller ops.
"""

from typing import Any

import torch

from tarry.dispatch import seam
from tarry.dispatch.operands import read, record_op
from tarry.record.slot import ABSENT, contiguous_spec, spec
from tarry.record.trie import const, recorder

aten = torch.ops.aten


def is_plain(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, dropout_p: float
) -> bool:
    """True where one instruction serves; else PyTorch composes smaller ops."""
    tensors = (query, key, value)
    return (
        dropout_p == 0.0
        and all(x.dim() == 4 and x.numel() for x in tensors)
        and query.shape[0] == key.shape[0] == value.shape[0]
        and query.shape[1] == key.shape[1] == value.shape[1]
        and query.shape[3] == key.shape[3]
        and key.shape[2] == value.shape[2]
        and query.dtype.is_floating_point
        and query.dtype is key.dtype is value.dtype
    )


def scaled_dot_product_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: Any = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: Any = None,
    enable_gqa: bool = False,
) -> torch.Tensor:  # fmt: skip
    if enable_gqa and query.dim() >= 3 and key.shape[-3] != query.shape[-3]:
        times = query.shape[-3] // max(key.shape[-3], 1)
        if times * key.shape[-3] == query.shape[-3]:
            key = key.repeat_interleave(times, -3)
            value = value.repeat_interleave(times, -3)
    clash = is_causal and attn_mask is not None
    if clash or not is_plain(query, key, value, dropout_p):
        return aten._scaled_dot_product_attention_math(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale,
            enable_gqa=enable_gqa,
        )[0]  # fmt: skip
    return aten._scaled_dot_product_fused_attention_overrideable(
        query, key, value, attn_mask, 0.0, is_causal, scale=scale
    )[0]


def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_bias: Any = None,
    dropout_p: float = 0.0, is_causal: bool = False, return_debug_mask: bool = False,
    *, scale: Any = None,
) -> tuple:  # fmt: skip
    """(output, probabilities, …): the backward takes the saved probabilities."""
    b, h, t, _ = query.shape
    shape = (b, h, t, value.shape[3])
    out = contiguous_spec(shape, query.dtype)
    if all(x.stride(-1) == 1 for x in (query, key, value)):
        out = spec(shape, _like(query, shape), query.dtype)
    saved = contiguous_spec((b, h, t, key.shape[2]), query.dtype)
    with recorder.lock:
        operands = [
            None if x is None else read(x) for x in (query, key, value, attn_bias)
        ]
        args = (*operands, const(is_causal), const(scale))
        y, p = record_op("tarry::attention", args, (out, saved))
    seed = torch.empty(0, dtype=torch.int64)
    return y, p, None, None, t, key.shape[2], seed, seed, None


def _like(query: torch.Tensor, shape: tuple) -> tuple:
    """Strides of the output of PyTorch's fused CPU kernel, which keeps the order of the
    query's dimensions; what that does not take has a row-major result."""
    order = torch.empty_strided(query.shape, query.stride(), device="meta")
    order = torch.empty_like(order).stride()
    dims = sorted(range(4), key=lambda d: (-order[d], d))
    strides, step = [0] * 4, 1
    for d in reversed(dims):
        strides[d] = step
        step *= shape[d]
    return tuple(strides)


def attention_backward(
    grad_out: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    attn_bias: Any, grad_input_mask: Any, out: Any, probabilities: Any, cum_seq_q: Any,
    cum_seq_k: Any, max_q: int, max_k: int, dropout_p: float, is_causal: bool,
    philox_seed: Any, philox_offset: Any, *, scale: Any = None,
) -> tuple:  # fmt: skip
    wanted = [bool(m) for m in grad_input_mask]
    wanted[3] = wanted[3] and attn_bias is not None
    sources = (query, key, value, attn_bias)
    outs = tuple(
        contiguous_spec(x.shape, x.dtype) if w else ABSENT
        for x, w in zip(sources, wanted)
    )
    with recorder.lock:
        operands = [None if x is None else read(x) for x in (grad_out, *sources)]
        rest = (read(out), read(probabilities))
        static = (const(is_causal), const(scale), const(tuple(wanted)))
        made = record_op("tarry::attention_backward", (*operands, *rest, *static), outs)
    return tuple([t if w else None for t, w in zip(made, wanted)])


def differentiable_backward(
    grad_out: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    attn_bias: Any, grad_input_mask: Any, *saved: Any, scale: Any = None,
) -> tuple:  # fmt: skip
    """The backward; where its result is to be differentiated again, that of PyTorch's
    composition of smaller ops, which have second derivatives."""
    if grad_out is None:  # what autograd passes for an output that no one used
        return None, None, None, None
    sources = (query, key, value, attn_bias)
    tracked = any(x is not None and x.requires_grad for x in (grad_out, *sources))
    if not (torch.is_grad_enabled() and tracked):
        with seam.below_autograd():
            return aten._scaled_dot_product_fused_attention_overrideable_backward(
                grad_out, *sources, grad_input_mask, *saved, scale=scale
            )
    is_causal = saved[7]
    out = aten._scaled_dot_product_attention_math(
        query, key, value, attn_bias, 0.0, is_causal, scale=scale
    )[0]
    wanted = [
        bool(m) and x is not None and x.requires_grad
        for m, x in zip(grad_input_mask, sources)
    ]
    inputs = [x for x, w in zip(sources, wanted) if w]
    grads = iter(torch.autograd.grad(out, inputs, grad_out, create_graph=True))
    return tuple([next(grads) if w else None for w in wanted])


# Composite in PyTorch, where only C++ may answer which implementation to take; and the
# backward, whose own derivative PyTorch leaves out.
_BACKWARD = "_scaled_dot_product_fused_attention_overrideable_backward"
AUTOGRAD_KERNELS = {
    "scaled_dot_product_attention": scaled_dot_product_attention,
    _BACKWARD: differentiable_backward,
}
KERNELS = {
    "scaled_dot_product_attention": scaled_dot_product_attention,
    "_scaled_dot_product_fused_attention_overrideable": attention,
    _BACKWARD: attention_backward,
}
