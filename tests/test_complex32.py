"""complex32: carried as complex64, rounded to halves by every instruction."""

import pytest
import torch

from harness import check, make

pytestmark = [
    pytest.mark.filterwarnings("ignore:ComplexHalf support"),
    pytest.mark.filterwarnings("ignore:Casting complex values to real"),
]


def halves(*shape, seed=0):
    return make(*shape, dtype=torch.complex64, seed=seed).to(torch.complex32)


def test_there_and_back_is_exact():
    x = halves(3, 4)
    y = x.to("tarry")
    assert y.dtype is torch.complex32
    assert torch.equal(torch.view_as_real(y.cpu()), torch.view_as_real(x))
    assert y.untyped_storage().nbytes() == 3 * 4 * 4


def test_conversions_and_their_gradients():
    check(lambda x: x.chalf().to(torch.complex64), make(3, 4))
    check(lambda x: x.to(torch.float32), halves(3, 4), grad=False)
    check(torch.complex, make(3, dtype=torch.float16), make(3, dtype=torch.float16))


def test_every_instruction_rounds():
    x, y = halves(5), halves(5, seed=1)
    check(lambda a, b: (a + b).to(torch.complex64) * 1024, x, y, grad=False)
    big = torch.full((2,), 65504.0).to(torch.complex32).to("tarry")
    assert (big + big).cpu().to(torch.complex64).real.isinf().all()


def test_parts_are_views_that_can_be_written():
    def write(x):
        x = x.clone()
        x.imag.fill_(2.0)
        x.real[1:] += 1
        return x.to(torch.complex64), torch.view_as_real(x), x.real

    check(write, halves(3), grad=False)


def test_pairs_of_halves_are_read_as_complex():
    check(
        lambda x: torch.view_as_complex(x).to(torch.complex64),
        make(3, 2, dtype=torch.float16),
        grad=False,
        views=False,
    )
