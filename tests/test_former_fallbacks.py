"""Operators that once ran on the CPU: `rrelu` in training, CTC of targets that are not
padded, least squares by singular values, histograms of several dimensions, `out=` forms
that PyTorch composes of helpers."""

import pytest
import torch
import torch.nn.functional as F

from harness import DEVICE, check, cuts, fallbacks, make, same, transposed


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rrelu_in_training_draws_slopes(dtype: torch.dtype) -> None:
    x = make(40, 50, dtype=dtype).to(DEVICE).requires_grad_()
    noise = torch.zeros_like(x)
    torch.manual_seed(3)
    with fallbacks(0), cuts(0):
        y = torch.ops.aten.rrelu_with_noise(x, noise, 0.2, 0.6, True)
        (grad,) = torch.autograd.grad(y.sum(), x)
    held, noise = x.detach().cpu(), noise.cpu()
    drawn = noise[held <= 0]
    assert (noise[held > 0] == 1).all()
    assert 0.2 <= drawn.min() < 0.25 and 0.55 < drawn.max() <= 0.6
    assert abs(drawn.float().mean() - 0.4) < 0.02
    want = held * noise
    same(want, y)
    same(noise, grad)
    torch.manual_seed(3)
    again = F.rrelu(x, 0.2, 0.6, training=True)
    assert torch.equal(again.cpu(), y.cpu())
    z = x.detach().clone()
    torch.manual_seed(3)
    assert F.rrelu_(z, 0.2, 0.6, training=True) is z
    assert torch.equal(z.cpu(), y.cpu())


def test_rrelu_in_evaluation() -> None:
    check(lambda x: F.rrelu(x, 0.2, 0.6), make(5, 6))
    check(lambda x: F.rrelu_(x.clone(), 0.2, 0.6), make(5, 6))


def test_rrelu_refuses_a_range_upside_down() -> None:
    for device in ("cpu", DEVICE):
        with pytest.raises(RuntimeError, match="Lower bound should be less"):
            F.rrelu(make(3).to(device), 0.6, 0.2, training=True)


FRAMES, LENGTHS = [9, 8, 7, 9], [3, 4, 2, 0]
JOINED = torch.tensor([1, 2, 3, 2, 2, 2, 2, 4, 1])


def ctc(x: torch.Tensor, frames: object, lengths: object) -> torch.Tensor:
    log = x.log_softmax(2)
    return F.ctc_loss(log, JOINED.to(x.device), frames, lengths, reduction="none")


def test_ctc_of_joined_targets() -> None:
    check(lambda x: ctc(x, FRAMES, LENGTHS), make(9, 4, 5), views=False)


def test_ctc_of_lengths_on_the_device() -> None:
    def loss(x: torch.Tensor) -> torch.Tensor:
        frames, lengths = torch.tensor(FRAMES), torch.tensor(LENGTHS)
        return ctc(x, frames.to(x.device), lengths.to(x.device))

    check(loss, make(9, 4, 5), views=False)


def test_ctc_with_tensors_of_lengths() -> None:
    """The overload that PyTorch calls for tensor subclasses; padded targets."""
    x, targets = make(9, 2, 5).log_softmax(2), torch.tensor([[1, 2, 3], [2, 2, 0]])
    frames, lengths = torch.tensor([9, 7]), torch.tensor([3, 2])
    want = torch.ops.aten._ctc_loss(x, targets, [9, 7], [3, 2])
    ours = [t.to(DEVICE) for t in (x, targets, frames, lengths)]
    with fallbacks(0), cuts(0):
        got = torch.ops.aten._ctc_loss.Tensor(*ours)
        grad = torch.ops.aten._ctc_loss_backward.Tensor(
            torch.ones(2, device=DEVICE), *ours, *got, 0
        )
    same(want[0], got[0])
    ones = torch.ones(2)
    same(
        torch.ops.aten._ctc_loss_backward(ones, x, targets, [9, 7], [3, 2], *want, 0),
        grad,
    )


TALL = [(d, 3) for d in ("gelsy", "gelsd", "gelss", "gels")]
TALL += [("gelsd", 2), ("gelss", 2)]  # of another rank, the CPU's gelsy may differ


@pytest.mark.parametrize("driver, rank", TALL)
def test_least_squares_of_tall_matrices(driver: str, rank: int) -> None:
    def solve(a: torch.Tensor, b: torch.Tensor) -> tuple:
        return tuple(torch.linalg.lstsq(a, b, driver=driver))

    a = make(6, 3, dtype=torch.float64)
    a[:, rank:] = a[:, :1]
    for shape in ((6, 2), (2, 6, 2)):
        b = make(*shape, dtype=torch.float64)
        check(solve, a.expand(*shape[:-2], 6, 3).clone(), b, grad=False, views=False)


SAMPLES = torch.cat([make(40, 2), torch.tensor([[1.0, -1.0], [0.0, 2.0], [9.0, 0.0]])])
EDGES = [torch.tensor([-1.0, 0.0, 0.5, 1.0]), torch.tensor([-1.0, 0.0, 2.0])]


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_histogram_of_two_dimensions(density: bool, weighted: bool) -> None:
    def count(x: torch.Tensor, weight: torch.Tensor, *edges: torch.Tensor) -> tuple:
        named = {"density": density, "weight": weight if weighted else None}
        limits = [-1.0, 1.0, -2.0, 2.0]
        given = torch.histogramdd(x, [3, 4], range=limits, **named)
        free, chosen = (torch.histogramdd(x, b, **named) for b in ([5, 2], list(edges)))
        return given.hist, *given.bin_edges, free.hist, *free.bin_edges, chosen.hist

    weight = make(43).abs()
    check(count, SAMPLES, weight, *EDGES, grad=False, views=[transposed])


@pytest.mark.filterwarnings("ignore::tarry.errors.FallbackWarning")
def test_histogram_refuses_in_the_words_of_the_cpu() -> None:
    for bins in ([0, 2], [EDGES[0], EDGES[1].double()]):
        with pytest.raises(RuntimeError) as want:
            torch.histogramdd(SAMPLES, bins)
        ours = [b.to(DEVICE) if isinstance(b, torch.Tensor) else b for b in bins]
        with pytest.raises(RuntimeError) as got:
            torch.histogramdd(SAMPLES.to(DEVICE), ours)
        assert str(got.value) == str(want.value)


def test_out_forms_that_pytorch_composes_of_helpers() -> None:
    x, aten = make(3, 4), torch.ops.aten

    def extremes(x: torch.Tensor) -> tuple:
        outs = [torch.zeros_like(x), torch.zeros_like(x, dtype=torch.int64)]
        return torch.cummax(x, 1, out=outs), torch.cummin(x.abs(), 0, out=outs), outs

    def norm(x: torch.Tensor, stats: bool) -> tuple:
        x = x[:, :, None]
        state = [torch.zeros(4, device=x.device) for _ in range(2 if stats else 0)]
        outs = [torch.empty(0, device=x.device) for _ in range(3)]
        keys = dict(zip(("out", "save_mean", "save_invstd"), outs))
        which = "out" if stats else "no_stats_out"
        form = getattr(aten._native_batch_norm_legit, which)
        return form(x, None, None, *state, True, 0.1, 1e-5, **keys), state

    check(extremes, x, grad=False, views=False)
    check(lambda x: norm(x, True), x, grad=False, views=False)
    check(lambda x: norm(x, False), x, grad=False, views=False)
