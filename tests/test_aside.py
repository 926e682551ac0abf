"""Recording aside: what is outside neither notices nor is noticed."""

import threading

import pytest
import torch

import tarry
from tarry.cut.cause import Cause
from tarry.dispatch.aside import aside
from tarry.errors import AsideError, PoisonedError
from tarry.record.slot import Slot, contiguous_spec
from tarry.record.trie import recorder

FOUR = contiguous_spec((4,), torch.float32)


def numbers(n=4):
    return torch.arange(float(n)).to("tarry")


def test_the_pending_recording_goes_on_as_if_nothing_had_happened():
    x = numbers()
    pending = x * 2
    trace, node = recorder.trace, recorder.trace.node
    with aside() as side:
        (side.argument(FOUR) * pending + x).sum()
    assert recorder.trace is trace and trace.node is node
    assert (pending + 1).tolist() == [1, 3, 5, 7]


def test_what_is_written_inside_is_told_and_undone():
    x, pending, held = numbers(), numbers() + 1, numbers()
    with aside() as side:
        a = side.argument(FOUR)
        pending.add_(a)
        held.copy_(torch.zeros(4))
        x[:2].mul_(3)
        written = dict(side.written())
    assert len(written) == 3 and all(isinstance(s, Slot) for s in written)
    assert x.untyped_storage().slot.pos == -1
    assert pending.tolist() == [1, 2, 3, 4]
    assert held.tolist() == x.tolist() == [0, 1, 2, 3]


def test_captured_tensors_are_found_once_each():
    x, y = numbers(), numbers() * 2
    with aside() as side:
        a = side.argument(FOUR)
        (a + x) * x.clone() * y + y[1] + torch.ones(4).to("tarry")
        sources = [source for _, source in side.captured()]
    slots = [s for s in sources if isinstance(s, Slot)]
    assert slots == [x.untyped_storage().slot, y.untyped_storage().slot]
    assert len(sources) == 3  # and the tensor that was made from host memory


def test_equal_recordings_share_their_instructions():
    ends = []
    for factor in (2.0, 3.0):
        with aside() as side:
            side.argument(FOUR).mul(factor).sum()
            ends.append(side.last)
    assert ends[0] is ends[1]


def test_a_block_in_a_block():
    x = numbers()
    with aside() as outer:
        a = outer.argument(FOUR) * 2
        with aside() as inner:
            (inner.argument(FOUR) + a + x).sum()
            assert len(inner.captured()) == 2
        b = a + 1
        assert [n.op for n in outer.last.path()][-2:] == ["mul.Tensor", "add.Tensor"]
        assert outer.value(b) and not outer.captured()


@pytest.mark.parametrize(
    "read",
    [
        lambda t: t.sum().item(),
        bool,
        lambda t: t.cpu(),
        print,
        lambda t: tarry.sync(),
        lambda t: torch.nonzero(t),
    ],
)
def test_values_cannot_be_read(read):
    with aside() as side, pytest.raises(AsideError, match=r"test_aside\.py"):
        read(side.argument(contiguous_spec((1,), torch.float32)))


def test_known_values_cannot_be_read_either():
    x = numbers()
    tarry.sync()
    with aside(), pytest.raises(AsideError, match=Cause.ITEM.value.split("(")[0]):
        x[0].item()
    assert x[0].item() == 0


def test_a_tensor_that_outlives_the_block_says_where_it_comes_from():
    with aside() as side:
        a = side.argument(FOUR)
        escaped = a + 1
    for t in (a, escaped):
        with pytest.raises(PoisonedError, match=r"test_aside\.py"):
            t.tolist()
    assert (numbers() + 1).tolist() == [1, 2, 3, 4]


def test_an_error_inside_leaves_everything_as_it_was():
    x = numbers() + 1
    with pytest.raises(ValueError, match="mine"), aside():
        x.add_(1)
        raise ValueError("mine")
    assert x.tolist() == [1, 2, 3, 4]


def test_gradients_inside_stay_inside():
    w = numbers().requires_grad_()
    with aside() as side:
        loss = (side.argument(FOUR) * w).sum()
        (grad,) = torch.autograd.grad(loss, [w])
        assert side.value(grad) > 0
    assert w.grad is None and recorder.aside == 0


def test_other_threads_wait():
    x, result, inside = numbers(), [], threading.Event()

    def work():
        inside.wait()
        result.append((x * 2 + 1).tolist())

    worker = threading.Thread(target=work)
    worker.start()
    with aside() as side:
        a = side.argument(FOUR)
        inside.set()
        worker.join(0.2)
        for _ in range(3):
            a = a + x
        count = side.last.count
    worker.join()
    assert result == [[1, 3, 5, 7]] and count == 5


def test_a_trie_of_recordings_made_aside_is_bounded(monkeypatch):
    monkeypatch.setattr(tarry.cut.sync.config, "trie_limit", 5)
    root = recorder.private_root
    with aside() as side:
        a = side.argument(FOUR)
        for _ in range(10):
            a = a + 1
    tarry.sync()
    assert recorder.private_root is not root
