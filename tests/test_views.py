"""Views: PyTorch's own metadata, read and written through any geometry."""

import itertools

import pytest
import torch

import tarry
from harness import cuts, fallbacks, make, same
from tarry.record.slot import contiguous_strides
from tarry.record.views import blocks, extent, is_dense

BASE = torch.arange(24.0).reshape(2, 3, 4)

VIEWS = {
    "view": lambda x: x.view(6, 4),
    "view_merge": lambda x: x.view(2, 12),
    "transpose": lambda x: x.transpose(0, 2),
    "permute": lambda x: x.permute(2, 0, 1),
    "select": lambda x: x[1],
    "select_inner": lambda x: x[:, :, 2],
    "slice": lambda x: x[:, 1:, :2],
    "step": lambda x: x[:, ::2, 1::2],
    "expand": lambda x: x[:1].expand(5, 3, 4),
    "expand_new": lambda x: x.expand(2, 2, 3, 4),
    "diagonal": lambda x: x.diagonal(0, 1, 2),
    "unfold": lambda x: x.unfold(2, 2, 1),
    "unsqueeze": lambda x: x[:, None, :, None],
    "squeeze": lambda x: x[:1].squeeze(0),
    "flatten": lambda x: x.flatten(),
    "unflatten": lambda x: x.unflatten(2, (2, 2)),
    "split": lambda x: x.split(2, 1)[1],
    "chunk": lambda x: x.chunk(2, 2)[1],
    "unbind": lambda x: x.unbind(1)[2],
    "narrow": lambda x: x.narrow(2, 1, 2),
    "as_strided": lambda x: x.as_strided((3, 2), (2, 5), 3),
    "as_strided_overlap": lambda x: x.as_strided((3, 3), (1, 1), 2),
    "as_strided_backwards": lambda x: x.as_strided((2, 3), (1, 8), 1),
    "of_view": lambda x: x.transpose(0, 1)[1:, :, ::2].diagonal(0, 0, 1),
    "movedim": lambda x: x.movedim(0, -1),
    "swap": lambda x: x.mT,
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
    "empty": lambda x: x[:, :0],
    "view_as": lambda x: x.view_as(torch.empty(4, 6, device=x.device)),
    "bits": lambda x: x.view(torch.int32),
    "bytes": lambda x: x.view(torch.uint8),
    "halves": lambda x: x.view(torch.int16)[..., ::2],
    "doubles": lambda x: x.view(torch.float64),
}  # fmt: skip
OVERLAP = {"expand", "expand_new", "unfold", "as_strided_overlap"}


@pytest.mark.parametrize("name", VIEWS)
def test_read(name):
    x = BASE.clone().to("tarry")
    with cuts(0):
        got = VIEWS[name](x)
    want = VIEWS[name](BASE.clone())
    assert got.untyped_storage()._cdata == x.untyped_storage()._cdata
    assert got.storage_offset() == want.storage_offset()
    assert got._is_view() == want._is_view()
    with fallbacks(0):
        same(want, got)
        if want.dtype is torch.float32:
            same(want * 2, VIEWS[name](x) * 2)


@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize("name", [n for n in VIEWS if n not in OVERLAP])
def test_write(name, sync):
    want, got = BASE.clone(), BASE.clone().to("tarry")
    aliases = want[1], want.t() if want.dim() == 2 else want.mT, want.view(-1)[3:9]
    ours = got[1], got.mT, got.view(-1)[3:9]
    with fallbacks(0):
        for x in (want, got):
            view = VIEWS[name](x)
            if sync:
                tarry.sync()
            view.add_(3)
            view.fill_(7) if view.dim() > 2 else view.mul_(2)
            if sync:
                tarry.sync()
        same([want, *aliases], [got, *ours])


def test_write_to_base_shows_in_views():
    x = BASE.clone().to("tarry")
    v, w = x[0], x.view(-1)[::5]
    x.add_(1)
    tarry.sync()
    x[1] = 0
    v[0] = -1
    want = BASE.clone() + 1
    want[1] = 0
    want[0, 0] = -1
    same([want, want[0], want.view(-1)[::5]], [x, v, w])


def test_overlapping_write_is_refused():
    for device in ("cpu", "tarry"):
        x = torch.zeros(1, 3).to(device).expand(2, 3)
        with pytest.raises(RuntimeError, match="more than one element"):
            x.add_(1)
        with pytest.raises(RuntimeError, match="more than one element"):
            x.copy_(torch.ones(2, 3).to(device))


def test_read_after_write_before_and_after_sync():
    x = torch.zeros(4, 4).to("tarry")
    row, column, corner = x[1], x[:, 2], x[2:, 2:]
    row += 1
    column *= 5
    tarry.sync()
    corner.sub_(2)
    row.copy_(column)
    want = torch.zeros(4, 4)
    want[1] += 1
    want[:, 2] *= 5
    want[2:, 2:] -= 2
    want[1] = want[:, 2].clone()
    same([want, want[1], want[:, 2]], [x, row, column])


def test_autograd_through_views_and_writes():
    def run(device):
        x = BASE.clone().to(device).requires_grad_()
        y = x * 2
        y[0].mul_(3)
        y.view(-1)[::2].exp_()
        z = y.transpose(0, 1)[1]
        (z.sin().sum() + y.select(2, 1).prod(0).sum()).backward()
        return x.grad

    same(run("cpu"), run("tarry"), strides=False)


def test_version_counters_are_pytorchs():
    x = torch.ones(3, device="tarry", requires_grad=True)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_resize_and_set():
    x = torch.arange(6.0).to("tarry")
    x.resize_(2, 2)
    assert x.tolist() == [[0, 1], [2, 3]]
    x.resize_(6)
    assert x.tolist() == [0, 1, 2, 3, 4, 5]
    y = torch.zeros(2).to("tarry")
    y.set_(x)
    y[0] = 9
    assert x[0].item() == 9
    x.data = torch.ones(3).to("tarry")
    assert x.tolist() == [1, 1, 1] and y[0].item() == 9


def test_bits_written_through():
    x = torch.zeros(3).to("tarry")
    x.view(torch.int32).fill_(0x3F800000)
    assert x.tolist() == [1, 1, 1]
    z = torch.zeros(2, dtype=torch.complex64).to("tarry")
    torch.view_as_real(z)[:, 1] = 2
    assert z.tolist() == [2j, 2j]
    z.real.fill_(1)
    assert z.tolist() == [1 + 2j, 1 + 2j]


def test_conjugates_are_views():
    def run(device):
        x = make(3, 3, dtype=torch.complex64).to(device)
        y = x.conj()
        assert y.is_conj() and y._is_view()
        y[0] = 1 + 2j
        y.imag.add_(1)
        z = y @ x.mH
        y.mul_(2j)
        return [x, y.resolve_conj(), z, y.imag.clone(), (-y.imag).clone(), y * x]

    with fallbacks(0):
        same(run("cpu"), run("tarry"), strides=False)


def test_plans_of_every_small_geometry():
    """`blocks` says the same as the strides, or nothing."""
    dims, planned = (2, 3, 4), 0
    flat = torch.arange(24)
    sizes = [(1,), (2,), (3, 2), (2, 2, 2)]
    for size in sizes:
        for strides in itertools.product((0, 1, 2, 3, 4, 8, 12), repeat=len(size)):
            for offset in (0, 1, 5):
                if extent(size, strides, offset) > 24:
                    continue
                plan = blocks(dims, size, strides, offset)
                if plan is None:
                    continue
                planned += 1
                want = flat.as_strided(size, strides, offset)
                cube = flat.reshape(plan.radix)
                for axis, (a, b, step) in enumerate(
                    zip(plan.starts, plan.limits, plan.steps)
                ):
                    cube = cube.narrow(axis, a, b - a)[
                        (slice(None),) * axis + (slice(None, None, step),)
                    ]
                rest = [a for a in range(cube.dim()) if a not in plan.axes]
                cube = cube.permute(*plan.axes, *rest)
                cube = cube.reshape(cube.shape[: len(plan.axes)])
                shape = [1] * len(size)
                for d in plan.kept:
                    shape[d] = size[d]
                assert torch.equal(cube.reshape(shape).expand(size), want)
    assert planned > 100


def test_geometry_arithmetic():
    assert contiguous_strides((2, 0, 3)) == (3, 3, 1)
    assert extent((2, 3), (3, 1), 4) == 10 and extent((2, 0), (1, 1), 7) == 0
    assert is_dense((2, 3), (1, 2)) and is_dense((1, 3), (9, 1))
    assert not is_dense((2, 3), (4, 1)) and not is_dense((2, 2), (0, 1))


def test_viewing_needs_no_gather():
    """Plain views lower to slices, transposes and reshapes."""
    from tarry.cut.sync import store

    x = BASE.clone().to("tarry")
    tarry.sync()
    y = (  # noqa: F841
        x.transpose(0, 2)[1:] * 2,
        x.view(6, 4)[::2, 1:] * 2,
        x.select(1, 1).expand(3, 2, 4) * 2,
        x.diagonal(0, 1, 2) * 2,
    )
    tarry.sync()
    program = max(store.values(), key=lambda e: e.used)
    assert program.call.as_text().count(" gather(") <= 1  # the diagonal at most
