"""`python -m tarry.compat SCRIPT ARGS…` runs a script written for torch_xla."""

import sys

from tarry.compat import as_xla, install
from tarry.errors import SetupError
from tarry.script import run_script

USAGE = "usage: python -m tarry.compat [--force] SCRIPT [ARGS…]"

arguments = sys.argv[1:]
force = arguments[:1] == ["--force"]
if force:
    del arguments[0]
if not arguments or arguments[0] in ("-h", "--help"):
    print(USAGE, file=sys.stderr if not arguments else sys.stdout)
    sys.exit(0 if arguments else 2)
as_xla()
try:
    install(force)
except SetupError as error:
    sys.exit(f"tarry: {error}")
sys.exit(run_script(arguments[0], arguments[1:]))
