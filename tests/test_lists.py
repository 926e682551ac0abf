"""Operators over lists of tensors where the same memory is there more than once."""

import pytest
import torch
import torch.nn as nn

from harness import make, same


def twice(a, b):
    torch._foreach_mul_([a, a], 2.0)
    torch._foreach_add_([b[:2], b[1:]], 1.0)


def crossed(a, b):
    torch._foreach_add_([a, b], [b, a])
    torch._foreach_mul_([a, a], [a, a])


def views(a, b):
    torch._foreach_add_([a[:2], a[1:], a], [b[:2], b[1:], b], alpha=2.0)
    torch._foreach_add_([b, b[1:], b], [1.0, 2.0, 4.0])


@pytest.mark.parametrize("write", [twice, crossed, views])
def test_one_after_the_other(write):
    def run(device):
        a, b = make(3).to(device), make(3, seed=1).to(device)
        for _ in range(2):
            write(a, b)
        return a, b

    same(run("cpu"), run("tarry"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad"])
def test_a_parameter_that_is_there_twice(name, fused):
    def run(device):
        p, q = (nn.Parameter(make(3, seed=s).to(device)) for s in (0, 1))
        options = {"momentum": 0.9} if name == "SGD" else {}
        optimizer = getattr(torch.optim, name)(
            [p, q, p], lr=0.1, fused=fused, **options
        )
        for _ in range(2):
            optimizer.zero_grad()
            (p * q).sum().backward()
            nn.utils.clip_grad_norm_([p, p, q], 0.5)
            optimizer.step()
        return p.detach(), q.detach(), p.grad

    same(run("cpu"), run("tarry"))
