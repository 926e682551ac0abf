"""`while_loop`, `fori_loop` and `cond`, ours and PyTorch's, against Python's own."""

import pytest
import torch
from torch._higher_order_ops.scan import scan as torch_scan
from torch._higher_order_ops.while_loop import while_loop as torch_while_loop

import tarry
from harness import compiles
from tarry.errors import AsideError, LostGradientError, NoGradientError
from tarry.experimental import (
    cond,
    eager_mode_context,
    fori_loop,
    scan,
    while_loop,
)


def made(device, *shape, grad=False):
    values = torch.linspace(-1, 1, torch.Size(shape).numel()).reshape(shape)
    return values.to(device).requires_grad_(grad)


def zero(dtype=torch.int64):
    return torch.zeros((), dtype=dtype).to("tarry")


@pytest.mark.parametrize("loop", [while_loop, torch_while_loop])
def test_while_loop(loop):
    limit, w = torch.tensor(5).to("tarry"), made("tarry", 3)
    i, x = loop(
        lambda i, x: i < limit, lambda i, x: (i + 1, x * w + 1), (zero(), w + 1)
    )
    wanted = made("cpu", 3) + 1
    for _ in range(5):
        wanted = wanted * made("cpu", 3) + 1
    assert i.item() == 5
    torch.testing.assert_close(x.cpu(), wanted)


def test_while_loops_that_never_run_and_numbers_as_values():
    i, x = while_loop(
        lambda i, x: i < 0, lambda i, x: (i + 1, x), (0, made("tarry", 3))
    )
    assert i.item() == 0 and torch.equal(x.cpu(), made("cpu", 3))


def test_a_condition_on_data_and_containers():
    def goes_on(state):
        return state["x"].abs().max() > 0.1

    def body(state):
        return {"x": state["x"] * 0.5, "n": [state["n"][0] + 1]}

    (found,) = while_loop(goes_on, body, ({"x": made("tarry", 4), "n": [zero()]},))
    assert found["n"][0].item() == 4
    torch.testing.assert_close(found["x"].cpu(), made("cpu", 4) / 16)


def test_other_lengths_are_the_same_program():
    def run(n):
        return while_loop(lambda i, x: i < n, lambda i, x: (i + 1, x + i), (0, zero()))

    assert run(3)[1].item() == 3
    with compiles(0):
        assert run(300)[1].item() == 44850


def test_what_a_while_loop_changes_outside():
    total, seen = made("tarry", 3), zero()

    def body(i, x):
        total.add_(x)
        seen.fill_(7)
        return i + 1, x * 2

    def goes_on(i, x):
        return (total.sum() < 40) & (i < 100)

    i, x = while_loop(goes_on, body, (0, made("tarry", 3) + 1))
    want, add, n = made("cpu", 3), made("cpu", 3) + 1, 0
    while want.sum() < 40 and n < 100:
        want, add, n = want + add, add * 2, n + 1
    assert i.item() == n and seen.item() == 7
    torch.testing.assert_close(total.cpu(), want)
    torch.testing.assert_close(x.cpu(), add)


def test_random_numbers_of_a_while_loop_are_all_different():
    def body(i, xs):
        row = torch.rand(64, device="tarry")
        return i + 1, torch.cat([xs[1:], row[None]])

    def outer(i, xs):
        _, xs = while_loop(lambda j, _: j < 4, body, (0, xs))
        return i + 1, xs

    torch.manual_seed(0)
    xs = torch.zeros(13, 64).to("tarry")
    _, xs = while_loop(lambda i, _: i < 3, outer, (0, xs))
    after = torch.rand(64, device="tarry")
    drawn = torch.cat([xs[1:], after[None]]).cpu()
    assert len(drawn.unique()) > 0.99 * drawn.numel()
    assert 0.4 < drawn.mean() < 0.6


def test_no_gradient_through_a_while_loop_but_an_error():
    x = made("tarry", 3, grad=True)
    with torch.no_grad():
        _, y = while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, x * 2), (0, x))
    assert not y.requires_grad
    _, y = while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, x * 2), (0, x))
    torch.testing.assert_close(y.detach().cpu(), made("cpu", 3) * 8)
    with pytest.raises(NoGradientError, match=r"test_flow_loops\.py"):
        y.sum().backward()


@pytest.mark.parametrize(
    ("goes_on", "body", "error", "words"),
    [
        (lambda i, x: i, lambda i, x: (i, x), ValueError, "one boolean"),
        (lambda i, x: x > 0, lambda i, x: (i, x), ValueError, "one boolean"),
        (lambda i, x: i < 3, lambda i, x: (i,), ValueError, "structure"),
        (lambda i, x: i < 3, lambda i, x: (i * 0.5, x), ValueError, "dtypes"),
        (lambda i, x: i < 3, lambda i, x: (i + 1, x[:1]), ValueError, "shapes"),
        (lambda i, x: i.item() < 3, lambda i, x: (i, x), AsideError, "a number was"),
        (lambda i, x: bool(i < 3), lambda i, x: (i, x), AsideError, "a number was"),
    ],
)
def test_bad_loops(goes_on, body, error, words):
    with pytest.raises(error, match=words):
        while_loop(goes_on, body, (zero(), made("tarry", 3)))
    assert (made("tarry", 1) + 1).item() == 0


def test_carried_values_stand_in_a_tuple():
    with pytest.raises(ValueError, match="tuple"):
        while_loop(lambda x: x < 1, lambda x: x, made("tarry", 3))


def test_fori_loop_is_one_program_for_all_bounds():
    def run(low, high):
        return fori_loop(low, high, lambda i, x: x + i, zero())

    assert run(0, 3).item() == 3
    with compiles(0):
        assert run(0, 300).item() == 44850
        assert run(5, 7).item() == 11
        assert run(4, 2).item() == 0
    assert run(torch.tensor(1), torch.tensor(4).to("tarry")).item() == 6
    with compiles(0):
        assert run(torch.tensor(1), torch.tensor(40).to("tarry")).item() == 780


def test_fori_loop_draws_as_a_python_loop():
    def body(i, x):
        return x + torch.rand(3, device="tarry") * i

    torch.manual_seed(2)
    start = torch.zeros(3).to("tarry")
    scanned, _ = scan(
        lambda c, i: (body(i, c), None), start, torch.arange(4).to("tarry")
    )
    after = torch.rand(2, device="tarry")
    torch.manual_seed(2)
    x = start
    for i in range(4):
        x = body(i, x)
    torch.testing.assert_close(scanned.cpu(), x.cpu())
    assert torch.equal(after.cpu(), torch.rand(2, device="tarry").cpu())
    torch.manual_seed(2)
    fori_loop(0, 4, body, start)
    assert torch.equal(after.cpu(), torch.rand(2, device="tarry").cpu())


def test_fori_loop_with_gradients():
    w, x = made("tarry", 3, grad=True), made("tarry", 3, grad=True)
    out = fori_loop(1, 4, lambda i, v: {"a": v["a"] * w + i}, {"a": x})["a"]
    out.sum().backward()
    v, u = made("cpu", 3, grad=True), made("cpu", 3, grad=True)
    want = u
    for i in range(1, 4):
        want = want * v + i
    want.sum().backward()
    torch.testing.assert_close(out.cpu(), want)
    torch.testing.assert_close(w.grad.cpu(), v.grad)
    torch.testing.assert_close(x.grad.cpu(), u.grad)
    end = torch.tensor(4).to("tarry")
    with pytest.raises(NoGradientError):
        fori_loop(1, end, lambda i, v: v * w, x).sum().backward()


@pytest.mark.parametrize("branch", [cond, torch.cond])
@pytest.mark.parametrize("chosen", [True, False])
def test_cond(branch, chosen):
    x, w = made("tarry", 3, grad=True), made("tarry", 3, grad=True)
    pred = torch.tensor(chosen).to("tarry")
    out = branch(pred, lambda x: (x * w).sin(), lambda x: x.exp() * 2, (x,))
    (out * 3).sum().backward()
    u, v = made("cpu", 3, grad=True), made("cpu", 3, grad=True)
    want = (u * v).sin() if chosen else u.exp() * 2
    (want * 3).sum().backward()
    torch.testing.assert_close(out.cpu(), want)
    torch.testing.assert_close(x.grad.cpu(), u.grad)
    torch.testing.assert_close(
        w.grad.cpu(), torch.zeros(3) if v.grad is None else v.grad
    )


def test_cond_is_one_program_and_no_read():
    def run(limit):
        x = made("tarry", 4)
        return cond(x.sum() > limit, lambda x: x + 1, lambda x: x - 1, (x,))

    with tarry.no_host_reads():
        first = run(-1.0)
    torch.testing.assert_close(first.cpu(), made("cpu", 4) + 1)
    with compiles(0):
        torch.testing.assert_close(run(1.0).cpu(), made("cpu", 4) - 1)


@pytest.mark.parametrize("chosen", [True, False])
def test_what_branches_change_outside(chosen):
    a, b = made("tarry", 3), made("tarry", 3)

    def yes(x):
        a.add_(x)
        return x * 2

    def no(x):
        b.mul_(a)
        return x * 3

    pred = torch.tensor([chosen]).to("tarry")
    out = cond(pred, yes, no, (made("tarry", 3) + 1,))
    x, want_a, want_b = made("cpu", 3) + 1, made("cpu", 3), made("cpu", 3)
    if chosen:
        want, want_a = x * 2, want_a + x
    else:
        want, want_b = x * 3, want_b * want_a
    torch.testing.assert_close(out.cpu(), want)
    torch.testing.assert_close(a.cpu(), want_a)
    torch.testing.assert_close(b.cpu(), want_b)


@pytest.mark.parametrize("chosen", [True, False])
def test_a_branch_without_a_gradient(chosen):
    w, u = made("tarry", 3, grad=True), made("tarry", 3, grad=True)
    pred = torch.tensor(chosen).to("tarry")
    out = cond(pred, lambda: {"y": w * u}, lambda: {"y": torch.ones(3).to("tarry")})[
        "y"
    ]
    out.sum().backward()
    want = made("cpu", 3) if chosen else torch.zeros(3)
    torch.testing.assert_close(w.grad.cpu(), want)
    torch.testing.assert_close(u.grad.cpu(), want)


def test_cond_with_a_number_and_bad_ones():
    assert cond(True, lambda x: x + 1, lambda x: x, (1,)) == 2
    yes, x = torch.tensor(True).to("tarry"), made("tarry", 3)
    with pytest.raises(ValueError, match="one value"):
        cond(x > 0, lambda x: x, lambda x: x, (x,))
    with pytest.raises(ValueError, match=r"float32\[3\].*float32\[1\]"):
        cond(yes, lambda x: x, lambda x: x[:1], (x,))
    with pytest.raises(ValueError, match="structure"):
        cond(yes, lambda x: x, lambda x: (x, x), (x,))
    with pytest.raises(AsideError, match=r"test_flow_loops\.py"):
        cond(yes, lambda x: x * x.sum().item(), lambda x: x, (x,))


def test_branches_in_loops_in_branches():
    w = made("tarry", 3, grad=True)

    def body(c, x):
        return cond(x.sum() > 0, lambda: c * w, lambda: c + x), c

    def yes(x):
        return scan(body, x, made("tarry", 4, 3))[0]

    x = made("tarry", 3, grad=True)
    out = cond(torch.tensor(True).to("tarry"), yes, lambda x: x, (x,))
    out.sum().backward()
    v, u = made("cpu", 3, grad=True), made("cpu", 3, grad=True)
    want = u
    for row in made("cpu", 4, 3):
        want = want * v if row.sum() > 0 else want + row
    want.sum().backward()
    torch.testing.assert_close(out.cpu(), want)
    torch.testing.assert_close(w.grad.cpu(), v.grad)
    torch.testing.assert_close(x.grad.cpu(), u.grad)


def test_dropout_in_a_branch():
    torch.manual_seed(1)
    x = torch.ones(1000).to("tarry").requires_grad_()
    yes = torch.tensor(True).to("tarry")
    out = cond(yes, torch.nn.functional.dropout, lambda x: x, (x,))
    out.sum().backward()
    assert torch.equal(out.detach().cpu(), x.grad.cpu())
    assert 300 < (x.grad == 0).sum().item() < 700


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("reverse", [False, True])
def test_the_scan_of_pytorch(reverse):
    def program(device):
        init, xs = made(device, 3, grad=True), made(device, 4, 3, grad=True)
        last, ys = torch_scan(
            lambda c, x: (c * x + 1, c + x), init, xs, reverse=reverse
        )
        (last.sum() + (ys * ys).sum()).backward()
        return [t.detach().cpu() for t in (last, ys, init.grad, xs.grad)]

    for a, b in zip(program("tarry"), program("cpu")):
        torch.testing.assert_close(a, b)


def test_a_change_of_what_wants_a_gradient_is_refused():
    w = made("tarry", 3, grad=True)

    def yes(x):
        with torch.no_grad():
            w.mul_(2)
        return x * w

    with pytest.raises(LostGradientError):
        cond(torch.tensor(True).to("tarry"), yes, lambda x: x, (made("tarry", 3),))


def test_eager_mode_gives_the_same_and_a_program_for_each_loop():
    def program():
        torch.manual_seed(4)
        w = made("tarry", 3, grad=True)

        def body(c, x):
            return c * w + torch.nn.functional.dropout(x), c

        last, ys = scan(body, made("tarry", 3), made("tarry", 4, 3))
        out = cond(last.sum() > 0, lambda x: x * w, lambda x: x - w, (last,))
        out = fori_loop(0, 3, lambda i, x: x + i, out.detach()) + out
        (out.sum() + ys.sum()).backward()
        return [t.detach().cpu() for t in (last, ys, out, w.grad)]

    lazy = program()
    with eager_mode_context():
        eager = program()
    for a, b in zip(eager, lazy):
        torch.testing.assert_close(a, b)
    named = [c.detail for c in tarry.explain().cuts]
    assert {"tarry::scan", "tarry::cond", "tarry::while"} <= set(named)
