"""PyTorch's optimizer database: parameters and state after three steps on the device,
against the plain loop on the CPU, become a `Record`.

Each configuration of an optimizer runs in every implementation that it offers
(`foreach`, `fused`, neither); `capturable` and tensor arguments as the database has
them for an accelerator.
"""

from copy import deepcopy
from typing import Any

import torch
from torch.testing._internal.common_optimizers import optim_db

import tarry
from compare import compare
from harness import DEVICE, make
from runs import Record, clear, record_run, worst

STEPS = 3
INFOS = {info.optim_cls.__name__: info for info in optim_db}
KINDS = ["plain", "foreach", "fused"]


def names(implementation: str) -> list[str]:
    return [
        name
        for name, info in INFOS.items()
        if implementation in ("plain", *info.supported_impls)
    ]


def _run(info: Any, options: dict[str, Any], device: str) -> dict[str, Any]:
    """Parameters and state after `STEPS` steps on a small regression."""
    shapes = [(4, 3), (2, 4)] if info.optim_cls is torch.optim.Muon else [(4, 3), (4,)]
    parameters = [
        make(*shape, seed=i).to(device).requires_grad_()
        for i, shape in enumerate(shapes)
    ]
    optimizer = info.optim_cls(parameters, **deepcopy(options))

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = sum(((p - 0.5) ** 2).sum() for p in parameters)
        loss.backward()
        if info.only_supports_sparse_grads:
            for p in parameters:
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


def _attempt(info: Any, options: dict[str, Any], device: str) -> Any:
    try:
        return _run(info, options, device)
    except Exception as error:
        return error


def run_named(
    name: str, implementation: str, cap: int, limit: int | None = None
) -> Record:
    """The optimizer's first `cap` configurations in one implementation.

    A configuration that PyTorch refuses on the CPU has to be refused likewise.
    """
    info = INFOS[name]
    flags = {
        i: i == implementation for i in info.supported_impls if i != "differentiable"
    }

    def run(record: Record) -> None:
        record.status = "right"
        for i, configuration in enumerate(info.optim_inputs_func("cuda")[:cap]):
            options = configuration.kwargs
            plain = {k: v for k, v in options.items() if k != "capturable"}
            want = _attempt(info, plain | dict.fromkeys(flags, False), "cpu")
            got = _attempt(info, options | flags, DEVICE)
            record.samples += 1
            try:
                if isinstance(want, Exception):
                    assert isinstance(got, type(want)), f"{got!r}, want {want!r}"
                elif isinstance(got, Exception):
                    raise got
                else:
                    tarry.sync()
                    for part in want:
                        compare(want[part], got[part], True, (1e-4, 1e-6), False)
            except Exception as error:
                worst(record, f"configuration {i} ({options})", error)
                clear()
            else:
                record.right += 1

    return record_run(Record(name, "float32", implementation), limit, run)
