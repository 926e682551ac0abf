"""Optimization barriers and activation checkpointing: values, gradients, and that XLA
keeps apart what they keep apart."""

import pytest
import torch
from torch import nn

import tarry
from harness import cuts, make, same
from tarry.debug import hlo
from tarry.ledger import ledger
from tarry.loop.barrier import optimization_barrier


def products():
    """Matrix products in the last compiled program, after XLA's passes."""
    return hlo(ledger.compiles[-1].program).count(" dot(")


def twice(barrier):
    x, w = make(32, 32).to("tarry"), make(32, 32, seed=1).to("tarry")
    y = x @ w
    barrier([x, w])
    z = x @ w
    tarry.sync()
    assert torch.equal(y.cpu(), z.cpu())
    return products()


def test_products_are_merged_but_for_a_barrier():
    assert twice(lambda tensors: None) == 1
    assert twice(tarry.optimization_barrier_) == 2
    assert ledger.compiles[-1].options == "xla_disable_hlo_passes=cse_barrier_expander"


def test_options_of_the_user_are_kept_beside_it():
    try:
        tarry.set_custom_compile_options({"xla_disable_hlo_passes": "fusion"})
        assert twice(tarry.optimization_barrier_) == 2
        wanted = "xla_disable_hlo_passes=cse_barrier_expander,fusion"
        assert ledger.compiles[-1].options == wanted
    finally:
        tarry.set_custom_compile_options({})


def test_a_barrier_in_place_changes_no_value_and_no_gradient():
    def run(device, barrier):
        w = make(3, 4).to(device).requires_grad_()
        x = (w * 2).t()
        part, count = x[1:], torch.arange(5, device=device)
        saved = x.exp()
        if barrier:
            tarry.optimization_barrier_([w, part, count, x, x])
        (saved * x + part.sum() * count.sum()).sum().backward()
        return x, part, count, saved, w.grad

    same(run("cpu", False), run("tarry", True))


def test_a_barrier_with_results_passes_gradients():
    w = make(3, 4).to("tarry").requires_grad_()
    count = torch.arange(3).to("tarry")
    a, b, c = optimization_barrier([w, w * 3, count])
    assert not c.requires_grad
    (a * b).sum().backward()
    same(make(3, 4) * 6, w.grad)
    assert optimization_barrier([]) == []


def test_what_a_barrier_refuses():
    with pytest.raises(TypeError, match="takes tensors on tarry, got cpu"):
        tarry.optimization_barrier_([torch.ones(1)])
    tarry.optimization_barrier_([])


class Block(nn.Module):
    def __init__(self, width, dropout=0.0):
        super().__init__()
        self.up, self.down = nn.Linear(width, width), nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, scale=1.0):
        return x + scale * self.dropout(self.down(self.up(x).tanh()))


def trained(device, through, depth=4, width=16, batch=4, dropout=0.0):
    """Result and gradients of some blocks, called by `through`."""
    torch.manual_seed(0)
    blocks = nn.ModuleList(Block(width, dropout) for _ in range(depth)).to(device)
    x = make(batch, width).to(device).requires_grad_()
    tarry.sync()
    y = x
    for block in blocks:
        y = through(block, y)
    loss = y.square().mean()
    loss.backward()
    grads = [x.grad, *(p.grad for p in blocks.parameters())]
    tarry.sync()
    return loss.detach(), grads


def test_gradients_are_those_without():
    want = trained("cpu", lambda block, y: block(y, 0.5))
    same(want, trained("tarry", lambda b, y: tarry.checkpoint(b, y, 0.5)))
    same(want, trained("tarry", lambda b, y: tarry.checkpoint(b, y, scale=0.5)))


@pytest.mark.parametrize("reentrant", [True, False])
def test_random_numbers_are_drawn_alike(reentrant):
    want = trained("tarry", lambda b, y: b(y), dropout=0.5)
    got = trained(
        "tarry",
        lambda b, y: tarry.checkpoint(b, y, use_reentrant=reentrant),
        dropout=0.5,
    )
    assert torch.equal(want[0].cpu(), got[0].cpu())
    for a, b in zip(want[1], got[1]):
        torch.testing.assert_close(a.cpu(), b.cpu())


def test_it_saves_memory_and_computes_again():
    size = {"depth": 6, "width": 64, "batch": 4096}
    trained("tarry", lambda b, y: b(y), **size)
    plain, memory = products(), ledger.compiles[-1].memory["temp"]
    trained("tarry", tarry.checkpoint, **size)
    assert products() > plain
    assert ledger.compiles[-1].memory["temp"] < 0.7 * memory


def test_structures_and_several_results():
    def function(pair, *, shift):
        a, b = pair["a"], pair["b"]
        return {"sum": a.sin() + b, "n": 3, "both": (a * b, (a > 0))}, shift

    def run(device, call):
        a, b = (make(3, seed=i).to(device).requires_grad_() for i in (1, 2))
        got, shift = call(function, {"a": a, "b": b}, shift=2)
        assert shift == 2 and got["n"] == 3
        (got["sum"] * got["both"][0]).sum().backward(retain_graph=True)
        got["sum"].sum().backward()  # only one of the results, and a second time
        return got["sum"].detach(), got["both"][1], a.grad, b.grad

    want = run("cpu", lambda f, *args, **kwargs: f(*args, **kwargs))
    same(want, run("tarry", tarry.checkpoint))
    with torch.no_grad():
        got, _ = tarry.checkpoint(
            function, {"a": torch.ones(1).to("tarry"), "b": 1}, shift=0
        )
    assert not got["sum"].requires_grad


def test_it_cuts_nothing():
    with cuts(1):  # the last line of `trained`
        trained("tarry", tarry.checkpoint, depth=2, width=8)
