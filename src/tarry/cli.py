"""The command `tarry`: run a script, the demo, a saved report, the doctor."""

import sys
from pathlib import Path

import click
from rich.console import Console

from tarry import compat, coverage
from tarry import demo as gpt
from tarry.doctor import examine
from tarry.errors import SetupError
from tarry.ledger import Ledger, ledger
from tarry.report.causes import explanation
from tarry.report.limits import broken_limits
from tarry.report.live import Watch
from tarry.report.page.write import page
from tarry.report.saved import dump, load
from tarry.report.text import WIDTH, closing_report, report_text
from tarry.script import run_script
from tarry.version import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tarry")
def main() -> None:
    """A lazy-tensor device for PyTorch that says why it cut and why it compiled."""


@main.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.option(
    "--report",
    "file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the closing report to FILE, not to the terminal; .json: all records; "
    ".html: all records as a page to look at.",
)
@click.option(
    "--watch", is_flag=True, help="Tell of steps and compiles as they happen."
)
@click.option(
    "--max-compiles",
    metavar="N",
    type=click.IntRange(min=0),
    help="Fail if more programs are compiled.",
)
@click.option(
    "--max-cuts-per-step",
    metavar="N",
    type=click.IntRange(min=0),
    help="Fail if a step cuts more often.",
)
@click.option(
    "--as-torch-xla",
    is_flag=True,
    help="SCRIPT was written for torch_xla: `import torch_xla` gives tarry's functions "
    "under its names, and the device is called xla.",
)
@click.argument("script", type=click.Path(exists=True))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def run(
    file: Path | None,
    watch: bool,
    max_compiles: int | None,
    max_cuts_per_step: int | None,
    as_torch_xla: bool,
    script: str,
    args: tuple[str, ...],
) -> None:
    """Run SCRIPT as `python SCRIPT ARGS…` would, then report what tarry did.

    The exit code is the script's, or 1 if it is 0 and FILE cannot be written or a limit
    was exceeded.
    """
    if as_torch_xla:
        pose_as_torch_xla()
    watcher = Watch(sys.stderr)
    if watch:
        ledger.watchers.append(watcher)
    code = run_script(script, args)
    watcher.close()
    written = deliver(ledger, file)
    broken = broken_limits(ledger, max_compiles, max_cuts_per_step)
    for text in broken:
        click.echo(f"tarry: {text}", err=True)
    sys.exit(code or (0 if written and not broken else 1))


def pose_as_torch_xla() -> None:
    """torch_xla's names from now on; starts the process again to rename the device.

    Raises ClickException if a real torch_xla is installed.
    """
    compat.as_xla()
    try:
        compat.install()
    except SetupError as error:
        raise click.ClickException(str(error)) from None


@main.command()
@click.option("--steps", type=click.IntRange(min=1), help="Training steps.")
@click.option("--quick", is_flag=True, help="A smaller model, for a few seconds.")
def demo(steps: int | None, quick: bool) -> None:
    """Train a small GPT on English text, let it write, and report."""
    console = terminal()
    gpt.run(console, gpt.QUICK if quick else gpt.FULL, steps)
    closing_report(ledger, console)


@main.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def report(file: Path) -> None:
    """Print the closing report of a run saved with `tarry run --report FILE.json`."""
    closing_report(saved(file)[1], terminal())


@main.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def explain(file: Path) -> None:
    """Say why each program of a saved run was compiled, and each line cut."""
    console = terminal()
    for part in explanation(saved(file)[1]):
        console.print(part)


@main.command()
@click.option(
    "-o",
    "--output",
    metavar="FILE.html",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where the page goes; beside LEDGER, under its name, if not given.",
)
@click.argument("ledger", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def view(ledger: Path, output: Path | None) -> None:
    """Write a page, one HTML file, from LEDGER, a run saved with `tarry run --report`.

    It shows the run in time, its programs, their graphs, and replays a recording.
    """
    output = output or ledger.with_suffix(".html")
    try:
        output.write_text(page(saved(ledger)[0]), encoding="utf-8")
    except OSError as error:
        why = error.strerror or error
        raise click.ClickException(f"{output} cannot be written: {why}") from None
    click.echo(f"tarry: page written to {output}")


@main.command()
def doctor() -> None:
    """Show versions, devices and settings; exit with 1 if there is no device."""
    console = terminal()
    try:
        for section in examine():
            console.print(section)
    except SetupError as error:
        raise click.ClickException(str(error)) from None


@main.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.option(
    "--only",
    metavar="KIND",
    type=click.Choice([s.value for s in coverage.Support]),
    help="'native row', 'decomposition', 'CPU fallback' or 'unsupported'.",
)
@click.option(
    "--missing-for",
    "script",
    metavar="SCRIPT",
    type=click.Path(exists=True),
    help="Run SCRIPT with the ARGS; list what ran on the CPU, with lines and time.",
)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def ops(only: str | None, script: str | None, args: tuple[str, ...]) -> None:
    """List ATen's overloads and how tarry runs each; ARGS select by part of a name.

    With --missing-for the exit code is the script's.
    """
    if script is not None:
        code = run_script(script, args)
        terminal(stderr=True).print(coverage.missing_table(ledger))
        sys.exit(code)
    found = coverage.overloads(args)
    listed = [o for o in found if only in (None, o.support.value)]
    if args or only:
        click.echo(coverage.overload_lines(listed))
    terminal().print(coverage.counts_table(found))


def terminal(stderr: bool = False) -> Console:
    """The terminal, or plain lines of `WIDTH` columns where it is none."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=WIDTH)


def saved(file: Path) -> tuple[str, Ledger]:
    """The text of a saved run, and its ledger; ClickException if it is none."""
    try:
        text = file.read_text(encoding="utf-8")
        return text, load(text)
    except (OSError, ValueError, RecursionError) as error:
        raise click.ClickException(f"{file}: {error}") from None


def deliver(ledger: Ledger, file: Path | None) -> bool:
    """Write the report to `file`, or to the terminal; False if `file` failed."""
    if file is not None:
        try:
            file.write_text(_report(ledger, file.suffix), encoding="utf-8")
        except OSError as error:
            why = error.strerror or error
            click.echo(f"tarry: {file} cannot be written ({why}):", err=True)
        else:
            click.echo(f"tarry: closing report written to {file}", err=True)
            return True
    click.echo(err=True)
    closing_report(ledger, terminal(stderr=True))
    return file is None


def _report(ledger: Ledger, suffix: str) -> str:
    if suffix in (".json", ".html"):
        return dump(ledger) if suffix == ".json" else page(dump(ledger))
    return report_text(ledger)
