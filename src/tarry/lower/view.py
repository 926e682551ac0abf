"""Reading a view out of its base value, and writing one back into it.

Both directions share one plan (`record.views.blocks`); where strides overlap or do
not nest (diagonals, windows) they become a gather and a scatter over the flat array.
A view of another dtype reinterprets the flat array's bits first.
"""

from typing import Any

import numpy as np
import torch

from tarry import dtypes
from tarry.lower.table import Call, row
from tarry.lower.xla import jnp, lax
from tarry.record.slot import Spec
from tarry.record.views import Blocks, blocks, physical


def _flat(base: Any, spec: Spec, dtype: Any) -> Any:
    """The base in memory order: as its dims where dtypes agree, else flat, recast."""
    perm, _ = physical(spec)
    value = base if perm == tuple(range(len(perm))) else lax.transpose(base, perm)
    return value if dtype is spec.dtype else recast(value, spec.dtype, dtype)


def _unflat(value: Any, spec: Spec, dtype: Any) -> Any:
    perm, dims = physical(spec)
    if dtype is not spec.dtype:
        value = recast(value, dtype, spec.dtype)
    value = lax.reshape(value, dims)
    inverse = tuple(int(i) for i in np.argsort(perm))
    return (
        value
        if perm == inverse == tuple(range(len(perm)))
        else lax.transpose(value, inverse)
    )


def recast(value: Any, source: torch.dtype, target: torch.dtype) -> Any:
    """A flat array with the same bits as `value`, of `source`, read as `target`."""
    dtype = dtypes.to_numpy(target)
    flat = lax.reshape(value, (value.size,))
    if flat.dtype.kind == "c":
        flat = lax.reshape(
            jnp.stack([lax.real(flat), lax.imag(flat)], -1), (2 * flat.size,)
        )
        flat = lax.convert_element_type(flat, dtypes.part(source))
    if flat.dtype == np.bool_:
        flat = lax.convert_element_type(flat, np.dtype(np.uint8))
    part = dtypes.part(target) if dtype.kind == "c" else dtype
    part = np.dtype(np.uint8) if part == np.bool_ else part
    have, want = flat.dtype.itemsize, part.itemsize
    if have < want:
        flat = lax.reshape(flat, (flat.size * have // want, want // have))
    flat = lax.bitcast_convert_type(flat, part)
    flat = lax.reshape(flat, (flat.size,))
    if dtype.kind == "c":
        flat = lax.convert_element_type(flat, np.dtype(f"f{dtype.itemsize // 2}"))
        pairs = lax.reshape(flat, (flat.size // 2, 2))
        return lax.complex(pairs[:, 0], pairs[:, 1])
    return lax.ne(flat, np.uint8(0)) if dtype == np.bool_ else flat


def _indices(shape: tuple, strides: tuple, offset: int) -> Any:
    index = lax.full(shape, np.int64(offset))
    for d, stride in enumerate(strides):
        if stride and shape[d] > 1:
            step = lax.mul(lax.broadcasted_iota(np.int64, shape, d), np.int64(stride))
            index = lax.add(index, step)
    return index


def read_view(base: Any, spec: Spec, geometry: tuple) -> Any:
    """The view of this geometry as an array."""
    shape, strides, offset, dtype = geometry
    if 0 in shape:
        return lax.full(shape, 0, dtypes.to_numpy(dtype))
    value = _flat(base, spec, dtype)
    plan = blocks(value.shape, shape, strides, offset)
    if plan is None:
        flat = lax.reshape(value, (value.size,))
        index = _indices(shape, strides, offset)
        return flat.at[index].get(mode="promise_in_bounds")
    value = _reshape(value, plan.radix)
    if plan.sliced:
        value = lax.slice(value, plan.starts, plan.limits, plan.steps)
    value = _arrange(value, plan)
    kept = tuple(shape[d] for d in plan.kept)
    if kept == shape:
        return _reshape(value, shape)
    value = _reshape(value, kept)
    return broadcast_dims(value, shape, plan.kept)


def _reshape(value: Any, shape: tuple) -> Any:
    return value if value.shape == tuple(shape) else lax.reshape(value, shape)


def _arrange(value: Any, plan: Blocks) -> Any:
    """Axes in view order, axes that a single index picked dropped."""
    if len(plan.axes) < value.ndim:
        keep = sorted(plan.axes)
        value = lax.reshape(value, tuple(value.shape[a] for a in keep))
        axes = tuple(keep.index(a) for a in plan.axes)
    else:
        axes = plan.axes
    return value if axes == tuple(range(len(axes))) else lax.transpose(value, axes)


def broadcast_dims(value: Any, shape: tuple, dims: tuple) -> Any:
    return lax.broadcast_in_dim(value, shape, dims)


@row("tarry::write")
def write(call: Call, base: Any, value: Any, spec: Spec, geometry: tuple) -> Any:
    """The base with `value` put where the view of `geometry` stands in it."""
    shape, strides, offset, dtype = geometry
    if 0 in shape:
        return base
    flat = _flat(base, spec, dtype)
    dims = flat.shape
    plan = blocks(dims, shape, strides, offset)
    if plan is None or len(plan.kept) < sum(n != 1 for n in shape):
        flat = lax.reshape(flat, (flat.size,))
        index = _indices(shape, strides, offset)
        flat = flat.at[index].set(value, mode="promise_in_bounds")
    else:
        flat = _put(_reshape(flat, plan.radix), value, shape, plan)
    return _unflat(flat, spec, dtype)


def _put(target: Any, value: Any, shape: tuple, plan: Blocks) -> Any:
    value = _reshape(value, tuple(shape[d] for d in plan.kept))
    inverse = sorted(range(len(plan.axes)), key=lambda i: plan.axes[i])
    if inverse != list(range(len(inverse))):
        value = lax.transpose(value, inverse)
    window = tuple(
        -(-(b - a) // s) for a, b, s in zip(plan.starts, plan.limits, plan.steps)
    )
    value = _reshape(value, window)
    if not plan.sliced:
        return value
    if all(s == 1 for s in plan.steps):
        starts = [np.int64(a) for a in plan.starts]
        return lax.dynamic_update_slice(target, value, starts)
    index = tuple(
        slice(a, b, s) for a, b, s in zip(plan.starts, plan.limits, plan.steps)
    )
    return target.at[index].set(value)
