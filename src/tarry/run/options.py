"""XLA's compile options, chosen per graph by a measured rule; part of the key.

XLA:CPU's fusion pass duplicates shared producers into each consumer. In a long
recurrence of small values (an unrolled LSTM) that multiplies the work and the time to
compile; turning the pass off there compiles several times faster and runs in half the
time, while it costs wide graphs up to 1.7 times. See `benchmarks/fusion_rule.py`.
"""

from tarry.config import config
from tarry.lower.table import TABLE
from tarry.record.graph import Graph
from tarry.record.trie import INPUT, operands

NO_FUSION = {"xla_disable_hlo_passes": "fusion"}


def choose(graph: Graph, platform: str) -> dict[str, str]:
    """Compile options for `graph` on `platform`."""
    if platform != "cpu" or config.xla_options != "auto":
        return {}
    return NO_FUSION if is_recurrence(graph) else {}


def is_recurrence(graph: Graph) -> bool:
    """Deep, narrow and shared: see the module's first paragraph."""
    depth: list[int] = []
    users: dict[int, int] = {}
    deepest = dots = 0
    for node in graph.nodes:
        ids = list(operands(node.args))
        own = max((depth[v] for v in ids), default=0)
        is_pointwise = node.op in TABLE and TABLE[node.op].pointwise
        if node.op != INPUT:
            own += 1
        deepest = max(deepest, own)
        for v in ids:
            users[v] = users.get(v, 0) + is_pointwise
        dots += node.op in ("mm", "addmm", "bmm", "baddbmm")
        depth += [own] * len(node.specs)
    shared = sum(n > 1 for n in users.values())
    return deepest > 400 and shared > 200 and dots > 0
