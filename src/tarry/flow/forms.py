"""Control flow and JAX functions in the calling conventions of torch_xla."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from tarry.flow.foreign import call_jax
from tarry.flow.layers import scan_layers
from tarry.flow.loops import fori_loop
from tarry.flow.pure import assume_pure


def call_jax_with(
    jax_func: Callable[..., Any], args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None, name: str | None = None,
    override_hash: Any = None,
) -> Any:  # fmt: skip
    """`tarry.call_jax(jax_func, *args, **kwargs)`; `name` and `override_hash` change
    nothing."""
    return call_jax(jax_func, *args, **(kwargs or {}))


def fori_loop_of_values(
    lower: Any, upper: Any, body_fun: Callable[..., Any], *values: torch.Tensor
) -> list[torch.Tensor]:
    """`body_fun(*values)`, over and over, `upper - lower` times, without the number of
    the iteration; a list: how many are left (0), and the last values."""

    def body(i: torch.Tensor, old: tuple) -> tuple:
        new = body_fun(*old)
        return (new,) if isinstance(new, torch.Tensor) else tuple(new)

    lower, upper = (
        int(b) if isinstance(b, torch.Tensor) and b.device.type == "cpu" else b
        for b in (lower, upper)
    )
    last = fori_loop(lower, upper, body, values)
    return [torch.zeros((), dtype=torch.int64, device=values[0].device), *last]


class _Unpacking(torch.nn.Module):
    """A layer that takes a tuple as several arguments."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.training = layer.training

    def forward(self, values: tuple) -> Any:
        return self.layer(*values)


def scan_layers_unpacking(
    layers: Iterable[torch.nn.Module], input_data: Any, partition_fn: Any = None,
    is_layer_pure: bool = False,
) -> Any:  # fmt: skip
    """`tarry.experimental.scan_layers`, where a tuple is handed to a layer as several
    arguments."""
    if isinstance(input_data, tuple):
        layers = [_Unpacking(layer) for layer in layers]
    return scan_layers(layers, input_data, partition_fn, is_layer_pure)


def assume_pure_again(func: Callable[..., Any], use_cache: bool = False) -> Any:
    """`tarry.experimental.assume_pure(func)`; `use_cache` changes nothing."""
    return assume_pure(func)


def jax_function(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A JAX function as one of tensors, with gradients."""
    return partial(call_jax, fn)


class PureModule(torch.nn.Module):
    """A module whose `forward` is pure: it is recorded once, and replayed.

    Parameters and buffers are those of `module`.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self._module = module
        self._pure = assume_pure(partial(_called, module))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        own = self._module
        state = dict(own.named_parameters()), dict(own.named_buffers())
        return self._pure(state, args, kwargs)


def _called(module: torch.nn.Module, state: tuple, args: tuple, kwargs: dict) -> Any:
    return torch.func.functional_call(module, state, args, kwargs)
