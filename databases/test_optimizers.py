"""Every optimizer of PyTorch's database against its plain loop on the CPU: three steps.

Each of its configurations runs on the device in every implementation that it offers
(`foreach`, `fused`, neither); `capturable` and tensor arguments as the database has
them for an accelerator. `make test-databases` runs one implementation of each
configuration, `make test-all` all of them.
"""

import random
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch.testing._internal.common_optimizers import optim_db

import tarry
from harness import DEVICE, make
from opdb import Different, compare
from ops_gaps import OPTIMIZERS

SEED = 7
STEPS = 3
INFOS = {info.optim_cls.__name__: info for info in optim_db}
IMPLEMENTATIONS = ("plain", "foreach", "fused")


def configurations(info: Any) -> list[Any]:
    """The database's configurations for an accelerator; tensors are on the CPU."""
    return info.optim_inputs_func("cuda")


def cases(full: bool) -> list[tuple[str, int, str]]:
    draw = random.Random(SEED)
    found = []
    for name, info in INFOS.items():
        offered = [i for i in IMPLEMENTATIONS if i in ("plain", *info.supported_impls)]
        for number, _ in enumerate(configurations(info)):
            chosen = offered if full else [draw.choice(offered)]
            found += [(name, number, i) for i in chosen]
    return found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "step_case" in metafunc.fixturenames:
        chosen = cases(metafunc.config.getoption("--full"))
        ids = ["-".join(map(str, c)) for c in chosen]
        metafunc.parametrize("step_case", chosen, ids=ids)


def run(info: Any, options: dict[str, Any], device: str) -> dict[str, Any]:
    """Parameters and state after `STEPS` steps on a small regression."""
    shapes = [(4, 3), (2, 4)] if info.optim_cls is torch.optim.Muon else [(4, 3), (4,)]
    parameters = [
        make(*shape, seed=i).to(device).requires_grad_()
        for i, shape in enumerate(shapes)
    ]
    optimizer = info.optim_cls(parameters, **deepcopy(options))
    sparse = info.only_supports_sparse_grads

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = sum(((p - 0.5) ** 2).sum() for p in parameters)
        loss.backward()
        for p in parameters:
            if sparse:
                p.grad = p.grad.to_sparse()
        return loss

    for _ in range(STEPS):
        if info.step_requires_closure:
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
    state = [
        value
        for p in parameters
        for key, value in sorted(optimizer.state[p].items())
        if isinstance(value, torch.Tensor)
    ]
    return {"parameters": [p.detach() for p in parameters], "state": state}


@pytest.mark.filterwarnings("ignore")
def test_steps(step_case: tuple[str, int, str]) -> None:
    name, number, implementation = step_case
    info = INFOS[name]
    options = configurations(info)[number].kwargs
    # What the CPU is asked: the same arithmetic without the accelerator's flags.
    plain = {k: v for k, v in options.items() if k != "capturable"}
    flags = {
        i: i == implementation for i in info.supported_impls if i != "differentiable"
    }
    gap = OPTIMIZERS.get(name)
    try:
        want = run(info, plain | dict.fromkeys(flags, False), "cpu")
    except Exception as refused:
        with pytest.raises(type(refused)):
            run(info, options | flags, DEVICE)
        return
    problem = None
    try:
        got = run(info, options | flags, DEVICE)
        tarry.sync()
        for part in want:
            compare(want[part], got[part], True, (1e-4, 1e-6), False)
    except (Different, RuntimeError, NotImplementedError) as error:
        problem = f"{options}: {type(error).__name__} {error}"
    if gap:
        assert problem, f"a gap has closed, remove it: {gap}"
    else:
        assert problem is None, problem
