"""`torch.set_float32_matmul_precision`: in the program, the key, and the reason."""

import pytest
import torch

import tarry
from harness import compiles
from tarry.cut import sync
from tarry.ledger import ledger
from tarry.run import compile as compiling


@pytest.fixture
def asked():
    """The precision is set back to PyTorch's default afterwards."""
    yield torch.set_float32_matmul_precision
    torch.set_float32_matmul_precision("highest")


@pytest.fixture
def lowered(monkeypatch):
    """The StableHLO of every program that is compiled, oldest first."""
    texts = []
    jit = compiling.jax.jit

    class Kept:
        def __init__(self, jitted):
            self.jitted = jitted

        def lower(self, *avals):
            found = self.jitted.lower(*avals)
            texts.append(found.as_text())
            return found

    class Jax:
        def __getattr__(self, name):
            return getattr(jax, name)

        def jit(self, *args, **kwargs):
            return Kept(jit(*args, **kwargs))

    jax = compiling.jax
    monkeypatch.setattr(compiling, "jax", Jax())
    return texts


def product():
    x = torch.full((3, 5), 2.0, device="tarry")
    y = torch.full((5, 7), 3.0, device="tarry")
    z = x @ y
    tarry.sync()
    return z.cpu()


@pytest.mark.parametrize(
    ("precision", "said"), [("highest", "HIGHEST"), ("high", "HIGH"), ("medium", None)]
)
def test_the_program_has_it(asked, lowered, precision, said):
    sync.store.clear()
    asked(precision)
    assert torch.equal(product(), torch.full((3, 7), 30.0))
    (dot,) = [
        line for line in lowered[-1].splitlines() if "stablehlo.dot_general" in line
    ]
    found = "DEFAULT" if said is None else said
    assert f"precision = [{found}, {found}]" in dot or (
        said is None and "precision" not in dot
    )


def test_another_precision_is_another_program_and_back_is_the_first(asked):
    sync.store.clear()
    asked("highest")
    product()
    with compiles(0):
        product()
    asked("medium")
    with compiles(1):
        product()
    assert "float32_matmul_precision: highest → medium" in ledger.compiles[-1].why
    asked("highest")
    with compiles(0):
        product()
