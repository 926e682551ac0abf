"""The record of one compile's reason, and what of a program it is made from."""

from dataclasses import dataclass
from enum import Enum

from tarry.cache.key import Key


class Reason(Enum):
    FIRST = "the first program"
    KIND = "the first program of its kind"
    EVICTED = "evicted from the cache"
    ENVIRONMENT = "the environment changed"
    INPUT = "an input changed"
    STATE = "computed values became inputs"
    ALIAS = "inputs alias otherwise"
    ADDED = "operations were added"
    REMOVED = "operations vanished"
    CHANGED = "an operation changed"
    ARGUMENT = "an argument changed"
    OUTPUT = "the outputs changed"
    DONATION = "donation changed"


@dataclass(frozen=True, slots=True)
class Why:
    """`sentence` says it all; `before`: the number of the nearest program (-1: none);
    `line`: where the first difference was recorded; `old`, `new`: what stood and stands
    there; `advice`: what to do about it, if that follows."""

    reason: Reason
    sentence: str
    before: int = -1
    line: str = ""
    old: str = ""
    new: str = ""
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Named:
    """What the user calls a tensor, and the line that made its value ("": unknown)."""

    name: str = ""
    made: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """A key, the number of its program, and the names of its inputs and outputs."""

    key: Key
    number: int
    inputs: tuple[Named, ...] = ()
    outputs: tuple[Named, ...] = ()
