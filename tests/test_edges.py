"""NaN, infinities and poles as arguments: the values of PyTorch's CPU kernels."""

import itertools

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from harness import check

NAN, INF = float("nan"), float("inf")
EDGES = torch.tensor([NAN, INF, -INF, 1.0, 0.0, -1.0, -1.5, 0.5, 2.0, 20.0])
PAIRS = torch.tensor(list(itertools.product(EDGES.tolist(), repeat=2))).T


def once(fn, *inputs, **options):
    check(fn, *inputs, grad=False, views=False, syncs=False, **options)


@pytest.mark.parametrize("name", ["igamma", "igammac", "special.zeta", "xlogy"])
def test_functions_of_two_numbers(name):
    fn = torch.special.zeta if name == "special.zeta" else getattr(torch, name)
    once(fn, PAIRS[0].contiguous(), PAIRS[1].contiguous())


@pytest.mark.parametrize("n", range(5))
def test_polygamma(n):
    once(lambda x: torch.polygamma(n, x), EDGES)


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize(
    "sequence",
    [[-1, 0, 1, 2], [-1, 0, 1, INF, NAN], [NAN, -1, 0, 1], [2, NAN, -INF, 1, 1, 0], []],
)
def test_search_takes_the_steps_of_the_cpu(sequence, right):
    bounds = torch.tensor(sequence, dtype=torch.float32)
    once(lambda x, s: torch.bucketize(x, s, right=right), EDGES, bounds)
    once(
        lambda x, s: torch.searchsorted(s, x, right=right),
        EDGES.expand(3, 10).contiguous(),
        bounds.expand(3, len(sequence)).contiguous(),
    )


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 2.0, 3.0, INF])
def test_distances(p):
    x = torch.tensor([[NAN, 1, 2], [INF, 1, 2], [0, -INF, INF], [1, 2, 3]])
    y = torch.tensor([[0.0, 1, 2], [INF, 1, 2], [1, NAN, INF]])
    once(lambda a, b: torch.cdist(a, b, p), x, y)
    once(lambda a: torch.pdist(a, p), x)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("how", ["bilinear", "nearest", "bicubic"])
def test_places_that_are_no_numbers(how, padding, align):
    image = torch.arange(20.0).reshape(1, 1, 4, 5)
    grid = torch.tensor([[NAN, 0.2], [0.3, INF], [-INF, -0.4], [NAN, NAN], [0.1, 0.7]])
    once(
        lambda x, g: torch.nn.functional.grid_sample(x, g, how, padding, align),
        image,
        grid.reshape(1, 1, 5, 2),
    )
    if how != "bicubic":
        deep = torch.cat([grid, grid[:, :1].flip(0)], 1)
        once(
            lambda x, g: torch.nn.functional.grid_sample(x, g, how, padding, align),
            image.reshape(1, 1, 2, 2, 5),
            deep.reshape(1, 1, 1, 5, 3),
        )


def test_attention_has_second_derivatives():
    def penalty(q, k, v):
        with sdpa_kernel(SDPBackend.MATH):  # of the CPU's, the one that has them
            y = scaled_dot_product_attention(q, k, v, is_causal=True)
        first = torch.autograd.grad(y.sin().sum(), (q, k, v), create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), (q, k, v))

    def second(*inputs):
        leaves = [x.detach().requires_grad_() for x in inputs]
        return penalty(*leaves)

    parts = [torch.randn(2, 2, 5, 4) for _ in range(3)]
    check(second, *parts, grad=False, views=False, strides=False)


COMPLEX = torch.tensor([-3 + 4j, 2 - 3j, 1 + 1j, -5 + 0.1j, -INF, 2 + 9j])


def test_complex_logarithms_of_sums_have_the_branch_of_the_cpu():
    check(torch.logaddexp, COMPLEX, COMPLEX.flip(0), grad=False)
    check(lambda x: torch.logcumsumexp(x, 0), COMPLEX, grad=False, views=False)
    check(lambda x: torch.logsumexp(x, 0), COMPLEX, grad=False, views=False)
    check(lambda x: torch.logsumexp(x, 0), 500 * COMPLEX[:4], grad=False, views=False)


def test_integer_logspace_truncates_its_ends_first():
    for start, end, steps, base in (
        (-2.7, 3.3, 5, 10),
        (-2, 3, 2, 4),
        (1.5, 2.5, 3, 10),
    ):
        args = {"base": base, "dtype": torch.int64}
        want = torch.logspace(start, end, steps, **args)
        got = torch.logspace(start, end, steps, device="tarry", **args)
        assert torch.equal(got.cpu(), want)


def test_complex_uniform_draws_both_parts():
    x = torch.empty(2000, dtype=torch.complex64, device="tarry").uniform_(2, 3).cpu()
    for part in (x.real, x.imag):
        assert part.min() >= 2 and part.max() < 3 and abs(part.mean() - 2.5) < 0.05
    assert abs(torch.corrcoef(torch.stack([x.real, x.imag]))[0, 1]) < 0.1
