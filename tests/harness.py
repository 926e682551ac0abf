"""One function on the CPU and on tarry, compared in everything PyTorch promises.

`check(fn, *inputs)` runs `fn` on both, compares values, dtypes, shapes, strides and
gradients, and runs it again with each input as a view of something larger and with
`tarry.sync()` between its calls. `cuts`, `compiles` and `fallbacks` are context
managers that assert how many of each their block causes.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

import tarry
from tarry.ledger import ledger

DEVICE = "tarry"

# (rtol, atol) of results and gradients; what is not listed has to be equal.
TOLERANCE = {
    torch.float16: (4e-3, 4e-3),
    torch.bfloat16: (3e-2, 3e-2),
    torch.float32: (1e-4, 1e-5),
    torch.float64: (1e-9, 1e-10),
    torch.complex32: (4e-3, 4e-3),
    torch.complex64: (1e-4, 1e-5),
    torch.complex128: (1e-9, 1e-10),
}

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
DTYPES = [torch.bool, *INTEGERS, *FLOATS, *COMPLEX]


def make(
    *shape: int, dtype: torch.dtype = torch.float32, seed: int = 0
) -> torch.Tensor:
    """A CPU tensor of small varied values, without zeros where that is possible."""
    g = torch.Generator().manual_seed(seed + 17)
    if dtype is torch.bool:
        return torch.rand(shape, generator=g) < 0.5
    if not dtype.is_floating_point and not dtype.is_complex:
        low = 1 if dtype is torch.uint8 else -5
        return torch.randint(low, 6, shape, generator=g, dtype=dtype)
    real = torch.float64 if dtype is torch.complex128 else torch.float32
    if dtype.is_complex:
        parts = torch.randn(2, *shape, generator=g, dtype=real)
        return torch.complex(parts[0], parts[1])
    return torch.randn(shape, generator=g).to(dtype)


def comparable(t: torch.Tensor) -> torch.Tensor:
    """`t` on the CPU in a dtype that PyTorch can compare."""
    t = t.detach().cpu()
    if t.dtype is torch.complex32:
        t = t.to(torch.complex64)
    return t.resolve_conj().resolve_neg()


def cut_count() -> int:
    """How many cuts ran a program so far."""
    return sum(ledger.cut_totals.values())


def compile_count() -> int:
    return ledger.counters["UncachedCompile"]


def fallback_count() -> int:
    return sum(n for name, n in ledger.counters.items() if name.startswith("aten::"))


@contextmanager
def _counted(
    read: Callable[[], int], want: int, most: bool, what: str
) -> Iterator[None]:
    before = read()
    yield
    got = read() - before
    fits = got <= want if most else got == want
    assert fits, f"{got} {what}, want {'at most ' if most else ''}{want}; {recent()}"


def recent(last: int = 6) -> str:
    """The last cuts, and why the compiled ones were new, for messages."""
    why = {c.program: c.why for c in ledger.compiles}
    return "; ".join(
        f"{c.cause} at {c.line}" + (f" [{why.get(c.program)}]" if c.compiled else "")
        for c in list(ledger.cuts)[-last:]
    )


def cuts(n: int, at_most: bool = False) -> AbstractContextManager:
    """The block cuts (and runs) exactly `n` programs."""
    return _counted(cut_count, n, at_most, "cuts")


def compiles(n: int, at_most: bool = False) -> AbstractContextManager:
    """The block compiles exactly `n` programs."""
    return _counted(compile_count, n, at_most, "compiles")


def fallbacks(n: int) -> AbstractContextManager:
    """The block runs exactly `n` operators on the CPU."""
    return _counted(fallback_count, n, False, "CPU fallbacks")


class RandomSync(TorchFunctionMode):
    """Calls `tarry.sync()` after about every third call into torch, by a seed."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(seed)

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if self.random.random() < 0.35:
            tarry.sync()
        return result


# How an input is laid out: each makes, from a CPU tensor, a tensor with its values on
# the given device; None where the layout does not fit the shape.
def plain(x: torch.Tensor, device: str) -> torch.Tensor:
    return x.clone().to(device)


def transposed(x: torch.Tensor, device: str) -> torch.Tensor | None:
    if x.dim() < 2:
        return None
    return x.transpose(0, -1).contiguous().to(device).transpose(0, -1)


def sliced(x: torch.Tensor, device: str) -> torch.Tensor | None:
    if x.dim() < 1 or x.numel() == 0:
        return None
    around = torch.cat([x[:1], x, x[:1]])
    return around.to(device)[1:-1]


def stepped(x: torch.Tensor, device: str) -> torch.Tensor | None:
    if x.dim() < 1 or x.numel() == 0:
        return None
    return torch.stack([x, x.flip(-1)], -1).flatten(-2).to(device)[..., ::2]


def expanded(x: torch.Tensor, device: str) -> torch.Tensor | None:
    """The first row everywhere (on the CPU just as on the device)."""
    if x.dim() < 1 or x.shape[0] < 2:
        return None
    return x[:1].clone().to(device).expand(x.shape)


VIEWS = [transposed, sliced, stepped, expanded]


def same(want: Any, got: Any, where: str = "", strides: bool = True) -> None:
    """Assert that `got` (on tarry) equals `want` (on the CPU) in every respect."""
    if isinstance(want, torch.Tensor):
        assert isinstance(got, torch.Tensor), f"{where}: {type(got)}, want a tensor"
        assert got.device.type == DEVICE, f"{where}: on {got.device}"
        assert got.dtype is want.dtype, f"{where}: {got.dtype}, want {want.dtype}"
        assert got.shape == want.shape, f"{where}: {got.shape}, want {want.shape}"
        if strides:
            assert _strides(got) == _strides(want), (
                f"{where}: strides {got.stride()}, want {want.stride()}"
            )
        rtol, atol = TOLERANCE.get(want.dtype, (0, 0))
        torch.testing.assert_close(
            comparable(got), comparable(want),
            rtol=rtol, atol=atol, equal_nan=True, check_stride=False,
            msg=lambda m: f"{where}: {m}",
        )  # fmt: skip
    elif isinstance(want, list | tuple):
        assert len(got) == len(want), f"{where}: {len(got)} results, want {len(want)}"
        for i, (w, g) in enumerate(zip(want, got)):
            same(w, g, f"{where}[{i}]", strides)
    else:
        assert got == want or (got != got and want != want), f"{where}: {got} != {want}"


def _strides(t: torch.Tensor) -> list[int]:
    if t.numel() == 0:
        return []
    return [s for s, n in zip(t.stride(), t.shape) if n != 1]


def _prepare(
    inputs: tuple, device: str, layout: Any, grad: bool
) -> tuple[list, list[torch.Tensor]]:
    """The inputs on `device`, each tensor laid out by `layout` where it fits."""
    leaves: list[torch.Tensor] = []

    def enter(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        made = layout(x, device)
        if made is None:
            made = plain(x, device)
        if grad and (x.is_floating_point() or x.is_complex()):
            made = made.detach().requires_grad_()
        leaves.append(made)
        return made

    return tree_map(enter, list(inputs)), leaves


def _run(
    fn: Callable[..., Any], inputs: list, leaves: list, device: str, grad: bool
) -> tuple[Any, list, list]:
    """(results, gradients, inputs afterwards)."""
    result = fn(*inputs)
    grads: list[Any] = []
    outs = [
        t
        for t in tree_leaves(result)
        if isinstance(t, torch.Tensor) and t.requires_grad
    ]
    wanted = [x for x in leaves if x.requires_grad]
    if grad and outs and wanted:
        seeds = [make(*t.shape, dtype=t.dtype, seed=5).to(device) for t in outs]
        grads = list(torch.autograd.grad(outs, wanted, seeds, allow_unused=True))
    return result, grads, leaves


def _compare(
    fn: Callable[..., Any], inputs: tuple, layout: Any, grad: bool, strides: bool,
    syncs: bool,
) -> None:  # fmt: skip
    try:
        want = _run(fn, *_prepare(inputs, "cpu", layout, grad), "cpu", grad)
    except (RuntimeError, UserWarning):
        if layout is plain:
            raise
        return  # PyTorch itself does not take this layout
    ours = _prepare(inputs, DEVICE, layout, grad)
    with RandomSync(len(ours[1])) if syncs else nullcontext():
        got = _run(fn, *ours, DEVICE, grad)
    where = layout.__name__
    same(want[0], got[0], f"{where}: result", strides)
    same(want[1], got[1], f"{where}: gradient", False)
    same(want[2], got[2], f"{where}: input afterwards", False)


def check(
    fn: Callable[..., Any],
    *inputs: Any,
    grad: bool = True,
    views: bool | list = True,
    syncs: bool = True,
    strides: bool = True,
    cuts: int | None = None,
    compiles: int | None = None,
) -> None:
    """Assert that `fn(*inputs)` is on tarry what it is on the CPU.

    `inputs`: CPU tensors and anything else, lists allowed. `grad`: compare the
    gradients of every floating-point input. `views`: again with the inputs laid out
    in each way of `VIEWS` (or of the given list). `syncs`: once more with syncs at
    random places. `cuts` and `compiles`: how many a first run and a sync cause.
    """
    if cuts is not None or compiles is not None:
        tarry.sync()
        want_cuts = (cut_count, cuts) if cuts is not None else (int, 0)
        want_compiles = (compile_count, compiles) if compiles is not None else (int, 0)
        counted = (
            _counted(*want_cuts, False, "cuts"),
            _counted(*want_compiles, False, "compiles"),
        )
        with counted[0], counted[1]:
            held = _run(fn, *_prepare(inputs, DEVICE, plain, grad), DEVICE, grad)
            tarry.sync()
        del held
    with fallbacks(0):
        _compare(fn, inputs, plain, grad, strides, False)
        layouts = VIEWS if views is True else views or []
        for layout in layouts:
            _compare(fn, inputs, layout, grad, strides, syncs and layout is layouts[0])
        if syncs and not views:
            _compare(fn, inputs, plain, grad, strides, True)
