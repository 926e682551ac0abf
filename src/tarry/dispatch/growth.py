"""The slow path of a kernel: an instruction recorded for the first time at its place.

Shapes, dtypes, strides and error messages come from PyTorch's own meta kernels, run
once per new instruction; the user's line is found once, here.
"""

import warnings
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch

from tarry.config import config
from tarry.cut.cause import Cause
from tarry.cut.sync import cut
from tarry.dispatch import seam
from tarry.dispatch.exits import is_decomposing, no_row, on_host
from tarry.dispatch.trial import (
    call_with,
    is_doubtful,
    refuse_overlap,
    try_dtype,
    try_on_cpu,
)
from tarry.dtypes import SUPPORTED
from tarry.errors import TarryWarning, UnsupportedError
from tarry.record.lines import runs_below, user_line
from tarry.record.slot import ABSENT, Spec, contiguous_spec, contiguous_strides, spec
from tarry.record.trie import Const, Instr, Num, Trace, const, recorder, token
from tarry.record.views import is_dense


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A call that is not recorded: its result was computed another way."""

    result: Any


def grow(
    trace: Trace, node: Instr, key: tuple, kernel: Any, actual: tuple
) -> Instr | Elsewhere | None:
    """The new edge for this call; None where the call has to start again."""
    if recorder.trace is not trace:
        return None
    if runs_below(seam.PRINT_CODES):
        return Elsewhere(on_host(kernel.op, actual, kernel.params, Cause.PRINT))
    if node.count >= config.node_budget and not trace.private:
        _over_budget(node)
        return None
    known = _question(kernel, actual)
    specs = _answers.get(known)
    if specs is None:
        metas = _results(kernel, actual)
        if metas is None:
            return Elsewhere(no_row(kernel.op, actual, kernel.params))
        specs = tuple([_result_spec(m) for m in metas])
        if len(_answers) > 20_000:
            _answers.clear()
        _answers[known] = specs
    if kernel.inplace:
        specs = (_logical(specs[0], actual[0]),)
    args = encode(kernel, key[1:], actual)
    line = user_line()
    return recorder.grow(node, key, kernel.row.name, args, specs, line)


def _results(kernel: Any, actual: tuple) -> tuple[Any, ...] | None:
    """Meta tensors of the results (None for one that PyTorch leaves undefined), or None
    where neither PyTorch nor the row infers them."""
    metas = _inferred(kernel, actual)
    if metas is None or kernel.row.strides is None or kernel.inplace:
        return metas
    found = kernel.row.strides(metas, *actual)
    return tuple([m if s is None else _laid_out(m, s) for m, s in zip(metas, found)])


def _laid_out(meta: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    return torch.empty_strided(meta.shape, strides, dtype=meta.dtype, device="meta")


def _inferred(kernel: Any, actual: tuple) -> tuple[Any, ...] | None:
    if is_doubtful(kernel, actual):
        try_on_cpu(kernel.op, kernel.params, actual)
        if kernel.inplace:  # some kernels write there one element after the other
            refuse_overlap(actual[0])
    if not is_decomposing():
        try_dtype(kernel.op, kernel.params, actual)
    try:
        if kernel.row.outs is not None:
            return tuple([_as_meta(out) for out in kernel.row.outs(*actual)])
        return infer(kernel.op, kernel.params, actual)
    except NotImplementedError:
        return None
    except Exception:
        # Either refuses the call, or takes what the meta kernel does not.
        return _flat(try_on_cpu(kernel.op, kernel.params, actual))


def _as_meta(out: Any) -> torch.Tensor | None:
    return out and torch.empty(out.shape, dtype=out.torch_dtype, device="meta")


_answers: dict[tuple, tuple[Spec, ...]] = {}


def _question(kernel: Any, actual: tuple) -> tuple:
    """All that a meta kernel looks at: geometry of operands, and static arguments."""
    parts: list[Any] = [kernel.op]
    for p, value in zip(kernel.params, actual):
        if p.kind in ("tensor", "tensors"):
            parts.append(_geometries(value))
        elif p.kind in ("number", "numbers"):
            parts.append(str(type(value)))
        elif p.kind == "static":
            parts.append(token(value))
    parts.append(torch.get_default_dtype())
    return tuple(parts)


def _geometries(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.stride(), value.dtype, value.device.type
    if isinstance(value, list | tuple):
        return tuple(map(_geometries, value))
    return type(value)


def infer(op: Any, params: list[Any], actual: tuple) -> tuple[torch.Tensor, ...]:
    """The op on meta tensors; raises what PyTorch raises for a bad call."""
    return _flat(call_with(op, params, actual, to_meta))


def _flat(result: Any) -> tuple[torch.Tensor, ...]:
    if isinstance(result, torch.Tensor):
        return (result,)
    flat: list[torch.Tensor] = []
    for r in result or ():
        flat += r if isinstance(r, list | tuple) else [r]
    return tuple(flat)


def to_meta(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if value.device.type == "cpu":
            return value
        return torch.empty_strided(
            value.shape, value.stride(), dtype=value.dtype, device="meta"
        )
    if isinstance(value, list | tuple):
        return type(value)(map(to_meta, value))
    return value


def _result_spec(meta: torch.Tensor) -> Spec:
    if not isinstance(meta, torch.Tensor):
        return ABSENT
    if meta.dtype not in SUPPORTED:
        raise UnsupportedError(
            f"dtype {meta.dtype}", str(user_line()), "use one of PyTorch's plain dtypes"
        )
    shape, strides = tuple(meta.shape), meta.stride()
    if not is_dense(shape, strides):
        strides = contiguous_strides(shape)
    return spec(shape, strides, meta.dtype)


def _logical(found: Spec, target: torch.Tensor) -> Spec:
    """An in-place result has the target's shape and dtype; its strides stay its own."""
    return contiguous_spec(found.shape, target.dtype)


def encode(kernel: Any, parts: tuple, actual: tuple) -> tuple:
    """The instruction's arguments, as the row takes them, from key parts and values."""
    args, left = [], list(reversed(parts))
    for p, value in zip(kernel.params, actual):
        if p.kind == "ignored":
            args.append(const(None))
            continue
        part = left.pop()
        if p.kind == "static":
            args.append(Const(_plain(value), part) if part is not None else const(None))
        elif p.name in kernel.row.ignores:
            args.append(const(None))
        else:
            args.append(_runtime(part))
    return tuple([args[i] for i in kernel.order])


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _runtime(part: Any) -> Any:
    if isinstance(part, tuple):
        return tuple(map(_runtime, part))
    return part if part is None or type(part) is int else Num(part)


def _over_budget(node: Instr) -> None:
    path = node.path()
    lines = Counter(str(n.line) for n in path[len(path) // 2 :])
    (line, times), *_ = lines.most_common(1)
    first = path[0].line if path else "?"
    warnings.warn(
        f"{node.count} instructions were pending, more than TARRY_NODE_BUDGET="
        f"{config.node_budget}: the graph was cut here. The recording began at "
        f"{first}; most of its second half ({times} instructions) comes from {line}. "
        "Call tarry.sync() once per step there.",
        TarryWarning,
        stacklevel=4,
    )
    cut(Cause.BUDGET, line)
