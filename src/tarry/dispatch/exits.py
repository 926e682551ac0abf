"""Out of the recording: values read on the host, and operators without a row.

Every way out names its cause and goes through `cut`. An operator without a row runs
PyTorch's own decomposition, recorded as its parts; only what has neither runs on the
CPU, with a warning once per operator and line and the counter `aten::<op>`.
"""

import threading
import time
import warnings
from typing import Any

import torch

from tarry import dtypes
from tarry.cut.cause import Cause
from tarry.cut.guard import guards, reading
from tarry.cut.sync import cut
from tarry.dispatch import seam
from tarry.dispatch.eager import cutting, is_eager_mode
from tarry.dispatch.operands import from_host
from tarry.dispatch.storage import TarryStorage, is_ours, slot_of
from tarry.dispatch.trial import has_bare_number, try_out
from tarry.errors import (
    FallbackWarning,
    PoisonedError,
    RunError,
    UnsupportedError,
)
from tarry.ledger import ledger
from tarry.record.calls import comes_by
from tarry.record.lines import runs_below, user_line
from tarry.record.slot import HOST, IR, POISONED, Failure, Slot, Spec
from tarry.record.trie import recorder
from tarry.run.transfer import fetch


def base_on_host(s: Slot, cause: Cause, detail: str = "") -> torch.Tensor:
    """A CPU tensor with the base value of a slot; must not be written to."""
    if guards or s.state is IR:
        cause, detail = _told(cause, detail)
    reading(cause, detail)
    while True:
        if s.state is IR:
            cut(cause, detail)
        with recorder.lock:  # another thread may write to it meanwhile
            state, data = s.state, s.data
        if state is not IR:
            return _fetched(s, state, data, cause)


def _fetched(
    s: Slot, state: Any, data: Any, cause: Cause, beside: bool = False
) -> torch.Tensor:
    if state is POISONED:
        raise PoisonedError(data.error) from data.error
    if state is HOST:
        return data
    try:
        return dtypes.host_tensor(fetch(data, beside), s.spec.dtype)
    except Exception as error:
        failure = RunError(cause.value, str(user_line()), str(error).split("\n")[0])
        with recorder.lock:
            if s.data is data:
                s.move(POISONED, Failure(failure))
        raise failure from error


def _told(cause: Cause, detail: str) -> tuple[Cause, str]:
    """The cause in the user's terms: what was called, not how PyTorch goes about it."""
    if runs_below(seam.PRINT_CODES):
        return Cause.PRINT, ""
    if cause is Cause.HOST and runs_below(seam.SAVE_CODES):
        return Cause.SAVE, ""
    if cause is Cause.HOST and comes_by(("tolist", "numpy")):
        return Cause.NUMPY, ""
    return cause, detail


def value_of(t: torch.Tensor, cause: Cause, detail: str = "") -> torch.Tensor:
    """A CPU tensor equal to `t`, geometry included; may share memory with a slot."""
    s = slot_of(t)
    return _shaped(t, _laid_out(base_on_host(s, cause, detail), s.spec), s.spec)


def computed_value(t: torch.Tensor) -> torch.Tensor:
    """A CPU copy of `t`, which is not pending, for a thread that no step waits for."""
    s = slot_of(t)
    base = _laid_out(_fetched(s, s.state, s.data, Cause.HOST, beside=True), s.spec)
    return _shaped(t, base, s.spec).clone()


def _shaped(t: torch.Tensor, base: torch.Tensor, spec: Spec) -> torch.Tensor:
    """The part of `base`, the value of a storage, that `t` shows."""
    if t.dtype is not spec.dtype:
        base = base.as_strided((spec.numel,), (1,)).view(t.dtype)
    value = base.as_strided(t.shape, t.stride(), t.storage_offset())
    if t.is_conj():
        value = value.conj_physical()
    return -value if t.is_neg() else value


def _laid_out(base: torch.Tensor, spec: Spec) -> torch.Tensor:
    """`base` with the strides of `spec`, so with its order in memory."""
    if spec.strides == base.stride():
        return base
    strided = torch.empty_strided(spec.shape, spec.strides, dtype=spec.dtype)
    return strided.copy_(base)


def copy_of(t: torch.Tensor, cause: Cause, detail: str = "") -> torch.Tensor:
    value = value_of(t, cause, detail)
    if value.storage_offset() or not value.is_contiguous():
        return value.clone()
    return value.clone() if slot_of(t).state is HOST else value


def read_bytes(storage: Any, cause: Cause) -> torch.UntypedStorage:
    base = base_on_host(storage.slot, cause)
    return _laid_out(base, storage.slot.spec).clone().untyped_storage()


TarryStorage.read_bytes = staticmethod(read_bytes)


def local_scalar_dense(self: torch.Tensor) -> Any:
    return value_of(self, Cause.ITEM).item()


def _map(value: Any, f: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return f(value)
    if isinstance(value, list | tuple):
        return type(value)(_map(v, f) for v in value)
    return value


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == seam.DEVICE:
        return torch.device("cpu")
    return None if isinstance(value, torch.Generator) else value


def on_host(
    op: Any, actual: tuple, params: list[Any] | None, cause: Cause, **keywords: Any
) -> Any:
    """Run `op` by PyTorch's CPU kernel on the values of `actual`; results go back."""
    detail = op._schema.name
    if params is not None:
        keywords |= {p.name: v for p, v in zip(params, actual) if p.kwarg_only}
        actual = tuple([v for p, v in zip(params, actual) if not p.kwarg_only])
    keywords = {
        k: v for k, v in keywords.items() if k not in ("alpha", "beta") or v is not None
    }
    pairs: list[tuple[torch.Tensor, torch.Tensor]] = []

    def host(t: torch.Tensor) -> torch.Tensor:
        if not is_ours(t):
            return t
        pairs.append((t, value_of(t, cause, detail).clone()))
        return pairs[-1][1]

    args = [_on_cpu(_map(a, host)) for a in actual]
    kwargs = {k: _on_cpu(_map(a, host)) for k, a in keywords.items()}
    result = op(*args, **kwargs)
    for ours, copy in _written(op, args, kwargs, pairs):
        if ours.shape != copy.shape:
            ours.resize_(copy.shape)
        ours.copy_(copy)
    back = {id(copy): ours for ours, copy in pairs}
    return _map(result, lambda t: back.get(id(t)) if id(t) in back else from_host(t))


def _written(op: Any, args: list, kwargs: dict, pairs: list) -> list:
    """The (device tensor, CPU copy) pairs that the schema says `op` writes to."""
    ids = set()
    for i, a in enumerate(op._schema.arguments):
        if a.alias_info is not None and a.alias_info.is_write:
            value = args[i] if i < len(args) else kwargs.get(a.name)
            flat = value if isinstance(value, list | tuple) else [value]
            ids |= {id(v) for v in flat}
    return [(ours, copy) for ours, copy in pairs if id(copy) in ids]


_active = threading.local()


def no_row(op: Any, args: tuple, params: list[Any] | None = None, **kwargs: Any) -> Any:
    """An operator without a row: its functional form, its decomposition, or the CPU."""
    _refuse_unsupported(op, args)
    if params is not None:
        kwargs |= {p.name: v for p, v in zip(params, args) if p.kwarg_only}
        args = tuple([v for p, v in zip(params, args) if not p.kwarg_only])
    stack = _active.__dict__.setdefault("ops", [])
    if op not in stack:
        stack.append(op)
        try:
            result = _decomposed(op, args, kwargs)
        finally:
            stack.pop()
        if result is not NotImplemented:
            return result
    return cpu_fallback(op, args, kwargs)


def is_decomposing() -> bool:
    """True while the parts of another operator are recorded."""
    return bool(_active.__dict__.get("ops"))


def _decomposed(op: Any, args: tuple, kwargs: dict) -> Any:
    functional = functional_form(op)
    if functional is not None:
        return _through_functional(op, functional, args, kwargs)
    if op in NOT_DECOMPOSED:
        return NotImplemented
    rule = seam.decompositions().get(op)
    if rule is not None:
        result = rule(*args, **kwargs)
        return NotImplemented if result is NotImplemented else result
    if seam.has_kernel(seam.schema_name(op._schema), "CompositeImplicitAutograd"):
        return op.decompose(*args, **kwargs)
    return NotImplemented


# Decompositions that read values, or are dearer than the CPU kernel they replace.
NOT_DECOMPOSED: set[Any] = set()


def functional_form(op: Any) -> Any:
    """The overload without side effects that an in-place or `out=` one stands for."""
    schema = op._schema
    if not schema.is_mutable:
        return None
    name = schema.name.removeprefix("aten::")
    outs = [a for a in schema.arguments if a.is_out]
    if not outs and name.endswith("_") and not name.endswith("__"):
        name = name[:-1]
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return None
    want = [(a.name, str(a.type)) for a in schema.arguments if not a.is_out]
    for which in packet.overloads():
        candidate = getattr(packet, which)
        args = [(a.name, str(a.type)) for a in candidate._schema.arguments]
        if not candidate._schema.is_mutable and args == want:
            return candidate
    return None


def _through_functional(op: Any, functional: Any, args: tuple, kwargs: dict) -> Any:
    arguments = op._schema.arguments
    named = {a.name: v for a, v in zip(arguments, args)} | kwargs
    targets = [
        named.pop(a.name) if a.is_out else named[a.name]
        for a in arguments
        if a.alias_info is not None and a.alias_info.is_write
    ]
    if has_bare_number(op, args):
        functional = functional.overloadpacket
    elif any(a.is_out for a in arguments):
        try_out(op, functional, args, kwargs, named)
    result = functional(**named)
    results = result if isinstance(result, list | tuple) else [result]
    if len(targets) != len(results):
        return NotImplemented
    for target, value in zip(targets, results):
        write_result(target, value)
    return targets[0] if len(targets) == 1 else tuple(targets)


def write_result(target: Any, value: Any) -> None:
    """`out=` and in-place: resize where allowed, check the cast, copy."""
    if isinstance(target, list | tuple):
        for t, v in zip(target, value):
            write_result(t, v)
        return
    if not torch.can_cast(value.dtype, target.dtype):
        raise RuntimeError(
            f"result type {cpp_name(value.dtype)} can't be cast to the desired "
            f"output type {cpp_name(target.dtype)}"
        )
    if target.shape != value.shape:
        if target.numel():
            warnings.warn(
                f"An output with one or more elements was resized since it had shape "
                f"{list(target.shape)}, which does not match the required output shape "
                f"{list(value.shape)}. This behavior is deprecated, and in a future "
                f"PyTorch release outputs will not be resized unless they have zero "
                f"elements. You can explicitly reuse an out tensor t by resizing it, "
                f"inplace, to zero elements with t.resize_(0).",
                UserWarning,
                stacklevel=2,
            )
        target.resize_(value.shape)
    target.copy_(value)


_CPP_NAMES = {
    torch.float32: "Float", torch.float64: "Double", torch.float16: "Half",
    torch.bfloat16: "BFloat16", torch.int64: "Long", torch.int32: "Int",
    torch.int16: "Short", torch.int8: "Char", torch.uint8: "Byte", torch.bool: "Bool",
    torch.complex64: "ComplexFloat", torch.complex128: "ComplexDouble",
}  # fmt: skip


def cpp_name(dtype: torch.dtype) -> str:
    return _CPP_NAMES.get(dtype, str(dtype))


def _refuse_unsupported(op: Any, args: tuple) -> None:
    for a in args:
        if isinstance(a, torch.Tensor) and a.layout is not torch.strided:
            raise UnsupportedError(
                f"{seam.schema_name(op._schema)} on a tensor of layout {a.layout}",
                str(user_line()),
                "use a dense tensor (x.to_dense()) on the device",
            )


def cpu_fallback(op: Any, args: tuple, kwargs: dict) -> Any:
    name = op._schema.name
    line = str(user_line())
    if any(
        a.alias_info is not None and not a.alias_info.is_write
        for a in op._schema.arguments
    ):
        raise UnsupportedError(
            f"the view operator {name}", line, "copy the tensor first (x.clone())"
        )
    started = time.perf_counter()
    result = on_host(op, args, None, Cause.FALLBACK, **kwargs)
    if ledger.add_fallback(name, line, time.perf_counter() - started):
        warnings.warn(
            f"{name} has no lowering: it runs on the CPU and cuts the graph ({line}). "
            f"tarry.debug.metrics.counter_value('{name}') counts these calls.",
            FallbackWarning,
            stacklevel=2,
        )
    return result


def boxed_fallback(op: Any, *args: Any, **kwargs: Any) -> Any:
    """The backend's kernel for every overload that has no kernel of its own."""
    if runs_below(seam.PRINT_CODES):
        return on_host(op, args, None, Cause.PRINT, **kwargs)
    run = cutting(op._schema.name, no_row) if is_eager_mode() else no_row
    return run(op, args, None, **kwargs)


def as_if_absent(name: str) -> Any:
    """The kernel of an overload whose own one, in C++, refuses other devices."""
    op = seam.op_overload(name)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        return boxed_fallback(op, *args, **kwargs)

    return kernel


KERNELS = {
    name: as_if_absent(name) for name in ("mode.values", "cummax.out", "cummin.out")
}
