"""Derivatives of derivatives through `torch.compile(backend="tarry")`, as on the CPU
without it."""

import gc
import weakref

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import tarry
from harness import cuts, make, same
from tarry.debug import metrics

pytestmark = [
    pytest.mark.usefixtures("fresh_dynamo"),
    pytest.mark.filterwarnings("ignore"),
]


def fast(f):
    return torch.compile(f, backend="tarry")


class RoundedUp(torch.autograd.Function):
    """A step whose gradient is not that of what it computes."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.ceil()

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0] ** 2


def written_inside(x, w):
    y = x * 1.0
    y[1:].mul_(w[:1])
    return (y * y,)


def passed_on(x, w):
    return x, w.sum(), (x * w).sin()


def same_memory(x, w):
    y = (x * w) ** 3
    return y.t(), y[0], y


def half_without_gradient(x, w):
    with torch.no_grad():
        scale = x.exp()
    return (scale * x * x * w.detach() * w, scale, (x > 0))


FUNCTIONS = {
    "pointwise": lambda x, w: (x.sin() * w * x,),
    "views": lambda x, w: torch.split((x**3 * w).view(-1), 3),
    "layers": lambda x, w: (
        F.layer_norm(torch.tanh(x @ w), (3,)).softmax(-1).square(),
    ),
    "unused": lambda x, w: (x**3,),
    "checkpoint": lambda x, w: (
        checkpoint(lambda a: (a @ w).sin() ** 2, x, use_reentrant=False),
    ),
    "written_inside": written_inside,
    "passed_on": passed_on,
    "same_memory": same_memory,
    "half_without_gradient": half_without_gradient,
    "a_break": lambda x, w: (torch._dynamo.graph_break() or (x * w).exp() * x,),
}


def derivatives(f, device, orders=3):
    """The values of `f` and gradients of several orders, of a leaf and of what is
    computed from one."""
    leaves = [
        make(3, 3, dtype=torch.float64, seed=s).to(device).requires_grad_()
        for s in (0, 1)
    ]
    x, w = leaves[0] * 1.5, leaves[1]
    outputs = f(x, w)
    found = [o.detach() for o in outputs]
    value = sum(
        (o * make(*o.shape, dtype=torch.float64, seed=2).to(device)).sum()
        for o in outputs
    )
    for _ in range(orders):
        grads = torch.autograd.grad(
            value, [x, *leaves], create_graph=True, allow_unused=True
        )
        found += [None if g is None else g.detach() for g in grads]
        value = sum(g.pow(2).sum() for g in grads if g is not None)
    return found


@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_on_the_cpu(name):
    f = FUNCTIONS[name]
    compiled = fast(f)
    for _ in range(2):
        before = metrics.counter_value("DynamoDoubleBackward") or 0
        want, got = derivatives(f, "cpu"), derivatives(compiled, "tarry")
        assert len(want) == len(got)
        for a, b in zip(want, got):
            if a is None:  # the compiled gradient of what is not used is zero
                assert b is None or not b.any()
            else:
                same(a, b)
        assert metrics.counter_value("DynamoDoubleBackward") > before


@pytest.mark.parametrize("where", ["plain", "checkpoint", "dead"])
def test_the_same_random_numbers(where):
    """Or the error, where what is not computed would have drawn some."""
    dead = where == "dead"

    def inner(x, w):
        if dead:
            torch.rand_like(x)
        return (F.dropout((x * w) ** 3, 0.5),)

    def f(x, w):
        if where == "checkpoint":
            return checkpoint(inner, x, w, use_reentrant=False)
        return inner(x, w)

    def run(g):
        torch.manual_seed(3)
        found = derivatives(g, "tarry")
        return *found, torch.rand(3, device="tarry")

    compiled = fast(f)
    if dead:
        with pytest.raises(RuntimeError, match="double backward"):
            run(compiled)
    else:
        want = run(f)
        for _ in range(2):
            same(want, run(compiled))


def test_hooks_run_once():
    def run(f, device):
        leaf = make(3, 3).to(device).requires_grad_()
        x, w = leaf * 1.5, make(3, 3, seed=1).to(device).requires_grad_()
        x.retain_grad()
        for t in (leaf, x, w):
            t.register_hook(lambda g: g * 2)
        f(x, w)[0].pow(2).sum().backward(create_graph=True)
        found = [t.grad.clone() for t in (leaf, x, w)]
        sum(t.grad.pow(2).sum() for t in (leaf, w)).backward()
        return *found, leaf.grad, w.grad

    f = FUNCTIONS["pointwise"]
    want, got = run(f, "cpu"), run(fast(f), "tarry")
    same([t.detach() for t in want], [t.detach() for t in got])


def test_dynamic_sizes():
    f = torch.compile(lambda x: (x.sin() * x).reshape(-1, 2).sum(0), backend="tarry",
                      dynamic=True)  # fmt: skip

    def run(f, n, device):
        x = make(n, 4).to(device).requires_grad_()
        (g,) = torch.autograd.grad(f(x).pow(2).sum(), x, create_graph=True)
        return g.detach(), *torch.autograd.grad(g.pow(2).sum(), x)

    for n in (3, 5, 3):
        same(run(lambda x: (x.sin() * x).reshape(-1, 2).sum(0), n, "cpu"),
             run(f, n, "tarry"))  # fmt: skip


def test_autocast():
    def run(f):
        with torch.autocast("tarry", torch.bfloat16):
            outputs = f(x, w)
        assert outputs[0].dtype is torch.bfloat16
        (g,) = torch.autograd.grad(outputs[0].sum(), x, create_graph=True)
        return g, *torch.autograd.grad(g.pow(2).sum(), [x, w])

    x, w = (make(3, 3, seed=s).to("tarry").requires_grad_() for s in (0, 1))
    f = lambda x, w: ((x @ w).sin() @ w,)  # noqa: E731
    same(run(f), run(fast(f)))


def penalised(model, optimizer, x, f=None):
    """A training step of a critic with a gradient penalty."""
    x = x.detach().requires_grad_()
    scores = (f or model)(x)
    (grad,) = torch.autograd.grad(scores.sum(), x, create_graph=True)
    loss = scores.mean() + 10 * (grad.norm(dim=1) - 1).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def test_a_gradient_penalty_trains():
    def run(device):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.LayerNorm(8))
        model.append(nn.Linear(8, 1)).to(device)
        compiled = fast(model) if device == "tarry" else model
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        losses = []
        for step in range(6):
            x = make(5, 4, seed=step).to(device)
            tarry.sync()
            # The function, the penalty, on which its backward pass waits, the rest.
            with cuts(4 if device == "tarry" else 0):
                losses.append(penalised(model, optimizer, x, compiled))
                tarry.sync()
        return *losses, *[p.detach() for p in model.parameters()]

    same(run("cpu"), run("tarry"))


def test_what_a_backward_pass_needs_no_longer_is_let_go():
    f = fast(lambda x: (x * 2 + 1).sum())
    w = torch.ones(3).to("tarry").requires_grad_()
    for create_graph in (False, True):
        x = w * 2
        seen, loss = weakref.ref(x), f(x)
        del x
        (grad,) = torch.autograd.grad(
            loss, w, create_graph=create_graph, retain_graph=False
        )
        gc.collect()
        assert seen() is None
        assert grad.tolist() == [4.0] * 3


def test_where_values_might_differ_it_is_an_error():
    bias = torch.zeros(3).to("tarry").requires_grad_()
    x = torch.ones(3).to("tarry").requires_grad_()
    value = fast(lambda x, b: ((x + b) ** 3).sum())(x, bias)
    with torch.no_grad():
        bias.add_(1)  # the gradient needs the sum, not the bias
    (grad,) = torch.autograd.grad(value, x, create_graph=True)
    assert grad.tolist() == [3.0] * 3
    with pytest.raises(RuntimeError, match="double backward"):
        grad.sum().backward()
    # A write that moves no version; what was saved is used, as without `create_graph`.
    w = make(3).to("tarry").requires_grad_()
    f = fast(lambda x, w: ((x * w).tanh() * w).sum())
    grads = []
    for create_graph in (False, True):
        value = f(x, w)
        w.data.mul_(2)
        grads += torch.autograd.grad(value, x, create_graph=create_graph)
        w.data.div_(2)
    same(grads[0].cpu(), grads[1].detach())
    with pytest.raises(RuntimeError, match="double backward"):
        grads[1].sum().backward()
    # A function of the user's: PyTorch's trace loses what depends on what it saves.
    (grad,) = torch.autograd.grad(fast(RoundedUp.apply)(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        grad.sum().backward()
    # An argument that the function itself writes to.
    norm = nn.BatchNorm1d(3).to("tarry")
    (grad,) = torch.autograd.grad(
        fast(norm)(make(4, 3).to("tarry").requires_grad_()).pow(3).sum(),
        norm.weight, create_graph=True,
    )  # fmt: skip
    with pytest.raises(RuntimeError, match="double backward"):
        grad.sum().backward()
