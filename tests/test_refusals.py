"""Calls that PyTorch's CPU refuses are refused at their line, by the same exception."""

import pytest
import torch
import torch.nn.functional as F

from harness import cuts, make

i64, u8, c64, f64 = torch.int64, torch.uint8, torch.complex64, torch.float64
X, ROW = make(3, 4), make(4)
I = make(3, 4, dtype=i64)
Z = make(3, 4, dtype=c64)
SIGNAL, TAPS = make(1, 1, 4), make(1, 1, 2)
SPOT = torch.tensor([2, 0])


def _into(fn, dtype):
    """`fn` with an `out=` of another dtype."""
    return lambda x, *rest: fn(
        x, *rest, out=torch.empty(0, dtype=dtype, device=x.device)
    )


CASES = {
    # What the meta kernels do not look at.
    "conv_dilation": (lambda x, w: F.conv1d(x, w, dilation=-1), SIGNAL, TAPS),
    "conv_no_dilation": (lambda x, w: F.conv1d(x, w, dilation=0), SIGNAL, TAPS),
    "conv_padding": (lambda x, w: F.conv1d(x, w, padding=-1), SIGNAL, TAPS),
    "conv_stride": (lambda x, w: F.conv1d(x, w, stride=0), SIGNAL, TAPS),
    "complex_dtypes": (torch.complex, X, X.double()),
    "polar_dtypes": (torch.polar, X, X.double()),
    "index_add_shape": (lambda x, i, s: x.index_add(0, i, s), X, SPOT, ROW),
    "index_add_count": (lambda x, i, s: x.index_add(0, i, s), X, SPOT, X),
    "masked_scatter_bytes": (torch.masked_scatter, X, (X > 0).to(u8), X),
    "bucketize_table": (torch.bucketize, X, X),
    "multinomial_number": (lambda x: torch.multinomial(x, 1), make().abs()),
    "multinomial_cube": (lambda x: torch.multinomial(x, 1), make(2, 3, 4).abs()),
    "multinomial_integers": (lambda x: torch.multinomial(x, 1), I.abs()),
    "eye_columns": (lambda x: torch.eye(2, -3, device=x.device), X),
    # Dtypes for which the CPU has no kernel.
    "and_float": (lambda x: x & 1, X),
    "or_number": (lambda x: x | 1.5, I),
    "xor_floats": (lambda x, y: x ^ y, X, X),
    "not_float": (torch.bitwise_not, X),
    "shift_float": (lambda x: x << 1, X),
    "gcd_float": (torch.gcd, X, X),
    "and_in_place": (lambda x: x.bitwise_and_(1), X),
    "less_complex": (lambda z: z < 1, Z),
    "floor_complex": (torch.floor, Z),
    "remainder_booleans": (torch.remainder, X > 0, X > 0),
    "softmax_integers": (lambda x: x.softmax(1), I),
    "std_integers": (lambda x: x.std(1), I),
    "erf_complex": (torch.erf, Z),
    "argmax_complex": (lambda z: z.argmax(1), Z),
    "cholesky_integers": (torch.linalg.cholesky_ex, I[:, :3]),
    "uniform_integers": (lambda x: x.uniform_(), I),
    "exponential_booleans": (lambda x: x.exponential_(), X > 0),
    "random_complex": (lambda z: z.random_(), Z),
    # out= of a kernel that neither converts nor copies.
    "gather_out": (
        lambda x, i: torch.gather(x, 1, i, out=x.new_empty(3, 4, dtype=f64)), X, I % 4,
    ),
    "complex_out": (_into(torch.complex, c64), X.double(), X.double()),
    "amax_out": (
        lambda x: torch.amax(x, 0, out=x.new_empty(4, dtype=torch.int32)), X,
    ),
    "multinomial_out": (
        lambda x: torch.multinomial(x, 1, out=x.new_empty(3, 1)), X.abs(),
    ),
    "take_into_itself": (lambda x, i: torch.take(x, i, out=x[:2]), ROW, SPOT),
    "kthvalue_into_itself": (
        lambda x, i: torch.kthvalue(x, 2, out=(x[:1], i[:1])), ROW, SPOT,
    ),
    "select_into_a_row": (
        lambda x, i: torch.index_select(x, 1, i, out=x[:1, :1].expand(3, 2)), X, SPOT,
    ),
    "cat_into_itself": (lambda x: torch.cat([x, x], out=x), X[:0]),
    "cat_into_a_part": (lambda x: torch.cat([x[:1], x[1:]], out=x), X),
    "masked_select_into_itself": (
        lambda x: torch.masked_select(x, x > -9, out=x), ROW,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_refused(name):
    fn, *inputs = CASES[name]
    with pytest.raises(Exception) as want:
        fn(*[x.clone() for x in inputs])
    ours = [x.to("tarry") for x in inputs]
    with cuts(0), pytest.raises(want.type) as got:
        fn(*ours)
    assert str(got.value) == str(want.value)


# Stand-ins hold zeros, and what the CPU only refuses of zeros is no refusal.
TAKEN = {
    "inverse": (
        lambda x: torch.linalg.inv(x, out=torch.empty_like(x)),
        X[:, :3] + 3 * torch.eye(3),
    ),
    "cholesky": (
        lambda x: torch.linalg.cholesky(x, out=torch.empty_like(x)), 2 * torch.eye(3),
    ),
    "cholesky_complex": (torch.linalg.cholesky, 2 * torch.eye(3, dtype=c64)),
    "division": (lambda x: x % x.abs().add(1), I),
    "division_out": (
        lambda x: torch.floor_divide(I.to(x.device), x, out=torch.empty_like(x)),
        I.abs() + 1,
    ),
    "last_index": (lambda x, i: torch.take(x, i, out=x.new_empty(2)), ROW, SPOT + 1),
    "wider": (lambda x: torch.add(x, 1, out=x.new_empty(3, 4, dtype=f64)), X),
    "number_for_a_tensor": (
        lambda x: torch.copysign(x, -2.5, out=torch.empty_like(x)), X,
    ),
    "mode_out": (
        lambda x: torch.mode(x, out=(x.new_empty(3), x.new_empty(3, dtype=i64)))[0],
        I.float(),
    ),
    "into_itself": (lambda x: torch.add(x, 1, out=x), X),
    "and_integers": (lambda x: x & 6, I),
    "conv": (lambda x, w: F.conv1d(x, w, padding=1, dilation=2), SIGNAL, TAPS),
    "index_add": (lambda x, i, s: x.index_add(0, i, s), X, SPOT, X[:2]),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
def test_taken(name):
    fn, *inputs = TAKEN[name]
    want = fn(*[x.clone() for x in inputs])
    got = fn(*[x.to("tarry") for x in inputs])
    torch.testing.assert_close(got.cpu(), want)


def test_a_trial_leaves_the_random_state():
    before = torch.get_rng_state()
    p = X.abs().to("tarry")
    torch.multinomial(p, 1, out=torch.empty(3, 1, dtype=i64, device="tarry"))
    assert torch.equal(torch.get_rng_state(), before)
