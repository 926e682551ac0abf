"""Names, sizes and step counts of the workloads, for every peer, with no import of a
library: a peer's import time is its own."""

from dataclasses import dataclass

DEFAULT = (
    "chain1000",
    "chain5000",
    "inplace1000",
    "mlp",
    "gpt",
    "resnet",
    "lstm",
    "decode",
    "adam300",
)

# Small for ResNet: a larger one amplifies rounding past the tolerance in five steps.
LEARNING_RATE = {"mlp": 0.05, "lstm": 0.05, "resnet": 0.002, "gpt": 3e-4}
MOMENTUM = 0.9
GPT_DECAY = 0.1
ADAM_RATE = 1e-3
ADAM_PARAMETERS = 300

# The factor of a chain's multiplications: every op still shows in the last value.
FACTOR = 0.999

_STEPS = {
    "mlp": 20,
    "gpt": 6,
    "resnet": 3,
    "lstm": 8,
    "decode": 40,
    "adam300": 12,
    "chain5000": 10,
}


@dataclass(frozen=True, slots=True)
class GPTSize:
    """Layers, width, heads, vocabulary, and the positions of a sequence."""

    layers: int = 4
    width: int = 256
    heads: int = 4
    vocabulary: int = 1000
    context: int = 128


@dataclass(frozen=True, slots=True)
class LSTMSize:
    """Features in, width of the state, classes out."""

    inputs: int = 64
    hidden: int = 128
    classes: int = 10


GPT = GPTSize()
LSTM = LSTMSize()


def chain_ops(workload: str) -> int:
    """How many operations a chain has (`chain1000`, `inplace20`); 0 for all else."""
    for kind in ("chain", "inplace"):
        length = workload.removeprefix(kind)
        if length != workload and length.isdigit():
            return int(length)
    return 0


def is_workload(name: str) -> bool:
    """One of the nine, or a chain of any even length."""
    ops = chain_ops(name)
    return name in DEFAULT or (ops > 0 and ops % 2 == 0)


def steps_per_round(workload: str) -> int:
    """So many that a round takes a fraction of a second up to a few."""
    return _STEPS.get(workload, 20)
