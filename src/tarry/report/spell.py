"""Numbers, times and source lines in words, the same in every report."""

import os
import re

_INSTALLED = re.compile(r"(?<!\S)/\S*/(site|dist)-packages/")


def short(text: str) -> str:
    """`text` with paths below the current folder, and those of installed packages,
    shortened."""
    text = _INSTALLED.sub("", text)
    here = os.getcwd().rstrip("/") + "/"
    return re.sub(rf"(?<![\w/.-]){re.escape(here)}", "", text) if here != "/" else text


def spell_cause(cause: str, detail: str) -> str:
    """A cut's cause, and of what (an operator, a region) where that is known."""
    return f"{cause}: {detail}" if detail else cause


def plural(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def seconds(value: float) -> str:
    if value >= 9.95:
        return f"{value:.1f} s"
    return f"{value:.2f} s" if value >= 0.1 else f"{value * 1000:.1f} ms"


def share(part: float, whole: float) -> str:
    """`part` of `whole` in percent; `< 1 %` and `> 99 %` where rounding would lie."""
    if not whole:
        return "–"
    percent = 100 * part / whole
    if 0 < percent < 1:
        return "< 1 %"
    return "> 99 %" if 99 < percent < 100 else f"{percent:.0f} %"
