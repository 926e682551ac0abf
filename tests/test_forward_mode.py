"""Derivatives in forward mode, and transforms of `torch.func` that take them."""

import pytest
import torch
import torch.autograd.forward_ad as fw
from torch.func import hessian, jacfwd, jvp, linearize, vmap

from harness import make, same

# PyTorch scripts decompositions, and builds graphs with odd names.
pytestmark = pytest.mark.filterwarnings("ignore")

VIEWS = {
    "plain": lambda x: x,
    "rows": lambda x: x[1:],
    "transposed": lambda x: x.t(),
    "stepped": lambda x: x[:, ::2],
    "conj": lambda x: torch.complex(x, x).conj(),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_and_tangents_of_other_layouts(name):
    def run(device):
        primal = VIEWS[name](make(3, 4).to(device))
        tangent = make(*reversed(primal.shape), seed=1).to(device).t().to(primal.dtype)
        with fw.dual_level():
            dual = fw.make_dual(primal, tangent)
            product = fw.unpack_dual((dual.sin() * dual).sum(0))
        return product.primal, product.tangent, jvp(torch.exp, (primal,), (tangent,))[1]

    same(run("cpu"), run("tarry"))


def test_writes_to_views():
    def run(device):
        with fw.dual_level():
            dual = fw.make_dual(make(3, 4).to(device), make(4, 3).to(device).t())
            base = dual.clone()
            base[1:].mul_(dual[:2])
            base.t()[0].copy_(dual[:, 1])
            return tuple(fw.unpack_dual(base))

    same(run("cpu"), run("tarry"))


def f(x):
    return (x**3 * x.roll(1)).tanh()


def test_transforms():
    def run(device):
        x = make(3, 5, dtype=torch.float64).to(device)
        y, push = linearize(f, x[0])
        return (
            y, push(x[1]), hessian(lambda v: f(v).sum())(x[2]),
            vmap(jacfwd(f), chunk_size=2)(x), vmap(jacfwd(f))(x[2:]),
            vmap(hessian(lambda v: f(v).sum()), chunk_size=2)(x.flip(0)),
            jacfwd(jacfwd(f))(x[1]),
        )  # fmt: skip

    same(run("cpu"), run("tarry"))
