"""Memory that the user gives away."""

import pytest
import torch

import tarry
from harness import make
from tarry.debug import metrics
from tarry.errors import PoisonedError
from tarry.loop.donation import (
    alias_with_buffer_donor_config,
    get_buffer_donation,
    set_buffer_donation,
)


@pytest.fixture
def pair():
    one, other = make(4, 3), make(4, 3)
    return one, other, one.to("tarry"), other.to("tarry")


def test_a_step_overwrites_what_was_given_away(pair):
    one, other, x, y = pair
    assert set_buffer_donation(x, True)
    assert get_buffer_donation(x) and not get_buffer_donation(y)
    z = x + y
    tarry.sync()
    torch.testing.assert_close(z.cpu(), one + other)
    torch.testing.assert_close(y.cpu(), other)
    with pytest.raises(PoisonedError, match="memory was given to the program"):
        x.cpu()
    with pytest.raises(PoisonedError, match="memory was given"):
        (x + 1).cpu()
    x.copy_(one)  # a tensor without a value takes a new one
    torch.testing.assert_close((x + 1).cpu(), one + 1)


def test_marks_count_at_the_end_of_a_step_only(pair):
    one, other, x, y = pair
    set_buffer_donation(x)
    torch.testing.assert_close((x + y).cpu(), one + other)
    torch.testing.assert_close(x.cpu(), one)
    tarry.sync()  # nothing reads it
    assert get_buffer_donation(x)
    with alias_with_buffer_donor_config():
        torch.testing.assert_close((x * y).cpu(), one * other)
    with pytest.raises(PoisonedError):
        x.cpu()


def test_a_mark_can_be_taken_back(pair):
    one, other, x, y = pair
    set_buffer_donation(x)
    set_buffer_donation(x, False)
    z = x - y
    tarry.sync()
    torch.testing.assert_close(x.cpu(), one)
    torch.testing.assert_close(z.cpu(), one - other)


def test_memory_that_someone_else_holds_is_not_given_away(pair):
    one, _, x, _ = pair
    copy = x.clone()  # until one of the two is written to, both are in one memory
    tarry.sync()
    set_buffer_donation(x)
    z = x * 2 + copy
    tarry.sync()
    torch.testing.assert_close(z.cpu(), one * 3)
    torch.testing.assert_close(copy.cpu(), one)
    torch.testing.assert_close(x.cpu(), one)


def test_the_count_of_donated_inputs(pair):
    one, other, x, y = pair
    metrics.clear_all()
    set_buffer_donation(x)
    z = x + y
    y += 2
    tarry.sync()
    assert metrics.metric_data("InputOutputAliasCount")[1] == 2
    assert metrics.counter_value("XlaSetBufferDonation") == 1
    torch.testing.assert_close(z.cpu(), one + other)
    torch.testing.assert_close(y.cpu(), other + 2)
