"""What tells one function from another, however it was made.

Two functions with equal tokens compute the same: their code, their defaults, and what
they refer to outside (closures, and the globals that their code names) are equal.
Numbers, strings, NumPy arrays, containers and functions count by value; modules by
name; all other objects count as themselves, and are kept alive by the token.
"""

import functools
import hashlib
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

from tarry.record.trie import token

_BY_VALUE = (bool, int, float, complex, str, bytes, type(None), type(...), np.generic)


class Itself:
    """An object that equals nothing but itself."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Itself) and self.value is other.value


def identity(value: Any, seen: tuple[int, ...] = ()) -> Any:
    """A token of a function, or of anything that it refers to.

    Raises TypeError where that is a PyTorch tensor: its value would go unnoticed.
    """
    if id(value) in seen:
        return ("again", seen.index(id(value)))
    if isinstance(value, _BY_VALUE):
        return token(value)
    seen = (*seen, id(value))
    if isinstance(value, FunctionType):
        return _of_function(value, seen)
    if isinstance(value, MethodType):
        return "method", identity(value.__func__, seen), identity(value.__self__, seen)
    if isinstance(value, functools.partial):
        parts = value.func, value.args, value.keywords
        return "partial", *[identity(p, seen) for p in parts]
    if isinstance(value, list | tuple):
        return type(value).__name__, *[identity(v, seen) for v in value]
    if isinstance(value, dict):
        pairs = [(identity(k, seen), identity(v, seen)) for k, v in value.items()]
        return "dict", *pairs
    if isinstance(value, np.ndarray):
        data = hashlib.sha256(np.ascontiguousarray(value).tobytes()).digest()
        return "array", value.dtype.str, value.shape, data
    if isinstance(value, torch.Tensor):
        raise TypeError(
            "the JAX function refers to a PyTorch tensor outside of it: pass the "
            "tensor as an argument"
        )
    return (
        ("module", value.__name__) if isinstance(value, ModuleType) else Itself(value)
    )


def _of_function(function: FunctionType, seen: tuple[int, ...]) -> Any:
    code = function.__code__
    cells = [c.cell_contents for c in function.__closure__ or () if _is_filled(c)]
    names = sorted(_names(code) & function.__globals__.keys())
    outside = [function.__globals__[n] for n in names]
    defaults = (function.__defaults__, function.__kwdefaults__)
    parts = [identity(v, seen) for v in (*cells, *defaults, *outside)]
    return "function", code, tuple(names), *parts


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


@functools.lru_cache(maxsize=1024)
def _names(code: CodeType) -> frozenset[str]:
    """The global names that a code may use, those of the functions in it included."""
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    return frozenset(code.co_names).union(*map(_names, inner))
