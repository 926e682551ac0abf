"""By which method the user's code, or PyTorch's on its behalf, came in.

Where several methods end in the same operator, only the calling code tells them apart:
the instruction at which its frame stands, read once for each place.
"""

import dis
import sys
from collections.abc import Container
from functools import lru_cache
from itertools import islice
from types import CodeType, FrameType

from tarry.record.lines import is_user_file


def comes_by(methods: Container[str]) -> bool:
    """True where the innermost user's frame, or one of a library inside it, stands at
    a call of one of these methods (`x.sum().tolist()`)."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if _method_called(frame.f_code, frame.f_lasti) in methods:
            return True
        if is_user_file(frame.f_code.co_filename):
            return False
        frame = frame.f_back
    return False


@lru_cache(maxsize=1024)
def _method_called(code: CodeType, at: int) -> str:
    """The attribute whose call is the instruction at the offset `at`; "" for others.

    A call starts in the source where the expression does that it calls, and what was
    loaded last from there is what is called.
    """
    place = next(islice(code.co_positions(), at // 2, None), None)
    found = ""
    if place is None or place[0] is None or place[2] is None:
        return found
    for each in dis.get_instructions(code):
        if each.offset >= at:
            break
        where = each.positions
        if (
            each.opname in ("LOAD_METHOD", "LOAD_ATTR")
            and where is not None
            and (where.lineno, where.col_offset) == (place[0], place[2])
        ):
            found = each.argval
    return found
