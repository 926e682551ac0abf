"""Rows of special functions, bags and segments, least squares, sampling, fractional
pooling, histograms and CTC, each against PyTorch on the CPU."""

import math

import pytest
import torch
import torch.nn.functional as F

import tarry
import tarry.lower.rows
from rows import check_row
from tarry.lower.table import TABLE

f32, f64 = torch.float32, torch.float64
EDGES = [0.0, -0.0, 1e-6, 2.0, 5.0, 8.0, 2.09, -2.09, math.inf, -math.inf, math.nan]
BESSEL = [
    "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "spherical_bessel_j0",
    "airy_ai", "modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0",
    "modified_bessel_k1", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1",
]  # fmt: skip
POLYNOMIALS = [
    *(f"chebyshev_polynomial_{k}" for k in "tuvw"),
    *(f"shifted_chebyshev_polynomial_{k}" for k in "tuvw"),
    "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l",
    "legendre_polynomial_p",
]  # fmt: skip


def rand(*shape: int, dtype: torch.dtype = f32) -> torch.Tensor:
    g = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=g, dtype=f64).to(dtype)


def uniform(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("name", BESSEL)
def test_bessel(name: str):
    x = torch.cat([torch.linspace(-30, 30, 301), torch.tensor(EDGES)])
    check_row(f"special_{name}", x, rtol=2e-5)
    check_row(f"special_{name}", x.double(), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomial(name: str):
    x = torch.cat([torch.linspace(-3, 3, 31), torch.tensor([1, -1, 0, 0.5, 0.999])])
    n = torch.tensor([-2, 0, 1, 2, 3, 4, 5, 7, 9, 20, 3.7, -0.5], dtype=f64)
    check_row(f"special_{name}", x.double()[:, None], n, rtol=1e-7, atol=1e-9)
    check_row(f"special_{name}.n_scalar", x, 5, rtol=1e-3)
    check_row(f"special_{name}.x_scalar", 0.3, n)


INDICES, OFFSETS = torch.tensor([1, 2, 4, 5, 4, 3, 2, 9]), torch.tensor([0, 0, 3, 7])


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("padding", [-1, 4])
def test_embedding_bag(mode: int, padding: int):
    weight = rand(10, 3)
    rest = (False, mode, False, uniform(8) if mode == 0 else None, False, padding)
    args = (weight, INDICES, OFFSETS, *rest)
    results = torch.ops.aten._embedding_bag(*args)
    for name in ("_embedding_bag", "_embedding_bag_forward_only"):
        check_row(name, *args)
        want = getattr(torch.ops.aten, name)(*args)
        outs = TABLE[name].outs(*args)
        assert [o.shape for o in outs] == [tuple(w.shape) for w in want]
    g = rand(4, 3)
    saved = (INDICES, OFFSETS, *results[1:], 10)
    check_row(
        "_embedding_bag_backward", g, *saved, False, mode, False, rest[3], padding
    )
    if mode == 0:
        name = "_embedding_bag_per_sample_weights_backward"
        check_row(name, g, weight, INDICES, OFFSETS, results[1], mode, padding)


def test_embedding_renorm():
    weight = rand(10, 3)
    check_row("embedding_renorm", weight, INDICES, 0.5, 2.0)


@pytest.mark.parametrize("how", ["sum", "mean", "max", "min", "prod"])
def test_segment_reduce(how: str):
    x = torch.tensor([1.0, 2, math.nan, 4, 5, 5, 0, 0, 0, 3])
    named = {"lengths": torch.tensor([2, 0, 2, 2, 2, 2])}
    for initial in (None, 2.0):
        check_row("segment_reduce", x, how, **named, initial=initial)
        y = torch.segment_reduce(x, how, **named, initial=initial)
        g = torch.arange(1.0, 7)
        name = "_segment_reduce_backward"
        check_row(name, g, y, x, how, **named, initial=initial)
    offsets = torch.tensor([[0, 2, 5], [0, 0, 5]])
    check_row("segment_reduce", rand(2, 5, 3), how, offsets=offsets, axis=1)


@pytest.mark.parametrize("driver", [None, "gels", "gelsd"])
def test_lstsq(driver: str | None):
    for a, b in (((5, 3), (5, 2)), ((2, 3, 5), (2, 3)), ((4, 4), (4,))):
        if driver == "gelsd" and a[-2] > a[-1]:
            continue
        a, b = rand(*a, dtype=f64), rand(*b, dtype=f64)
        check_row("linalg_lstsq", a, b, driver=driver)
        outs = TABLE["linalg_lstsq"].outs(a, b, None, driver)
        want = torch.linalg.lstsq(a, b, driver=driver)
        assert [o.shape for o in outs] == [tuple(w.shape) for w in want]


def test_reflectors():
    check_row("geqrf", rand(2, 5, 3))
    a, tau = torch.geqrf(rand(5, 3))
    check_row("ormqr", a, tau, rand(5, 2), True, True)
    check_row("ormqr", a, tau, rand(2, 5), False, False)


@pytest.mark.parametrize(
    "rank, how, padding",
    [(2, 0, 0), (2, 0, 2), (2, 1, 1), (2, 2, 2), (3, 0, 1), (3, 1, 0)],
)
def test_grid_sampler(rank: int, how: int, padding: int):
    align = bool(padding % 2)
    x = rand(2, 3, *(5, 4, 6)[:rank])
    grid = uniform(2, *(3, 4, 2)[:rank], rank) * 3 - 1.5
    name = f"grid_sampler_{rank}d"
    y = check_row(name, x, grid, how, padding, align)[0]
    args = (rand(*y.shape), x, grid, how, padding, align, [True, True])
    check_row(f"{name}_backward", *args, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", ["bilinear", "bicubic"])
def test_antialias(kind: str):
    name, x = f"_upsample_{kind}2d_aa", rand(2, 3, 7, 9)
    for size, align, *factors in (
        ((3, 4), False, None, None),
        ((3, 6), False, 0.5, 0.7),
        ((10, 4), True, None, None),
    ):
        check_row(name, x, size, align, *factors)
        g = rand(2, 3, *size)
        check_row(f"{name}_backward", g, size, x.shape, align, *factors)


@pytest.mark.parametrize("rank", [2, 3])
def test_fractional_pool(rank: int):
    name, x = f"fractional_max_pool{rank}d", rand(2, 3, *(8, 7, 6)[:rank])
    kernel, out = (2, 3, 2)[:rank], (3, 2, 1)[:rank]
    samples = uniform(2, 3, rank)
    check_row(name, x, kernel, out, samples)
    y, index = getattr(torch.ops.aten, name)(x, kernel, out, samples)
    check_row(f"{name}_backward", rand(*y.shape), x, kernel, out, index)


@pytest.mark.parametrize("p", [0.0, 1.0, 1.5, 2.0, math.inf])
def test_pdist(p: float):
    x = rand(6, 4)
    x[2] = x[3]
    d = torch.pdist(x, p)
    check_row("_pdist_forward", x, p)
    check_row("_pdist_backward", rand(*d.shape), x, p, d)


def test_histogram():
    x, edges = rand(50), torch.tensor([-1.0, 0, 0.5, 2])
    check_row("histogram.bin_ct", x, 7)
    check_row("histogram.bin_ct", x, 7, range=[-1.0, 2.0], density=True)
    check_row("histogram.bins_tensor", x, edges, weight=uniform(50))


def on_both(f, x: torch.Tensor):
    """Result and gradient of `f` on the CPU, then on the device."""
    for device in ("cpu", tarry.device()):
        v = x.clone().to(device).requires_grad_()
        y = f(v)
        y.sum().backward()
        yield y.detach().cpu(), v.grad.cpu()


@pytest.mark.parametrize("zero_infinity", [False, True])
def test_ctc_loss(zero_infinity: bool):
    targets = torch.tensor([[1, 2, 3, 1], [2, 2, 2, 2], [4, 1, 0, 0], [1, 1, 1, 1]])
    frames, lengths = (9, 8, 3 if zero_infinity else 7, 9), (3, 4, 2, 0)

    def loss(x):
        log = x.log_softmax(2)
        place = targets.to(x.device)
        named = {"reduction": "none", "zero_infinity": zero_infinity}
        return F.ctc_loss(log, place, frames, lengths, **named)

    for want, got in zip(*on_both(loss, rand(9, 4, 5))):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_rrelu_in_evaluation():
    for want, got in zip(*on_both(F.rrelu, rand(5, 6))):
        torch.testing.assert_close(got, want)
