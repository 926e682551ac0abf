"""A pytest plugin that holds tests to what they promise of the device.

    @pytest.mark.tarry(compiles=1, cuts=2)      # at most; BudgetError lists them
    @pytest.mark.tarry(no_host_reads=True)      # HostReadError where a value is read
    @pytest.mark.tarry(full_graph=True)         # the whole test is one program

and a fixture `tarry_budget`, which is `tarry.budget`, for parts of a test. tarry is
imported only by tests that use one of the two, so this module stands beside it.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

MARK = "tarry(compiles=None, cuts=None, no_host_reads=False, full_graph=False)"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{MARK}: limits of what the test may do.")


@pytest.fixture
def tarry_budget() -> Callable[..., Any]:
    """`with tarry_budget(compiles=1, cuts=0):`"""
    import tarry

    return tarry.budget


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    mark = item.get_closest_marker("tarry")
    if mark is None:
        return (yield)
    import tarry

    asked = dict(mark.kwargs)
    with ExitStack() as stack:
        if asked.pop("no_host_reads", False):
            stack.enter_context(tarry.no_host_reads())
        if asked.pop("full_graph", False):
            stack.enter_context(tarry.compile(full_graph=True, name=item.name))
        stack.enter_context(tarry.budget(**asked))
        return (yield)
