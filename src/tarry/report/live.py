"""What happens, as it happens: blocks of text for every compile and cut, and one line a
step for a terminal."""

import sys
import threading
import time
from pathlib import Path
from typing import TextIO

from tarry.ledger import Compile, Cut, Watcher, ledger
from tarry.report.spell import plural, seconds, short, spell_cause

PATIENCE = 1.0  # seconds of compiling before a line says so, and between two of them


def compile_block(c: Compile) -> str:
    """Why a program was compiled, what it is, and what to do about it."""
    took = seconds(c.trace_s + c.compile_s)
    sizes = (
        f"{plural(c.instructions, 'operation')}, {plural(c.inputs, 'input')} "
        f"({c.donated} donated), {plural(c.outputs, 'output')}"
    )
    rows = [("cut at", c.line), ("because", c.why)]
    if c.advice:
        rows.append(("advice", c.advice))
    if c.memory.get("peak_memory"):
        rows.append(("memory", f"{c.memory['peak_memory']:,} bytes at the peak"))
    return _block(f"tarry: compiled program #{c.program} in {took}: {sizes}", rows)


def cut_block(c: Cut) -> str:
    """Why the recording was cut, where, and what that cost."""
    what = "compiled" if c.compiled else "cached"
    costs = _costs(c, "record lookup compile transfer run")
    rows = [
        ("cause", spell_cause(c.cause, c.detail)),
        ("size", f"{plural(c.instructions, 'instruction')} pending, "
                 f"{plural(c.outputs, 'output')}"),
        ("cost", costs or "nothing to speak of"),
    ]  # fmt: skip
    title = f"tarry: cut at {c.line} (step {c.step}), program #{c.program}, {what}"
    return _block(title, rows)


def _costs(c: Cut, parts: str) -> str:
    """What these parts of a cut took, as far as it shows."""
    took = ((part, getattr(c, f"{part}_s")) for part in parts.split())
    return ", ".join(f"{part} {seconds(s)}" for part, s in took if s >= 5e-5)


def _block(title: str, rows: list[tuple[str, str]]) -> str:
    lines = [title, *(f"  {name:<8}{text}" for name, text in rows)]
    return "\n".join(map(short, lines)) + "\n"


class Blocks(Watcher):
    """A block a compile (level 1), and one a cut (level 2), to `file` or stderr."""

    def __init__(self, level: int, file: str = "") -> None:
        self.level, self.file = level, file

    def compiled(self, record: Compile) -> None:
        self._write(compile_block(record))

    def cut(self, record: Cut) -> None:
        if self.level > 1:
            self._write(cut_block(record))

    def _write(self, text: str) -> None:
        try:
            if self.file:
                with Path(self.file).open("a", encoding="utf-8") as out:
                    out.write(text)
                return
        except OSError as error:
            why = error.strerror or error
            text = f"tarry: {self.file} cannot be written ({why}):\n{text}"
            self.file = ""
        sys.stderr.write(text)


class Watch(Watcher):
    """One line a step, and one while a program compiles.

    On a terminal the line is written over; elsewhere only steps that compiled, and
    every hundredth, are lines.
    """

    def __init__(self, out: TextIO) -> None:
        self.out = out
        self.terminal = out.isatty()
        self.lock = threading.Lock()
        self.done = threading.Event()
        self.step, self.cuts, self.began = 0, 0, time.perf_counter()

    def compiling(self, instructions: int, line: str) -> None:
        self.done = threading.Event()
        args = (self.done, instructions, time.perf_counter())
        threading.Thread(target=self._tell, args=args, daemon=True).start()

    def _tell(self, done: threading.Event, instructions: int, began: float) -> None:
        while not done.wait(PATIENCE):
            took = time.perf_counter() - began
            self._line(f"compiling {instructions:,} instructions, {took:.0f} s", True)

    def compiled(self, record: Compile) -> None:
        self.done.set()
        self._line(compile_block(record).rstrip("\n"), True, keep=True)

    def cut(self, record: Cut) -> None:
        self.cuts += 1
        if record.step == self.step:
            return
        now = time.perf_counter()
        parts = _costs(record, "record compile transfer run blocked")
        notable = record.compiled or record.step % 100 == 0
        self._line(
            f"step {record.step:,}: {seconds(now - self.began)}, "
            f"{plural(self.cuts, 'cut')}, program #{record.program}; {parts}",
            notable,
        )
        self.step, self.cuts, self.began = record.step, 0, now

    def _line(self, text: str, notable: bool, keep: bool = False) -> None:
        with self.lock:
            if self.terminal:
                self.out.write(f"\r\x1b[2K{text}" + "\n" * keep)
                self.out.flush()
            elif notable:
                self.out.write(text + "\n")

    def close(self) -> None:
        self.done.set()
        if self.terminal and self.step:
            self.out.write("\r\x1b[2K")
            self.out.flush()


def install(level: int, file: str) -> None:
    """Print blocks from now on, if `level` asks for them."""
    if level:
        ledger.watchers.append(Blocks(level, file))
