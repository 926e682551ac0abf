"""Uncommon calls of compiled functions: tensors of the CPU that the
backward pass needs, parts on the host, forward mode, batches of `vmap`."""

import itertools

import pytest
import torch
import torch.autograd.forward_ad as fw
import torch.nn.functional as F

import tarry
from harness import make, same

pytestmark = [
    pytest.mark.usefixtures("fresh_dynamo"),
    pytest.mark.filterwarnings("ignore"),
]


def both(f, *args, times=2):
    """`f` on the CPU, and compiled on the device, with gradients of `args`."""
    compiled = torch.compile(f, backend="tarry")
    for _ in range(times):
        want, got = _run(f, "cpu", args), _run(compiled, "tarry", args)
        same(want, got)


def _run(f, device, args):
    tensors = [a.clone().to(device).requires_grad_() for a in args]
    outputs = f(*tensors)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    sum(o.abs().pow(2).sum().to("cpu") for o in outputs).backward()
    tarry.sync()
    return *[o.detach() for o in outputs], *[t.grad for t in tensors]


def test_numbers_of_the_cpu_in_the_backward_pass():
    for t in (torch.tensor(2.0), torch.tensor(3, dtype=torch.int64)):
        both(lambda x, t=t: (x * t, (x / t).sin()), make(3))
    compiled = torch.compile(lambda x, t: x * t, backend="tarry")
    x = make(3).to("tarry").requires_grad_()
    for value in (2.0, -3.0):
        (g,) = torch.autograd.grad(compiled(x, torch.tensor(value)).sum(), x)
        assert g.tolist() == [value] * 3


class OnHost(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        return (grad.cpu() * 2).to(grad.device)


def test_parts_on_the_host_take_nothing_that_others_need():
    def backward_in_parts(x):
        a = x.exp()
        return OnHost.apply(a * a) * a

    both(backward_in_parts, make(3))
    c = make(3)

    def forward_in_parts(x):
        y = x.exp()
        return y, y.sin(), (c * 2).sum()

    compiled = torch.compile(forward_in_parts, backend="tarry")
    x = make(3).to("tarry").requires_grad_()
    y, w, z = compiled(x)
    w.sum().backward()
    same(make(3).exp(), y.detach())
    same(make(3).exp() * make(3).exp().cos(), x.grad)
    torch.testing.assert_close(z, (c * 2).sum())


ATTENTION = list(
    itertools.product(("none", "causal", "mask", "bool"), (False, True), (0.0, 0.5))
)


@pytest.mark.parametrize(("mask", "grouped", "dropout"), ATTENTION)
def test_attention_trains(mask, grouped, dropout):
    bias = {"mask": make(5, 5), "bool": torch.ones(5, 5).tril() > 0}.get(mask)

    def f(q, k, v):
        given = None if bias is None else bias.to(q.device)
        return F.scaled_dot_product_attention(
            q, k, v, given, dropout, is_causal=mask == "causal", enable_gqa=grouped
        )

    args = [make(2, 4 if i == 0 or not grouped else 2, 5, 3, seed=i) for i in range(3)]
    if not dropout:
        both(f, *args)
        return

    def seeded(g):
        torch.manual_seed(0)
        return _run(g, "tarry", args)

    same([t.cpu() for t in seeded(f)], seeded(torch.compile(f, backend="tarry")))


def test_views_of_another_dtype():
    def f(x):
        z = x * (1 + 1j)
        return z, torch.view_as_real(z), z.imag

    z, real, imag = torch.compile(f, backend="tarry")(torch.ones(3).to("tarry"))
    imag.zero_()
    assert z.tolist() == [1 + 0j] * 3 and real.tolist() == [[1.0, 0.0]] * 3

    @torch.compile(backend="tarry")
    def write(r):
        r.mul_(2)
        return r[:, 0]

    z = torch.full((2,), 1 + 3j).to("tarry")
    first = write(torch.view_as_real(z))
    assert z.tolist() == [2 + 6j] * 2 and first.tolist() == [2.0, 2.0]
    first.zero_()
    assert z.tolist() == [6j] * 2


def test_derivatives_in_forward_mode():
    compiled = torch.compile(lambda x: x.sin() * x, backend="tarry")
    x = make(3)
    compiled(x.to("tarry"))
    with fw.dual_level():
        dual = fw.make_dual(x.to("tarry"), torch.ones(3).to("tarry"))
        same(x.cos() * x + x.sin(), fw.unpack_dual(compiled(dual)).tangent)
    same(x.sin() * x, compiled(x.to("tarry")))


def test_a_batch_of_backward_passes():
    f = lambda x: (x.sin() * x).cumsum(0)  # noqa: E731
    jacobian = torch.autograd.functional.jacobian
    compiled = torch.compile(f, backend="tarry")
    got = jacobian(lambda v: compiled(v), make(3).to("tarry"), vectorize=True)
    same(jacobian(f, make(3)), got)


def unsqueezed(x):
    y = x * 2
    y.unsqueeze_(0)
    y.transpose_(0, 1)
    return y.squeeze_(1).as_strided_((2,), (1,)) * x[:2]


def statistics(x):
    mean_and_rstd = torch.native_group_norm(
        x[None, :, None], None, None, 1, 3, 1, 3, 1e-5
    )
    return x.quantile(0.3), x.nanquantile(0.6), *mean_and_rstd


@pytest.mark.parametrize("f", [unsqueezed, statistics])
def test_views_in_place(f):
    both(f, make(3))


def test_a_norm_of_symbolic_sizes():
    f = lambda x: F.rms_norm(x, x.shape[1:])  # noqa: E731
    compiled = torch.compile(f, backend="tarry", dynamic=True)
    for shape in ((2, 3), (5, 4), (2, 2, 3)):
        same(f(make(*shape)), compiled(make(*shape).to("tarry")))
