"""How many programs this process has launched (none without tarry)."""

import sys


def programs_run() -> int:
    found = sys.modules.get("tarry.ledger")
    return 0 if found is None else sum(found.ledger.cut_totals.values())
