"""The key's parts and the cache of executables."""

import pytest
import torch

import tarry
from harness import compiles, make, same
from tarry.cache.key import Key
from tarry.cache.store import Store
from tarry.cut.sync import store
from tarry.ledger import ledger


class Held:
    """A cache entry that remembers whether it was dropped."""

    def __init__(self):
        self.used, self.dropped = 0, False

    def drop(self):
        self.dropped = True


def test_least_recently_used_goes_first():
    held = Store(2)
    a, b, c = Held(), Held(), Held()
    held.put("a", a)
    held.put("b", b)
    assert held.get("a") is a
    held.put("c", c)
    assert b.dropped and not a.dropped and held.get("b") is None
    assert held.was_evicted("b") and not held.was_evicted("c")
    held.touch(a)
    assert held.recent() == [a, c] and len(held) == 2
    held.put("b", Held())
    assert not held.was_evicted("b") and c.dropped


def test_clear():
    held = Store(2)
    a = Held()
    held.put("a", a)
    held.clear()
    assert a.dropped and len(held) == 0 and held.get("a") is None


@pytest.fixture
def small(monkeypatch):
    """The cache of programs, emptied and limited to three."""
    store.clear()
    monkeypatch.setattr(store, "limit", 3)
    yield store
    store.clear()


def program(x, n):
    y = x[:n] * 2
    tarry.sync()
    return y


def test_full_cache_loses_nothing(small):
    x = make(8).to("tarry")
    tarry.sync()
    for n in (1, 2, 3, 4):
        with compiles(1):
            program(x, n)
    assert len(small) == 3
    with compiles(0):
        same(make(8)[:4] * 2, program(x, 4))
    with compiles(1):
        same(make(8)[:1] * 2, program(x, 1))
    assert "evicted" in ledger.compiles[-1].why


def test_use_keeps_a_program(small):
    x = make(8).to("tarry")
    tarry.sync()
    for n in (1, 2, 3):
        program(x, n)
    program(x, 1)
    program(x, 4)  # the second was used longest ago
    with compiles(0):
        program(x, 1)
    with compiles(1):
        program(x, 2)


def test_hits_and_misses_are_counted():
    x = make(9).to("tarry")
    tarry.sync()
    before = ledger.counters["CachedCompile"], ledger.counters["UncachedCompile"]
    for _ in range(3):
        program(x, 9)
    after = ledger.counters["CachedCompile"], ledger.counters["UncachedCompile"]
    assert (after[0] - before[0], after[1] - before[1]) == (2, 1)


def last_key() -> Key:
    return store.recent()[0].seen.key


def key_of(fn, *inputs):
    """The key under which `fn` on tensors of the device was compiled or found."""
    on_device = [t.to("tarry") for t in inputs]
    tarry.sync()
    store.clear()
    kept = fn(*on_device)
    tarry.sync()
    del kept
    return last_key()


X = make(3, 4)
SAME = [
    (lambda x: x * 2 + 1, lambda x: x * 7 + 0),
    (lambda x: (x.sin(), x.cos())[0], lambda x: x.sin()),
    (lambda x: x.t().sum(0), lambda x: x.t().sum(0)),
    (lambda x: torch.rand(3, device="tarry") + x[:, 0],) * 2,
]
DIFFERENT = [
    (lambda x: x * 2, lambda x: x * 2 + 1),
    (lambda x: x + 1, lambda x: x + 1.0),
    (lambda x: x.sum(0), lambda x: x.sum(1)),
    (lambda x: x.sum(0), lambda x: x.sum(0, keepdim=True)),
    (lambda x: (x.sin(), x.cos()), lambda x: x.cos()),
    (lambda x: x[1:] + 0.0, lambda x: x[:2] + 0.0),
    (lambda x: x.pow(2), lambda x: x.pow(3)),
    (lambda x: x.to(torch.float64), lambda x: x.to(torch.float16)),
    (lambda x: x.mul_(2), lambda x: x * 2),
]


@pytest.mark.parametrize("pair", SAME, ids=range(len(SAME)))
def test_equal_keys(pair):
    assert key_of(pair[0], X) == key_of(pair[1], X)


@pytest.mark.parametrize("pair", DIFFERENT, ids=range(len(DIFFERENT)))
def test_different_keys(pair):
    assert key_of(pair[0], X) != key_of(pair[1], X)


def test_shapes_and_dtypes_of_inputs_are_in_the_key():
    def double(x):
        return x + x

    keys = [
        key_of(double, make(*shape, dtype=dtype))
        for shape in ((3, 4), (4, 3), (12,), ())
        for dtype in (torch.float32, torch.float64, torch.int64)
    ]
    assert len(set(keys)) == len(keys)


def test_parts():
    key = key_of(lambda x: x.mul_(3), X)
    assert key.donation == (0,)
    environment = dict(key.environment)
    assert {"platform", "device kind", "jax", "jaxlib", "tarry"} <= set(environment)
    assert key.graph.outputs and len(key.graph.inputs) == 1
    assert hash(key) == hash(Key(key.donation, key.environment, key.graph))


def test_lines_are_in_no_key():
    first = key_of(lambda x: x.tan() + 2, X)
    again = key_of(lambda x: (x.exp(), x.tan() + 3)[1], X)
    assert first == again
    assert first.graph.nodes[-1].line != again.graph.nodes[-1].line


def test_eviction_does_not_break_what_the_trie_remembers(small):
    x = make(8).to("tarry")
    tarry.sync()
    for _ in range(2):
        for n in (1, 2, 3, 4, 5):
            same(make(8)[:n] * 2, program(x, n))
