"""Calls that PyTorch's CPU refuses and its meta kernels take: tried on the CPU first.

In: an operator and its arguments. The CPU runs it on stand-ins, zeros of the same
geometry (tensors that share memory share it there), and what it raises is raised. This
happens on slow paths only: for a new instruction that its row or a look at its operands
makes doubtful, for the first one of an operator on integers, booleans or complex
numbers, and for the first call of a kind that writes to `out=`.
"""

import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tarry.dispatch import seam
from tarry.dispatch.storage import is_ours, slot_of
from tarry.record.slot import Slot
from tarry.record.trie import token


def call_with(
    op: Any, params: list[Any], actual: tuple, stand_in: Callable[[Any], Any]
) -> Any:
    """The op called with stand-ins for the tensors of a call."""
    positional, keywords = [], {}
    for p, value in zip(params, actual):
        value = stand_in(value)
        if p.name in ("alpha", "beta") and value is None:
            value = 1
        if p.name == "device" and value is not None:
            value = torch.device("meta")
        if p.kwarg_only:
            keywords[p.name] = value
        else:
            positional.append(value)
    return op(*positional, **keywords)


def is_doubtful(kernel: Any, actual: tuple) -> bool:
    """True for calls that PyTorch's meta kernels may accept and its CPU ones refuse."""
    if kernel.row.doubts is not None and kernel.row.doubts(*actual):
        return True
    first = actual[0] if actual else None
    if not isinstance(first, torch.Tensor):
        return False
    if kernel.inplace and (overlaps(first) or _lose_something(actual, first.dtype)):
        return True
    last = max(first.dim(), 1)
    dims = [v for p, v in zip(kernel.params, actual) if p.name == "dim"]
    return any(type(d) is int and not -last <= d < last for d in dims)


def _lose_something(actual: tuple, dtype: torch.dtype) -> bool:
    """True of numbers that a result of this dtype cannot hold by their kind."""
    if dtype.is_complex:
        return False
    kinds: Any = complex if dtype.is_floating_point else float | complex
    if dtype is torch.bool:
        kinds = int | float | complex
    return any(isinstance(v, kinds) and not isinstance(v, bool) for v in actual)


def overlaps(t: torch.Tensor) -> bool:
    """True where two elements of `t` may share memory."""
    return t.numel() > 1 and any(s == 0 and n > 1 for s, n in zip(t.stride(), t.shape))


def refuse_overlap(t: torch.Tensor) -> None:
    """Raise what PyTorch's kernels raise where they are to write to such a tensor."""
    if overlaps(t):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor "
            "refers to a single memory location. Please clone() the tensor before "
            "performing the operation."
        )


def try_on_cpu(op: Any, params: list[Any], actual: tuple) -> Any:
    """What PyTorch's CPU kernel makes of zeros in place of the operands; raises what it
    raises, in its words."""
    memory = _Memory()
    try:
        return call_with(op, params, actual, memory.stand_in)
    except Exception as error:
        raise type(error)(str(error)) from None


def _error_of(call: Callable[[], Any]) -> Exception | None:
    try:
        call()
    except Exception as error:
        return error
    return None


_OF_DTYPE = re.compile("implemented|support|floating|dtype")

NUMBERS = (int, float, complex)

# A call is not tried by its dtype or `out=` where its operands have more elements.
LARGEST = 1 << 16

_tried: set[tuple] = set()


def try_dtype(op: Any, params: list[Any], actual: tuple) -> None:
    """Raise what the CPU raises for integers, booleans or complex numbers, once each.

    Meta kernels know less of dtypes than kernels do. Operands of several dtypes are not
    tried, as zeros do not stand in for indices and pivots.
    """
    tensors = [t for t in _flat(actual) if isinstance(t, torch.Tensor)]
    if not tensors or tensors[0].is_floating_point():
        return
    if any(t.dtype is not tensors[0].dtype for t in tensors):
        return
    others = [v if isinstance(v, torch.dtype) else type(v) for v in actual]
    question = (op, tensors[0].dtype, *others)
    if question in _tried or sum(t.numel() for t in tensors) > LARGEST:
        return
    memory = _Memory()
    error = _quietly(lambda: call_with(op, params, actual, memory.stand_in))
    if error is not None and _OF_DTYPE.search(str(error)):
        raise type(error)(str(error)) from None
    _tried.add(question)


def try_fill(method: str, dtype: torch.dtype, values: tuple) -> None:
    """Raise what the CPU raises for a draw of integers, booleans or complex numbers."""
    if (method, dtype) in _tried:
        return
    one = torch.zeros(1, dtype=dtype)
    error = _quietly(lambda: getattr(one, method)(*values))
    if error is not None:
        raise type(error)(str(error)) from None
    _tried.add((method, dtype))


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _flat(value)
        else:
            yield value


def _quietly(call: Callable[[], Any]) -> Exception | None:
    """The error of a call that leaves no warning and no trace in the random state."""
    random = torch.get_rng_state()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _error_of(call)
    finally:
        torch.set_rng_state(random)


class _Memory:
    """CPU stand-ins for the tensors of one call."""

    def __init__(self) -> None:
        self._storages: dict[Slot, torch.UntypedStorage] = {}
        self._tensors: dict[int, torch.Tensor] = {}

    def stand_in(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(map(self.stand_in, value))
        if isinstance(value, torch.device) and value.type == seam.DEVICE:
            return torch.device("cpu")
        if not is_ours(value):
            return value
        if id(value) not in self._tensors:
            self._tensors[id(value)] = self._made(value)
        return self._tensors[id(value)]

    def _made(self, value: torch.Tensor) -> torch.Tensor:
        slot = slot_of(value)
        if slot not in self._storages:
            size = max(1, value.untyped_storage().nbytes())
            self._storages[slot] = torch.zeros(
                size, dtype=torch.uint8
            ).untyped_storage()
        made = torch.empty(0, dtype=value.dtype)
        place = value.storage_offset(), value.shape, value.stride()
        return made.set_(self._storages[slot], *place)


_passed: set[tuple] = set()


def try_out(op: Any, functional: Any, args: tuple, kwargs: dict, named: dict) -> None:
    """Raise what the CPU raises for this call with `out=` and not for one without.

    Results of another dtype, or in the memory of an operand, are refused by some
    kernels and converted or tolerated by others: only they know. `named`: the arguments
    of the `functional` form.
    """
    leaves = _flat((*args, *kwargs.values()))
    tensors = [t for t in leaves if isinstance(t, torch.Tensor)]
    if sum(t.numel() for t in tensors) > LARGEST:
        return
    question = _question(op, args, kwargs)
    if question in _passed:
        return
    error = _refusal(op, functional, args, kwargs, named)
    if error is not None:
        raise type(error)(str(error)) from None
    if len(_passed) > 20_000:
        _passed.clear()
    _passed.add(question)


def has_bare_number(op: Any, args: tuple) -> bool:
    """True where PyTorch unpacked a number that it had wrapped into a tensor."""
    pairs = zip(op._schema.arguments, args)
    return any(str(a.type) == "Tensor" and isinstance(v, NUMBERS) for a, v in pairs)


def _refusal(
    op: Any, functional: Any, args: tuple, kwargs: dict, named: dict
) -> Exception | None:
    """Zeros may be refused as such: that is no refusal of the call."""
    error = _quietly(lambda: _on_cpu(op, args, kwargs))
    plain = error and _quietly(lambda: _on_cpu(functional, (), named))
    return None if str(plain) == str(error) else error


def _on_cpu(op: Any, args: tuple, kwargs: dict) -> None:
    stand_in = _Memory().stand_in
    op(*stand_in(args), **{name: stand_in(value) for name, value in kwargs.items()})


def _question(op: Any, args: tuple, kwargs: dict) -> tuple:
    """All that the CPU's refusal depends on, values of tensors apart."""
    slots: dict[Any, int] = {}

    def part(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return tuple(map(part, value))
        if not isinstance(value, torch.Tensor):
            return token(value)
        where = slots.setdefault(slot_of(value), len(slots)) if is_ours(value) else -1
        geometry = tuple(value.shape), value.stride(), value.storage_offset()
        return where, geometry, value.dtype

    return op, part(args), tuple(kwargs), part(tuple(kwargs.values()))
