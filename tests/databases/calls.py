"""One call of an entry on one device, and all of it that is to be compared."""

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.gradcheck import gradcheck, gradgradcheck
from torch.utils._pytree import tree_leaves, tree_map

from entries import AMBIGUOUS, GRADS, ON_HOST, TWICE, spell
from harness import expanded, make, sliced, transposed


class Copies:
    """Copies of CPU values on `device`; tensors that share memory go on sharing it."""

    def __init__(self, device: str, layout: Callable | None = None) -> None:
        self.device, self.layout = device, layout
        self.memory: dict[int, torch.Tensor] = {}
        self.known: dict[int, torch.Tensor] = {}
        self.leaves: list[torch.Tensor] = []

    def __call__(self, value: Any) -> Any:
        return tree_map(self.one, value)

    def one(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, torch.device) and value.type == "cpu":
            return torch.device(self.device)
        return self.device if isinstance(value, str) and value == "cpu" else value

    def tensor(self, t: torch.Tensor) -> torch.Tensor:
        if id(t) in self.known:
            return self.known[id(t)]
        made = self.known[id(t)] = self.fresh(t.detach())
        if t.requires_grad:
            made = self.known[id(t)] = made.detach().requires_grad_()
            self.leaves.append(made)
        return made

    def fresh(self, t: torch.Tensor) -> torch.Tensor:
        if t.device.type == "meta":
            return t
        if t.layout is not torch.strided:
            return t.clone() if self.device == "cpu" else t.to(self.device)
        if t.is_conj():
            return self.fresh(t.conj()).conj()
        if t.is_neg():
            return torch._neg_view(self.fresh(torch._neg_view(t)))
        if self.layout is not None:
            laid = self.layout(t, self.device)
            if laid is not None:
                return laid
        storage = t.untyped_storage()
        if storage.nbytes() == t.numel() * t.element_size():
            return t.clone() if self.device == "cpu" else t.to(self.device)
        key = storage.data_ptr()
        if key not in self.memory:
            flat = torch.empty(0, dtype=t.dtype).set_(
                storage, 0, (storage.nbytes() // t.element_size(),), (1,)
            )
            self.memory[key] = flat.clone().to(self.device)
        return self.memory[key].as_strided(t.shape, t.stride(), t.storage_offset())


def extremal(x: torch.Tensor, device: str) -> torch.Tensor | None:
    """NaN, ∞ and -∞ among the numbers (on the CPU just as on the device)."""
    if not x.is_floating_point() or x.numel() < 4:
        return None
    planted = x.clone(memory_format=torch.contiguous_format)
    odd = torch.tensor([torch.nan, torch.inf, -torch.inf]).to(x.dtype)
    planted.view(-1)[: x.numel() // 4 * 3 : x.numel() // 4] = odd
    return planted.to(device)


LAYOUTS = {
    "transposed": transposed,
    "sliced": sliced,
    "expanded": expanded,
    "extremal": extremal,
}


def perform(op: Any, sample: Any, kind: str, device: str) -> Any:
    """The result of one call on `device`, with all that is to be compared."""
    torch.manual_seed(0)
    copies = Copies(device, LAYOUTS.get(kind))
    first = copies(sample.input)
    if op.name in ON_HOST:
        args, kwargs = Copies("cpu")(sample.args), Copies("cpu")(sample.kwargs)
    else:
        args, kwargs = copies(sample.args), copies(sample.kwargs)
    if kind == "inplace":
        result = op.inplace_variant(first, *args, **kwargs)
        return [result, first, result is first]
    if kind == "out":
        return _with_out(op, sample, (first, *args), kwargs, device)
    result = op(first, *args, **kwargs)
    if kind in GRADS:
        processed = sample.output_process_fn_grad or (lambda out: out)
        return _gradients(processed(result), copies.leaves, kind in TWICE)
    if spell(op) in AMBIGUOUS and sample.output_process_fn_grad is not None:
        return sample.output_process_fn_grad(result)
    return result


def _with_out(op: Any, sample: Any, args: tuple, kwargs: dict, device: str) -> Any:
    """Into a fitting `out`, and into one whose last two dimensions are swapped."""
    host = Copies("cpu")
    plain = op(host(sample.input), *host(sample.args), **host(sample.kwargs))
    process = sample.output_process_fn_grad if spell(op) in AMBIGUOUS else None
    found = []
    for swapped in (False, True):

        def target(t: torch.Tensor, swapped: bool = swapped) -> torch.Tensor:
            if swapped and t.dim() > 1:
                return torch.zeros(t.mT.shape, dtype=t.dtype).to(device).mT
            return torch.zeros(t.shape, dtype=t.dtype).to(device)

        outs = tree_map(target, plain)
        result = op(*args, **kwargs, out=outs)
        pairs = zip(tree_leaves(result), tree_leaves(outs))
        found.append(all(r is o for r, o in pairs))
        found += tree_leaves(process(outs) if process else outs)
    return found


def _gradients(result: Any, leaves: list, twice: bool) -> Any:
    outs = [
        t
        for t in tree_leaves(result)
        if isinstance(t, torch.Tensor) and t.requires_grad
    ]
    if not outs or not leaves:
        raise NotImplementedError("nothing to differentiate")
    seeds = [make(*t.shape, dtype=t.dtype, seed=5).to(t.device) for t in outs]
    first = torch.autograd.grad(
        outs, leaves, seeds, allow_unused=True, create_graph=twice
    )
    if not twice:
        return list(first)
    onward = [g for g in first if g is not None and g.requires_grad]
    if not onward:
        return [g if g is None else g.detach() for g in first]
    seeds = [make(*t.shape, dtype=t.dtype, seed=6).to(t.device) for t in onward]
    return list(torch.autograd.grad(onward, leaves, seeds, allow_unused=True))


def check_gradients(op: Any, sample: Any, kind: str, device: str) -> None:
    """PyTorch's `gradcheck` or `gradgradcheck` of one call, in its fast mode.

    Raises `torch.autograd.gradcheck.GradcheckError` and what the call raises.
    """
    torch.manual_seed(0)
    copies = Copies(device)
    rest = copies if op.name not in ON_HOST else Copies("cpu")
    call = copies(sample.input), rest(sample.args), rest(sample.kwargs)
    leaves = copies.leaves
    process = sample.output_process_fn_grad or (lambda out: out)

    def function(*given: torch.Tensor) -> Any:
        torch.manual_seed(0)
        place = {id(leaf): g for leaf, g in zip(leaves, given)}
        first, args, kwargs = tree_map(lambda v: place.get(id(v), v), call)
        return process(op.gradcheck_wrapper(op, first, *args, **kwargs))

    check = gradgradcheck if kind in TWICE else gradcheck
    check(
        function,
        tuple(leaves),
        # Two cuts may compile the same arithmetic into kernels that round otherwise.
        nondet_tol=max(op.gradcheck_nondet_tol, 1e-12),
        fast_mode=True,
        **({"gen_non_contig_grad_outputs": True} if kind in TWICE else {}),
    )
