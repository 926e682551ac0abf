"""Numbers beside tensors, and division: bit for bit what the CPU gives.

A number beside half-precision tensors is rounded as they are by some of PyTorch's
operators and keeps its float32 value in others; XLA would divide by multiplying with a
reciprocal. Where a result is cut off, rounded or compared, one bit decides."""

import pytest
import torch
import torch.nn.functional as F

HALVES = (torch.bfloat16, torch.float16)
NUMBERS = (0.3, 1.7, 2.7183)
aten = torch.ops.aten


def numbers(dtype: torch.dtype, first: float) -> torch.Tensor:
    found = torch.randn(500, generator=torch.Generator().manual_seed(7)) * 10
    found[:20] = first
    return found.to(dtype)


def differing(f, *args) -> float:
    """The share of results that are not the CPU's."""
    placed = [a.to("tarry") if isinstance(a, torch.Tensor) else a for a in args]
    want, got = f(*args), f(*placed).cpu()
    assert want.dtype == got.dtype
    same = (want == got) | (want.isnan() & got.isnan())
    return 1 - same.double().mean().item()


ARITHMETIC = {
    "add": lambda x, c: x + c,
    "add_alpha": lambda x, c: torch.add(x, 2, alpha=c),
    "sub": lambda x, c: x - c,
    "rsub": lambda x, c: c - x,
    "mul": lambda x, c: x * c,
    "div": lambda x, c: x / c,
    "div_of": lambda x, c: torch.tensor(c) / x,
    "div_trunc": lambda x, c: torch.div(x, c, rounding_mode="trunc"),
    "div_floor": lambda x, c: torch.div(x, c, rounding_mode="floor"),
    "floor_divide": lambda x, c: x // c,
    "remainder": lambda x, c: x % c,
    "remainder_of": lambda x, c: c % x,
    "fmod": torch.fmod,
    "0-d": lambda x, c: (x + torch.tensor(c)) % torch.tensor(c),
    "eq": lambda x, c: x == c,
    "le": lambda x, c: x <= c,
    "gt": lambda x, c: x > c,
    "clamp": lambda x, c: x.clamp(-c, c),
    "lerp": lambda x, c: torch.lerp(x, x.flip(0), c),
    "lerp_tensor": lambda x, c: torch.lerp(x, x.flip(0), torch.tensor(c)),
    "addcmul": lambda x, c: torch.addcmul(x, x, x, value=c),
    "threshold": lambda x, c: F.threshold(x, c, 2.7),
    "leaky_relu": F.leaky_relu,
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "hardshrink_backward": lambda x, c: aten.hardshrink_backward(x.flip(0), x, c),
    "softshrink_backward": lambda x, c: aten.softshrink_backward(x.flip(0), x, c),
    "foreach": lambda x, c: torch._foreach_add([x], c)[0],
    "round": lambda x, c: torch.round(x / c, decimals=1),
}


@pytest.mark.parametrize("name", ARITHMETIC)
@pytest.mark.parametrize("dtype", [*HALVES, torch.float32, torch.float64], ids=str)
def test_arithmetic(name, dtype):
    exact = dtype in HALVES or name not in ("lerp", "lerp_tensor", "addcmul")
    for c in NUMBERS:
        found = differing(ARITHMETIC[name], numbers(dtype, c), c)
        assert found == 0 if exact else found < 0.5, (c, found)


ROUGH = {
    "pow": lambda x, c: x.abs() ** c,
    "rpow": lambda x, c: c**x,
    "hypot": lambda x, c: torch.hypot(x, torch.tensor(c)),
    "atan2": lambda x, c: torch.atan2(x, torch.tensor(c)),
    "elu": F.elu,
    "softplus": lambda x, c: F.softplus(x, c, 1.3),
}


@pytest.mark.parametrize("name", ROUGH)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_functions(name, dtype):
    """XLA's functions differ in a last bit of float32, which seldom shows."""
    for c in NUMBERS:
        assert differing(ROUGH[name], numbers(dtype, c), c) < 0.02, c


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_division_by_what_is_broadcast(dtype):
    x = numbers(dtype, 1.7).reshape(20, 25)
    for y in (x[:1], x[:, :1], x[0], torch.tensor(0.3), 0.3):
        assert differing(torch.div, x, y) == 0
        assert differing(lambda x, y: torch.div(x, y, rounding_mode="trunc"), x, y) == 0
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1.0])
    for y in (0.0, -0.0, torch.inf, torch.nan, -2.0):
        assert differing(torch.div, special.to(dtype), y) == 0
        assert differing(lambda x, y: (x / y).signbit(), special.to(dtype)[:4], y) == 0


def test_quotients_of_quotients():
    a, b, c = (torch.full((3,), v) for v in (1e-30, 1e-30, 1e-20))
    a[1], b[2] = torch.nan, torch.inf
    for f in (lambda a, b, c: a / b / c, lambda a, b, c: c / (b / a)):
        assert differing(f, a, b, c) == 0


def test_logit_where_the_bounds_cross():
    x = torch.linspace(0.05, 0.95, 19)
    want, got = torch.logit(x, eps=0.7), torch.logit(x.to("tarry"), eps=0.7)
    torch.testing.assert_close(got.cpu(), want)


@pytest.mark.parametrize("count", [41, 47, 49, 83])
def test_means_of_ones_are_one(count):
    ones = torch.ones(1, 1, count, count).to("tarry")
    found = [
        ones.mean(), ones.mean(-1), ones.var((2, 3)) + 1, F.avg_pool2d(ones, count),
        F.adaptive_avg_pool2d(ones, 1), F.mse_loss(ones, ones * 0),
        torch.zeros(1).to("tarry").scatter_reduce(
            0, torch.zeros(count, dtype=torch.int64).to("tarry"), ones[0, 0, 0],
            "mean", include_self=False,
        ),
    ]  # fmt: skip
    assert all(bool((t == 1).all()) for t in found), found


def test_equal_values_do_not_vary():
    x = torch.randn(50, generator=torch.Generator().manual_seed(1)).expand(3, 50)
    found = x.to("tarry")
    for f in (torch.var, torch.std):
        assert (f(found, 0) == 0).all()
    want, got = torch.var_mean(x, 1), torch.var_mean(found, 1)
    torch.testing.assert_close([t.cpu() for t in got], list(want))
    far = torch.tensor([1e8, 1e8 + 8, 1e8 + 16])
    assert far.to("tarry").var() == 64  # of which the CPU's float32 makes 160


def test_lines_of_integers():
    for start, end, steps in ((50, 1, 50), (0, 98, 50), (-49, 49, 50), (7, 300, 41)):
        want = torch.linspace(start, end, steps, dtype=torch.int64)
        got = torch.linspace(start, end, steps, dtype=torch.int64, device="tarry")
        assert torch.equal(got.cpu(), want)
