"""`assume_pure` and `gradient_accumulation` against plain Python."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tarry
from harness import compiles
from tarry.errors import AsideError
from tarry.experimental import assume_pure, gradient_accumulation, scan


def made(*shape, grad=False, device="tarry"):
    values = torch.linspace(-1, 1, torch.Size(shape).numel()).reshape(shape)
    return values.to(device).requires_grad_(grad)


def test_it_runs_once_for_each_form_and_gives_the_same():
    calls = []

    def f(x, k, *, scale=1.0):
        calls.append(k)
        return {"y": (x * k).sin() * scale, "n": x.shape[0]}

    pure = assume_pure(f)
    for size in (3, 4, 3, 4):
        out = pure(made(size), 2, scale=0.5)
        torch.testing.assert_close(
            out["y"].cpu(), (made(size, device="cpu") * 2).sin() * 0.5
        )
        assert out["n"] == size
    assert len(calls) == 2
    pure(made(3), 3, scale=0.5), pure(made(3), 2, scale=0.25)
    pure(made(3).double(), 2, scale=0.5)
    assert len(calls) == 5


def test_a_module_in_training_is_replayed_exactly():
    torch.manual_seed(0)
    layers = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2)
    ours = nn.Sequential(*layers).to("tarry")
    theirs = copy.deepcopy(ours)
    calls = []

    def f(x, scale):
        calls.append(x)
        return ours(x) * scale, x.sum()

    pure = assume_pure(f)
    for step in range(3):
        results = []
        for model, run in (
            (ours, pure),
            (theirs, lambda x, s: (theirs(x) * s, x.sum())),
        ):
            torch.manual_seed(step)
            x = made(6, 4, grad=True)
            a, b = run(x, 2)
            model.zero_grad()
            (a.sum() + b).backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.1 * p.grad
            grads = [p.grad for p in model.parameters()]
            after = torch.rand(2, device="tarry")
            tensors = [a, b, x.grad, *grads, *model.buffers(), after]
            results.append([t.detach().cpu() for t in tensors])
        for ours_, wanted in zip(*results, strict=True):
            torch.testing.assert_close(ours_, wanted)
    assert len(calls) == 1


def test_replays_are_one_operation_and_one_program():
    pure = assume_pure(lambda x: (x.sin() + 1).cos().exp())
    pure(made(5)).cpu()
    with compiles(0):
        tarry.sync()
        pure(made(5))
        assert tarry.record.trie.recorder.trace.node.op == "tarry::call"
        tarry.sync()


def test_random_numbers_are_new_at_each_call():
    pure = assume_pure(lambda x: torch.rand_like(x))
    torch.manual_seed(0)
    first, second = pure(made(4)), pure(made(4))
    torch.manual_seed(0)
    assert torch.equal(first.cpu(), torch.rand_like(made(4)).cpu())
    assert torch.equal(second.cpu(), torch.rand_like(made(4)).cpu())


def test_random_numbers_of_a_seed_given_with_the_call():
    pure = assume_pure(
        lambda x: F.dropout(x * x, 0.5) + torch.rand_like(x), add_rng_seed_argument=True
    )
    torch.manual_seed(5)
    want = torch.rand(3, device="tarry").cpu()
    torch.manual_seed(5)
    found = []
    for seed in (0, 1, 0):
        x = made(64, grad=True)
        y = pure(x, rng_seed=seed)
        torch.rand(2, device="tarry")  # the backward pass does not see other draws
        (g,) = torch.autograd.grad(y.sum(), x)
        found.append((y.detach().cpu(), g.cpu()))
    assert torch.equal(found[0][0], found[2][0]) and torch.equal(
        found[0][1], found[2][1]
    )
    assert not torch.equal(found[0][0], found[1][0])
    torch.manual_seed(5)
    pure(made(64), rng_seed=3)
    assert torch.equal(torch.rand(3, device="tarry").cpu(), want)
    with pytest.raises(AssertionError, match="rng_seed is missing"):
        pure(made(4))


def test_a_new_seed_between_forward_and_backward():
    pure = assume_pure(lambda x: F.dropout(x, 0.5))
    x = made(64, grad=True)
    y = pure(x)
    torch.manual_seed(1234)
    (g,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close((x * g).detach().cpu(), y.detach().cpu())


def test_pure_in_pure_and_under_no_grad():
    inner = assume_pure(lambda x, w: (x * w).tanh())
    outer = assume_pure(lambda x, w: inner(inner(x, w), w) + x)
    x, w = made(4, grad=True), made(4, grad=True)
    for _ in range(2):
        out = outer(x, w)
    out.sum().backward()
    u, v = made(4, grad=True, device="cpu"), made(4, grad=True, device="cpu")
    want = ((u * v).tanh() * v).tanh() + u
    want.sum().backward()
    torch.testing.assert_close(out.cpu(), want)
    torch.testing.assert_close(x.grad.cpu(), u.grad)
    torch.testing.assert_close(w.grad.cpu(), v.grad)
    with torch.no_grad():
        assert not outer(x, w).requires_grad


def test_bad_calls_and_bad_functions():
    with pytest.raises(ValueError, match="on cpu"):
        assume_pure(lambda x: x)(torch.zeros(3))
    with pytest.raises(TypeError, match="hash"):
        assume_pure(lambda x, y: x)(made(3), {1}.__class__([1]))
    pure = assume_pure(lambda x: x * x.sum().item())
    for _ in range(2):
        with pytest.raises(AsideError, match=r"test_flow_pure\.py"):
            pure(made(3))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(5, 8), nn.Linear(8, 2)
        self.unused = nn.Linear(2, 2)
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)

    def forward(self, x):
        return self.down(torch.relu(self.up(x))) * self.frozen


def test_gradient_accumulation():
    torch.manual_seed(0)
    ours = Net().to("tarry")
    theirs = copy.deepcopy(ours)
    xs, ys = made(4, 3, 5), made(4, 3, 2)
    counts = [torch.tensor([5, 5]).to("tarry"), torch.zeros(2).to("tarry")]

    def step(model):
        def run(x, y, count, noise):
            loss = nn.functional.mse_loss(model(x), y)
            return loss, count + 5, torch.rand_like(noise) - noise

        return run

    for _ in range(2):  # the second time on top of the first
        torch.manual_seed(1)
        loss, count, noise = gradient_accumulation(step(ours), (xs, ys), ours, *counts)
        torch.manual_seed(1)
        total, (want_count, want_noise) = 0, counts
        for x, y in zip(xs, ys):
            one, want_count, want_noise = step(theirs)(x, y, want_count, want_noise)
            (one / 4).backward()
            total = total + one.detach() / 4
        assert not loss.requires_grad
        torch.testing.assert_close(loss.cpu(), total.cpu())
        assert count.tolist() == want_count.tolist() == [25, 25]
        torch.testing.assert_close(noise.cpu(), want_noise.cpu())
        for (name, p), q in zip(ours.named_parameters(), theirs.parameters()):
            if "unused" in name:
                assert q.grad is None and not p.grad.any()
            elif "frozen" in name:
                assert p.grad is None
            else:
                torch.testing.assert_close(p.grad.cpu(), q.grad.cpu())


def test_gradient_accumulation_is_one_body():
    model, xs = Net().to("tarry"), made(4, 3, 5)
    loss = gradient_accumulation(lambda x: model(x).sum(), (xs,), model)
    tarry.sync()
    graph = tarry.explain().compiles[-1].source.seen.key.graph
    assert [n.op for n in graph.nodes].count("tarry::scan") == 1
    assert loss.shape == ()


@pytest.mark.parametrize(
    ("step", "tensors", "words"),
    [
        (lambda x, c: (x.sum(), c), (), "empty"),
        (lambda x, c: (x.sum(), c), (3,), "not a tensor"),
        (lambda x, c: (x.sum(), c), (torch.zeros(2, 3),), "on cpu"),
        (lambda x, c: (x.sum(), c), (made(0, 3),), "empty"),
        (lambda x, y, c: (x.sum(), c), (made(2, 3), made(3, 3)), "3 slices"),
        (lambda x, c: (x, c), (made(2, 3),), "one element"),
        (lambda x, c: (x.sum(), c.add_(1)), (made(2, 3),), "in place"),
        (lambda x, c: (x.mul_(2).sum(), c), (made(2, 3),), "in place"),
        (lambda x, c: (x.sum(), c.double()), (made(2, 3),), "the same"),
        (lambda x, c: x.sum(), (made(2, 3),), "the same"),
    ],
)
def test_bad_gradient_accumulation(step, tensors, words):
    carried = made(3)
    with pytest.raises(ValueError, match=words):
        gradient_accumulation(step, tensors, Net().to("tarry"), carried)
    torch.testing.assert_close(carried.cpu(), made(3, device="cpu"))


def test_what_no_output_depends_on_has_no_gradient():
    w, v = (nn.Parameter(made(3)) for _ in range(2))

    def f(x):
        with torch.no_grad():
            k = v * x
        return x * w + k

    calls = {
        "pure": lambda x: assume_pure(f)(x),
        "scan": lambda x: scan(lambda h, y: (f(h) + y, h), x, torch.stack([x, x]))[0],
        "cond": lambda x: torch.cond(x.sum() > -9, f, lambda y: y * w, (x,)),
    }
    for name, call in calls.items():
        w.grad = v.grad = None
        call(made(3)).sum().backward()
        assert v.grad is None and w.grad.abs().sum() > 0, name
