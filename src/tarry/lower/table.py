"""The operator table: one functional row per ATen overload.

A row says how the op is written in `jax.lax` and which of its arguments are
run-time values. In-place, `out=` and view variants are no rows: they follow from
the ATen schema. A row's function receives a `Call` (the specs of its results) and
the schema's arguments in order, defaults filled in: tensors as arrays, Python
numbers that are run-time values as `Scalar`, everything else as it is. It returns
one array per result, each with exactly the shape and dtype of its spec.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tarry import dtypes
from tarry.lower.layout import Rule, iterated
from tarry.lower.xla import jnp, lax


@dataclass(frozen=True, slots=True)
class Out:
    """Shape and dtype of one result, as recorded from PyTorch."""

    shape: tuple[int, ...]
    torch_dtype: torch.dtype

    @property
    def dtype(self) -> np.dtype:
        return dtypes.to_numpy(self.torch_dtype)


@dataclass(slots=True)
class Call:
    """One call of a row: the specs of its results."""

    outs: tuple[Out, ...]

    @property
    def out(self) -> Out:
        return self.outs[0]


class Scalar:
    """A run-time number: `to(dtype)` gives it as a 0-d array.

    `kind` is `b`, `i`, `f` or `c` for a Python number, or the torch dtype of a 0-d
    CPU tensor, which takes part in type promotion as such.
    """

    __slots__ = ("kind", "to")

    def __init__(self, kind: str | torch.dtype, to: Callable[[np.dtype], Any]) -> None:
        self.kind, self.to = kind, to


@dataclass(frozen=True, slots=True)
class Transposed:
    """An operand whose last two dimensions stand swapped in `value`."""

    value: Any


@dataclass(frozen=True, slots=True)
class Row:
    """How one functional ATen overload is lowered, and what is static in it."""

    name: str
    lower: Callable[..., Any]
    scalars: frozenset[str] = frozenset()
    static: frozenset[str] = frozenset()
    ignores: frozenset[str] = frozenset()
    pointwise: bool = False
    transposes: bool = False
    outs: Callable[..., Sequence[Out | None]] | None = None
    strides: Rule | None = None
    doubts: Callable[..., bool] | None = None


TABLE: dict[str, Row] = {}

# Names of a row's arguments, as its operator's schema has them; for reports.
ARGUMENTS: dict[str, tuple[str, ...]] = {}


def _add(row: Row) -> None:
    if row.name in TABLE:
        raise ValueError(f"two rows for aten::{row.name}")
    TABLE[row.name] = row


def row(
    *names: str,
    scalars: Sequence[str] = (),
    static: Sequence[str] = (),
    ignores: Sequence[str] = (),
    transposes: bool = False,
    outs: Callable[..., Sequence[Out | None]] | None = None,
    strides: Rule | None = None,
    doubts: Callable[..., bool] | None = None,
) -> Callable[[Callable], Callable]:
    """Register the decorated function as the lowering of these overloads.

    `scalars`: float arguments that are run-time values (schema type `Scalar` is one
    without being named); `static`: `Scalar` arguments that shape the program;
    `ignores`: tensor arguments of which only shape and dtype matter; `transposes`:
    transposed views arrive as `Transposed`; `outs`: result specs from the call's
    arguments, for operators for which PyTorch has no meta kernel; `strides`: the rule
    of `layout` for operators whose CPU kernel lays results out in its own way;
    `doubts`: true for the arguments of a call that PyTorch's meta kernel takes and its
    CPU kernel may refuse.
    """

    def register(lower: Callable) -> Callable:
        for name in names:
            _add(
                Row(
                    name,
                    lower,
                    frozenset(scalars),
                    frozenset(static),
                    frozenset(ignores),
                    transposes=transposes,
                    outs=outs,
                    strides=strides,
                    doubts=doubts,
                )
            )
        return lower

    return register


def is_operand(value: Any) -> bool:
    return isinstance(value, Scalar) or hasattr(value, "aval") or is_host(value)


def is_host(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic)


def torch_dtype(value: Any) -> torch.dtype:
    return dtypes.from_numpy(value.dtype)


def compute_dtype(args: Sequence[Any]) -> torch.dtype:
    """PyTorch's promoted dtype of the operands among `args`."""
    tensors, numbers = [], []
    for a in args:
        if isinstance(a, Scalar):
            if isinstance(a.kind, str):
                numbers.append(a.kind)
            else:
                tensors.append((a.kind, 0))
        elif is_operand(a):
            tensors.append((torch_dtype(a), a.ndim))
    result = dtypes.promote(tensors, numbers)
    assert result is not None
    return result


def convert(value: Any, dtype: np.dtype) -> Any:
    """`value` as an array of `dtype`, by PyTorch's conversion rules."""
    if isinstance(value, Scalar):
        return value.to(dtype)
    if value.dtype == dtype:
        return value
    if value.dtype.kind == "c" and dtype.kind not in "cb":
        value = lax.real(value)
    if dtype == np.bool_:
        return lax.ne(value, lax.full_like(value, 0))
    if value.dtype.kind in "fV" and dtype.kind in "iu":
        return lax.convert_element_type(_whole(value, dtype), dtype)
    if value.dtype == np.bool_ and dtype.kind in "fVc":
        # XLA turns a product with a converted mask into a select: NaN * False is NaN.
        value = lax.convert_element_type(value, np.dtype(np.uint8))
    return lax.convert_element_type(value, dtype)


def _whole(value: Any, dtype: np.dtype) -> Any:
    """Floats as integers that wrap when they become `dtype`. NaN and what no integer of
    that width holds are the lowest one, as x86 has it, where C++ leaves it open."""
    if value.dtype.itemsize < 4:
        value = lax.convert_element_type(value, np.dtype(np.float32))
    narrow = dtype.itemsize < 8 and dtype not in (np.uint8, np.uint32)
    width = np.iinfo(np.int32 if narrow else np.int64)
    end, least = value.dtype.type(-float(width.min)), width.dtype.type(width.min)

    def truncated(v: Any) -> Any:
        whole = lax.convert_element_type(v, width.dtype)
        return lax.select(lax.lt(lax.abs(v), end), whole, lax.full_like(whole, least))

    if dtype != np.uint64:
        return truncated(value)
    upper = truncated(lax.sub(value, end))
    upper = lax.bitwise_xor(upper, lax.full_like(upper, least))
    return lax.select(lax.ge(value, end), upper, truncated(value))


def rounded(value: Any) -> Any:
    """complex64 with its parts rounded to f16: the values of complex32."""
    bits = (5, 10)  # of the exponent and of the mantissa
    return lax.complex(
        *(lax.reduce_precision(f(value), *bits) for f in (lax.real, lax.imag))
    )


def narrow(value: Any, dtype: np.dtype) -> Any:
    """f32 values with only the bits of a half-precision dtype: what the CPU has between
    two operations, where XLA keeps more if several are one kernel. As they are for
    another dtype."""
    if dtype.itemsize != 2 or dtype.kind in "iu":
        return value
    info = jnp.finfo(dtype)
    return lax.reduce_precision(value, info.nexp, info.nmant)


def broadcast(value: Any, shape: tuple[int, ...]) -> Any:
    """`value` broadcast to `shape`, aligned at the last dimension."""
    if value.shape == shape:
        return value
    first = len(shape) - value.ndim
    keep = [d for d, n in enumerate(value.shape) if n == shape[first + d]]
    if len(keep) < value.ndim:
        value = lax.reshape(value, [value.shape[d] for d in keep])
    return lax.broadcast_in_dim(value, shape, [first + d for d in keep])


def pointwise(
    *names: str,
    floats: bool = False,
    opmath: bool = True,
    rounds: Sequence[int] = (),
    static: Sequence[str] = (),
    scalars: Sequence[str] = (),
    strides: Rule | None = None,
    doubts: Callable[..., bool] | None = None,
) -> Callable[[Callable], Callable]:
    """Register an elementwise lowering: operands arrive promoted and broadcast.

    `floats`: integers compute as the default float (`sin`, `div`, …).
    `opmath`: f16 and bf16 compute in f32 and round once, as PyTorch does.
    `rounds`: the places of operands of which a number is rounded to f16 or bf16 beside
    tensors of these, as the operator's CPU kernel does; others keep their f32 value.
    """

    def register(fn: Callable) -> Callable:
        def lower(call: Call, *args: Any) -> Any:
            common = compute_dtype(args)
            if floats and not (common.is_floating_point or common.is_complex):
                common = torch.get_default_dtype()
            dt = dtypes.to_numpy(dtypes.opmath(common) if opmath else common)
            shape = call.out.shape
            values = list(args)
            for i, a in enumerate(args):
                if is_operand(a):
                    value = convert(a, dt)
                    if i in rounds and isinstance(a, Scalar):
                        value = narrow(value, dtypes.to_numpy(common))
                    values[i] = broadcast(value, shape)
            return convert(fn(*values), call.out.dtype)

        lower.__name__ = fn.__name__
        for name in names:
            _add(
                Row(
                    name,
                    lower,
                    frozenset(scalars),
                    frozenset(static),
                    pointwise=True,
                    strides=strides or iterated(floats=floats),
                    doubts=doubts,
                )
            )
        return fn

    return register
