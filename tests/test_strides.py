"""Strides of results are those of PyTorch's CPU kernels, whatever an operand's are."""

import pytest
import torch
import torch.nn.functional as F

import tarry
from harness import expanded, make, plain, same, sliced, stepped, transposed

c64, bf16, i64 = torch.complex64, torch.bfloat16, torch.int64
X, Y = make(3, 4), make(3, 4, seed=1)
CUBE, OTHER = make(2, 3, 4), make(2, 3, 4, seed=1)
IMAGE = make(2, 4, 6, 5)
aten = torch.ops.aten


def channels_inner(x, device):
    if x.dim() < 3:
        return None
    return x.movedim(1, -1).contiguous().to(device).movedim(-1, 1)


LAYOUTS = [plain, transposed, sliced, stepped, expanded, channels_inner]


def _statistics(channels):
    return torch.zeros(channels), torch.ones(channels)


def _places(x):
    """Every element of a plane to a place of its own."""
    plane = x.shape[2:]
    at = torch.arange(plane.numel(), device=x.device).reshape(plane)
    return at.expand(x.shape).contiguous()


CASES = {
    "fft": (lambda z: torch.fft.fft(z, dim=1), make(2, 3, 4, dtype=c64)),
    "fft_two": (lambda z: torch.fft.fftn(z, dim=(2, 0)), make(2, 3, 4, dtype=c64)),
    "rfft": (lambda x: torch.fft.rfft(x, dim=0), CUBE),
    "rfftn": (lambda x: torch.fft.rfftn(x, dim=(2, 0, 1)), CUBE),
    "rfft2_padded": (lambda x: torch.fft.rfft2(x, s=(5, 3), dim=(0, 1)), CUBE),
    "irfft": (lambda z: torch.fft.irfft(z, n=5, dim=1), make(2, 3, 4, dtype=c64)),
    "irfftn": (lambda z: torch.fft.irfftn(z, dim=(1, 0)), make(2, 3, 4, dtype=c64)),
    "hfft2": (lambda x: torch.fft.hfft2(x, dim=(0, 2)), CUBE),
    "stft": (
        lambda x, w: torch.stft(x, 4, 2, window=w, return_complex=True),
        make(2, 12), make(4, seed=2),
    ),
    "svd_right": (lambda x: torch.linalg.svd(x)[2].abs(), make(2, 3, 3)),
    "eig_vectors": (
        lambda x: aten.linalg_eig(x)[1] * 0, make(2, 3, 3),
    ),
    "geqrf": (lambda x: torch.geqrf(x)[0].abs(), make(2, 4, 3)),
    "lstsq_wide": (lambda a, b: torch.linalg.lstsq(a, b)[0], X, Y),
    "lstsq_tall": (
        lambda a, b: torch.linalg.lstsq(a, b)[0], make(2, 5, 3), make(2, 5, 2, seed=1),
    ),
    "pow_base": (lambda x: 2**x, X),
    "isin": (torch.isin, make(3, 4, dtype=i64), make(5, dtype=i64, seed=1)),
    "angle": (torch.angle, make(3, 4, dtype=c64)),
    "angle_real": (torch.angle, X),
    "copysign": (torch.copysign, X, make()),
    "div_floor": (lambda x, y: torch.div(x, y, rounding_mode="floor"), X, make()),
    "floor_divide": (torch.floor_divide, X, make()),
    "xlogy": (torch.xlogy, CUBE.abs(), OTHER.abs()),
    "xlogy_first": (lambda x, y: torch.xlogy(x, y.contiguous()), X.abs(), Y.abs()),
    "xlog1py_last": (
        lambda x, y: torch.special.xlog1py(x.contiguous(), y), X.abs(), Y.abs(),
    ),
    "halves": (
        lambda x, y: x[:, :1].expand(3, 4) * y,
        make(3, 4, dtype=bf16), make(3, 4, dtype=bf16, seed=1),
    ),
    "select_scatter": (lambda x, y: x.select_scatter(y[:, 0], 1, 2), X, Y),
    "slice_scatter": (lambda x, y: x.slice_scatter(y[:, :2], 1, 0, 4, 2), X, Y),
    "diagonal_scatter": (lambda x, y: x.diagonal_scatter(y[:, 0]), X, Y),
    "max_unpool2d": (lambda x: F.max_unpool2d(x, _places(x), 2), IMAGE),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), IMAGE),
    "channel_shuffle": (lambda x: F.channel_shuffle(x, 2), IMAGE),
    "reflection_pad": (lambda x: F.pad(x, (1, 2, 0, 1), mode="reflect"), IMAGE),
    "replication_pad": (lambda x: F.pad(x, (1, 2, 0, 1), mode="replicate"), IMAGE),
    "upsample_aa": (
        lambda x: F.interpolate(x, size=(3, 3), mode="bilinear", antialias=True),
        IMAGE,
    ),
    "batch_norm": (
        lambda x, m, v: F.batch_norm(x, m, v, training=True), IMAGE, *_statistics(4),
    ),
    "batch_norm_1d": (
        lambda x, m, v: F.batch_norm(x, m, v, training=True), CUBE, *_statistics(3),
    ),
    "nll_loss2d": (
        lambda x: F.nll_loss(x, x[:, 0].long() * 0, reduction="none"), IMAGE,
    ),
    "log_sigmoid": (F.logsigmoid, X),
    "dropout_backward": (
        lambda g, m: aten.native_dropout_backward(g, m, 2.0), X, Y > 0,
    ),
}  # fmt: skip

# Gradients by the operators' own backward kernels: of the operand, from a dense one.
BACKWARD = {
    "batch_norm": (lambda x: F.batch_norm(x, None, None, training=True), IMAGE),
    "bce": (lambda x: F.binary_cross_entropy(x, x.detach() * 0), CUBE.sigmoid()),
    "mse_loss": (lambda x: F.mse_loss(x, x.detach() * 0, reduction="sum"), CUBE),
    "smooth_l1": (lambda x: F.smooth_l1_loss(x, x.detach() * 0), CUBE),
    "huber_loss": (lambda x: F.huber_loss(x, x.detach() * 0), CUBE),
    "log_softmax": (lambda x: F.log_softmax(x, 1), CUBE),
    "glu": (lambda x: F.glu(x, 1), IMAGE),
    "hardswish": (F.hardswish, CUBE),
    "hardtanh": (F.hardtanh, CUBE),
    "logit": (lambda x: torch.logit(x, 1e-3), CUBE.sigmoid()),
    "reflection_pad": (lambda x: F.pad(x, (1, 2, 0, 1), mode="reflect"), IMAGE),
}


def _laid(inputs, layout, device):
    found = [layout(x, device) for x in inputs]
    return [plain(x, device) if y is None else y for x, y in zip(inputs, found)]


@pytest.mark.parametrize("name", CASES)
def test_forward(name):
    fn, *inputs = CASES[name]
    pairs = []
    for layout in LAYOUTS:
        try:
            want = fn(*_laid(inputs, layout, "cpu"))
        except RuntimeError:
            assert layout is not plain
            continue
        got = fn(*_laid(inputs, layout, "tarry"))
        pairs.append((layout.__name__, want, got))
    for where, want, got in pairs:
        same(want, got, where)
    for where, want, got in pairs:
        same(want.reshape(-1), got.reshape(-1), where)


def _gradient(fn, x, layout, device):
    x = _laid([x], layout, device)[0].detach().requires_grad_()
    y = fn(x)
    seed = make(*y.shape, seed=3).to(device)
    found = []
    x.register_hook(found.append)
    torch.autograd.grad(y, x, seed)
    return found[0]


@pytest.mark.parametrize("name", BACKWARD)
def test_backward(name):
    fn, x = BACKWARD[name]
    pairs = [
        [_gradient(fn, x, layout, device) for device in ("cpu", "tarry")]
        for layout in (plain, transposed, channels_inner)
    ]
    for want, got in pairs:
        same(want, got)


def test_a_scatter_keeps_its_place_in_memory():
    """`select_scatter` of a part of something larger has the part's offset."""
    whole, row = make(4, 5), make(4)
    want = whole[1:, ::2].select_scatter(row[:3], 1, 0)
    got = whole.to("tarry")[1:, ::2].select_scatter(row[:3].to("tarry"), 1, 0)
    assert got.stride() == want.stride() == (5, 2)
    assert got.storage_offset() == want.storage_offset() == 5
    tarry.sync()
    got.add_(1)
    same(want.add_(1), got)
