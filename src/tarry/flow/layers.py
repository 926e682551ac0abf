"""`scan_layers`: modules of one kind, one after the other, as one loop whose body is
compiled once."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from tarry.dispatch.storage import slot_of
from tarry.flow.scan import scan


def scan_layers(
    layers: Iterable[nn.Module], input_data: Any, partition_fn: Any = None,
    is_layer_pure: bool = False,
) -> Any:  # fmt: skip
    """`for layer in layers: input_data = layer(input_data)`, as one operation.

    The layers must be alike: the first one's `forward` is recorded, and run with the
    parameters and buffers of each. `input_data` keeps its structure, shapes and dtypes
    from layer to layer. Gradients reach the parameters of each layer; what layers write
    to their buffers in place (batch norm), they do; dropout differs between layers as
    it does in a Python loop. Parameters are stacked at every call, which copies them.

    `partition_fn`, `is_layer_pure`: as `partition_fn` and `is_fn_pure` of `scan`.

    Raises ValueError where layers have other parameters or buffers than the first, or
    of another shape or dtype; AsideError where a layer reads a value on the host.
    """
    modules = list(layers)
    if not modules:
        return input_data
    first = modules[0]
    params = [dict(m.named_parameters()) for m in modules]
    buffers = [dict(m.named_buffers()) for m in modules]
    _check_alike(params, "parameters")
    _check_alike(buffers, "buffers")
    _check_modes(modules)
    stacked = _stacked(params), _stacked(buffers)
    if not stacked[0] and not stacked[1]:
        for module in modules:
            input_data = module(input_data)
        return input_data
    changed: list[str] = []

    def one(carry: Any, weights: Any) -> tuple[Any, dict]:
        own_params, own_buffers = weights
        before = {name: slot_of(t).pos for name, t in own_buffers.items()}
        carry = functional_call(first, (own_params, own_buffers), (carry,))
        after = {n: t for n, t in own_buffers.items() if slot_of(t).pos != before[n]}
        changed[:] = after
        return carry, after

    result, after = scan(one, input_data, stacked, partition_fn, is_layer_pure)
    with torch.no_grad():
        for name in changed:
            for own, value in zip(buffers, after[name].unbind()):
                own[name].copy_(value)
    return result


def _stacked(groups: Sequence[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    return {name: torch.stack([g[name] for g in groups]) for name in groups[0]}


def _check_alike(groups: Sequence[dict[str, torch.Tensor]], what: str) -> None:
    first = groups[0]
    for i, other in enumerate(groups):
        if first.keys() != other.keys():
            names = ", ".join(sorted(first.keys() ^ other.keys()))
            raise ValueError(
                f"scan_layers: mismatched keys: layer {i} and layer 0 do not have the "
                f"same {what} ({names}). The layers must be alike"
            )
        for name, t in first.items():
            if t.shape != other[name].shape or t.dtype is not other[name].dtype:
                raise ValueError(
                    f"scan_layers: Shape mismatch of `{name}`: {list(t.shape)} "
                    f"{t.dtype} in layer 0, {list(other[name].shape)} "
                    f"{other[name].dtype} in layer {i}. The layers must be alike"
                )


def _check_modes(modules: Sequence[nn.Module]) -> None:
    for i, module in enumerate(modules):
        if module.training != modules[0].training:
            raise ValueError(
                f"scan_layers: layer {i} and layer 0 are not both in training or both "
                f"in evaluation mode: call .train() or .eval() on all of them"
            )
