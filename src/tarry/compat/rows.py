"""What a row of a table can be besides the address of a function of tarry's."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Value:
    """A constant."""

    value: Any


Row = str | Value
Rows = dict[str, Row]


def same(names: str) -> Rows:
    """Rows for constants that are their own names."""
    return {name: Value(name) for name in names.split()}


def from_module(module: str, names: str, **renamed: str) -> Rows:
    """Rows for functions of one module: `names` are the same there, and
    `theirs="ours"` are not."""
    return {
        **{name: f"{module}:{name}" for name in names.split()},
        **{theirs: f"{module}:{ours}" for theirs, ours in renamed.items()},
    }
