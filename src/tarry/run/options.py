"""XLA's compile options, chosen per graph by a measured rule; part of the key.

XLA:CPU's fusion pass duplicates shared producers into each consumer. In a long
recurrence of small values (an unrolled LSTM) that multiplies the work and the time to
compile; turning the pass off there compiles several times faster and runs in half the
time, while it costs wide graphs up to 1.7 times. See `benchmarks/fusion_rule.py`.
"""

from dataclasses import dataclass

from tarry.config import config
from tarry.lower.barrier import BARRIER
from tarry.lower.table import TABLE
from tarry.record.graph import Graph
from tarry.record.trie import operands

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")
DISABLE = "xla_disable_hlo_passes"
FUSION = "fusion"
NO_FUSION = {DISABLE: FUSION}
# XLA:CPU takes optimization barriers out before it merges equal operations, so that
# they would hold nothing apart.
NO_BARRIERS = "cse_barrier_expander"


# Options that the user asks for; they stand above the rule's.
custom: dict[str, str] = {}


def choose(graph: Graph, platform: str) -> dict[str, str]:
    """Compile options for `graph` on `platform`."""
    if platform != "cpu" or config.xla_options != "auto":
        return dict(custom)
    disabled = [FUSION] * is_recurrence(graph)
    disabled += [NO_BARRIERS] * any(n.op == BARRIER for n in graph.nodes)
    if DISABLE in custom:
        disabled.append(custom[DISABLE])
    return {**custom, **({DISABLE: ",".join(disabled)} if disabled else {})}


def unfused(options: dict[str, str]) -> bool:
    """Whether the kernels of a program are single operations."""
    return FUSION in options.get(DISABLE, "").split(",")


@dataclass(frozen=True, slots=True)
class Shape:
    """What the rule looks at: `depth`, elementwise operations on the longest path that
    no other operation interrupts; `shared`, their results that are read elementwise and
    at least once more; `products`, matrix products."""

    depth: int
    shared: int
    products: int


def shape_of(graph: Graph) -> Shape:
    depth: list[int] = []
    readers: dict[int, tuple[int, int]] = {}
    products = 0
    for node in graph.nodes:
        ids = set(operands(node.args))
        pointwise = node.op in TABLE and TABLE[node.op].pointwise
        own = 1 + max((depth[v] for v in ids), default=0) if pointwise else 0
        for v in ids:
            elementwise, all_readers = readers.get(v, (0, 0))
            readers[v] = elementwise + pointwise, all_readers + 1
        products += node.op in PRODUCTS
        depth += [own] * len(node.specs)
    shared = sum(
        depth[v] > 0 and elementwise > 0 and all_readers > 1
        for v, (elementwise, all_readers) in readers.items()
    )
    return Shape(max(depth, default=0), shared, products)


def is_recurrence(graph: Graph) -> bool:
    """Deep, shared, and with products on the way: see the module's first paragraph."""
    shape = shape_of(graph)
    return shape.depth > 64 and shape.shared > 100 and shape.products > 0
