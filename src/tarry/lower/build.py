"""A canonical graph as one function of its inputs and packed run-time numbers.

In: a `Graph`. Out: a Python function for `jax.jit` that takes one vector of all
floats, one of all integers, then the inputs, and returns the outputs. An error in a
row is raised as `LoweringError` with the node that caused it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from tarry import dtypes
from tarry.lower.table import TABLE, Call, Out, Scalar, Transposed, convert, rounded
from tarry.lower.view import read_view
from tarry.lower.xla import jax, lax
from tarry.record.graph import Graph, Node, run_time_numbers
from tarry.record.slot import Spec
from tarry.record.trie import INPUT, VIEW, Const, Num, full_name

FLOATS, INTS = np.dtype(np.float64), np.dtype(np.int64)


ADDRESSABLE = 1 << 47  # bytes: the address space of a process


class LoweringError(Exception):
    def __init__(self, node: Node, reason: BaseException) -> None:
        super().__init__(f"{type(reason).__name__}: {reason}")
        self.node, self.reason = node, reason


def is_integral(kind: Any) -> bool:
    """True for numbers that travel in the vector of integers."""
    if isinstance(kind, str):
        return kind in "bi"
    return not (kind.is_floating_point or kind.is_complex)


def is_complex(kind: Any) -> bool:
    return kind == "c" if isinstance(kind, str) else kind.is_complex


class Numbers:
    """Run-time numbers: taken out of the two packed vectors, one split per dtype, or
    arguments of their own."""

    def __init__(
        self, layout: list[Num], floats: Any, ints: Any, loose: list[Any]
    ) -> None:
        self._layout = iter(layout)
        self._vectors = {False: floats, True: ints}
        self._loose = list(reversed(loose))
        self._pieces: dict[tuple[bool, np.dtype], list[Any]] = {}
        self._next = {False: 0, True: 0}

    def take(self) -> Scalar:
        """The next number."""
        number = next(self._layout)
        kind = number.kind
        if number.loose:
            value = self._loose.pop()
            return Scalar(kind, lambda dt: convert(value, dt))
        integral = is_integral(kind)
        at = self._next[integral]
        self._next[integral] = at + (2 if is_complex(kind) else 1)
        if is_complex(kind):
            return Scalar(kind, lambda dt: self._complex(at, dt))
        return Scalar(kind, lambda dt: self._piece(integral, at, dt))

    def _complex(self, at: int, dtype: np.dtype) -> Any:
        part = np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype
        real = self._piece(False, at, part)
        if dtype.kind != "c":
            return real
        return lax.complex(real, self._piece(False, at + 1, part))

    def _piece(self, integral: bool, at: int, dtype: np.dtype) -> Any:
        pieces = self._pieces.get((integral, dtype))
        if pieces is None:
            vector = self._vectors[integral]
            if dtype == np.bool_:
                vector = lax.ne(vector, lax.full_like(vector, 0))
            elif vector.dtype != dtype:
                vector = lax.convert_element_type(vector, dtype)
            pieces = lax.split(vector, (1,) * vector.shape[0])
            self._pieces[integral, dtype] = pieces
        return lax.reshape(pieces[at], ())


def packing(graph: Graph, all_loose: bool = False) -> list[Num]:
    """All run-time numbers of the graph, in order; `all_loose`: none is packed."""
    return [
        Num(n.kind, n.loose or all_loose)
        for node in graph.nodes
        for n in run_time_numbers(node.args)
    ]


def vector_sizes(numbers: list[Num]) -> tuple[int, int]:
    """Lengths of the packed vectors of floats and of integers."""
    packed = [n.kind for n in numbers if not n.loose]
    ints = sum(map(is_integral, packed))
    return len(packed) - ints + sum(map(is_complex, packed)), ints


def loose_dtype(kind: Any) -> np.dtype:
    """The dtype in which a loose number of this kind is passed."""
    if is_complex(kind):
        return np.dtype(np.complex128)
    return INTS if is_integral(kind) else FLOATS


class View:
    """A view that is lowered when it is first needed, and only as it is needed."""

    def __init__(self, base: Any, spec: Any, geometry: tuple) -> None:
        self._base, self._spec, self._geometry = base, spec, geometry
        self._plain: Any = None
        self._swapped: Any = None

    def plain(self) -> Any:
        if self._plain is None:
            self._plain = read_view(_plain(self._base), self._spec, self._geometry)
        return self._plain

    def for_contraction(self) -> Any:
        """Memory order where that is the transposed one, else the plain array."""
        shape, strides, offset, dtype = self._geometry
        if len(shape) < 2 or min(shape[-2:]) < 2 or strides[-2] >= strides[-1]:
            return self.plain()
        if self._swapped is None:
            swapped = (
                (*shape[:-2], shape[-1], shape[-2]),
                (*strides[:-2], strides[-1], strides[-2]),
                offset,
                dtype,
            )
            value = read_view(_plain(self._base), self._spec, swapped)
            self._swapped = Transposed(value)
        return self._swapped


def _plain(value: Any) -> Any:
    return value.plain() if isinstance(value, View) else value


def _argument(arg: Any, values: list, numbers: Numbers, transposes: bool) -> Any:
    if type(arg) is int:
        value = values[arg]
        if isinstance(value, View):
            return value.for_contraction() if transposes else value.plain()
        return value
    if isinstance(arg, tuple):
        return tuple([_argument(a, values, numbers, transposes) for a in arg])
    if isinstance(arg, Const):
        return arg.value
    return numbers.take() if isinstance(arg, Num) else arg


def _lower(node: Node, values: list, numbers: Numbers) -> list[Any]:
    if node.op == VIEW:
        base, spec, geometry = node.args
        return [View(values[base], spec.value, geometry.value)]
    for s in node.specs:
        _check_size(s)
    row = TABLE[node.op]
    args = [_argument(a, values, numbers, row.transposes) for a in node.args]
    outs = tuple([Out(s.shape, s.dtype or torch.float32) for s in node.specs])
    result = row.lower(Call(outs), *args)
    results = list(result) if isinstance(result, tuple | list) else [result]
    for value, out in zip(results, outs, strict=True):
        if value is not None and (value.shape, value.dtype) != (out.shape, out.dtype):
            raise TypeError(
                f"the row of {node.op} gave {value.dtype}{list(value.shape)} "
                f"for {out.dtype}{list(out.shape)}"
            )
    return [
        rounded(value) if out.torch_dtype is torch.complex32 else value
        for value, out in zip(results, outs)
    ]


def _check_size(spec: Spec) -> None:
    """XLA:CPU waits for ever for a kernel over more than a process can address."""
    size = spec.numel * spec.dtype.itemsize if spec.dtype else 0
    if size > ADDRESSABLE:
        raise MemoryError(
            f"a result of {size:,} bytes is more than there can be memory"
        )


def scope(node: Node) -> str:
    """What XLA's metadata calls the kernels of an operation: its spans and line."""
    line = f"{node.line.file.rpartition('/')[2]}:{node.line.number}"
    return "/".join((*node.line.spans, line))


class _InBody(Exception):
    """A lowering failed in the body of the operation that is blamed for it."""

    def __init__(self, error: LoweringError) -> None:
        node = error.node
        super().__init__(f"{full_name(node.op)} at {node.line}: {error}")


def evaluate(graph: Graph, inputs: Sequence[Any], numbers: Any) -> list[Any]:
    """The outputs of `graph` for these inputs; `numbers.take()` gives the next one."""
    values, left = [], list(reversed(inputs))
    for node in graph.nodes:
        if node.op == INPUT:
            values.append(left.pop())
            continue
        try:
            with jax.named_scope(scope(node)):
                values += _lower(node, values, numbers)
        except LoweringError as error:
            raise LoweringError(node, _InBody(error)) from error
        except Exception as error:
            raise LoweringError(node, error) from error
    return [_plain(values[v]) for v in graph.outputs]


def build(graph: Graph, layout: list[Num]) -> Callable[..., list[Any]]:
    """The function `(floats, ints, loose, inputs) -> outputs` that computes `graph`,
    its numbers passed as `layout` (of `packing`) says."""

    def program(
        floats: Any, ints: Any, loose: list[Any], inputs: list[Any]
    ) -> list[Any]:
        return evaluate(graph, inputs, Numbers(layout, floats, ints, loose))

    return program


def input_dtype(node: Node) -> np.dtype:
    return dtypes.to_numpy(node.dtypes[0])
