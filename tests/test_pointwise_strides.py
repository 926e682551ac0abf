"""Every elementwise row lays its result out as the CPU does, whatever its operands'
shapes, orders, gaps and repetitions are."""

import random
import warnings
from typing import Any

import pytest
import torch

import tarry.lower.rows  # noqa: F401
from tarry.lower.table import TABLE

SHAPE = (4, 3, 4)
DTYPES = [torch.float32, torch.float16, torch.int64, torch.bool, torch.complex64]
TRIALS = 8  # of each row
NAMES = sorted(name for name, row in TABLE.items() if row.pointwise)
# Its result is laid out as its first operand is, which never is the smaller one.
ALIKE = {"_prelu_kernel"}


def overload(name: str) -> Any:
    packet, _, which = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), which or "default")


def geometry(draw: random.Random, alike: bool) -> tuple[list[int], list[int]]:
    """A shape that broadcasts to `SHAPE`, and strides of some order."""
    lead = 0 if alike or draw.random() > 0.3 else draw.randrange(3)
    shape = [n if alike or draw.random() > 0.2 else 1 for n in SHAPE[lead:]]
    order = draw.sample(range(len(shape)), len(shape))
    strides, step = [0] * len(shape), draw.choice([1, 1, 2])
    for d in order:
        repeats = draw.random() < 0.1
        strides[d] = 0 if repeats else step
        step *= shape[d] * draw.choice([1, 1, 1, 2])
    return shape, strides


def tensor(shape: list[int], strides: list[int], dtype: torch.dtype) -> torch.Tensor:
    extent = 1 + sum((n - 1) * s for n, s in zip(shape, strides))
    return torch.ones(extent, dtype=dtype).as_strided(shape, strides)


def argument(a: Any, draw: random.Random, dtype: torch.dtype, alike: bool) -> Any:
    kind = str(a.type)
    if kind == "Tensor" or (kind == "Optional[Tensor]" and draw.random() < 0.8):
        return tensor(*geometry(draw, alike), dtype)
    if a.default_value is not None or "Optional" in kind:
        return a.default_value
    if kind == "bool":
        return True
    return 1.5 if kind in ("number", "float") and dtype.is_floating_point else 1


def placed(value: torch.Tensor) -> torch.Tensor:
    """`value` on tarry, its memory with it."""
    storage = value.untyped_storage()
    flat = torch.empty(0, dtype=value.dtype).set_(storage)
    return flat.to("tarry").as_strided(value.shape, value.stride())


def steps(result: torch.Tensor) -> list[int]:
    return [s for s, n in zip(result.stride(), result.shape) if n > 1]


@pytest.mark.parametrize("name", NAMES)
def test_strides_are_the_cpus(name: str) -> None:
    op, draw = overload(name), random.Random(name)
    for _ in range(TRIALS):
        dtype = draw.choice(DTYPES)
        given = [argument(a, draw, dtype, name in ALIKE) for a in op._schema.arguments]
        named = {a.name: v for a, v in zip(op._schema.arguments, given) if a.kwarg_only}
        given = given[: len(given) - len(named)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                want = op(*given, **named)
            except RuntimeError:  # another dtype
                continue
            ours = [placed(v) if isinstance(v, torch.Tensor) else v for v in given]
            got = op(*ours, **named)
        assert got.dtype is want.dtype and got.shape == want.shape
        assert steps(got) == steps(want), [
            (v.shape, v.stride(), dtype) for v in given if isinstance(v, torch.Tensor)
        ]
