"""Tests of pytorch/xla that tarry is not to pass, each with its reason."""

from enum import Enum
from fnmatch import fnmatch

NONE = "none"


class Verdict(Enum):
    PASSED = "passed"
    DEVIATION = "intended deviations"
    FAILED = "failed"
    STALE = "passed, though listed as deviations"
    NOT_MEANT = "not meaningful"
    SKIPPED = "skipped by the file"

    @property
    def meaningful(self) -> bool:
        return self not in (Verdict.NOT_MEANT, Verdict.SKIPPED)


# (file, test, part of a test) patterns -> reason.
DEVIATIONS: dict[tuple[str, str], str] = {}
NOT_MEANT: dict[tuple[str, str], str] = {}
# Parts of tests (their `subTest`s) that are not counted.
PARTS_NOT_MEANT: dict[tuple[str, str], str] = {
    ("test_core_aten_ops.py", "*can_*"): "export of programs as StableHLO files",
    ("test_core_aten_ops.py", "*stablehlo*"): "export of programs as StableHLO files",
}


def _find(table: dict[tuple[str, str], str], file: str, test: str) -> str | None:
    for (in_file, pattern), reason in table.items():
        if file.startswith(in_file) and fnmatch(test, pattern):
            return reason
    return None


def judge(file: str, record: dict) -> tuple[Verdict, str]:
    """The verdict on the record of a test, and the reason where it is listed."""
    test, outcome = record["test"], record["outcome"]
    reason = _find(NOT_MEANT, file, test)
    if reason:
        return Verdict.NOT_MEANT, reason
    if outcome == "skipped":
        return Verdict.SKIPPED, record.get("why", "")
    if outcome == "failed":
        parts = [
            p for p in record["parts"] if not _find(PARTS_NOT_MEANT, file, p["part"])
        ]
        outcome = "failed" if parts else "passed"
    reason = _find(DEVIATIONS, file, test)
    if outcome == "passed":
        return (Verdict.STALE, reason) if reason else (Verdict.PASSED, "")
    return (Verdict.DEVIATION, reason) if reason else (Verdict.FAILED, "")
