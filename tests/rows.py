"""One lowering row against PyTorch's CPU kernel, without the recorder.

`check_row("sum.dim_IntList", x, [1], keepdim=True)` runs `torch.ops.aten.sum` on the
CPU, then the row under `jax.jit`, and compares values, dtypes and shapes.
"""

from typing import Any

import jax
import numpy as np
import torch

from tarry import dtypes
from tarry.lower.table import TABLE, Call, Out, Scalar

KINDS = {bool: "b", int: "i", float: "f", complex: "c"}


def overload(name: str) -> Any:
    packet, _, which = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), which or "default")


def _bind(op: Any, args: tuple, kwargs: dict) -> list[tuple[Any, Any]]:
    """(schema argument, value) in schema order, defaults filled in."""
    bound = []
    for i, a in enumerate(op._schema.arguments):
        if i < len(args) and not a.kwarg_only:
            bound.append((a, args[i]))
        elif a.name in kwargs:
            bound.append((a, kwargs[a.name]))
        else:
            bound.append((a, a.default_value if a.has_default_value() else None))
    return bound


def run_row(name: str, outs: tuple[Out, ...], args: tuple, kwargs: dict) -> Any:
    """The row's results (as a tuple of arrays) on the given torch arguments."""
    row, op = TABLE[name], overload(name)
    bound = _bind(op, args, kwargs)
    arrays: list[np.ndarray] = []

    def enter(t: torch.Tensor) -> int:
        arrays.append(dtypes.host_array(t.detach().contiguous().resolve_conj()))
        return len(arrays) - 1

    def spec(a: Any, v: Any) -> Any:
        if isinstance(v, torch.Tensor):
            return ("T", enter(v))
        if isinstance(v, (list, tuple)) and any(isinstance(t, torch.Tensor) for t in v):
            return ("L", [spec(a, t) for t in v])
        ty = str(a.type)
        number = type(v) in KINDS
        runtime = number and (
            ("Tensor" in ty)
            or (
                ("Scalar" in ty or "Number" in ty or "number" in ty)
                and a.name not in row.static
            )
            or a.name in row.scalars
        )
        if runtime and a.name == "alpha" and v == 1:
            return ("V", None)
        return ("S", (KINDS[type(v)], v)) if runtime else ("V", v)

    specs = [spec(a, v) for a, v in bound]

    def go(*xs: Any) -> Any:
        def get(s: Any) -> Any:
            tag, v = s
            if tag == "T":
                return xs[v]
            if tag == "L":
                return tuple(get(t) for t in v)
            if tag == "S":
                return Scalar(v[0], lambda dt: jax.numpy.asarray(v[1]).astype(dt))
            return tuple(v) if isinstance(v, list) else v

        return row.lower(Call(outs), *[get(s) for s in specs])

    with jax.enable_x64(True):
        got = jax.jit(go)(*arrays)
    return got if isinstance(got, (tuple, list)) else (got,)


def check_row(
    name: str, *args: Any, rtol: float = 1e-4, atol: float = 1e-5, **kwargs: Any
) -> tuple:
    """Compare the row `name` with PyTorch's CPU result; returns the row's arrays."""
    want = overload(name)(*args, **kwargs)
    want = tuple(want) if isinstance(want, (tuple, list)) else (want,)
    outs = tuple(Out(tuple(w.shape), w.dtype) for w in want)
    got = run_row(name, outs, args, kwargs)
    assert len(got) == len(want), f"{name}: {len(got)} results, want {len(want)}"
    for i, (g, w) in enumerate(zip(got, want)):
        assert tuple(g.shape) == tuple(w.shape), (
            f"{name}[{i}]: shape {g.shape}, want {tuple(w.shape)}"
        )
        assert g.dtype == dtypes.to_numpy(w.dtype), (
            f"{name}[{i}]: dtype {g.dtype}, want {w.dtype}"
        )
        torch.testing.assert_close(
            dtypes.host_tensor(np.asarray(g)),
            w.detach().contiguous().resolve_conj(),
            rtol=rtol,
            atol=atol,
            equal_nan=True,
            check_stride=False,
        )
    return tuple(got)
