"""A tour of tarry in five operations: what each stage makes of them.

Run it: `python docs/tour.py`. Each part prints one object, in the order in which a
value passes through the stages.
"""

import torch

import tarry
from tarry import debug
from tarry.cut.sync import store
from tarry.dispatch.storage import slot_of
from tarry.ledger import ledger
from tarry.record.graph import bind
from tarry.record.trie import recorder


def title(text: str) -> None:
    print(f"\n== {text}")


def instructions() -> None:
    for node in recorder.trace.node.path():
        results = ", ".join(map(str, node.specs))
        print(f"  %{node.base} = {node.op}{node.args} -> {results}  ({node.line})")


title("1. A tensor comes to the device: a slot that holds host memory")
x = torch.arange(6.0).reshape(2, 3).to("tarry")
print(f"  slot of x: {slot_of(x).state.value}, {slot_of(x).spec}")

title("2. Five operations are recorded, nothing is computed")
y = x * 2.5
z = y.t().exp()
dead = x + 1
total = z.sum()
y.add_(1)
del dead
instructions()
print(
    f"  slot of total: {slot_of(total).state.value}, value number {slot_of(total).pos}"
)

title("3. The canonical graph of what is alive: the dead sum is gone")
wanted = tuple(sorted(slot_of(t).pos for t in (y, z, total)))
bound = bind(recorder.trace.node, wanted)
for node in bound.graph.nodes:
    print(f"  {node.op}{node.args}")
print(f"  outputs: {bound.graph.outputs}")

title("4. The cut: a key that no program has, so one is compiled, and runs")
tarry.sync()
key = store.recent()[0].seen.key
print(f"  donation: {key.donation}")
for part in key.environment:
    print(f"  environment: {part[0]} = {part[1]}")
print(f"  graph: {len(key.graph.nodes)} nodes, hash {hash(key.graph) & 0xFFFF:04x}")

title("5. What was given to XLA")
print("\n".join("  " + line for line in debug.stablehlo().splitlines()[:12]))

title("6. Every live slot has its buffer")
for name, tensor in (("x", x), ("y", y), ("z", z), ("total", total)):
    print(f"  {name}: {slot_of(tensor).state.value}")

title("7. The ledger says why")
cut, program = ledger.cuts[-1], ledger.compiles[-1]
print(f"  cut: {cut.cause} at {cut.line}, {cut.instructions} instructions")
print(f"  compiled because {program.why}")

title("8. The same again: found by its path, nothing is compiled")
compiled = ledger.counters["UncachedCompile"]
y = x * 7.5
z = y.t().exp()
dead = x + 1
total = z.sum()
y.add_(1)
del dead
tarry.sync()
print(f"  compiled now: {ledger.counters['UncachedCompile'] - compiled}")
print(f"  total = {total.item():.1e}")
