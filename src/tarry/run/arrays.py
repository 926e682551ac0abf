"""JAX arrays and functions from outside, and buffers handed out to it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tarry.lower.foreign import JaxCall
from tarry.lower.xla import jax
from tarry.run.platform import device, x64

_known: dict[Any, Any] = {}


def is_array(value: Any) -> bool:
    """True of a concrete JAX array."""
    return isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer)


def wide_by_default() -> bool:
    """Whether the user has turned 64-bit types on."""
    return bool(jax.config.jax_enable_x64)


def results_of(
    call: JaxCall, operands: Sequence[tuple[tuple[int, ...], np.dtype]]
) -> tuple[list[tuple[tuple[int, ...], np.dtype]], Any]:
    """Shape and dtype of each array of the result, and how they are put together.

    Runs the function on abstract values, once for a call and its operands.
    """
    key = call, tuple(operands)
    found = _known.get(key)
    if found is None:
        if len(_known) > 1_000:
            _known.clear()
        with jax.enable_x64(call.wide):
            avals = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in operands]
            result = jax.eval_shape(lambda *arrays: call.run(arrays), *avals)
        leaves, tree = jax.tree.flatten(result)
        specs = [(tuple(leaf.shape), np.dtype(leaf.dtype)) for leaf in leaves]
        found = _known[key] = specs, tree
    return found


def put_together(tree: Any, leaves: Sequence[Any]) -> Any:
    return jax.tree.unflatten(tree, leaves)


def placed(array: Any) -> Any:
    """`array` on tarry's device; itself where it is there already."""
    place = device()
    if array.is_deleted():
        raise ValueError("the JAX array has been deleted or donated")
    with x64():
        if array.weak_type:
            array = jax.lax.convert_element_type(array, array.dtype)
        return array if array.devices() == {place} else jax.device_put(array, place)


class _Capsule:
    """A DLPack capsule that says where its memory is: on tarry's device."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        kind = {"cpu": 1, "gpu": 2, "cuda": 2, "rocm": 10}.get(device().platform, 1)
        return kind, device().local_hardware_id or 0 if kind != 1 else 0


def from_dlpack(value: Any) -> Any:
    """A JAX array on the memory of an object with `__dlpack__`, or of a capsule."""
    if not hasattr(value, "__dlpack__"):
        value = _Capsule(value)
    with x64():
        return jax.dlpack.from_dlpack(value)
