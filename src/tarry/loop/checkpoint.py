"""Activation checkpointing that XLA cannot undo.

Forward and recomputation are in one program. XLA merges equal operations, so it would
keep the activations after all; here the recomputation starts from the arguments behind
an optimization barrier, which also waits for the gradient that needs it.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint as torch_checkpoint

from tarry.dispatch.storage import is_ours
from tarry.loop.barrier import optimization_barrier
from tarry.loop.nested import leaves, map_tensors


def checkpoint(
    function: Callable[..., Any], *args: Any, use_reentrant: bool = False, **kwargs: Any
) -> Any:
    """`function(*args, **kwargs)`; what it computes is not kept for the backward pass,
    but computed again there.

    Give activations as arguments: what `function` takes from elsewhere is not behind
    the barrier, and XLA may keep what is computed from it alone. Keywords of
    `torch.utils.checkpoint.checkpoint`, such as `preserve_rng_state`, are its own;
    `use_reentrant` is taken for torch_xla's sake, and either way PyTorch's
    non-reentrant form is used, which takes all that the other one does.
    """
    segment = _Segment(function)
    result = torch_checkpoint(segment, *args, use_reentrant=False, **kwargs)
    tied = [t for t in leaves(result) if is_ours(t) and t.requires_grad]
    if not tied:
        return result
    new = dict(zip(map(id, tied), _Gate.apply(segment, *tied), strict=True))
    return map_tensors(result, lambda t: new.get(id(t), t))


def checkpoint_module(module: torch.nn.Module) -> torch.nn.Module:
    """`module`, whose calls are `checkpoint`s from now on."""
    module.forward = functools.partial(  # type: ignore[method-assign]
        checkpoint, module.forward
    )
    return module


class _Segment:
    """The function: called once forward, and again for each backward pass."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.grads: list[torch.Tensor] = []
        self.forward = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.forward:
            self.forward = False
        else:
            args, kwargs = self._behind_a_barrier((args, kwargs))
        return self.function(*args, **kwargs)

    def _behind_a_barrier(self, given: Any) -> Any:
        tensors = [t for t in leaves(given) if is_ours(t)]
        grads, self.grads = self.grads, []
        made = optimization_barrier([*tensors, *grads])
        new = dict(zip(map(id, tensors), made))
        return map_tensors(given, lambda t: new.get(id(t), t))


class _Gate(torch.autograd.Function):
    """The results as they are; tells the segment the gradients that come to them."""

    @staticmethod
    def forward(ctx: Any, segment: _Segment, *tensors: torch.Tensor) -> Any:
        ctx.set_materialize_grads(False)
        ctx.segment = segment
        return tuple([t.view_as(t) for t in tensors])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        ctx.segment.grads = [g.detach() for g in grads if g is not None and is_ours(g)]
        return None, *grads
