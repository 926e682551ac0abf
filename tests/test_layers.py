"""The shape of the source: who may import whom, who may know what, and how long."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tarry
from known_gaps import SKIPS
from tarry.lower.table import TABLE

ROOT = Path(tarry.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
TREES = {f.relative_to(ROOT).as_posix(): ast.parse(f.read_text()) for f in FILES}

ORDER = [
    "version", "script", "errors", "ledger", "config", "dtypes", "record", "cache",
    "lower", "report", "run", "cut", "dispatch", "region", "flow", "dynamo", "api",
    "loop", "amp", "job", "compat",
]  # fmt: skip
# Outside the order: entry points and what they offer; they may import anything.
TOP = {
    "__init__", "__main__", "cli", "coverage", "debug", "demo", "doctor",
    "experimental",
}  # fmt: skip

# (module, what it imports): why it may, though the order says otherwise.
EXCEPTIONS = {
    ("run/options.py", "lower"): None,  # in order; kept here as the form of an entry
}

MAX_FILE = 450
MAX_FUNCTION = 60


def layer(module: str) -> str:
    """`dispatch/exits.py` or `tarry.dispatch.exits` -> `dispatch`."""
    parts = module.removesuffix(".py").replace("/", ".").split(".")
    return parts[1] if parts[0] == "tarry" and len(parts) > 1 else parts[0]


def imports(tree):
    """Dotted names of all modules a file imports, at any depth."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            yield node.module
            if node.module == "tarry":
                yield from (f"tarry.{a.name}" for a in node.names)


def external(tree):
    return {name.split(".")[0] for name in imports(tree)}


@pytest.mark.parametrize("file", TREES)
def test_imports_only_what_stands_before(file):
    own = layer(file)
    if own in TOP:
        return
    assert own in ORDER, f"{file} has no place in the order"
    for name in imports(TREES[file]):
        if not name.startswith("tarry.") or layer(name) in (own, "version"):
            continue
        other = layer(name)
        assert other in ORDER, f"{file} imports {name}, which stands outside the order"
        before = ORDER.index(other) < ORDER.index(own)
        assert before or (file, other) in EXCEPTIONS, f"{file} imports {name}"


JAX = {"lower", "run", "spmd", "doctor"}
NO_TORCH = {"cache", "cut", "run", "report"}


@pytest.mark.parametrize("file", TREES)
def test_who_knows_jax_and_torch(file):
    own, known = layer(file), external(TREES[file])
    if own not in JAX:
        assert not known & {"jax", "jaxlib"}, f"{file} imports JAX"
    if own in NO_TORCH:
        assert "torch" not in known, f"{file} imports torch"


@pytest.mark.parametrize("file", TREES)
def test_environment_is_read_in_one_place(file):
    for node in ast.walk(TREES[file]):
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv"):
            assert file == "config.py", f"{file}:{node.lineno} reads the environment"


def dotted(node):
    """`torch._C._acc` of an attribute chain, or None."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])


def private_names(tree):
    """(line, name) of each use of a private name of torch or JAX."""
    for node in ast.walk(tree):
        name = None
        if isinstance(node, ast.Attribute):
            name = dotted(node)
        elif isinstance(node, ast.ImportFrom):
            name = ".".join([node.module or "", *(a.name for a in node.names)])
        elif isinstance(node, ast.Import):
            name = ".".join(a.name for a in node.names)
        if name is None or not name.startswith(("torch.", "jax.")):
            continue
        if name.startswith("torch.ops."):  # operators, whose names may begin so
            continue
        rest = name.split(".")[1:]
        if (
            any(p.startswith("_") and not p.startswith("__") for p in rest)
            or "backend_registration" in rest
        ):
            yield node.lineno, name


@pytest.mark.parametrize("file", TREES)
def test_private_names_live_in_the_seam(file):
    found = [] if file == "dispatch/seam.py" else list(private_names(TREES[file]))
    assert not found, f"{file}: {found}"


@pytest.mark.parametrize("file", TREES)
def test_sizes(file):
    lines = (ROOT / file).read_text().count("\n")
    assert lines <= MAX_FILE, f"{file} has {lines} lines"
    for node in ast.walk(TREES[file]):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = node.end_lineno - node.lineno + 1
            assert length <= MAX_FUNCTION, f"{file}: {node.name} has {length} lines"


VAGUE = ("util", "helper", "common", "base", "manager", "misc")


@pytest.mark.parametrize("file", TREES)
def test_names(file):
    names = file.removesuffix(".py").split("/")
    assert not any(v in n for n in names for v in VAGUE), file
    if names[-1] not in ("__init__", "__main__", "version"):
        module = TREES[file]
        assert ast.get_docstring(module) or not module.body, f"{file}: no docstring"
    assert not set(names[:-1]) & set(tarry.__all__), f"{file} hides a public function"


def test_no_cycles_between_modules():
    graph = {
        file: {n for n in imports(tree) if n.startswith("tarry.")}
        for file, tree in TREES.items()
    }
    names = {f: "tarry." + f.removesuffix(".py").replace("/", ".") for f in graph}
    files = {n: f for f, n in names.items()}
    state: dict[str, int] = {}

    def visit(file, path):
        if state.get(file) == 2:
            return
        assert state.get(file) != 1, " -> ".join([*path, file])
        state[file] = 1
        for name in graph[file]:
            if name in files and not file.endswith("__init__.py"):
                visit(files[name], [*path, file])
        state[file] = 2

    for file in graph:
        visit(file, [])


def run(code):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_import_loads_no_jax():
    code = "import sys, tarry; print('jax' in sys.modules, 'jaxlib' in sys.modules)"
    assert run(code) == ["False", "False"]


def test_recording_loads_no_jax():
    code = """
import sys, torch, tarry
x = torch.ones(3).to("tarry").requires_grad_()
(x * 2).sum().backward()
torch.rand(2, device="tarry")
print('jax' in sys.modules)
"""
    assert run(code) == ["False"]


def test_import_leaves_the_process_as_it_is():
    code = """
import os, sys, threading, torch
def state():
    return (
        dict(os.environ), torch.get_default_dtype(), threading.active_count(),
        torch.get_num_threads(), torch.is_grad_enabled(), sys.getrecursionlimit(),
        torch.nn.Module.to, torch.nn.GRU, torch.optim.Adam.step, torch.Tensor.item,
    )
before = state()
import tarry
print(state() == before)
print(bool(torch.__future__.get_swap_module_params_on_conversion()))
torch.ones(2).to("tarry").add_(1).cpu()
import jax
by_jax = {"TPU_SKIP_MDS_QUERY", "TF_CPP_MIN_LOG_LEVEL"}  # set when it is imported
changed = {k for k, _ in os.environ.items() ^ before[0].items()}
print(jax.config.jax_enable_x64, changed <= by_jax)
"""
    assert run(code) == ["True", "False", "False", "True"]


def test_users_own_jax_stays_32_bit():
    code = """
import torch, tarry
x = torch.ones(2, dtype=torch.float64).to("tarry") + 1
tarry.sync()
import jax.numpy as jnp
print(jnp.ones(2).dtype, x.dtype)
"""
    assert run(code) == ["float32", "torch.float64"]


def test_rows_are_in_no_two_files():
    """`TABLE` refuses a second row of a name; every row has a function of its own."""
    assert len(TABLE) > 400
    for name, row in TABLE.items():
        assert row.name == name and callable(row.lower)
        assert row.lower.__module__.startswith("tarry.lower.") or "row" in name


def test_tests_have_no_skips_of_their_own():
    """Skips and expected failures stand in `known_gaps.py`, each with its reason."""
    here = Path(__file__).parent
    allowed = {"known_gaps.py", "conftest.py", Path(__file__).name, *SKIPS}
    for file in sorted(here.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in ("skip", "xfail"):
                assert file.name in allowed, f"{file.name}:{node.lineno}: {node.attr}"
