"""Random numbers: seeds, states, statistics; the bits never depend on the cuts."""

import pytest
import torch

import tarry
from harness import compiles, fallbacks

DRAWS = {
    "rand": lambda: torch.rand(64, device="tarry"),
    "randn": lambda: torch.randn(64, device="tarry"),
    "randint": lambda: torch.randint(0, 1000, (64,), device="tarry"),
    "randperm": lambda: torch.randperm(64, device="tarry"),
    "uniform_": lambda: torch.empty(64, device="tarry").uniform_(-1, 1),
    "normal_": lambda: torch.empty(64, device="tarry").normal_(2, 3),
    "bernoulli_": lambda: torch.empty(64, device="tarry").bernoulli_(0.3),
    "bernoulli": lambda: torch.full((64,), 0.5, device="tarry").bernoulli(),
    "exponential_": lambda: torch.empty(64, device="tarry").exponential_(),
    "geometric_": lambda: torch.empty(64, device="tarry").geometric_(0.1),
    "cauchy_": lambda: torch.empty(64, device="tarry").cauchy_(),
    "log_normal_": lambda: torch.empty(64, device="tarry").log_normal_(),
    "multinomial": lambda: torch.ones(64, device="tarry").multinomial(32),
    "dropout": lambda: torch.nn.functional.dropout(torch.ones(64, device="tarry"), 0.5),
    "rand_like": lambda: torch.rand_like(torch.ones(64, device="tarry")),
    "normal": lambda: torch.normal(torch.zeros(64, device="tarry"), 1.0),
    "half": lambda: torch.rand(64, device="tarry", dtype=torch.bfloat16),
    "double": lambda: torch.randn(64, device="tarry", dtype=torch.float64),
    "complex": lambda: torch.randn(64, device="tarry", dtype=torch.complex64),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draw(name):
    draw = DRAWS[name]
    with fallbacks(0):
        torch.manual_seed(5)
        first, second = draw().cpu(), draw().cpu()
        torch.manual_seed(5)
        again = [draw(), draw()]
        tarry.sync()
        torch.manual_seed(6)
        other = draw().cpu()
    assert torch.equal(first, again[0].cpu()) and torch.equal(second, again[1].cpu())
    assert not torch.equal(first, second) and not torch.equal(first, other)


def test_new_draws_do_not_compile():
    for i in range(4):
        torch.manual_seed(i)
        with compiles(0 if i else 1):
            y = torch.rand(17, device="tarry") + torch.randn(17, device="tarry")
            tarry.sync()
    assert y.isfinite().all().item()


def test_statistics():
    torch.manual_seed(0)
    n = 20_000
    u = torch.rand(n, device="tarry").cpu()
    z = torch.randn(n, device="tarry").cpu()
    i = torch.randint(-3, 3, (n,), device="tarry").cpu()
    e = torch.empty(n, device="tarry").exponential_(2.0).cpu()
    assert u.min() >= 0 and u.max() < 1 and abs(u.mean() - 0.5) < 0.02
    assert abs(z.mean()) < 0.03 and abs(z.std() - 1) < 0.03
    assert i.unique().tolist() == [-3, -2, -1, 0, 1, 2]
    assert e.min() >= 0 and abs(e.mean() - 0.5) < 0.02
    p = torch.randperm(50, device="tarry").cpu()
    assert p.sort()[0].tolist() == list(range(50)) and p.tolist() != list(range(50))
    m = torch.tensor([0.0, 1.0, 3.0]).to("tarry").multinomial(4000, True).cpu()
    assert (m == 0).sum() == 0 and 0.7 < (m == 2).float().mean() < 0.8
    b = torch.empty(n, device="tarry").bernoulli_(0.3).cpu()
    assert b.unique().tolist() == [0, 1] and abs(b.mean() - 0.3) < 0.02


def test_every_element_is_its_own_draw():
    torch.manual_seed(0)
    assert torch.rand(5000, device="tarry").cpu().unique().numel() > 4900


def test_state_round_trip():
    torch.manual_seed(1)
    torch.rand(3, device="tarry")
    state = torch.tarry.get_rng_state()
    a = torch.rand(3, device="tarry")
    torch.tarry.set_rng_state(state)
    b = torch.rand(3, device="tarry")
    assert torch.equal(a.cpu(), b.cpu())
    assert torch.tarry.initial_seed() == 1
    with pytest.raises(ValueError, match="16 elements"):
        torch.tarry.set_rng_state(torch.zeros(3, dtype=torch.uint8))


def test_fork():
    torch.manual_seed(1)
    with torch.random.fork_rng([0], device_type="tarry"):
        inside = torch.rand(3, device="tarry").cpu()
    outside = torch.rand(3, device="tarry").cpu()
    assert torch.equal(inside, outside)


def test_seeds():
    tarry.manual_seed(3)
    a = torch.rand(4, device="tarry").cpu()
    torch.manual_seed(3)
    assert torch.equal(a, torch.rand(4, device="tarry").cpu())
    torch.manual_seed(2**63 + 11)
    torch.rand(2, device="tarry").cpu()
    torch.manual_seed(-1)
    torch.rand(2, device="tarry").cpu()


def test_cpu_draws_are_left_alone():
    torch.manual_seed(0)
    want = torch.rand(3)
    torch.manual_seed(0)
    torch.rand(5, device="tarry").cpu()
    assert torch.equal(torch.rand(3), want)


def test_where_the_cuts_fall_does_not_matter():
    def draw(cuts):
        torch.manual_seed(9)
        kept = []
        for i in range(6):
            kept.append(torch.randn(5, device="tarry") * torch.rand(5, device="tarry"))
            if i in cuts:
                tarry.sync()
            if i + 10 in cuts:
                kept[-1].sum().item()
        return [t.cpu() for t in kept]

    want = draw(())
    for cuts in ((0,), (1, 3), (12, 4), range(6)):
        for a, b in zip(want, draw(cuts)):
            torch.testing.assert_close(a, b)


def test_ranges_are_checked_in_pytorchs_words():
    for device in ("cpu", "tarry"):
        x = torch.empty(3).to(device)
        with pytest.raises(RuntimeError, match="uniform_ expects to return"):
            x.uniform_(2, 1)
        with pytest.raises(RuntimeError, match="normal expects std >= 0"):
            x.normal_(0, -1)
        with pytest.raises(RuntimeError, match="bernoulli_ expects p"):
            x.bernoulli_(2)
        with pytest.raises(RuntimeError, match="from"):
            x.random_(3, 3)


def test_draw_into_a_view():
    x = torch.zeros(4, 4).to("tarry")
    x[1:3, ::2].uniform_(1, 2)
    host = x.cpu()
    assert (host[1:3, ::2] >= 1).all() and host.count_nonzero() == 4
