"""Random programs of views, in-place writes, clones and cuts, against the CPU.

Every value is a small whole number in float32, so results are compared exactly. Sizes
come from a fixed set and programs are short, so that most of the time goes into
different aliasing and not into compiling.
"""

from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
import torch
from hypothesis import HealthCheck, given, settings

import tarry
from tarry.cut.sync import store

SHAPES = [(4,), (2, 3), (3, 2), (2, 2, 2)]


@dataclass
class Program:
    """The same tensors on both devices, and how to draw the next step."""

    data: Any
    host: list = field(default_factory=list)
    ours: list = field(default_factory=list)

    def add(self, host, ours):
        if host.numel() and len(self.host) < 8:
            self.host.append(host)
            self.ours.append(ours)

    def pick(self):
        return self.data.draw(st.integers(0, len(self.host) - 1))

    def number(self, low, high):
        return self.data.draw(st.integers(low, high))

    def both(self, at, fn):
        return fn(self.host[at]), fn(self.ours[at])

    def compare(self, at):
        want, got = self.host[at], self.ours[at].cpu()
        assert got.shape == want.shape and self.ours[at].stride() == want.stride()
        assert torch.equal(got, want), f"tensor {at}: {got.tolist()} {want.tolist()}"


def overlaps(t):
    return any(s == 0 and n > 1 for s, n in zip(t.stride(), t.shape))


def self_overlaps(t):
    """True where two places of `t` may be one element (as `unfold` gives)."""
    step = 1
    for stride, n in sorted((s, n) for s, n in zip(t.stride(), t.shape) if n > 1):
        if stride < step:
            return True
        step = stride * (n - 1) + step
    return False


def view(p):
    at = p.pick()
    t = p.host[at]
    dim = p.number(0, max(t.dim() - 1, 0))
    size = t.shape[dim] if t.dim() else 1
    start = p.number(0, size - 1)
    step, window = p.number(1, 2), p.number(1, min(2, size))
    other = p.number(0, max(t.dim() - 1, 0))
    kinds = {
        "alias": lambda x: x.view(x.shape),
        "detach": lambda x: x.detach(),
        "data": lambda x: x.data,
        "unsqueeze": lambda x: x.unsqueeze(dim),
        "expand": lambda x: x.unsqueeze(0).expand(2, *x.shape),
    }
    if t.dim():
        kinds |= {
            "transpose": lambda x: x.transpose(dim, other),
            "slice": lambda x: x[(slice(None),) * dim + (slice(start, None, step),)],
            "select": lambda x: x.select(dim, start),
            "narrow": lambda x: x.narrow(dim, start, size - start),
            "chunk": lambda x: x.chunk(2, dim)[-1],
            "split": lambda x: x.split(1, dim)[start],
            "unbind": lambda x: x.unbind(dim)[start],
            "unfold": lambda x: x.unfold(dim, window, 1),
            "flip_dims": lambda x: x.permute(*reversed(range(x.dim()))),
        }
    if t.dim() > 1 and dim != other:
        kinds["diagonal"] = lambda x: x.diagonal(0, dim, other)
    if t.is_contiguous():
        kinds["flat"] = lambda x: x.view(-1)
        n, half = t.numel(), t.storage_offset() + t.numel() // 2
        if n >= 4:
            kinds["as_strided"] = lambda x: x.as_strided((2, 2), (n // 4, 1), half)
    name = p.data.draw(st.sampled_from(sorted(kinds)))
    if name == "as_strided" and n // 4 + 1 + n // 2 >= n:
        return
    p.add(*p.both(at, kinds[name]))


def write(p):
    at = p.pick()
    t = p.host[at]
    if overlaps(t) or self_overlaps(t):
        return
    a = float(p.number(-2, 3))
    source = p.pick()
    shaped = p.host[source].shape
    fits = len(shaped) <= t.dim() and all(
        m in (1, n) for m, n in zip(reversed(shaped), reversed(t.shape))
    )
    index = torch.tensor([p.number(0, t.shape[0] - 1)]) if t.dim() else None
    kinds = {
        "add": lambda x, o: x.add_(a),
        "mul": lambda x, o: x.mul_(a),
        "fill": lambda x, o: x.fill_(a),
        "zero": lambda x, o: x.zero_(),
        "masked": lambda x, o: x.masked_fill_(x > 1, a),
        "clamp": lambda x, o: x.clamp_(max=50),
        "host": lambda x, o: x.copy_(torch.full(t.shape, a)),
    }
    if t.dim():
        kinds |= {
            "setitem": lambda x, o: x.__setitem__(0, a),
            "setslice": lambda x, o: x.__setitem__(slice(0, None, 2), a),
            "index_put": lambda x, o: x.index_put_(
                (index.to(x.device),), torch.tensor(a, device=x.device)
            ),
            "index_fill": lambda x, o: x.index_fill_(0, index.to(x.device), a),
            "setmask": lambda x, o: x.__setitem__(x > 1, a),
        }
    if fits:
        # PyTorch leaves partial overlap of source and target undefined.
        kinds |= {
            "copy": lambda x, o: x.copy_(o.clone()),
            "add_other": lambda x, o: x.add_(o.clone()),
            "assign": lambda x, o: x.__setitem__(..., o.clone()),
        }
    name = p.data.draw(st.sampled_from(sorted(kinds)))
    kinds[name](p.host[at], p.host[source])
    kinds[name](p.ours[at], p.ours[source])


def copy(p):
    at = p.pick()
    kinds = {
        "clone": lambda x: x.clone(),
        "contiguous": lambda x: x.contiguous(),
        "plus": lambda x: x + 1,
    }
    p.add(*p.both(at, kinds[p.data.draw(st.sampled_from(sorted(kinds)))]))


def drop(p):
    if len(p.host) > 1:
        at = p.pick()
        del p.host[at], p.ours[at]


def read(p):
    p.compare(p.pick())


STEPS = {
    "view": view, "write": write, "copy": copy, "drop": drop, "read": read,
    "sync": lambda p: tarry.sync(),
}  # fmt: skip
ORDER = ["view", "view", "view", "write", "write", "write", "write", "copy", "drop"]
ORDER += ["read", "sync", "sync"]


@settings(
    max_examples=300,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(st.data())
def test_aliasing(data):
    p = Program(data)
    for i in range(data.draw(st.integers(2, 3))):
        shape = data.draw(st.sampled_from(SHAPES))
        n = torch.Size(shape).numel()
        base = torch.arange(float(n)).reshape(shape) - i
        p.add(base, base.to("tarry"))
    for _ in range(data.draw(st.integers(3, 8))):
        STEPS[data.draw(st.sampled_from(ORDER))](p)
    for at in range(len(p.host)):
        p.compare(at)
    if len(store) > 1000:
        store.clear()


def test_last_write_wins_through_any_alias():
    x = torch.zeros(4).to("tarry")
    a, b, c = x[1:], x.view(2, 2).t(), x.detach()
    a[0] = 1
    b[0, 0] = 2
    tarry.sync()
    c[3] = 3
    x[1] += 10
    assert x.tolist() == [2, 11, 0, 3] == c.tolist()
    assert b.tolist() == [[2, 0], [11, 3]] and a.tolist() == [11, 0, 3]


def test_alias_of_a_dead_base():
    x = torch.arange(6.0).to("tarry")
    v = x[2:]
    del x
    tarry.sync()
    v.mul_(2)
    w = v.view(2, 2)
    del v
    assert w.tolist() == [[4, 6], [8, 10]]


def test_data_setter_moves_to_another_storage():
    x, y = torch.zeros(2).to("tarry"), torch.ones(2).to("tarry")
    v = x.view(2)
    x.data = y
    x.add_(1)
    assert y.tolist() == [2, 2] == x.tolist() and v.tolist() == [0, 0]
