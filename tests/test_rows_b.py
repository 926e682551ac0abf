"""Rows of linear, activation, loss, norm, random, conv, pool, optim, attention,
resize and transforms against PyTorch's CPU kernels."""

from typing import Any

import jax
import numpy as np
import pytest
import torch

import tarry.lower.rows  # noqa: F401  (fills the table)
from rows import check_row
from tarry import dtypes
from tarry.lower.table import TABLE, Call, Out, Scalar

F = torch.float32
HALVES = (torch.bfloat16, torch.float16)
FLOATS = (F, torch.float64, *HALVES)
TOLERANCE = {torch.bfloat16: 2e-2, torch.float16: 3e-3, F: 2e-5, torch.float64: 1e-10}


def rand(*shape: int, dtype: torch.dtype = F, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def near(name: str, *args: Any, dtype: torch.dtype = F, slack: float = 1, **kw: Any):
    tol = TOLERANCE.get(dtype, 1e-5) * slack
    return check_row(name, *args, rtol=tol, atol=tol, **kw)


def lower(name: str, outs: list[tuple], *args: Any) -> tuple:
    """Run an internal row: tensors enter as arrays, `S(value)` as run-time scalars."""
    arrays = [dtypes.host_array(a) for a in args if isinstance(a, torch.Tensor)]

    def go(*xs: Any) -> Any:
        xs = iter(xs)
        given = [
            next(xs)
            if isinstance(a, torch.Tensor)
            else _scalar(a.value)
            if isinstance(a, S)
            else a
            for a in args
        ]
        call = Call(tuple(Out(tuple(s), d) for s, d in outs))
        return TABLE[name].lower(call, *given)

    with jax.enable_x64(True):
        got = jax.jit(go)(*arrays)
    got = got if isinstance(got, tuple | list) else (got,)
    got = tuple(None if g is None else dtypes.host_tensor(np.asarray(g)) for g in got)
    for g, (shape, dtype) in zip(got, outs):
        assert g is None or (tuple(g.shape) == tuple(shape) and g.dtype is dtype)
    return got


class S:
    def __init__(self, value: Any) -> None:
        self.value = value


def _scalar(v: Any) -> Scalar:
    kind = {bool: "b", int: "i", float: "f"}[type(v)]
    return Scalar(kind, lambda dt: jax.numpy.asarray(v).astype(dt))


# linear

MATS = (*FLOATS, torch.complex64, torch.int64)


@pytest.mark.parametrize("dtype", MATS)
def test_products(dtype):
    def r(*shape):
        x = rand(*shape, dtype=F) * 3
        return (x + 1j * x.flip(0)).to(dtype) if dtype.is_complex else x.to(dtype)

    near("mm", r(5, 7), r(7, 3), dtype=dtype, slack=3)
    near("bmm", r(2, 5, 7), r(2, 7, 3), dtype=dtype, slack=3)
    near("mv", r(5, 7), r(7), dtype=dtype, slack=3)
    near("dot", r(7), r(7), dtype=dtype, slack=3)
    if dtype.is_floating_point or dtype.is_complex:
        near("vdot", r(7), r(7), dtype=dtype, slack=3)


@pytest.mark.parametrize("dtype", MATS)
@pytest.mark.parametrize("kw", [{}, {"beta": 0}, {"beta": 2, "alpha": 3}])
def test_products_with_bias(dtype, kw):
    def r(*shape):
        return rand(*shape, dtype=F).mul(2).to(dtype)

    near("addmm", r(3), r(5, 7), r(7, 3), dtype=dtype, slack=5, **kw)
    near("addmm", r(5, 1), r(5, 7), r(7, 3), dtype=dtype, slack=5, **kw)
    near("baddbmm", r(5, 3), r(2, 5, 7), r(2, 7, 3), dtype=dtype, slack=5, **kw)
    near("addbmm", r(5, 3), r(2, 5, 7), r(2, 7, 3), dtype=dtype, slack=9, **kw)
    near("addmv", r(5), r(5, 7), r(7), dtype=dtype, slack=5, **kw)
    near("addr", r(3), r(5), r(3), dtype=dtype, slack=5, **kw)


def test_products_edges():
    nan = torch.full((3,), float("nan"))
    near("addmm", nan, rand(5, 7), rand(7, 3), beta=0)
    near("mm", rand(5, 0), rand(0, 3))
    near("mm", rand(0, 5), rand(5, 3))
    for use_gelu in (False, True):
        near("_addmm_activation", rand(3), rand(5, 7), rand(7, 3), use_gelu=use_gelu)


# activation

UNARY = {
    "relu": [()],
    "threshold": [(0.5, -2.0)],
    "leaky_relu": [(), (0.3,)],
    "elu": [(), (0.7, 1.3, 0.9)],
    "gelu": [()],
    "silu": [()],
    "mish": [()],
    "hardtanh": [(), (-0.4, 0.6)],
    "hardsigmoid": [()],
    "hardswish": [()],
    "softplus": [(), (2.0, 1.5)],
    "softshrink": [(), (0.2,)],
    "hardshrink": [(), (0.2,)],
    "glu": [(), (0,)],
    "log_sigmoid_forward": [()],
}


def spans(dtype: torch.dtype) -> torch.Tensor:
    x = rand(6, 8, dtype=torch.float64) * 3
    x[0] = torch.tensor([0.0, 3, -3, 20, -20, 0.5, -0.5, 1])
    return x.to(dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", UNARY)
def test_activation(name, dtype):
    for rest in UNARY[name]:
        near(name, spans(dtype), *rest, dtype=dtype)


def test_activation_special_values():
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 100, -100])
    for name in ("relu", "leaky_relu", "elu", "softplus", "hardtanh", "hardsigmoid"):
        near(name, x)
    near("softshrink", x)
    near("hardshrink", x)
    near("gelu", x[3:], approximate="tanh")
    near("relu", torch.tensor([-3, 2]))


GRADIENTS = {
    "threshold_backward": [(0.5,)],
    "leaky_relu_backward": [(0.3, False)],
    "gelu_backward": [()],
    "silu_backward": [()],
    "mish_backward": [()],
    "hardtanh_backward": [(-0.4, 0.6)],
    "hardsigmoid_backward": [()],
    "hardswish_backward": [()],
    "softplus_backward": [(1, 20), (2.0, 1.5)],
    "softshrink_backward": [(0.2,)],
    "hardshrink_backward": [(0.2,)],
    "sigmoid_backward": [()],
    "tanh_backward": [()],
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", GRADIENTS)
def test_activation_gradient(name, dtype):
    for rest in GRADIENTS[name]:
        grad = rand(6, 8, dtype=dtype, seed=5)
        near(name, grad, spans(dtype), *rest, dtype=dtype, slack=4)


@pytest.mark.parametrize("dtype", FLOATS)
def test_activation_gradient_more(dtype):
    g, x = rand(6, 8, dtype=dtype, seed=5), spans(dtype)
    for scales in ((1, 1, 1), (0.7, 1.3, 0.9)):
        for is_result in (False, True):
            near("elu_backward", g, *scales, is_result, x, dtype=dtype, slack=4)
    near("gelu_backward", g, x, approximate="tanh", dtype=dtype, slack=4)
    near("gelu", x, approximate="tanh", dtype=dtype)
    near("glu_backward", g[:, :4].contiguous(), x, 1, dtype=dtype, slack=2)
    buffer = torch.ops.aten.log_sigmoid_forward(x)[1]
    near("log_sigmoid_backward", g, x, buffer, dtype=dtype, slack=2)
    w = rand(8, dtype=dtype).expand(6, 8)
    near("_prelu_kernel", x, w, dtype=dtype)
    near("_prelu_kernel_backward", g, x, w, dtype=dtype)
    p = torch.sigmoid(rand(6, 8)).to(dtype)
    near("logit_backward", g, p, dtype=dtype, slack=4)
    near("logit_backward", g, p, 0.3, dtype=dtype, slack=4)


def test_activation_complex_gradient():
    z = torch.complex(rand(4), rand(4, seed=2))
    near("sigmoid_backward", z, z.flip(0))
    near("tanh_backward", z, z.flip(0))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax(dtype, dim):
    x, g = rand(4, 5, 6, dtype=dtype) * 4, rand(4, 5, 6, dtype=dtype, seed=3)
    for name in ("_softmax", "_log_softmax"):
        near(name, x, dim, False, dtype=dtype)
        y = _softmaxed(name, x, dim)
        near(f"{name}_backward_data", g, y, dim, dtype, dtype=dtype, slack=4)
    x[0, 0] = -float("inf")
    near("_safe_softmax", x, dim, dtype=dtype)


def _softmaxed(name: str, x: torch.Tensor, dim: int) -> torch.Tensor:
    return getattr(torch.ops.aten, name).default(x, dim, False)


def test_softmax_edges():
    near("_softmax", torch.tensor(2.0), 0, False)
    near("_log_softmax", torch.tensor(2.0), -1, False)
    x = torch.full((2, 3), -float("inf"))
    near("_softmax", x, 1, False)
    near("_safe_softmax", x, 1)
    near("_safe_softmax", rand(2, 3), 1, torch.float64)
    half = rand(2, 3).half()
    got = lower("_softmax", [((2, 3), F)], half, 1, True)[0]
    torch.testing.assert_close(got, torch.softmax(half.float(), 1))


# loss


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_loss(dtype, reduction):
    x, y = rand(6, 8, dtype=dtype), rand(6, 8, dtype=dtype, seed=4)
    g = (
        rand(6, 8, dtype=dtype, seed=7)
        if reduction == 0
        else torch.tensor(1.5).to(dtype)
    )
    kw = {"dtype": dtype, "slack": 3}
    near("mse_loss", x, y, reduction, **kw)
    near("mse_loss_backward", g, x, y, reduction, **kw)
    for bound in (1.0, 0.3):
        near("smooth_l1_loss", x, y, reduction, bound, **kw)
        near("smooth_l1_loss_backward", g, x, y, reduction, bound, **kw)
        near("huber_loss", x, y, reduction, bound, **kw)
        near("huber_loss_backward", g, x, y, reduction, bound, **kw)
    p, t = torch.sigmoid(x), torch.sigmoid(y)
    for w in (None, rand(6, 8, dtype=dtype, seed=2).abs()):
        if dtype is not torch.float16:
            near("binary_cross_entropy", p, t, w, reduction, **kw)
            near("binary_cross_entropy_backward", g, p, t, w, reduction, **kw)
        args = (x, t, w, None if w is None else w[0], reduction)
        near("binary_cross_entropy_with_logits", *args, **kw)
    near("soft_margin_loss", x, y.sign(), reduction, **kw)
    near("soft_margin_loss_backward", g, x, y.sign(), reduction, **kw)


def test_loss_edges():
    near("mse_loss", rand(3, 1), rand(1, 4), 1)
    near(
        "binary_cross_entropy", torch.tensor([0.0, 1]), torch.tensor([1.0, 1]), None, 0
    )


@pytest.mark.parametrize("dtype", (F, torch.float64, torch.bfloat16))
@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_nll_loss(dtype, reduction, weighted):
    kw = {"dtype": dtype, "slack": 3}
    x, t = rand(6, 5, dtype=dtype), torch.tensor([0, 4, 2, -100, 1, 1])
    w = rand(5, dtype=dtype).abs() if weighted else None
    for ignore in (-100, 1):
        t[3] = 1 if ignore == 1 else -100
        args = (x, t, w, reduction, ignore)
        total = torch.ops.aten.nll_loss_forward(*args)
        near("nll_loss_forward", *args, **kw)
        g = rand(*total[0].shape, dtype=dtype, seed=5)
        near("nll_loss_backward", g, *args, total[1], **kw)
    x2 = rand(2, 5, 3, 4, dtype=dtype)
    t2 = torch.arange(24).reshape(2, 3, 4) % 5
    t2[0, 0] = -100
    args = (x2, t2, w, reduction, -100)
    total = torch.ops.aten.nll_loss2d_forward(*args)
    near("nll_loss2d_forward", *args, **kw)
    g = rand(*total[0].shape, dtype=dtype, seed=5)
    near("nll_loss2d_backward", g, *args, total[1], **kw)


def test_nll_loss_edges():
    x = rand(5)
    for reduction in (0, 1, 2):
        near("nll_loss_forward", x, torch.tensor(3), None, reduction, -100)
        g, total = torch.tensor(2.0), torch.tensor(1.0)
        near("nll_loss_backward", g, x, torch.tensor(3), None, reduction, -100, total)
    ignored = torch.full((3,), -100)
    near("nll_loss_forward", rand(3, 5), ignored, None, 1, -100)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_multi_margin_loss(p, reduction):
    x, t = rand(6, 5), torch.tensor([0, 4, 2, 3, 1, 1])
    for w in (None, rand(5).abs()):
        near("multi_margin_loss", x, t, p, 0.7, w, reduction)
        g = rand(6) if reduction == 0 else torch.tensor(1.5)
        near("multi_margin_loss_backward", g, x, t, p, 0.7, w, reduction)


# norm

MIXED = [(F, F), (torch.float64,) * 2, (torch.bfloat16,) * 2, (torch.bfloat16, F)]


@pytest.mark.parametrize("dtype,param", MIXED)
def test_layer_norm(dtype, param):
    x, g = rand(3, 4, 6, dtype=dtype) + 2, rand(3, 4, 6, dtype=dtype, seed=1)
    for shape in ([6], [4, 6]):
        w, b = rand(*shape, dtype=param), rand(*shape, dtype=param, seed=9)
        for weight, bias in ((w, b), (None, None), (w, None)):
            args = (x, shape, weight, bias, 1e-5)
            near("native_layer_norm", *args, dtype=dtype, slack=3)
            _, mean, rstd = torch.ops.aten.native_layer_norm(*args)
            mask = [True, weight is not None, bias is not None]
            args = (g, x, shape, mean, rstd, weight, bias, mask)
            check_grads("native_layer_norm_backward", *args, dtype=dtype)


def check_grads(name: str, *args: Any, dtype: torch.dtype = F, slack: float = 20):
    """Like `near`, with undefined results allowed."""
    packet, _, which = name.partition(".")
    want = getattr(getattr(torch.ops.aten, packet), which or "default")(*args)
    outs = [((0,), F) if w is None else (tuple(w.shape), w.dtype) for w in want]
    got = lower(name, outs, *args)
    tol = TOLERANCE[dtype] * slack
    for g, w in zip(got, want):
        assert (g is None) == (w is None)
        if w is not None:
            torch.testing.assert_close(g, w, rtol=tol, atol=tol, check_stride=False)


@pytest.mark.parametrize("dtype,param", MIXED)
def test_group_norm(dtype, param):
    x, g = rand(2, 6, 3, 4, dtype=dtype) + 1, rand(2, 6, 3, 4, dtype=dtype, seed=1)
    w, b = rand(6, dtype=param), rand(6, dtype=param, seed=9)
    for groups in (1, 3, 6):
        for weight, bias in ((w, b), (None, None)):
            args = (x, weight, bias, 2, 6, 12, groups, 1e-5)
            near("native_group_norm", *args, dtype=dtype, slack=3)
            _, mean, rstd = torch.ops.aten.native_group_norm(*args)
            mask = [True, weight is not None, bias is not None]
            args = (g, x, mean, rstd, weight, 2, 6, 12, groups, mask)
            check_grads("native_group_norm_backward", *args, dtype=dtype)


def test_rms_norm():
    x, w = rand(3, 4, 6).requires_grad_(), rand(6).requires_grad_()
    near("_fused_rms_norm", x, [6], w, 1e-5)
    near("_fused_rms_norm", x, [4, 6], None, None)
    g = rand(3, 4, 6, seed=4)
    y, rstd = torch.ops.aten._fused_rms_norm(x, [6], w, 1e-5)
    want = torch.autograd.grad(y, (x, w), g)
    outs = [((3, 4, 6), F), ((6,), F)]
    args = (g, x.detach(), [6], rstd.detach(), w.detach(), [True, True])
    for got, expected in zip(lower("_fused_rms_norm_backward", outs, *args), want):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, float("inf")])
def test_renorm(p):
    near("renorm", rand(3, 4, 5), p, 1, 1.5)


@pytest.mark.parametrize("dtype,param", MIXED)
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm(dtype, param, training):
    g = rand(4, 3, 5, 2, dtype=dtype, seed=1)
    x = rand(4, 3, 5, 2, dtype=dtype) + 1
    w, b = rand(3, dtype=param), rand(3, dtype=param, seed=9)
    stats = rand(3, dtype=param, seed=3), rand(3, dtype=param, seed=4).abs() + 0.1
    for weight, bias in ((w, b), (None, None)):
        args = (x, weight, bias, *stats, training, 0.1, 1e-5)
        near("_native_batch_norm_legit_functional", *args, dtype=dtype, slack=3)
        kept = [s.clone() for s in stats]
        want = torch.ops.aten.native_batch_norm(*args[:3], *kept, *args[5:])
        outs = [(tuple(t.shape), t.dtype) for t in (*want, *kept)]
        tol = 3 * TOLERANCE[dtype]
        for got, expected in zip(
            lower("tarry::batch_norm", outs, *args), (*want, *kept)
        ):
            torch.testing.assert_close(got, expected, rtol=tol, atol=tol)
        mask = [True, weight is not None, bias is not None]
        args = (g, x, weight, *stats, want[1], want[2], training, 1e-5, mask)
        check_grads("native_batch_norm_backward", *args, dtype=dtype)


def test_batch_norm_variants():
    x, w, b = rand(4, 3, 5), rand(3), rand(3, seed=9)
    stats = rand(3, seed=3), rand(3, seed=4).abs()
    near("_native_batch_norm_legit_no_training", x, w, b, *stats, 0.1, 1e-5)
    near("_native_batch_norm_legit.no_stats", x, w, b, True, 0.1, 1e-5)
    near("_batch_norm_with_update_functional", x, w, b, *stats, 0.1, 1e-5)
    near("_batch_norm_no_update", x, w, b, *stats, 0.1, 1e-5)
    args = (x, w, b, None, None, True, 0.1, 1e-5)
    outs = [((4, 3, 5), F), ((3,), F), ((3,), F)]
    got = lower("tarry::batch_norm", outs, *args)
    assert got[3] is None and got[4] is None
    want = torch.ops.aten.native_batch_norm(*args)
    torch.testing.assert_close(got[0], want[0])
    reserve = torch.empty(0, dtype=torch.uint8)
    args = (x, x, w, *stats, want[1], want[2], True, 1e-5, [True] * 3, reserve)
    check_grads("batch_norm_backward", *args)


# random

N = 40_000


def drawn(name: str, dtype: torch.dtype, *args: Any, seed=1, draw=0, shape=(N,)):
    return lower(name, [(shape, dtype)], S(seed), S(draw), *args)[0]


def test_random_bits_depend_on_seed_and_draw_only():
    a = drawn("tarry::uniform", F, S(0.0), S(1.0))
    assert torch.equal(a, drawn("tarry::uniform", F, S(0.0), S(1.0)))
    others = [(2, 0), (1, 1), (-1, 0), (1, 1 << 32), (1 << 32, 0)]
    for seed, draw in others:
        b = drawn("tarry::uniform", F, S(0.0), S(1.0), seed=seed, draw=draw)
        assert abs(float(torch.corrcoef(torch.stack([a, b]))[0, 1])) < 0.03


@pytest.mark.parametrize("dtype", FLOATS)
def test_random_floats(dtype):
    x = drawn("tarry::uniform", dtype, S(-2.0), S(3.0))
    assert x.min() >= -2 and x.max() < 3 and abs(x.double().mean() - 0.5) < 0.05
    x = drawn("tarry::uniform", dtype, S(128.0), S(129.0))
    assert x.min() >= 128 and x.max() < 129
    x = drawn("tarry::uniform", dtype, S(1.0), S(1.0))
    assert bool((x == 1).all())
    x = drawn("tarry::normal", dtype, S(1.0), S(2.0)).double()
    assert abs(x.mean() - 1) < 0.05 and abs(x.std() - 2) < 0.05
    assert abs(((x - 1) / 2).pow(4).mean() - 3) < 0.2
    x = drawn("tarry::exponential", dtype, S(2.0)).double()
    assert x.min() > 0 and abs(x.mean() - 0.5) < 0.02
    x = drawn("tarry::log_normal", dtype, S(0.1), S(0.5)).double().log()
    assert abs(x.mean() - 0.1) < 0.02 and abs(x.std() - 0.5) < 0.02
    x = drawn("tarry::cauchy", dtype, S(1.0), S(2.0)).double()
    assert abs(x.median() - 1) < 0.1
    x = drawn("tarry::geometric", dtype, S(0.25)).double()
    assert x.min() == 1 and abs(x.mean() - 4) < 0.15
    x = drawn("tarry::bernoulli", dtype, S(0.3)).double()
    assert set(x.unique().tolist()) == {0, 1} and abs(x.mean() - 0.3) < 0.02


def test_random_normal_variants():
    z = drawn("tarry::normal", torch.complex64, S(0.0), S(1.0))
    assert abs(z.abs().pow(2).mean() - 1) < 0.05
    mean, std = torch.arange(4.0), torch.tensor([[1.0], [2]])
    out = [((2, 4), F)]
    x = lower("tarry::normal_tensor", out, mean, std, S(1), S(0))[0]
    z = lower("tarry::normal_tensor", out, None, None, S(1), S(0))[0]
    torch.testing.assert_close(x, mean + std * z)


def test_random_integers():
    for low, high in ((0, 10), (-5, 3), (0, 1)):
        x = drawn("tarry::randint", torch.int64, S(low), S(high))
        assert x.min() == low and x.max() == high - 1
        assert abs(x.double().mean() - (low + high - 1) / 2) < 0.1
    x = drawn("tarry::randint", torch.int64, S(-(1 << 62)), S(1 << 62)).double()
    assert abs(x.mean()) < 2**62 * 0.02 and x.max() > 2**62 * 0.99
    x = drawn("tarry::randint", torch.int64, S(-(1 << 63)), S(-(1 << 63)))
    assert (x < 0).any() and (x > 1 << 62).any()
    assert drawn("tarry::randint", torch.uint8, S(0), S(256)).max() == 255
    x = drawn("tarry::randperm", torch.int64, shape=(1000,))
    assert torch.equal(x.sort().values, torch.arange(1000))
    assert not torch.equal(x, torch.arange(1000))


def test_random_bernoulli_and_dropout():
    p = torch.tensor([0.0, 1.0, 0.3]).repeat(N, 1)
    x = lower("tarry::bernoulli_tensor", [((N, 3), F)], p, S(1), S(0))[0]
    assert x[:, 0].sum() == 0 and x[:, 1].sum() == N
    assert abs(x[:, 2].mean() - 0.3) < 0.02
    for dtype in FLOATS:
        ones = torch.ones(N, dtype=dtype)
        outs = [((N,), dtype), ((N,), torch.bool)]
        y, kept = lower("tarry::dropout", outs, ones, S(0.25), S(1), S(0))
        assert abs(kept.double().mean() - 0.75) < 0.02
        torch.testing.assert_close(y, kept.to(dtype) / 0.75)
        y, kept = lower("tarry::dropout", outs, ones, S(1.0), S(1), S(0))
        assert y.sum() == 0 and kept.sum() == 0
        y, kept = lower("tarry::dropout", outs, ones, S(0.0), S(1), S(0))
        assert torch.equal(y, ones) and bool(kept.all())


def test_random_rrelu():
    x = torch.linspace(-1, 1, N)
    outs = [((N,), F), ((N,), F)]
    y, slope = lower("tarry::rrelu", outs, x, S(0.1), S(0.3), S(1), S(0))
    torch.testing.assert_close(y, x * slope)
    assert slope[x > 0].eq(1).all() and abs(slope[x < 0].mean() - 0.2) < 0.01


@pytest.mark.parametrize("categories", [1, 2, 3, 4, 5, 7, 8, 9, 100])
def test_random_multinomial(categories):
    p = torch.arange(categories, 0, -1).float().repeat(2, 1)
    p[:, categories // 2] = 0 if categories > 1 else 1
    outs = [((2, N), torch.int64)]
    x = lower("tarry::multinomial", outs, p, N, True, S(1), S(0))[0]
    for line in x:
        share = torch.bincount(line, minlength=categories) / N
        torch.testing.assert_close(share, p[0] / p[0].sum(), atol=0.02, rtol=0)
        assert categories == 1 or share[categories // 2] == 0
    x = lower("tarry::multinomial", [((2, 1), torch.int64)], p, 1, True, S(1), S(0))[0]
    k = max(categories - 1, 1)
    x = lower("tarry::multinomial", [((2, k), torch.int64)], p, k, False, S(1), S(0))[0]
    assert all(len(set(line.tolist())) == k for line in x)
    assert categories == 1 or categories // 2 not in x


# conv

CONVS = [  # spatial, kernel, (stride, padding, dilation), groups, transposed, out. pad.
    ((9,), (3,), (1, 1, 1), 1, False, 0),
    ((9,), (3,), (2, 0, 2), 2, False, 0),
    ((9, 8), (3, 2), (1, 1, 1), 1, False, 0),
    ((9, 8), (3, 3), (2, 1, 1), 1, False, 0),
    ((9, 8), (3, 3), (3, 2, 2), 4, False, 0),
    ((9, 8), (1, 1), (2, 0, 1), 1, False, 0),
    ((5, 6, 4), (3, 2, 3), (2, 1, 1), 2, False, 0),
    ((5,), (3,), (2, 1, 1), 1, True, 1),
    ((5, 4), (3, 3), (2, 1, 1), 1, True, 1),
    ((5, 4), (3, 2), (3, 2, 2), 4, True, 2),
    ((5, 4), (3, 3), (1, 0, 1), 2, True, 0),
    ((3, 4, 3), (3, 2, 3), (2, 1, 1), 2, True, 1),
]


@pytest.mark.parametrize("case", CONVS, ids=str)
@pytest.mark.parametrize("dtype", (F, torch.float64, torch.bfloat16, torch.float16))
def test_convolution(case, dtype):
    if dtype in HALVES and len(case[0]) == 3:
        pytest.skip("the CPU has no such kernel")
    check_conv(case, dtype, 4, 8)


@pytest.mark.parametrize("kernel", [(1, 1), (3, 2)])
def test_convolution_with_many_channels(kernel):
    check_conv(((5, 6), kernel, (2, 1, 1), 1, False, 0), F, 32, 128)
    check_conv(((5, 6), kernel, (1, 2, 2), 1, False, 0), F, 32, 128)


DEPTHWISE = [(1, 1, 1, False), (3, 2, 2, False), (2, 1, 1, True)]


@pytest.mark.parametrize("dtype", (F, torch.bfloat16))
def test_convolution_depthwise(dtype):
    for s, p, d, transposed in DEPTHWISE:
        case = ((9, 8), (3, 2), (s, p, d), 4, transposed, 0)
        check_conv(case, dtype, 4, 8, masks=1)
    check_conv(((9, 8), (3, 2), (2, 1, 1), 4, False, 0), dtype, 4, 4, masks=1)


def check_conv(case, dtype, cin, cout, masks=2):
    size, kernel, (s, p, d), groups, transposed, extra = case
    n = len(size)
    x = rand(2, cin, *size, dtype=dtype)
    shape = (cin, cout // groups) if transposed else (cout, cin // groups)
    w, b = rand(*shape, *kernel, dtype=dtype) / 4, rand(cout, dtype=dtype)
    rest = ([s] * n, [p] * n, [d] * n, transposed, [extra] * n, groups)
    near("convolution", x, w, b, *rest, dtype=dtype, slack=5)
    if masks > 1:
        near("convolution", x, w, None, *rest, dtype=dtype, slack=5)
    y = torch.ops.aten.convolution(x, w, b, *rest)
    g = rand(*y.shape, dtype=dtype, seed=3)
    for mask in ([True] * 3, [False, True, False])[:masks]:
        args = (g, x, w, [cout], *rest, mask)
        check_grads("convolution_backward", *args, dtype=dtype, slack=10)


# pool

POOLS = [  # kernel, stride, padding, dilation, ceil_mode
    ([3], [2], [1], [1], False),
    ([2, 3], [], [0], [1], True),
    ([3, 2], [1, 2], [1, 0], [2, 1], False),
    ([3, 2], [3, 2], [1, 1], [1], True),
    ([9, 8], [1], [0], [1], False),
]


@pytest.mark.parametrize("case", POOLS, ids=str)
@pytest.mark.parametrize("dtype", FLOATS)
def test_max_pool2d(case, dtype):
    x = rand(2, 3, 9, 10, dtype=dtype)
    x[0, 0, 0, :3] = -float("inf")
    x[0, 1, 3, 3] = float("nan")
    near("max_pool2d_with_indices", x, *case, dtype=dtype)
    y, indices = torch.ops.aten.max_pool2d_with_indices(x, *case)
    g = rand(*y.shape, dtype=dtype, seed=2)
    args = (g, x, *case, indices)
    near("max_pool2d_with_indices_backward", *args, dtype=dtype, slack=3)
    near("max_pool2d_with_indices", x[0], *case, dtype=dtype)


def test_max_pool_more():
    x = rand(2, 3, 5, 6, 7)
    for case in (([2], [], [0], [1], False), ([3, 2, 3], [2], [1], [1], True)):
        near("max_pool3d_with_indices", x, *case)
        y, indices = torch.ops.aten.max_pool3d_with_indices(x, *case)
        near("max_pool3d_with_indices_backward", y, x, *case, indices)
    near("max_pool2d_with_indices", rand(1, 2, 20, 20).mul(9).long(), [3], [2], [1])
    near("max_pool2d_with_indices", rand(1, 2, 20, 20), [10, 9], [3], [2])
    x = torch.full((1, 1, 4, 4), -float("inf"))
    near("max_pool2d_with_indices", x, [2], [2], [1])


AVERAGES = [  # kernel, stride, padding, ceil_mode, count_include_pad, divisor_override
    ([3], [2], [1], False, True, None),
    ([3], [2], [1], True, False, None),
    ([2, 3], [], [0], True, True, None),
    ([3, 2], [1, 2], [1, 0], False, False, 5),
    ([2], [3], [0], False, True, None),
]


@pytest.mark.parametrize("case", AVERAGES, ids=str)
@pytest.mark.parametrize("dtype", FLOATS)
def test_avg_pool(case, dtype):
    x = rand(2, 3, 9, 10, dtype=dtype)
    near("avg_pool2d", x, *case, dtype=dtype)
    near("avg_pool2d", x[0], *case, dtype=dtype)
    g = rand(*torch.ops.aten.avg_pool2d(x, *case).shape, dtype=dtype, seed=2)
    near("avg_pool2d_backward", g, x, *case, dtype=dtype, slack=2)
    if dtype in HALVES:
        return
    case = tuple(
        [*c, c[-1]] if isinstance(c, list) and len(c) == 2 else c for c in case
    )
    x = rand(2, 3, 9, 10, 6, dtype=dtype)
    near("avg_pool3d", x, *case, dtype=dtype)
    g = rand(*torch.ops.aten.avg_pool3d(x, *case).shape, dtype=dtype, seed=2)
    near("avg_pool3d_backward", g, x, *case, dtype=dtype)


@pytest.mark.parametrize("size", [(1, 1), (3, 5), (4, 3), (7, 12), (9, 10)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_adaptive_pool(size, dtype):
    x = rand(2, 3, 9, 10, dtype=dtype)
    x3 = rand(2, 3, 9, 10, 4, dtype=dtype)
    near("_adaptive_avg_pool2d", x, size, dtype=dtype)
    near("_adaptive_avg_pool2d", x[0], size, dtype=dtype)
    g = rand(2, 3, *size, dtype=dtype, seed=3)
    near("_adaptive_avg_pool2d_backward", g, x, dtype=dtype, slack=2)
    near("adaptive_max_pool2d", x, size, dtype=dtype)
    indices = torch.ops.aten.adaptive_max_pool2d(x, size)[1]
    near("adaptive_max_pool2d_backward", g, x, indices, dtype=dtype, slack=3)
    near("_adaptive_avg_pool3d", x3, (*size, 3), dtype=dtype)
    near("adaptive_max_pool3d", x3, (*size, 3), dtype=dtype)
    g = rand(2, 3, *size, 3, dtype=dtype, seed=3)
    near("_adaptive_avg_pool3d_backward", g, x3, dtype=dtype, slack=2)
    indices = torch.ops.aten.adaptive_max_pool3d(x3, (*size, 3))[1]
    near("adaptive_max_pool3d_backward", g, x3, indices, dtype=dtype, slack=3)


def test_max_unpool():
    x = rand(2, 3, 8, 6)
    y, indices = torch.ops.aten.max_pool2d_with_indices(x, [2])
    near("max_unpool2d", y, indices, [8, 6])
    x = rand(2, 3, 8, 6, 4)
    y, indices = torch.ops.aten.max_pool3d_with_indices(x, [2])
    near("max_unpool3d", y, indices, [8, 6, 4], [2] * 3, [0] * 3)


# optim


def fused(name: str, lists: list, found_inf=None, grad_scale=None, **kw: Any) -> list:
    """PyTorch's fused step on copies of the given tensors (None: an empty list)."""
    lists = [[] if t is None else [t.clone()] for t in lists]
    scale = {"grad_scale": grad_scale, "found_inf": found_inf}
    getattr(torch, name)(*lists, **kw, **scale)
    return [x[0] if x else None for x in lists]


SCALING = [
    (None, None),
    (torch.tensor(4.0), torch.tensor(0.0)),
    (torch.tensor(4.0), torch.tensor(1.0)),
]


def agree(got: tuple, want: list, dtype: torch.dtype) -> None:
    for g, w in zip(got, want):
        assert (g is None) == (w is None)
        if w is not None:
            tol = TOLERANCE[dtype]
            torch.testing.assert_close(g, w, rtol=tol, atol=tol / 10)


@pytest.mark.parametrize("dtype", (F, torch.float64, torch.bfloat16))
@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("amsgrad", [False, True])
def test_adam(dtype, decoupled, amsgrad):
    p, g, m = (rand(5, 3, dtype=dtype, seed=i) for i in range(3))
    v, top = m.abs(), rand(5, 3, dtype=dtype, seed=8).abs() if amsgrad else None
    step = torch.tensor(3.0)
    kw = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.2, "eps": 1e-6}
    outs = [((5, 3), dtype)] * 4
    for maximize, (scale, inf) in zip((False, True, False), SCALING):
        want = fused(
            "_fused_adamw_" if decoupled else "_fused_adam_",
            [p, g, m, v, top, step],
            inf,
            scale,
            **kw,
            amsgrad=amsgrad,
            maximize=maximize,
        )
        flags = (amsgrad, maximize, decoupled, scale, inf)
        scalars = [S(x) for x in kw.values()]
        got = lower("tarry::adam", outs, p, g, m, v, top, step, *scalars, *flags)
        agree(got, [want[0], *want[2:5]], dtype)


@pytest.mark.parametrize("dtype", (F, torch.float64, torch.bfloat16))
@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("first", [False, True])
def test_sgd(dtype, nesterov, first):
    p, g, b = (rand(5, 3, dtype=dtype, seed=i) for i in range(3))
    kw = {"lr": 0.1, "weight_decay": 0.2, "momentum": 0.9, "dampening": 0.0}
    if not nesterov:
        kw["dampening"] = 0.3
    outs = [((5, 3), dtype)] * 2
    for maximize, (scale, inf) in zip((False, True, False), SCALING):
        want = fused(
            "_fused_sgd_",
            [p, g, b],
            inf,
            scale,
            **kw,
            nesterov=nesterov,
            maximize=maximize,
            is_first_step=first,
        )
        flags = (nesterov, maximize, first, scale, inf)
        got = lower("tarry::sgd", outs, p, g, b, *map(S, kw.values()), *flags)
        agree(got, [want[0], want[2]], dtype)
    kw["momentum"] = 0.0
    want = fused("_fused_sgd_", [p, g, None], **kw, nesterov=False, maximize=False,
                 is_first_step=False)  # fmt: skip
    flags = (False, False, False, None, None)
    got = lower("tarry::sgd", outs, p, g, None, *map(S, kw.values()), *flags)
    agree(got, [want[0], None], dtype)


@pytest.mark.parametrize("dtype", (F, torch.float64, torch.bfloat16))
def test_adagrad(dtype):
    p, g, s = (rand(5, 3, dtype=dtype, seed=i) for i in range(3))
    s, step = s.abs(), torch.tensor(3.0)
    kw = {"lr": 0.1, "lr_decay": 0.05, "weight_decay": 0.2, "eps": 1e-6}
    for maximize in (False, True):
        want = fused("_fused_adagrad_", [p, g, s, step], **kw, maximize=maximize)
        scalars = [S(x) for x in kw.values()]
        outs = [((5, 3), dtype)] * 2
        args = (p, g, s, step, *scalars, maximize, None, None)
        agree(lower("tarry::adagrad", outs, *args), [want[0], want[2]], dtype)


# attention


@pytest.mark.parametrize("dtype", (F, torch.float64, torch.bfloat16))
@pytest.mark.parametrize("mode", ["plain", "causal", "bias", "bool", "gqa", "scale"])
def test_attention(dtype, mode):
    heads = 2 if mode == "gqa" else 4
    q = rand(2, 4, 5, 8, dtype=dtype).requires_grad_()
    k = rand(2, heads, 6, 8, dtype=dtype, seed=1).requires_grad_()
    v = rand(2, heads, 6, 8, dtype=dtype, seed=2).requires_grad_()
    bias = {"bias": rand(1, 4, 1, 6, dtype=dtype).requires_grad_()}.get(mode)
    if mode == "bool":
        bias = rand(5, 6) > 0
        bias[1] = False
    factor = 0.3 if mode == "scale" else None
    kw = {"is_causal": mode == "causal", "scale": factor, "enable_gqa": mode == "gqa"}
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        want = torch.nn.functional.scaled_dot_product_attention(q, k, v, bias, **kw)
    outs = [((2, 4, 5, 8), dtype), ((2, 4, 5, 6), dtype)]
    plain = [None if t is None else t.detach() for t in (q, k, v, bias)]
    static = (mode == "causal", factor)
    y, p = lower("tarry::attention", outs, *plain, *static)
    tol = TOLERANCE[dtype] * 5
    torch.testing.assert_close(y, want, rtol=tol, atol=tol)
    g = rand(2, 4, 5, 8, dtype=dtype, seed=7)
    inputs = [t for t in (q, k, v, bias) if t is not None and t.requires_grad]
    grads = torch.autograd.grad(want, inputs, g)
    mask = [True, True, True, mode == "bias"]
    outs = [(tuple(t.shape), dtype) for t in (q, k, v)] + [((1, 4, 1, 6), dtype)]
    got = lower("tarry::attention_backward", outs, g, *plain, y, p, *static, mask)
    for a, b in zip(got, grads):
        torch.testing.assert_close(a, b, rtol=2 * tol, atol=2 * tol)


# linalg


def psd(dtype: torch.dtype, n: int = 4) -> torch.Tensor:
    a = matrix(dtype, n)
    return a @ a.mH + n * torch.eye(n, dtype=dtype)


def matrix(dtype: torch.dtype, n: int = 4, m: int | None = None) -> torch.Tensor:
    real = rand(3, n, m or n, dtype=torch.float64)
    imag = rand(3, n, m or n, dtype=torch.float64, seed=5)
    return (torch.complex(real, imag) if dtype.is_complex else real).to(dtype)


LINALG = (F, torch.float64, torch.complex128)


@pytest.mark.parametrize("dtype", LINALG)
def test_linalg_cholesky(dtype):
    a, b = psd(dtype), matrix(dtype, 4, 2)
    for upper in (False, True):
        near("linalg_cholesky_ex", a, upper=upper, dtype=dtype)
        c = torch.linalg.cholesky(a, upper=upper)
        near("cholesky", a, upper, dtype=dtype)
        near("cholesky_solve", b, c, upper, dtype=dtype, slack=5)
        near("cholesky_inverse", c, upper, dtype=dtype, slack=5)
        near("linalg_solve_triangular", c, b, upper=upper, dtype=dtype, slack=5)
        kw = {"upper": upper, "left": False, "unitriangular": True}
        near("linalg_solve_triangular", c, b.mT, **kw, dtype=dtype, slack=5)
        near("triangular_solve", b, c, upper, True, dtype=dtype, slack=5)


@pytest.mark.parametrize("dtype", LINALG)
def test_linalg_lu(dtype):
    a, b = matrix(dtype), matrix(dtype, 4, 2)
    kw = {"dtype": dtype, "slack": 50}
    near("linalg_inv_ex", a, **kw)
    near("linalg_lu_factor_ex", a, **kw)
    near("linalg_lu_factor_ex", matrix(dtype, 4, 6), **kw)
    near("linalg_lu", a, **kw)
    near("linalg_lu", matrix(dtype, 6, 4), **kw)
    near("_linalg_det", a, **kw)
    near("_linalg_slogdet", a, **kw)
    near("_linalg_solve_ex", a, b, **kw)
    near("_linalg_solve_ex", a, b.mT.contiguous(), left=False, **kw)
    near("_linalg_solve_ex", a, b[..., 0].contiguous(), **kw)
    factors, pivots, _ = torch.ops.aten.linalg_lu_factor_ex(a)
    near("lu_unpack", factors, pivots, **kw)
    for adjoint in (False, True):
        near("linalg_lu_solve", factors, pivots, b, adjoint=adjoint, **kw)
        args = (factors, pivots, b.mT.contiguous())
        near("linalg_lu_solve", *args, left=False, adjoint=adjoint, **kw)


@pytest.mark.parametrize("dtype", LINALG)
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
def test_linalg_decompositions(dtype, shape):
    (m, n), k = shape, min(shape)
    a, real = matrix(dtype, m, n), dtype.to_real()
    tol = {"rtol": 1e-4, "atol": 1e-4} if dtype is F else {}
    for mode, c in (("reduced", k), ("complete", m)):
        outs = [((3, m, c), dtype), ((3, c, n), dtype)]
        q, r = lower("linalg_qr", outs, a, mode)
        torch.testing.assert_close(q @ r, a, **tol)
    outs = [((0,), dtype), ((3, k, n), dtype)]
    torch.testing.assert_close(
        lower("linalg_qr", outs, a, "r")[1].abs(), r[:, :k].abs()
    )
    outs = [((3, m, k), dtype), ((3, k), real), ((3, k, n), dtype)]
    u, s, vh = lower("_linalg_svd", outs, a, False, True, None)
    torch.testing.assert_close(u @ torch.diag_embed(s).to(dtype) @ vh, a, **tol)
    outs = [((0,), dtype), ((3, k), real), ((0,), dtype)]
    got = lower("_linalg_svd", outs, a, False, False, None)[1]
    torch.testing.assert_close(got, s, **tol)


@pytest.mark.parametrize("dtype", LINALG)
def test_linalg_eigen(dtype):
    a = psd(dtype)
    for uplo in "LU":
        noisy = a + (torch.triu if uplo == "L" else torch.tril)(matrix(dtype)) * 0
        outs = [((3, 4), dtype.to_real()), ((3, 4, 4), dtype)]
        w, v = lower("_linalg_eigh", outs, noisy, uplo, True)
        tol = {"rtol": 1e-4, "atol": 1e-4} if dtype is F else {}
        torch.testing.assert_close(v * w[:, None].to(dtype) @ v.mH, a, **tol)
    b, c = matrix(dtype), dtype.to_complex()
    w, v = lower("linalg_eig", [((3, 4), c), ((3, 4, 4), c)], b)
    torch.testing.assert_close(b.to(c) @ v, v * w[:, None], **tol)
    torch.testing.assert_close(lower("_linalg_eigvals", [((3, 4), c)], b)[0], w, **tol)


def test_linalg_more():
    for dtype in LINALG:
        near("linalg_matrix_exp", matrix(dtype), dtype=dtype, slack=20)
        near("linalg_matrix_exp", matrix(dtype) * 0.01, dtype=dtype, slack=20)
    near("linalg_cross", rand(2, 3, 4), rand(2, 3, 4, seed=1), dim=1)
    near("linalg_cross", rand(1, 3), rand(5, 3))
    factors, tau = torch.geqrf(rand(5, 3))
    near("linalg_householder_product", factors, tau)


# transforms, distances, blocks


@pytest.mark.parametrize("dims", [[1], [0, 2], [2, 0, 1], [0, 1, 2, 3]])
@pytest.mark.parametrize("norm", [0, 1, 2])
def test_fft(dims, norm):
    x = rand(3, 4, 5, 6)
    z = torch.complex(x, x.flip(0))
    for forward in (True, False):
        near("_fft_c2c", z, dims, norm, forward, slack=5)
        near("_fft_c2c", z.to(torch.complex128), dims, norm, forward, slack=5)
    for onesided in (True, False):
        near("_fft_r2c", x, dims, norm, onesided, slack=5)
    half = torch.ops.aten._fft_r2c(x, dims, 0, True)
    near("_fft_c2r", half, dims, norm, x.shape[dims[-1]], slack=50)
    near("_fft_c2r", half, dims, 2, 2 * half.shape[dims[-1]] - 1, slack=5)


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf")])
def test_cdist(p):
    x, y = rand(2, 4, 3), rand(2, 5, 3, seed=1)
    y[:, 0] = x[:, 0]
    near("_cdist_forward", x, y, p, None, slack=3)
    if p == 2:
        near("_cdist_forward", rand(30, 4), rand(7, 4), p, None, slack=10)
    d, g = torch.ops.aten._cdist_forward(x, y, p, None), rand(2, 4, 5, seed=3)
    near("_cdist_backward", g, x, y, p, d, slack=10)


def test_blocks():
    x = rand(2, 3, 7, 8)
    for window in (([3, 2], [1, 1], [0, 0], [2, 1]), ([2, 3], [2, 1], [1, 2], [1, 3])):
        near("im2col", x, *window)
        near("im2col", x[0], *window)
        columns = torch.ops.aten.im2col(x, *window)
        near("col2im", columns, [7, 8], *window)


# resize

SIZES = [((5, 6), (10, 12)), ((5, 6), (7, 9)), ((6, 8), (4, 3)), ((5, 6), (5, 6))]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("dtype", (F, torch.float64, torch.bfloat16))
def test_upsample_2d(sizes, dtype):
    (n, m), out = sizes
    x, g = rand(2, 3, n, m, dtype=dtype), rand(2, 3, *out, dtype=dtype, seed=1)
    kw = {"dtype": dtype, "slack": 4}
    for name in ("upsample_nearest2d", "_upsample_nearest_exact2d"):
        for factors in ((None, None), (out[0] / n + 0.01, out[1] / m + 0.01)):
            near(name, x, out, *factors, **kw)
            near(f"{name}_backward", g, out, (2, 3, n, m), *factors, **kw)
    for name in ("upsample_bilinear2d", "upsample_bicubic2d"):
        for align in (True, False):
            for factors in ((None, None), (out[0] / n + 0.01, out[1] / m + 0.01)):
                near(name, x, out, align, *factors, **kw)
                args = (g, out, (2, 3, n, m), align, *factors)
                near(f"{name}_backward", *args, **kw)


def test_upsample_1d_and_3d():
    x, g = rand(2, 3, 7), rand(2, 3, 12, seed=1)
    for name in ("upsample_nearest1d", "_upsample_nearest_exact1d"):
        near(name, x, [12])
        near(f"{name}_backward", g, [12], [2, 3, 7])
    near("upsample_linear1d", x, [12], False)
    near("upsample_linear1d_backward", g, [12], [2, 3, 7], True)
    x, g = rand(2, 3, 4, 5, 6), rand(2, 3, 7, 5, 12, seed=1)
    for name in ("upsample_nearest3d", "_upsample_nearest_exact3d"):
        near(name, x, [7, 5, 12])
        near(f"{name}_backward", g, [7, 5, 12], [2, 3, 4, 5, 6])
    near("upsample_trilinear3d", x, [7, 5, 12], False)
    near("upsample_trilinear3d_backward", g, [7, 5, 12], [2, 3, 4, 5, 6], False)


def test_dropout_backward():
    near("native_dropout_backward", rand(5), rand(5) > 0, 1.5)
