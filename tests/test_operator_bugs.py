"""Operators that PyTorch's database showed to be wrong, each with its right value."""

import math
import re
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from harness import DEVICE, check, make, same, transposed


def test_as_strided_scatter_counts_from_the_memory() -> None:
    def scatter(x: torch.Tensor) -> tuple:
        part = x[1:, 1:4]
        src = torch.tensor([100.0, 200.0], device=x.device)
        given = torch.as_strided_scatter(part, src, (2,), (2,), 8)
        assert given.stride() == part.stride()
        return given, torch.as_strided_scatter(part, src, (2,), (2,))

    check(scatter, make(4, 6), grad=False)


def test_in_place_forms_with_other_argument_orders() -> None:
    def change(x: torch.Tensor) -> tuple:
        y = x.abs() + 1
        return y.clone().polygamma_(1), y.clone().pow_(2), y.clone().floor_divide_(x)

    check(change, make(3, 4), grad=False)


@pytest.mark.parametrize("shape", [(5, 0, 5), (0,), (), (2, 3)])
def test_nonzero_static_fills(shape: tuple) -> None:
    check(lambda x: torch.nonzero_static(x, size=4), torch.ones(shape))
    check(lambda x: torch.nonzero_static(x, size=4, fill_value=7), torch.zeros(shape))


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 2.0, 3.0, math.inf])
def test_cdist_without_elements(p: float) -> None:
    pairs = [((0, 4, 5), (3, 5)), ((2, 0, 5), (3, 5)), ((2, 3), (0, 3)), ((4, 0),) * 2]
    for x, y in pairs:
        check(lambda x, y: torch.cdist(x, y, p), make(*x), make(*y), views=False)


TARGETS = torch.tensor(
    [
        [[1, -1, 2, 0, -1], [0, 1, 2, 3, 4], [-1, 1, 1, 1, 1]],
        [[1, 1, 2, 2, -1], [0, 0, -1, 3, 4], [2, 3, -1, 1, 1]],
    ]
)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("which", [0, 1])
def test_multilabel_margin_loss(reduction: str, which: int) -> None:
    """Classes named behind the first negative target do not count."""

    def loss(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return F.multilabel_margin_loss(x, t, reduction=reduction)

    target = TARGETS[which]
    check(loss, make(3, 5), target, views=False)
    check(loss, make(5), target[0], views=False)
    check(loss, make(), target[1, 0], views=False)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_multi_margin_loss(p: int, reduction: str) -> None:
    def loss(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return F.multi_margin_loss(x, t, p, reduction=reduction)

    check(loss, make(3, 5), torch.tensor([1, 0, 4]), views=False)
    check(loss, make(5), torch.tensor(3), views=False)
    check(loss, make(5), torch.tensor([3]), views=False)


def test_rows_without_a_meta_kernel() -> None:
    check(lambda x: torch.ops.aten._logcumsumexp(x, 1), make(3, 4), grad=False)

    def tangent(x: torch.Tensor, dx: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.glu_jvp(F.glu(x, 0), x, dx, 0)

    check(tangent, make(4, 3), make(4, 3, seed=1), grad=False)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int8, torch.bool]
)
def test_hash_tensor(dtype: torch.dtype) -> None:
    x = make(4, 5, dtype=dtype)
    check(lambda x: (torch.hash_tensor(x), torch.hash_tensor(x, 1, keepdim=True)), x)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize(
    "size, align, factors",
    [
        ((9, 4), False, (None, None)),
        ((30, 11), False, (None, None)),
        ((2, 25), True, (None, None)),
        ((6, 17), False, (0.5, 1.6)),
        ((3, 2), True, (None, None)),
    ],
)
def test_bytes_are_resized_in_fixed_point(
    mode: str, antialias: bool, size: tuple, align: bool, factors: tuple
) -> None:
    aten = torch.ops.aten
    op = getattr(aten, f"_upsample_{mode}2d_aa" if antialias else f"upsample_{mode}2d")
    g = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (2, 5, 13, 11), generator=g, dtype=torch.uint8)
    check(lambda x: op(x, size, align, *factors), x, views=[transposed])


I, J = torch.tensor([[0, 1, 2, 0], [1, 1, 0, 2], [2, 2, 2, 2]]), torch.tensor([0, 2, 2])
BOOL: dict[str, Callable] = {
    "sum": lambda x, y: (x.sum(0, dtype=torch.bool), x[0].sum(dtype=torch.bool)),
    "prod": lambda x, y: (x.prod(0, dtype=torch.bool), y.prod(dtype=torch.bool)),
    "addr": lambda x, y: torch.addr(x, y[:, 0], y[0]),
    "unfold": lambda x, y: torch.ops.aten.unfold_backward(
        x.unfold(1, 2, 1), [3, 4], 1, 2, 1
    ),
    "multiply": lambda x, y: x.scatter(0, I.to(x.device), y, reduce="multiply"),
    "scatter_add": lambda x, y: x.scatter_add(0, I.to(x.device), y),
    "index_add": lambda x, y: x.index_add(0, J.to(x.device), y),
    "index_prod": lambda x, y: x.index_reduce(0, J.to(x.device), y, "prod"),
    "put": lambda x, y: x.put(I.to(x.device), y, accumulate=True),
}


@pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter")
@pytest.mark.filterwarnings("ignore:index_reduce.. is in beta")
@pytest.mark.parametrize("name", BOOL)
def test_booleans_added_and_multiplied(name: str) -> None:
    x, y = make(3, 4, dtype=torch.bool), make(3, 4, dtype=torch.bool, seed=1)
    check(BOOL[name], x, y)


@pytest.mark.parametrize("how", ["sum", "prod", "amax", "amin"])
@pytest.mark.parametrize("include_self", [False, True])
def test_scatter_reduce_of_booleans(how: str, include_self: bool) -> None:
    def reduce(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        at = I.to(x.device)
        return x.scatter_reduce(0, at, y, how, include_self=include_self)

    check(reduce, make(3, 4, dtype=torch.bool), make(3, 4, dtype=torch.bool, seed=1))


def normalized(x: torch.Tensor, w: torch.Tensor, mean: torch.Tensor) -> dict:
    """Every kind of normalization of `x`, with what it saves."""
    aten, var, row = torch.ops.aten, mean + 1, torch.ones(5, dtype=w.dtype)
    row = row.to(x.device)
    stats = (mean.clone(), var.clone())
    return {
        "layer": aten.native_layer_norm(x, [5], row, row, 1e-5),
        "plain layer": aten.native_layer_norm(x, [5], None, None, 1e-5),
        "group": aten.native_group_norm(x, w, w, 3, 4, 5, 2, 1e-5),
        "train": aten.native_batch_norm(x, w, w, *stats, True, 0.1, 1e-5),
        "eval": aten.native_batch_norm(x, w, w, mean, var, False, 0.1, 1e-5),
        "update": aten._batch_norm_with_update(x, w, w, *stats, 0.1, 1e-5),
        "plain update": aten._batch_norm_with_update(x, None, None, *stats, 0.1, 1e-5),
        "functional": aten._native_batch_norm_legit_functional(
            x, w, w, mean, var, False, 0.1, 1e-5
        ),
        "updated": aten._batch_norm_with_update_functional(
            x, w, w, mean, var, 0.1, 1e-5
        ),
        "no update": aten._batch_norm_no_update(x, w, w, mean, var, 0.1, 1e-5),
        "no training": aten._native_batch_norm_legit_no_training(
            x, w, w, mean, var, 0.1, 1e-5
        ),
    }


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("mixed", [False, True])
def test_saved_statistics_have_the_dtype_of_the_cpu(
    dtype: torch.dtype, mixed: bool
) -> None:
    params = torch.float32 if mixed else dtype
    x, w, mean = (
        make(3, 4, 5, dtype=dtype),
        make(4, dtype=params),
        make(4, dtype=params),
    )
    want = normalized(x, w, mean)
    got = normalized(x.to(DEVICE), w.to(DEVICE), mean.to(DEVICE))
    for kind in want:
        same(list(want[kind]), list(got[kind]), kind)


def test_normalization_refuses_in_the_words_of_the_cpu() -> None:
    x, w = make(3, 4, 5), make(3)
    for call in (
        lambda x, w: F.layer_norm(x, [4]),
        lambda x, w: F.layer_norm(x, [5], w),
        lambda x, w: F.group_norm(x, 3),
        lambda x, w: F.group_norm(x, 2, w),
    ):
        with pytest.raises((RuntimeError, ValueError)) as want:
            call(x, w)
        with pytest.raises(want.type) as got:
            call(x.to(DEVICE), w.to(DEVICE))
        assert str(got.value) == str(want.value)


def test_fractional_pooling_of_an_unbatched_input_takes_the_first_samples():
    samples = torch.rand(2, 4, 3, generator=torch.Generator().manual_seed(1))

    def pool(x, u):
        return torch.nn.functional.fractional_max_pool3d(
            x, 2, output_ratio=(0.5, 0.5, 0.5), _random_samples=u
        )

    check(pool, make(4, 5, 5, 5), samples, grad=False)


def test_list_operators_take_numbers_of_the_cpu_as_tensors():
    ours = [make(2, seed=i).to(DEVICE) for i in range(2)]
    factors = [torch.tensor(2.0), torch.tensor(-3.0, dtype=torch.float64)]
    found = torch._foreach_mul(ours, factors)
    same([make(2) * 2, make(2, seed=1) * -3], found)
    with pytest.raises(RuntimeError, match="same device"):
        torch._foreach_mul(ours, [torch.ones(2), torch.ones(2)])


def test_strides_of_tensors_without_elements():
    for make_one in (torch.zeros, torch.empty, torch.ones):
        assert make_one(5, 0, 10, device=DEVICE).stride() == (10, 10, 1)
    x = torch.zeros(5, 0, 10).to(DEVICE)
    assert (x + 1).stride() == x.flip(0).stride() == x.stride() == (10, 10, 1)
    assert x.sum(0).stride() == (10, 1)


NARROW = ["uint8", "int8", "int16", "int32", "int64", "uint16", "uint64"]


@pytest.mark.parametrize("name", NARROW)
def test_floats_beyond_an_integers_range(name: str) -> None:
    """They wrap or become the lowest integer, as on x86."""
    far = [-1.5, 501, -501.7, 3e9, 5e9 + 3, 2.0**63, 1.8e19, 1e20, -1e20]
    x = torch.tensor([*far, math.nan, math.inf, -math.inf], dtype=torch.float64)
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        check(lambda x: x.to(getattr(torch, name)), x.to(dtype), grad=False)


def test_zeta_of_negative_and_large_arguments() -> None:
    s = torch.tensor([501.0, 501, 501, 3, 4988429, 1e20, math.inf, 2, 2, 0.5, 1])
    q = torch.tensor([-1001.2, -13437.7, 501, -200.5, 3, -7.5, 0.5, -3, math.nan, 2, 2])
    check(torch.special.zeta, s, q, grad=False, views=False)


def test_shifts_of_booleans() -> None:
    check(lambda x: (x << 1, x << x.long(), x >> 1), torch.tensor([True, False]))


EMPTY = {
    "max": lambda x: x.max(),
    "min": lambda x: x.min(),
    "max.dim": lambda x: x.max(1),
    "min.dim": lambda x: x.min(1),
    "median.dim": lambda x: x.median(1),
    "nanmedian.dim": lambda x: x.nanmedian(1),
    "mode": lambda x: x.mode(1),
    "argmax": lambda x: x.argmax(1),
    "amin": lambda x: x.amin(1),
}


@pytest.mark.parametrize("name", EMPTY)
def test_reductions_of_nothing_are_refused_as_on_the_cpu(name: str) -> None:
    x = torch.rand(2, 0, 4)
    with pytest.raises((RuntimeError, IndexError)) as on_cpu:
        EMPTY[name](x)
    with pytest.raises(on_cpu.type, match="(?i)" + re.escape(str(on_cpu.value)[:30])):
        EMPTY[name](x.to("tarry"))


def test_sparse_gradients_are_dense_ones_of_the_same_numbers() -> None:
    weight = torch.randn(6, 3)
    at, starts = torch.tensor([0, 1, 1, 4, 2]), torch.tensor([0, 2])

    def gradients(device: str) -> list[torch.Tensor]:
        found = []
        for mode in (None, "sum", "mean"):
            w = weight.clone().to(device).requires_grad_()
            places = at.to(device)
            if mode is None:
                out = F.embedding(places, w, padding_idx=1, sparse=True)
            else:
                out = F.embedding_bag(
                    places, w, starts.to(device), sparse=True, mode=mode
                )
            (out * torch.arange(3.0).to(device)).sum().backward()
            found.append(w.grad.to_dense().cpu())
        return found

    for cpu, ours in zip(gradients("cpu"), gradients("tarry")):
        torch.testing.assert_close(ours, cpu)


RANGES = [(1.0, 5.000001, 2.0), (5.9, 1.0, -1.5), (0, -3.9, -1), (0.0, 5.0, 1.5)]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8], ids=str)
def test_ranges_of_integers_between_floats(dtype: torch.dtype) -> None:
    for ends in RANGES[: 4 if dtype is not torch.uint8 else 2]:
        same(
            torch.arange(*ends, dtype=dtype),
            torch.arange(*ends, dtype=dtype, device=DEVICE),
        )
    for ends in ((4.3, 0), (0.9, 9.9)):
        same(
            torch.linspace(*ends, 50, dtype=dtype),
            torch.linspace(*ends, 50, dtype=dtype, device=DEVICE),
        )
    with pytest.raises(ValueError, match="nonzero"):
        torch.arange(0.0, 5.0, 0.5, dtype=torch.int64, device=DEVICE)


def test_margins_that_are_not_numbers_cost_nothing() -> None:
    x = torch.tensor([[math.nan, 2.0, 3.0, -math.inf], [1.0, math.nan, 0.5, math.inf]])
    named = torch.tensor([[3, 0, -1, 1], [0, -1, 1, 2]])
    check(lambda x, t: F.multi_margin_loss(x, t[:, 0], reduction="none"), x, named)
    check(lambda x, t: F.multilabel_margin_loss(x, t, reduction="none"), x, named)


def at_the_line(call):
    """The error of the CPU, raised where the call is and not at the next cut."""
    with pytest.raises(Exception) as want:
        call("cpu")
    with pytest.raises(type(want.value)) as got:
        call("tarry")
    assert str(got.value).split(".")[0] == str(want.value).split(".")[0]


PAIR = torch.tensor([0, 2])
MISFITS = {
    "rows": lambda x, i: x.__setitem__(i, x.new_ones(3, 5)),
    "pairs": lambda x, i: x.__setitem__((i, i), x.new_ones(3)),
    "slices": lambda x, i: x.__setitem__((i, slice(0, 3)), x.new_ones(2, 4)),
    "apart": lambda x, i: x.__setitem__((None, i), x.new_ones(2, 1, 5)),
    "mask": lambda x, i: x.__setitem__(x[:, 0] > 2, x.new_ones(2, 5)),
    "copy": lambda x, i: x.index_put((i,), x.new_ones(3), accumulate=True),
    "indices": lambda x, i: x.index_put((i, i.new_zeros(3)), x.new_ones(3)),
    "put": lambda x, i: x.put_(i, x.new_ones(3)),
    "expanded": lambda x, i: x[0].expand(4, 5).index_add_(0, i, x.new_ones(2, 5)),
    "normal_": lambda x, i: x[0].expand(4, 5).normal_(),
    "random_": lambda x, i: x[0].expand(4, 5).random_(),
    "bernoulli_": lambda x, i: x[0].expand(4, 5).bernoulli_(),
}


@pytest.mark.parametrize("name", MISFITS)
def test_values_that_do_not_fit(name):
    def call(device):
        x = torch.arange(20.0).view(4, 5).to(device)
        MISFITS[name](x, PAIR.to(device))

    at_the_line(call)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_no_write_to_an_expanded_tensor_is_lost():
    """PyTorch's CPU kernels of some operators still do it, element after element."""
    row = torch.arange(5.0).to("tarry")
    wide = row.expand(3, 5)
    for write in (
        lambda: wide.index_fill_(0, torch.tensor([0]).to("tarry"), 7.0),
        lambda: wide.__setitem__(torch.tensor([0, 1]).to("tarry"), 9.0),
        lambda: wide.masked_fill_(wide > 3, 7.0),
    ):
        with pytest.raises(RuntimeError, match="more than one element"):
            write()
    wide[0] = 9.0
    assert row.tolist() == [9.0] * 5


@pytest.mark.filterwarnings("ignore")
def test_an_encoder_with_a_padding_mask():
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 2).eval()
    x, mask = make(2, 5, 8), torch.arange(5).expand(2, 5) > torch.tensor([[2], [4]])
    with torch.no_grad():
        want = encoder(x, src_key_padding_mask=mask)
        got = encoder.to("tarry")(x.to("tarry"), src_key_padding_mask=mask.to("tarry"))
    same(want[~mask], got[~mask.to("tarry")])


def test_integers_of_more_than_63_bits():
    def run(device):
        x, n = torch.tensor([1.0, -2.0]).to(device), torch.tensor([3]).to(device)
        return (
            x * 2**63, x + (2**64 - 1), x < 2**63, 2**63 - x, n * 2**63,
            x.clone().fill_(2**63), x.masked_fill(x > 0, 2**63),
            torch.full((1,), 2**63, dtype=torch.float32, device=device),
            torch.add(x, x, alpha=2**63), torch.full_like(x, 2**64 - 1),
            torch.zeros(1, dtype=torch.uint64).to(device).fill_(2**63 + 1).double(),
        )  # fmt: skip

    for _ in range(2):
        same(run("cpu"), run("tarry"))


LOSSES = {
    "bool": lambda d: torch.tensor([True]).to(d).mul_(3),
    "complex": lambda d: torch.ones(1).to(d).add_(1 + 2j),
    "fill": lambda d: torch.ones(1).to(d).fill_(1 + 2j),
    "mm": lambda d: torch.eye(2).to(d) @ torch.eye(2).double().to(d),
    "mv": lambda d: torch.eye(2).to(d) @ torch.ones(2).double().to(d),
    "linear": lambda d: F.linear(torch.ones(1, 2).half().to(d), torch.eye(2).to(d)),
    "conv": lambda d: F.conv1d(
        torch.ones(1, 1, 3).to(d), torch.ones(1, 1, 2).half().to(d)
    ),
    "put": lambda d: (
        torch.arange(3).to(d).index_put_((PAIR.to(d),), torch.ones(2).to(d))
    ),
    "copy": lambda d: (
        torch.arange(3).to(d).index_copy_(0, PAIR.to(d), torch.ones(2).to(d))
    ),
    "add": lambda d: (
        torch.arange(3).to(d).index_add_(0, PAIR.to(d), torch.ones(2).to(d))
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_no_dtype_is_changed_in_silence(name):
    at_the_line(LOSSES[name])
