"""Derivatives of higher order through a compiled function.

AOTAutograd compiles first derivatives only. Where a backward pass is to be
differentiated itself (`create_graph=True`), dynamo's graph runs once more, recorded
operation by operation under PyTorch's autograd, and the gradients of that take the
place of the compiled ones. Its values are those of the call: same arguments, random
numbers and autocast. Where this cannot be told, as when an argument has been written to
since, the compiled gradients stay, and to differentiate them is PyTorch's error.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any
from weakref import ref

import torch
from torch.autograd.graph import get_gradient_edge
from torch.fx import GraphModule, Node

from tarry.dispatch import seam
from tarry.dispatch.random import stream
from tarry.dispatch.storage import is_ours, slot_of
from tarry.dynamo.replay import Saved
from tarry.dynamo.tracing import apply, interpret
from tarry.ledger import ledger
from tarry.record.trie import recorder

DEVICES = seam.DEVICE, "cpu"


class Twice:
    """A function that AOTAutograd compiled from `module`, and whose gradients can be
    differentiated."""

    def __init__(
        self, module: GraphModule, compiled: Callable[..., Any], saved: Saved
    ) -> None:
        self.module, self.compiled, self.saved = module, compiled, saved
        saved.watched = True
        self.casts = [  # dynamo guards these
            (d, torch.get_autocast_dtype(d), torch.is_autocast_enabled(d))
            for d in DEVICES
        ]
        self.places: Any = None  # `Places`, after the first call

    def __call__(self, *args: Any) -> Any:
        versions, draws = _versions(args), stream.draws
        outputs = self.compiled(*args)
        given = versions, self.saved.buffers
        self.saved.buffers = ()
        if not torch.is_grad_enabled():
            return outputs
        if self.places is None:
            self.places = Places(args, outputs)
        step = self.places.step_of(outputs)
        if step is not None:
            random = stream.seed, draws, stream.draws
            step.register_prehook(_Call(self, step, args, given, random))
        return outputs


class Places:
    """What the step of autograd's graph that AOTAutograd makes of a call is made of.

    `results`: for its outputs, the output of the function, and whether it is the tensor
    that this is a view of; `arguments`: for its gradients, the argument, None where
    there is no gradient; `known`: whether this is all."""

    def __init__(self, args: Sequence[Any], outputs: Sequence[Any]) -> None:
        self.results: dict[int, tuple[int, bool]] = {}
        self.arguments: list[int | None] = []
        self.known = True
        earlier = {id(t.grad_fn) for a in args for t, _ in _differentiable(a)}
        step = None
        for place, output in enumerate(outputs):
            for made, is_base in _differentiable(output):
                if seam.is_aot_step(made.grad_fn) and id(made.grad_fn) not in earlier:
                    step = made.grad_fn
                    self.results.setdefault(made.output_nr, (place, is_base))
        if step is not None:
            edges = [(i, get_gradient_edge(a)) for i, a in enumerate(args) if _grows(a)]
            place_of = {(e.node, e.output_nr): i for i, e in edges}
            ends = step.next_functions
            self.arguments = [place_of.get(end) for end in ends]
            self.known = all(end[0] is None or end in place_of for end in ends)

    def step_of(self, outputs: Sequence[Any]) -> Any:
        """The step of this call; None if there is nothing to differentiate."""
        if not self.results:
            return None
        place, is_base = next(iter(self.results.values()))
        return (outputs[place]._base if is_base else outputs[place]).grad_fn


class _Call:
    """Called with the gradients that come to a call's step, before it takes them."""

    def __init__(self, function: Twice, step: Any, args: Any, *state: Any) -> None:
        self.function, self.step, self.args = function, ref(step), args
        self.given, self.random = state

    def __call__(self, come: Sequence[Any]) -> None:
        found = None
        if torch.is_grad_enabled() and self._is_unchanged():
            found = self._recorded(come)
        if found is not None:
            _Instead(self.step(), found)
        self.function.saved.unused = found is not None
        if not seam.keeps_graph():
            self.args, self.given = (), ((), ())

    def _is_unchanged(self) -> bool:
        """Whether the arguments have the values of the call; `.data` writes past their
        versions."""
        versions, buffers = self.given
        held = {id(slot_of(a).data) for a in self.args if is_ours(a)}
        return versions == _versions(self.args) and all(id(b) in held for b in buffers)

    def _recorded(self, come: Sequence[Any]) -> list[Any] | None:
        """The gradients, recorded from those that come; None if they might differ from
        the compiled ones."""
        places = self.function.places
        given = [
            (g, places.results.get(i)) for i, g in enumerate(come) if g is not None
        ]
        if not places.known or any(place is None for _, place in given):
            return None
        args = [a.view_as(a) if _grows(a) else a for a in self.args]  # without hooks
        outputs = self._again(args)
        if outputs is None:
            return None
        ends = [outputs[at]._base if base else outputs[at] for _, (at, base) in given]
        if any(e is None or e.shape != g.shape for e, (g, _) in zip(ends, given)):
            return None
        wanted = [args[i] for i in places.arguments if i is not None]
        new = torch.autograd.grad(
            ends, wanted, [g for g, _ in given], create_graph=True, allow_unused=True
        )
        ledger.count("DynamoDoubleBackward")
        left = iter(
            [torch.zeros_like(a) if g is None else g for g, a in zip(new, wanted)]
        )
        return [None if i is None else next(left) for i in places.arguments]

    def _again(self, args: Sequence[Any]) -> Any:
        """The outputs, recorded; None if the call drew other random numbers."""
        seed, before, after = self.random
        with ExitStack() as stack:
            stack.enter_context(recorder.lock)
            stack.enter_context(stream.at(seed, before))
            for device, dtype, enabled in self.function.casts:
                stack.enter_context(torch.autocast(device, dtype, enabled))
            outputs = _plainly(self.function.module, args)
            return outputs if stream.draws == after else None


class _Instead:
    """Gives other gradients than the step does, once."""

    def __init__(self, step: Any, grads: list[Any]) -> None:
        self.grads = grads
        self.handle = step.register_hook(self)

    def __call__(self, compiled: Sequence[Any], come: Sequence[Any]) -> tuple:
        self.handle.remove()
        return tuple([None if c is None else g for c, g in zip(compiled, self.grads)])


def _versions(args: Sequence[Any]) -> list[int]:
    return [a._version if isinstance(a, torch.Tensor) else 0 for a in args]


def _grows(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _differentiable(output: Any) -> list[tuple[torch.Tensor, bool]]:
    """The output, or else what it is a view of, as (tensor, whether the latter)."""
    if not _grows(output):
        return []
    return [(output, False)] + ([(output._base, True)] if output._is_view() else [])


def _plainly(module: GraphModule, args: Sequence[Any]) -> Any:
    """The module's outputs; checkpointed parts are computed as if they were not: they
    would draw other random numbers in the backward pass."""
    found, single = interpret(module, args, _run)
    return found[0] if single else found


def _run(node: Node, args: Any, kwargs: Any) -> Any:
    if node.target is seam.checkpointed:
        body, *given = args
        return _plainly(body, given)
    return apply(node, args, kwargs)


def is_twice_differentiable(module: GraphModule) -> bool:
    """False of graphs with functions of the user's (`torch.autograd.Function`), whose
    second derivatives would miss what they save, and other operators that take
    functions."""
    graphs = [m.graph for m in module.modules() if isinstance(m, GraphModule)]
    targets = {n.target for g in graphs for n in g.nodes}
    return not any(
        isinstance(t, seam.HigherOrderOperator) and t is not seam.checkpointed
        for t in targets
    )
