"""The backend as `torch.compile` calls it: `backend="tarry"`, and `"openxla"`.

In: dynamo's graph. AOTAutograd turns it into functional graphs of ATen operators, one
for the forward and one for the backward pass, with writes to arguments at their end;
each becomes a `Device`, or a chain of these with host operations between them.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch.fx import GraphModule, Node

from tarry.dispatch import eager, seam
from tarry.dynamo.double_backward import Twice, is_twice_differentiable
from tarry.dynamo.replay import Device, Origin, Saved
from tarry.dynamo.split import Chain, can_repeat, host_operations, split
from tarry.dynamo.tracing import NeedsHost, line_of, run_singly
from tarry.errors import BackendTakenError, TarryWarning
from tarry.ledger import ledger
from tarry.record.lines import is_user_file


def tarry(
    module: GraphModule,
    inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    **others: Any,
) -> Callable[..., Any]:
    """Compile dynamo's graph. `options`: XLA's compile options by name, a part of the
    compile key."""
    told = {k: str(v) for k, v in (options or {}).items()}
    saved = Saved()
    repeatable: list[bool] = []

    def compiler(kind: str) -> Callable[..., Any]:
        detail = _described(module, kind)
        origin = Origin(detail, told, saved, backward=kind == "backward")

        def compile(graph: GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
            ledger.count("DynamoExtractCompiledGraph")
            seam.allow_retained_graphs()
            whole = Whole(graph, origin)
            repeatable.append(can_repeat(graph))
            if whole.is_on_host() and not origin.backward:
                _warn_of_host(graph, detail)
            return _boxed(whole)

        return compile

    aot = seam.aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
    )
    compiled = aot(module, inputs, **others)
    twice = torch.is_grad_enabled() and all(repeatable)
    if twice and is_twice_differentiable(module):
        return Twice(module, compiled, saved)
    return compiled


def openxla(
    module: GraphModule, inputs: Sequence[Any], **others: Any
) -> Callable[..., Any]:
    """The same under torch_xla's name."""
    return tarry(module, inputs, **others)


class Whole:
    """A functional graph, in as many parts as it takes; which operations run on the
    host shows at the latest when it is first recorded."""

    def __init__(self, module: GraphModule, origin: Origin) -> None:
        self.module, self.origin = module, origin
        self.refused: set[Any] = set()
        host = host_operations(module)
        self.body: Device | Chain = (
            self._parts(host) if host else Device(module, origin)
        )

    def is_on_host(self) -> bool:
        """True of a graph that computes, and nothing of it on the device."""
        parts = self.body.parts if isinstance(self.body, Chain) else []
        return bool(parts) and all(p.on_host for p in parts)

    def _parts(self, host: set[Node]) -> Chain:
        parts = split(self.module, host)
        # A part does not know who else will look at what is saved.
        origin = replace(self.origin, saved=Saved())
        runners = [
            partial(run_singly, p.module) if p.on_host else Whole(p.module, origin)
            for p in parts
        ]
        return Chain(self.module, parts, runners)

    def __call__(self, args: list[Any]) -> Any:
        unused = self.origin.backward and self.origin.saved.unused
        if unused or seam.carries_tangents(args):
            return run_singly(self.module, args)
        try:
            return self.body.run(args)
        except NeedsHost as error:
            self.refused.add(error.node.target)
        self.body = self._parts(host_operations(self.module, self.refused))
        return self.body.run(args)


def _boxed(whole: Whole) -> Callable[..., Any]:
    """As AOTAutograd calls compiled graphs: with a list that is emptied."""

    def run(args: list[Any]) -> Any:
        try:
            return whole(args)
        finally:
            args.clear()

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _warn_of_host(graph: GraphModule, detail: str) -> None:
    lines = map(line_of, graph.graph.nodes)
    line = next(filter(None, lines), "an unknown line")
    warnings.warn(
        f"{detail} at {line} has no tensor on the device: it runs on the CPU, one "
        "operation after the other. Move the module and its inputs with "
        f'.to("{seam.DEVICE}").',
        TarryWarning,
        stacklevel=2,
    )


def _described(module: GraphModule, kind: str) -> str:
    """`forward of step`, and where the graph ends early PyTorch's reason for that."""
    lines = [line_of(n) for n in module.graph.nodes]
    name = next((line.function for line in lines if line and line.function), "")
    text = f"{kind} of {name}" if name else kind
    reason = getattr(module, "compile_subgraph_reason", None)
    if reason is None or not reason.graph_break:
        return text
    places = [f for f in reason.user_stack or () if is_user_file(f.filename)]
    at = f" at {places[-1].filename}:{places[-1].lineno}" if places else ""
    said = " ".join(str(reason.reason).split())
    return f"{text}, up to a graph break{at}: {said}"


def extract_compiled_graph(
    module: GraphModule, args: Sequence[Any]
) -> Callable[..., Any]:
    """What PyTorch's own `openxla` backend asks of torch_xla: a functional graph as a
    function of tensors of the device."""
    ledger.count("DynamoExtractCompiledGraph")
    whole = Whole(module, Origin(_described(module, "graph"), {}, Saved()))

    def run(*args: Any) -> Any:
        return whole(list(args))

    return run


def _has_torch_xla() -> bool:
    try:
        return bool(version("torch_xla"))
    except PackageNotFoundError:
        return False


def register() -> None:
    """Make `backend="openxla"` this backend, too; `"tarry"` it is from the start.

    Raises BackendTakenError if another backend of that name can work.
    """
    owner = seam.backend_owner("openxla")
    if owner in ("", __name__):
        claimed = True
    else:  # PyTorch's own only calls torch_xla
        claimed = owner == seam.TORCH_STUB and not _has_torch_xla()
    if not claimed:
        raise BackendTakenError("openxla", owner)
    seam.set_backend("openxla", openxla)


def claim_free_names() -> None:
    """`register()`, where no other backend of that name can work."""
    with suppress(BackendTakenError):
        register()


seam.do_not_trace(
    ("tarry", "jax", "jaxlib"),
    {k.__code__.co_filename for k in eager.Mode.kernels.values()},
)
