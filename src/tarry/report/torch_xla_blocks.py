"""Compiles and cuts as torch_xla tells of them under `PT_XLA_DEBUG`: its blocks of
text, its words for the causes it tells apart, and tarry's own behind them."""

import sys
from pathlib import Path
from types import FrameType

from tarry.config import config
from tarry.ledger import Compile, Cut, Watcher, ledger
from tarry.record.trie import INPUT, Num
from tarry.report.live import Blocks
from tarry.report.programs import Source
from tarry.report.spell import spell_cause

_RULE = "=" * 80
_HERE = str(Path(__file__).parent.parent)
_PIPELINE = tuple(f"{_HERE}/{name}" for name in ("report/", "cut/", "ledger.py"))
_OTHER = "most likely user code trying to access tensor value before torch_xla.sync"
_GB = 1 << 30

_COMPILED = "a function compiled by torch.compile"

# tarry's causes, by their text, in torch_xla's words.
CAUSES = {
    "tarry.sync()": "user torch_xla.sync",
    "beginning of a compiled region": "torch_xla.compile clear the pending graph prior "
    "calling the target function",
    "end of a compiled region": "torch_xla.compile",
    "a data loader hands out its next batch": "torch_xla.sync in parallel loader at "
    "step end",
    "end of a profiler's step": "torch_xla.sync when exiting a profiler StepTrace "
    "region",
    f"{_COMPILED} takes a pending tensor": "torch_xla.sync when dynamo processing "
    "input graphs",
    f"{_COMPILED} ran": "dynamo is executing a compiled program",
}
_DYNAMO_COMPILES = "dynamo is compiling a FX graph to HLO"
_EAGER = "eager mode: an operator by itself"  # of which torch_xla says nothing


class TorchXlaBlocks(Watcher):
    """A block a compile (level 1), and one a cut (level 2), to `file` or stderr."""

    def __init__(self, level: int, file: str = "") -> None:
        self.level, self.file = level, file
        self._compiled: Compile | None = None

    def compiled(self, record: Compile) -> None:
        self._compiled = record

    def cut(self, record: Cut) -> None:
        new, self._compiled = self._compiled, None
        if record.cause == _EAGER:
            return
        if new is not None:
            self._write(_block("Compilation", record, new) + _sizes(new))
        if self.level > 1:
            known = new or _compile_of(record.program)
            if known is not None:
                self._write(_block("Execution", record, known))

    def _write(self, text: str) -> None:
        if not self.file:
            sys.stderr.write(text)
            return
        with Path(self.file).open("a", encoding="utf-8") as out:
            out.write(text)


def _compile_of(program: int) -> Compile | None:
    return next((c for c in reversed(ledger.compiles) if c.program == program), None)


def _block(what: str, cut: Cut, program: Compile) -> str:
    lines = [_RULE, f"{what} Cause", f"  {_cause(what, cut)}", "Graph Info: "]
    name = _graph_name(cut)
    if name:
        lines.append(f"  Graph Name: {name}")
    lines += [
        f"  Graph Hash: {_hash(program)}",
        f"  Number of Graph Inputs: {_inputs(program)}",
        f"  Number of Graph Outputs: {program.outputs}",
        f"  Compiled because: {program.why}",
        "Python Frame Triggered Execution: ",
        *(f"  {frame}" for frame in _frames()),
        "-" * 80,
        _RULE,
    ]
    return _prefixed(f"{what} Analysis: ", lines)


def _prefixed(prefix: str, lines: list[str]) -> str:
    return "\n" + "".join(f"{prefix}{line}\n" for line in lines)


def _cause(what: str, cut: Cut) -> str:
    known = CAUSES.get(cut.cause)
    if what == "Compilation" and cut.cause == f"{_COMPILED} ran":
        return _DYNAMO_COMPILES
    return known or f"{_OTHER} ({spell_cause(cut.cause, cut.detail)})"


def _graph_name(cut: Cut) -> str:
    if not cut.cause.endswith("of a compiled region"):
        return ""
    return cut.detail + "_clear_pending" * cut.cause.startswith("beginning")


def _hash(program: Compile) -> str:
    if isinstance(program.source, Source):
        return f"{hash(program.source.seen.key) & (1 << 64) - 1:016x}"
    return str(program.program)


def _inputs(program: Compile) -> int:
    """Tensors and run-time numbers; all of one random draw count once."""
    if not isinstance(program.source, Source):
        return program.inputs
    found = 0
    for node in program.source.seen.key.graph.nodes:
        found += node.op == INPUT or any(isinstance(a, Num) for a in node.args)
    return found


def _frames() -> list[str]:
    """The Python frames that led here, the innermost first, tarry's pipeline left out;
    at most `PT_XLA_DEBUG_MAX_FRAME`, then dots."""
    found: list[str] = []
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        code = frame.f_code
        inside = code.co_filename.startswith(_PIPELINE) or code.co_name == "end_step"
        if found or not inside:
            if len(found) == config.debug_frames:
                return [*found, ".........."]
            found.append(f"{code.co_name} ({code.co_filename}:{frame.f_lineno})")
        frame = frame.f_back
    return found


def _sizes(program: Compile) -> str:
    use = program.memory
    lines = [
        _RULE,
        *(
            f"{name}: {use.get(key, 0) / _GB:.6f} GB"
            for name, key in (
                ("Graph input size", "argument"),
                ("Graph output size", "output"),
                ("Aliased Input size", "alias"),
                ("Intermediate tensor size", "temp"),
                ("Compiled program size", "generated_code"),
            )
        ),
        "-" * 80,
        _RULE,
    ]
    return _prefixed("Post Compilation Analysis: ", lines)


def as_torch_xla(level: int, file: str) -> None:
    """From now on blocks are printed as torch_xla prints them, if they are printed."""
    if level:
        kept = [w for w in ledger.watchers if not isinstance(w, Blocks)]
        ledger.watchers[:] = [*kept, TorchXlaBlocks(level, file)]
