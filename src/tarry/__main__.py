"""`python -m tarry …` is `tarry …`."""

from tarry.cli import main

main(prog_name="tarry")
