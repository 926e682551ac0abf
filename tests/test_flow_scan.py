"""`scan` and `scan_layers` against Python loops on the CPU."""

import copy
import dataclasses
import threading

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

import tarry
from tarry.errors import AsideError, CompileError, LostGradientError
from tarry.experimental import scan, scan_layers
from tarry.flow.scan import scan_flat
from tarry.lower.table import TABLE


def loop(fn, init, xs):
    """What `scan` stands for."""
    carry, ys = init, []
    for i in range(len(tree_leaves(xs)[0])):
        carry, y = fn(carry, tree_map(lambda t, i=i: t[i], xs))
        ys.append(y)
    return carry, tree_map(lambda *t: torch.stack(t), *ys)


def compare(program, atol=1e-5):
    """`program(device, scan)` gives the same tensors with a loop on the CPU."""
    ours = [None if t is None else t.cpu() for t in program("tarry", scan)]
    wanted = program("cpu", loop)
    assert len(ours) == len(wanted)
    for a, b in zip(ours, wanted):
        if b is None:
            assert a is None
        else:
            torch.testing.assert_close(a, b, atol=atol, rtol=1e-4)


def made(device, *shape, grad=False):
    values = torch.linspace(-1, 1, torch.Size(shape).numel()).reshape(shape)
    return values.to(device).requires_grad_(grad)


def compiled():
    return len(tarry.explain().compiles)


def test_values_and_gradients_of_carry_slices_and_captured_tensors():
    def program(device, scan):
        w = made(device, 4, 4, grad=True)
        scaled = (w * 1.5).t()  # wants a gradient, and so does what it comes from

        def fn(carry, x):
            h = torch.tanh(carry @ scaled + x * 2.0 + nn.functional.linear(x, w))
            return h, (h.sin() * x, carry)

        init, xs = made(device, 3, 4, grad=True), made(device, 5, 3, 4, grad=True)
        last, (a, b) = scan(fn, init, xs)
        (last.sum() * 2 + (a * a).sum() + b.sum()).backward()
        return last, a, b, w.grad, init.grad, xs.grad

    compare(program)


@pytest.mark.parametrize("init_grad", [False, True])
@pytest.mark.parametrize("xs_grad", [False, True])
def test_results_need_gradients_where_those_of_a_loop_do(init_grad, xs_grad):
    def program(device, scan):
        init, xs = made(device, 3, grad=init_grad), made(device, 4, 3, grad=xs_grad)
        last, ys = scan(lambda c, x: (c + x, x * 2), init, xs)
        assert last.requires_grad == (init_grad or xs_grad)
        return last.detach(), ys.detach()

    compare(program)


def test_carries_without_a_gradient_and_outputs_that_are_not_used():
    def program(device, scan):
        def fn(carry, x):
            count, held, value = carry
            return (count + 1, held.detach() * 2, value * x), {"i": count, "x": x * x}

        init = (torch.tensor(0).to(device), made(device, 3), made(device, 3, grad=True))
        xs = made(device, 4, 3, grad=True)
        (count, held, value), ys = scan(fn, init, xs)
        value.sum().backward()
        return count, held, value, ys["i"], ys["x"], init[2].grad, xs.grad

    compare(program)


def test_a_carry_that_is_made_anew_takes_no_gradient_on():
    def program(device, scan):
        init, xs = made(device, 3, grad=True), made(device, 4, 3, grad=True)
        last, ys = scan(lambda c, x: (x * 3, c * x), init, xs)
        (last.sum() + ys.sum()).backward()
        return last, ys, init.grad, xs.grad

    compare(program)


def test_containers_and_dtypes():
    def program(device, scan):
        def fn(carry, x):
            new = {"f": carry["f"] + x[0].float(), "n": [carry["n"][0] + x[1]]}
            return new, (x[1] > 2, x[0] * 2, None)

        init = {"f": made(device, 2), "n": [torch.tensor(1).to(device)]}
        xs = (made(device, 3, 2).double(), torch.arange(3).to(device))
        last, (a, b, _) = scan(fn, init, xs)
        assert _ is None or len(_) == 3
        return last["f"], last["n"][0], a, b

    tensors = program("tarry", scan)
    assert [t.dtype for t in tensors] == [
        torch.float32, torch.int64, torch.bool, torch.float64,
    ]  # fmt: skip
    assert tensors[2].tolist() == [False, False, False] and tensors[1].item() == 4
    torch.testing.assert_close(tensors[3].cpu(), made("cpu", 3, 2).double() * 2)


def test_views_go_in_and_are_used_inside():
    def program(device, scan):
        base = made(device, 6, 4, grad=True)
        xs, init = base.t()[1:], base[1::2, 0]

        def fn(carry, x):
            parts = x.reshape(2, 3)
            return carry + parts[1], parts.t()[:, 0] * carry.flip(0)

        last, ys = scan(fn, init, xs)
        (last.sum() + (ys**2).sum()).backward()
        return last, ys, base.grad

    compare(program)


def test_in_place_operations_inside():
    def program(device, scan):
        w = made(device, 3, grad=True)

        def fn(carry, x):
            y = x.clone()
            y[1:] *= 2
            y.add_(carry).mul_(w)
            carry = carry + 1
            carry[0] = y[2]
            return carry, y

        init, xs = made(device, 3, grad=True), made(device, 4, 3, grad=True)
        last, ys = scan(fn, init, xs)
        (last.sum() + ys.sum()).backward()
        return last, ys, w.grad, init.grad, xs.grad

    compare(program)


def test_what_is_written_to_arguments_no_one_else_sees():
    init, xs = made("tarry", 3), made("tarry", 4, 3)

    def fn(carry, x):
        x.mul_(2)
        carry.add_(x)
        return carry, x

    last, ys = scan(fn, init, xs)
    assert torch.equal(init.cpu(), made("cpu", 3))
    assert torch.equal(xs.cpu(), made("cpu", 4, 3))
    torch.testing.assert_close(ys.cpu(), made("cpu", 4, 3) * 2)
    torch.testing.assert_close(last.cpu(), made("cpu", 3) + ys.cpu().sum(0))


def test_what_is_written_to_tensors_outside_is_done():
    def program(device, scan):
        total, count = made(device, 3), torch.zeros(4, dtype=torch.int64).to(device)
        pending = total * 2

        def fn(carry, x):
            total.add_(x * carry)
            count[1:3] += 1
            pending.copy_(x)
            return carry * 2, total.clone()

        last, ys = scan(fn, made(device, 3), made(device, 4, 3))
        return last, ys, total, count, pending

    compare(program)


def test_results_that_are_arguments_or_tensors_from_outside():
    def program(device, scan):
        outside = made(device, 2, grad=True)
        init, xs = made(device, 2, grad=True), made(device, 3, 2, grad=True)
        last, (a, b, c) = scan(lambda k, x: (k, (x, outside, k)), init, xs)
        (last.sum() + (a * 2).sum() + (b * 3).sum() + (c * 4).sum()).backward()
        return last, a, b, c, outside.grad, init.grad, xs.grad

    compare(program)


def test_scans_in_scans():
    def program(device, scan):
        w = made(device, 2, 2, grad=True)

        def inner(carry, x):
            return torch.tanh(carry @ w) + x, carry * x

        def outer(carry, xs):
            last, ys = scan(inner, carry * 0.5, xs)
            return last, ys.sum(0) * w[0]

        init, xs = made(device, 2, grad=True), made(device, 3, 4, 2, grad=True)
        last, ys = scan(outer, init, xs)
        (last.sum() + (ys * ys).sum()).backward()
        return last, ys, w.grad, init.grad, xs.grad

    compare(program)


@pytest.mark.parametrize("cut", [False, True])
def test_random_numbers_are_those_of_a_loop(cut):
    def program(scan):
        torch.manual_seed(3)
        x = torch.rand(4, device="tarry", requires_grad=True)

        def fn(carry, x):
            y = nn.functional.dropout(x, 0.5)
            return carry + torch.rand_like(carry) + y, (y, torch.randn(2).to("tarry"))

        def outer(carry, xs):
            return scan(fn, carry, xs)

        last, (ys, _) = scan(outer, x, torch.ones(3, 2, 4).to("tarry") * x)
        if cut:
            tarry.sync()
        (last.sum() + (ys * ys).sum()).backward()
        after = torch.rand(3, device="tarry")
        return [t.cpu() for t in (last, ys, x.grad, after)]

    for ours, wanted in zip(program(scan), program(loop)):
        torch.testing.assert_close(ours, wanted)


def min_cut_rematerialization_partition():
    raise AssertionError("only the name counts")


def test_gradients_where_everything_is_computed_again():
    def program(device, scan):
        w = made(device, 4, 4, grad=True)

        def fn(carry, x):
            h = torch.tanh(carry @ w).sin() * x
            return h, h.cos()

        init, xs = made(device, 4, grad=True), made(device, 5, 4, grad=True)
        extra = {} if scan is loop else {
            "partition_fn": min_cut_rematerialization_partition
        }  # fmt: skip
        last, ys = scan(fn, init, xs, **extra)
        (last.sum() + ys.sum()).backward()
        return last, ys, w.grad, init.grad, xs.grad

    compare(program)


def test_custom_autograd_functions_and_checkpoints_inside():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x * w * 2

        @staticmethod
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            return grad * w * 2, grad * x * 2

    def program(device, scan):
        w = made(device, 3, grad=True)

        def fn(carry, x):
            y = Twice.apply(carry + x, w)
            z = torch.utils.checkpoint.checkpoint(
                lambda v: (v * w).tanh(), y, use_reentrant=False
            )
            return z, y

        init, xs = made(device, 3, grad=True), made(device, 4, 3, grad=True)
        last, ys = scan(fn, init, xs)
        (last.sum() + ys.sum()).backward()
        return last, ys, w.grad, init.grad, xs.grad

    compare(program)


def test_backward_inside_the_body():
    def program(device, scan):
        w = made(device, 3)
        w.requires_grad_()
        w.grad = torch.zeros(3).to(device)

        def fn(carry, x):
            loss = ((w * x) ** 2).sum()
            loss.backward()
            (again,) = torch.autograd.grad((w * x).sin().sum(), [w])
            return carry + loss.detach(), again

        last, ys = scan(fn, torch.zeros(()).to(device), made(device, 4, 3))
        return last, ys, w.grad

    compare(program)


def test_tensors_changed_after_the_forward_pass_leave_gradients_right():
    def program(device, scan):
        w = made(device, 3, grad=True)
        scale = torch.full((3,), 2.0).to(device)
        xs = made(device, 4, 3, grad=True)
        last, _ = scan(lambda c, x: (c * scale + x * w, x), made(device, 3), xs)
        loss = last.sum()
        if device == "tarry":  # which took the values that they had
            with torch.no_grad():
                w.mul_(7)
                scale.zero_()
        loss.backward()
        return w.grad, xs.grad

    compare(program)


@pytest.mark.parametrize("grad", [False, True])
def test_no_iterations(grad):
    init = made("tarry", 3, grad=grad)
    xs = torch.zeros(0, 3).to("tarry").requires_grad_(grad)
    state = tarry.get_rng_state()
    last, ys = scan(lambda c, x: (c * 2 + torch.rand_like(c), (x, c.sum())), init, xs)
    assert torch.equal(last.cpu(), init.cpu())
    assert [tuple(y.shape) for y in ys] == [(0, 3), (0,)]
    if grad:
        (last.sum() * 3 + ys[0].sum()).backward()
        assert init.grad.tolist() == [3, 3, 3] and xs.grad.shape == (0, 3)
    assert state == tarry.get_rng_state()


def test_one_program_however_often_and_one_operation():
    w = made("tarry", 4, grad=True)

    def step(factor):
        w.grad = None
        xs = made("tarry", 50, 4)
        last, _ = scan(lambda c, x: (c * w + x * factor, None), made("tarry", 4), xs)
        last.sum().backward()
        tarry.sync()

    step(1.0)
    before = compiled()
    for factor in (2.0, 3.0):
        step(factor)
    assert compiled() == before
    assert tarry.explain().compiles[-1].instructions < 30


def test_the_pending_recording_stays_small():
    xs = made("tarry", 500, 4)
    tarry.sync()
    scan(lambda c, x: (c + x, None), made("tarry", 4), xs)
    assert tarry.record.trie.recorder.trace.node.count < 20


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((3, "c", "x"), ValueError, "callable"),
        ((max, "c", ()), ValueError, "no tensor"),
        ((max, "c", {"a": "x", "b": "y"}), ValueError, "one length"),
        ((max, "c", "0d"), ValueError, "0-d"),
        ((max, 1.0, "x"), TypeError, "tensors only"),
        ((max, "cpu", "x"), ValueError, "move it"),
    ],
)
def test_bad_arguments(arguments, error, words):
    known = {
        "c": made("tarry", 3), "x": made("tarry", 4, 3), "y": made("tarry", 5, 3),
        "0d": made("tarry", 1)[0], "cpu": torch.zeros(3),
    }  # fmt: skip
    arguments = tree_map(lambda v: known.get(v, v), arguments)
    with pytest.raises(error, match=words):
        scan(*arguments)


@pytest.mark.parametrize(
    ("fn", "error", "words"),
    [
        (lambda c, x: c, ValueError, "tuple"),
        (lambda c, x: ((c, c), x), ValueError, "structure"),
        (lambda c, x: (c.double(), x), ValueError, r"float32\[3\].*float64\[3\]"),
        (lambda c, x: (c[:2], x), ValueError, "shapes"),
        (lambda c, x: (c, 1), TypeError, "tensors only"),
        (lambda c, x: (c, torch.zeros(2)), ValueError, "on cpu"),
        (lambda c, x: (c * x.sum().item(), x), AsideError, r"test_flow_scan\.py"),
        (lambda c, x: (c + torch.zeros(7).to("tarry"), x), RuntimeError, "size"),
    ],
)
def test_bad_bodies_are_told_and_leave_everything_as_it_was(fn, error, words):
    init, xs = made("tarry", 3), made("tarry", 4, 3)
    with pytest.raises(error, match=words):
        scan(fn, init, xs)
    assert torch.equal((init + xs[0]).cpu(), made("cpu", 3) + made("cpu", 4, 3)[0])


def test_a_tensor_that_wants_a_gradient_cannot_be_changed_from_inside():
    w = made("tarry", 3, grad=True) * 1

    def fn(carry, x):
        w.mul_(2)
        return carry * w, x

    with pytest.raises(LostGradientError, match=r"test_flow_scan\.py"):
        scan(fn, made("tarry", 3), made("tarry", 4, 3))


def test_no_second_derivatives_but_an_error():
    xs = made("tarry", 4, 3, grad=True)
    last, _ = scan(lambda c, x: (c * x, None), made("tarry", 3), xs)
    (grad,) = torch.autograd.grad(last.sum(), xs, create_graph=True)
    with pytest.raises(RuntimeError, match="derivative"):
        grad.sum().backward()


def test_backward_twice_with_a_retained_graph():
    xs = made("tarry", 4, 3, grad=True)
    last, _ = scan(lambda c, x: (c + x * x, None), made("tarry", 3), xs)
    for _ in range(2):
        last.sum().backward(retain_graph=True)
    torch.testing.assert_close(xs.grad.cpu(), made("cpu", 4, 3) * 4)


def test_inference_mode():
    with torch.inference_mode():
        last, ys = scan(lambda c, x: (c + x, c), made("tarry", 3), made("tarry", 2, 3))
    torch.testing.assert_close(last.cpu(), made("cpu", 3) + made("cpu", 2, 3).sum(0))
    assert not ys.requires_grad


def test_flat_scan_without_slices():
    outs, _ = scan_flat(lambda ts: ([ts[0] * 2], None), [made("tarry", 2) + 2], [], 3)
    assert outs[0].tolist() == [8, 24]


class Block(nn.Module):
    def __init__(self, width=4, dropout=0.0):
        super().__init__()
        self.norm = nn.BatchNorm1d(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width, bias=False)
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        return x + self.drop(self.down(torch.relu(self.up(self.norm(x)))))


def layers_and_twins(device="cpu", **options):
    torch.manual_seed(0)
    twins = nn.ModuleList([Block(**options) for _ in range(3)])
    return copy.deepcopy(twins).to("tarry"), twins.to(device)


def in_turn(layers, x):
    for layer in layers:
        x = layer(x)
    return x


def test_layers_values_gradients_and_buffers():
    ours, theirs = layers_and_twins()
    x = made("tarry", 8, 4, grad=True)
    y = made("cpu", 8, 4, grad=True)
    out, wanted = scan_layers(ours, x), in_turn(theirs, y)
    (out**2).sum().backward()
    (wanted**2).sum().backward()
    torch.testing.assert_close(out.cpu(), wanted, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(x.grad.cpu(), y.grad, atol=1e-4, rtol=1e-4)
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p.grad.cpu(), q.grad, atol=1e-4, rtol=1e-4)
    for p, q in zip(ours.buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(p.cpu(), q)


def test_dropout_of_layers_is_that_of_a_loop():
    ours, theirs = layers_and_twins("tarry", dropout=0.5)
    x = made("tarry", 8, 4)
    torch.manual_seed(5)
    out = scan_layers(ours, x)
    torch.manual_seed(5)
    torch.testing.assert_close(out.cpu(), in_turn(theirs, x).cpu())


def test_layers_of_tuples_and_no_layers():
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(3, 3)

        def forward(self, pair):
            return self.a(pair[0]) + pair[1], pair[1] * 2

    layers = nn.ModuleList([Pair(), Pair()])
    pair = made("cpu", 3), made("cpu", 3) + 1
    wanted = in_turn(layers, pair)
    ours = scan_layers(
        copy.deepcopy(layers).to("tarry"), tuple(t.to("tarry") for t in pair)
    )
    for a, b in zip(ours, wanted):
        torch.testing.assert_close(a.cpu(), b)
    assert scan_layers([], pair) is pair


def test_one_loop_body_whatever_the_number_of_layers():
    sizes = []
    for n in (2, 8):
        layers = nn.Sequential(*[Block() for _ in range(n)]).to("tarry").eval()
        with torch.no_grad():
            scan_layers(layers, made("tarry", 8, 4))
            tarry.sync()
        graph = tarry.explain().compiles[-1].source.seen.key.graph
        (node,) = [node for node in graph.nodes if node.op == "tarry::scan"]
        sizes.append(len(node.args[0].value.graph.nodes))
    assert sizes[0] == sizes[1]


def test_layers_that_are_not_alike():
    for other, words in (
        (nn.Linear(4, 4, bias=False), "mismatched keys"),
        (nn.Linear(4, 5), "Shape mismatch"),
        (nn.Linear(4, 4).double(), "Shape mismatch"),
        (nn.Linear(4, 4).eval(), "training"),
    ):
        layers = [nn.Linear(4, 4).to("tarry"), other.to("tarry")]
        with pytest.raises(ValueError, match=words):
            scan_layers(layers, made("tarry", 4))


def test_reports_show_bodies_and_what_is_different_in_them():
    def run(extra):
        def fn(c, x):
            return (torch.tanh(c + x) if extra else c + x), None

        scan(fn, made("tarry", 3), made("tarry", 4, 3))[0].cpu()

    run(False)
    tarry.sync()
    number = tarry.explain().compiles[-1].program
    text = tarry.debug.text(number)
    assert "tarry::scan({1 operations}" in text and "    body: 1 operation" in text
    run(True)
    why = tarry.explain().compiles[-1].why
    assert "body" in why and "tarry::scan" in why


def test_a_body_that_cannot_be_lowered_names_its_line(monkeypatch):
    def broken(*_):
        raise TypeError("broken")

    row = dataclasses.replace(TABLE["erfinv"], lower=broken)
    monkeypatch.setitem(TABLE, "erfinv", row)
    kept = made("tarry", 3) + 1
    last, _ = scan(
        lambda c, x: (c.erfinv(), None), made("tarry", 3), made("tarry", 4, 3)
    )
    with pytest.raises(CompileError, match=r"aten::erfinv at .*test_flow_scan\.py"):
        last.cpu()
    torch.testing.assert_close(kept.cpu(), made("cpu", 3) + 1)


def test_threads_record_beside_a_scan():
    x, results = made("tarry", 3), []

    def work():
        for _ in range(30):
            results.append((x * 2 + 1).sum())

    def fn(c, v):
        return (c * v).tanh(), c

    worker = threading.Thread(target=work)
    worker.start()
    for _ in range(10):
        last, _ = scan(fn, made("tarry", 3), made("tarry", 4, 3))
    worker.join()
    want = (made("cpu", 3) * 2 + 1).sum()
    assert all(torch.allclose(r.cpu(), want) for r in results) and len(results) == 30
    want, _ = loop(fn, made("cpu", 3), made("cpu", 4, 3))
    torch.testing.assert_close(last.cpu(), want)


def test_hooks_of_saved_tensors_see_those_of_the_whole_scan():
    def program(device, scan):
        w, xs = made(device, 3, grad=True), made(device, 4, 3, grad=True)
        with torch.autograd.graph.save_on_cpu():
            last, ys = scan(lambda c, x: ((c * w + x).tanh(), c), made(device, 3), xs)
        (last.sum() + ys.sum()).backward()
        return last, ys, w.grad, xs.grad

    compare(program)
