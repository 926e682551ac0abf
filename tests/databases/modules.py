"""PyTorch's module database: results, gradients of inputs and parameters, and buffers
afterwards, in training and in evaluation, become a `Record`."""

import copy
from typing import Any

import torch
from torch.nn.parameter import is_lazy
from torch.testing._internal.common_modules import module_db
from torch.utils._pytree import tree_leaves

import tarry
from calls import Copies
from compare import compare
from harness import DEVICE, make
from runs import Record, clear, record_run, short, worst

KINDS = ["train", "eval"]
DTYPES = [torch.float32, torch.float64]
ROUNDING = {torch.float32: (1e-3, 1e-4), torch.float64: (1e-7, 1e-9)}

INFOS = {info.name: info for info in module_db}

# Dropout and its kin draw other numbers on each device.
RANDOM = ("Dropout", "RReLU", "FractionalMaxPool")


def has_uninitialized_params(module: torch.nn.Module) -> bool:
    return any(map(is_lazy, module.parameters()))


def names(dtype: torch.dtype) -> list[str]:
    return [name for name, info in INFOS.items() if dtype in info.dtypes]


def _inputs_of(info: Any, dtype: torch.dtype, training: bool) -> list[Any]:
    torch.manual_seed(0)
    return info.module_inputs_func(
        info, device="cpu", dtype=dtype, requires_grad=True, training=training
    )


def _run(module: Any, sample: Any, device: str) -> dict[str, Any]:
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


def _draws(name: str, module: Any) -> bool:
    dropout = getattr(module, "dropout", 0)
    return module.training and (
        any(r in name for r in RANDOM) or (isinstance(dropout, float) and dropout > 0)
        or any(m.p > 0 for m in module.modules() if isinstance(m, torch.nn.Dropout))
    )  # fmt: skip


def _made(info: Any, sample: Any, dtype: torch.dtype) -> Any:
    made = sample.constructor_input
    torch.manual_seed(0)
    try:
        return info.module_cls(*made.args, **({"dtype": dtype} | made.kwargs))
    except TypeError:
        return info.module_cls(*made.args, **made.kwargs).to(dtype)


def run_named(
    name: str, dtype: torch.dtype, mode: str, cap: int, limit: int | None = None
) -> Record:
    """The module in its first `cap` samples, on the CPU and on tarry."""
    info = INFOS[name]

    def run(record: Record) -> None:
        record.status = "right"
        for i, sample in enumerate(_inputs_of(info, dtype, mode == "train")[:cap]):
            module = _made(info, sample, dtype).train(mode == "train")
            if has_uninitialized_params(module):  # drawn once, for both devices
                _run(module, sample.forward_input, "cpu")
            ours = copy.deepcopy(module)
            want = _run(module, sample.forward_input, "cpu")
            values = not _draws(name, module)
            record.samples += 1
            try:
                got = _run(ours.to(DEVICE), sample.forward_input, DEVICE)
                tarry.sync()
                for part in want:
                    compare(want[part], got[part], values, ROUNDING[dtype], False)
            except Exception as error:
                worst(record, f"sample {i} ({sample.desc})", error)
                clear()
            else:
                record.right += 1

    return record_run(Record(name, short(dtype), mode), limit, run)
