"""Every module of PyTorch's module database against the CPU: results, gradients of
inputs and parameters, and buffers afterwards, in training and in evaluation.

`make test-databases` runs the first samples of every module in float32, `make test-all`
all of them, and float64.
"""

import copy
from typing import Any

import pytest
import torch
from torch.nn.parameter import is_lazy
from torch.testing._internal.common_modules import module_db
from torch.utils._pytree import tree_leaves

import tarry
from harness import DEVICE, make
from opdb import Copies, compare
from ops_gaps import MODULES

SAMPLES = 2  # of a module, in the sample
ROUNDING = {torch.float32: (1e-3, 1e-4), torch.float64: (1e-7, 1e-9)}

INFOS = {info.name: info for info in module_db}

# Dropout and its kin draw other numbers on each device.
RANDOM = ("Dropout", "RReLU", "FractionalMaxPool")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "module_case" not in metafunc.fixturenames:
        return
    full = metafunc.config.getoption("--full")
    cases = [
        (name, mode, dtype)
        for name, info in INFOS.items()
        for mode in ("train", "eval")
        for dtype in ("float32", "float64")[: 2 if full else 1]
        if getattr(torch, dtype) in info.dtypes
    ]
    metafunc.parametrize("module_case", cases, ids=["-".join(c) for c in cases])


def inputs_of(info: Any, dtype: torch.dtype, training: bool) -> list[Any]:
    torch.manual_seed(0)
    return info.module_inputs_func(
        info, device="cpu", dtype=dtype, requires_grad=True, training=training
    )


def run(module: Any, sample: Any, device: str) -> dict[str, Any]:
    """The result, gradients and buffers of one forward and backward pass."""
    copies = Copies(device)
    args, kwargs = copies(sample.args), copies(sample.kwargs)
    torch.manual_seed(0)
    result = module(*args, **kwargs)
    outs = [
        t
        for t in tree_leaves(result)
        if isinstance(t, torch.Tensor) and t.requires_grad
    ]
    leaves = [*copies.leaves, *module.parameters()]
    grads: Any = []
    if outs and leaves:
        seeds = [make(*t.shape, dtype=t.dtype, seed=5).to(t.device) for t in outs]
        grads = torch.autograd.grad(outs, leaves, seeds, allow_unused=True)
    return {
        "result": result,
        "gradients": list(grads),
        "buffers": [b.detach() for b in module.buffers()],
    }


def draws(name: str, sample: Any, module: Any) -> bool:
    dropout = getattr(module, "dropout", 0)
    return module.training and (
        any(r in name for r in RANDOM) or (isinstance(dropout, float) and dropout > 0)
        or any(m.p > 0 for m in module.modules() if isinstance(m, torch.nn.Dropout))
    )  # fmt: skip


def draw_weights(module: Any, ours: Any, sample: Any) -> None:
    """A lazy module draws its weights in its first call, and each device its own."""
    run(module, sample, "cpu")
    run(ours, sample, DEVICE)
    ours.load_state_dict(module.state_dict())


def differences(name: str, mode: str, dtype: torch.dtype, most: int | None) -> list:
    info, found = INFOS[name], []
    for i, sample in enumerate(inputs_of(info, dtype, mode == "train")[:most]):
        torch.manual_seed(0)
        made = sample.constructor_input
        kwargs = {"dtype": dtype} | made.kwargs
        try:
            module = info.module_cls(*made.args, **kwargs)
        except TypeError:
            module = info.module_cls(*made.args, **made.kwargs).to(dtype)
        module.train(mode == "train")
        ours = copy.deepcopy(module).to(DEVICE)
        if any(is_lazy(p) for p in module.parameters()):
            draw_weights(module, ours, sample.forward_input)
        want = run(module, sample.forward_input, "cpu")
        random = draws(name, sample, module)
        try:
            got = run(ours, sample.forward_input, DEVICE)
            tarry.sync()
            for part in want:
                compare(want[part], got[part], not random, ROUNDING[dtype], False)
        except Exception as error:
            found.append(f"sample {i} ({sample.desc}): {type(error).__name__} {error}")
    return found


@pytest.mark.filterwarnings("ignore")
def test_module(module_case: tuple, pytestconfig: pytest.Config) -> None:
    name, mode, dtype = module_case
    gap = MODULES.get(name)
    most = None if gap or pytestconfig.getoption("--full") else SAMPLES
    found = differences(name, mode, getattr(torch, dtype), most)
    if gap:
        assert found, f"a gap has closed, remove it: {gap}"
    else:
        assert not found, "\n".join(found)
