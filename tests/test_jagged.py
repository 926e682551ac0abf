"""Nested tensors of layout `torch.jagged`, which PyTorch makes of dense ones."""

import pytest
import torch

from harness import check, compiles, fallbacks, make

LENGTHS = [(4, 2, 3), (1,), (2, 0, 5)]


def nested(values, lengths):
    return torch.nested.nested_tensor_from_jagged(
        values,
        torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()]).to(values.device),
        max_seqlen=max(lengths),
    )


@pytest.mark.parametrize("lengths", LENGTHS)
def test_to_padded_and_its_gradient(lengths):
    values = make(sum(lengths), 3)
    check(lambda v: nested(v, lengths).sin().to_padded_tensor(0.5), values)


@pytest.mark.parametrize("lengths", LENGTHS)
def test_linear_and_softmax(lengths):
    values, weight = make(sum(lengths), 3), make(4, 3, seed=1)

    def layer(v, w):
        rows = torch.nn.functional.linear(nested(v, lengths), w)
        return rows.softmax(-1).to_padded_tensor(0.0)

    check(layer, values, weight, views=False)


def test_padded_numbers_are_inputs():
    values = make(6, 2).to("tarry")
    offsets = torch.tensor([0, 2, 6]).to("tarry")

    def padded(fill):
        return torch.ops.aten._jagged_to_padded_dense_forward(
            values, [offsets], [4], fill
        ).cpu()

    with fallbacks(0):
        padded(1.0)
        with compiles(0):
            assert padded(2.5)[0, 2:].eq(2.5).all()
