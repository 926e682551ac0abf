"""`call_jax`: a function written in JAX as one operation of the graph."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tarry import dtypes
from tarry.dispatch.operands import read, record_op
from tarry.flow.body import Tensors, recorded_as
from tarry.flow.identity import identity
from tarry.flow.outside import inside
from tarry.flow.trees import check_on_device, flatten
from tarry.lower.foreign import JaxCall
from tarry.record.slot import contiguous_spec
from tarry.record.trie import Const, recorder
from tarry.run.arrays import put_together, results_of, wide_by_default

_WIDE = {torch.int64, torch.uint64, torch.float64, torch.complex128}


def call_jax(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`fn(*args, **kwargs)` of a function written in JAX (a Pallas kernel, for
    example), as one operation of the graph.

    Tensors of the device in the arguments, in any containers, arrive as JAX arrays;
    all other values are handed over as they are and shape the program: another value
    compiles it again, so pass what changes as a tensor. Returns what `fn` returns, with
    tensors in place of arrays. Gradients are JAX's (`jax.vjp`), of any order, for
    arguments and results of floating-point and complex dtypes.

    The program is compiled again where the function is another: where its code, its
    defaults, or what it refers to outside have changed. A new but equal function, such
    as a lambda in a loop, is the same.

    `fn` sees 64-bit types where an argument is of one, and JAX's own setting otherwise.
    It is run on abstract values at once, so its errors are raised here.

    Raises TypeError where `fn` refers to a PyTorch tensor, or an argument that is no
    tensor has no hash; ValueError for a tensor of another device.
    """
    tensors, tree = flatten((args, kwargs))
    check_on_device(tensors, "call_jax: a tensor")
    wide = wide_by_default() or any(t.dtype in _WIDE for t in tensors)
    others = tuple([identity(o) for o in tree.others])
    key = identity(fn), tree.shape, others
    try:
        call = JaxCall(fn, tree.filled, wide, key, _name(fn))
    except TypeError as error:
        raise TypeError(f"call_jax: {error}") from None
    _, shape = results_of(call, _operands(tensors))
    outs = _apply(call, tensors)
    return put_together(shape, outs)


def _name(fn: Any) -> str:
    return getattr(fn, "__name__", None) or type(fn).__name__


def _operands(tensors: Sequence[torch.Tensor]) -> list:
    return [(tuple(t.shape), dtypes.to_numpy(t.dtype)) for t in tensors]


def _apply(call: JaxCall, tensors: Tensors) -> Tensors:
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return list(_Differentiable.apply(call, *inside(tensors)))
    with torch.no_grad():
        return _record(call, tensors)


def _record(call: JaxCall, tensors: Sequence[torch.Tensor]) -> Tensors:
    found, _ = results_of(call, _operands(tensors))
    specs = [contiguous_spec(s, dtypes.from_numpy(dtype)) for s, dtype in found]
    with recorder.lock:
        operands = tuple([read(t) for t in tensors])
        outs = record_op("tarry::jax", (Const(call, call), operands), tuple(specs))
    recorded_as("tarry::jax")
    return outs


def _smooth(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


class _Differentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: JaxCall, *tensors: torch.Tensor) -> tuple:
        outs = _record(call, tensors)
        ctx.call, ctx.through = call, [i for i, t in enumerate(outs) if _smooth(t)]
        ctx.save_for_backward(*tensors)
        ctx.mark_non_differentiable(*[t for t in outs if not _smooth(t)])
        return tuple(outs)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple:
        tensors = ctx.saved_tensors
        of = [i for i, t in enumerate(tensors) if ctx.needs_input_grad[i + 1]]
        found: list[Any] = [None] * len(tensors)
        if of and ctx.through:
            back = ctx.call.backward(of, ctx.through)
            given = [*tensors, *[grads[i] for i in ctx.through]]
            for i, grad in zip(of, _apply(back, given)):
                found[i] = grad
        return None, *found
