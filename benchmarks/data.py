"""Weights and inputs of a workload, drawn with numpy from seed 0.

Every peer process draws its own copy, and all draw the same. The names are those of the
PyTorch models' state; NumPy is the only import, so that a peer loads nothing it does
not use.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from workloads import ADAM_PARAMETERS, GPT, LSTM, chain_ops

Arrays = dict[str, np.ndarray]
Shapes = Iterator[tuple[str, tuple[int, ...]]]

BATCHES = 4


@dataclass(slots=True)
class Data:
    """Parameters, buffers and given gradients by name, and (x, y) batches."""

    params: Arrays = field(default_factory=dict)
    buffers: Arrays = field(default_factory=dict)
    grads: Arrays = field(default_factory=dict)
    batches: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)


def draw(workload: str) -> Data:
    """The data of `workload`, the same at every call."""
    rng = np.random.default_rng(0)
    if chain_ops(workload):
        return Data(batches=[(_normal(rng, 4, 4), _normal(rng, 4, 4))])
    params = {n: _weight(rng, n, s) for n, s in _SHAPES[workload]()}
    data = Data(params, _buffers(workload, params))
    if workload == "adam300":
        data.grads = {n: _normal(rng, *p.shape) for n, p in params.items()}
    elif workload != "decode":
        data.batches = [_batch(rng, workload) for _ in range(BATCHES)]
    return data


def projection(params: Arrays, grads: Arrays) -> float:
    """The mean of parameter times gradient: what an optimizer's step moves most."""
    products = [np.mean(np.float64(params[n]) * grads[n]) for n in grads]
    return float(np.mean(products))


def _normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape, dtype=np.float32)


def _weight(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Norms at one, biases at zero, embeddings small, the rest by their fan-in."""
    if len(shape) == 1:
        return np.full(shape, name.endswith("weight"), np.float32)
    is_embedding = "wte" in name or "wpe" in name
    scale = 0.02 if is_embedding else np.prod(shape[1:]) ** -0.5
    return _normal(rng, *shape) * np.float32(scale)


def _batch(rng: np.random.Generator, workload: str) -> tuple[np.ndarray, np.ndarray]:
    if workload == "gpt":
        shape = (8, GPT.context)
        return tuple(rng.integers(0, GPT.vocabulary, shape) for _ in "xy")
    shape = {
        "mlp": (128, 784),
        "resnet": (32, 3, 32, 32),
        "lstm": (32, 64, LSTM.inputs),
    }[workload]
    return _normal(rng, *shape), rng.integers(0, 10, shape[0])


def _linear(name: str, inputs: int, outputs: int) -> Shapes:
    yield f"{name}.weight", (outputs, inputs)
    yield f"{name}.bias", (outputs,)


def _norm(name: str, width: int) -> Shapes:
    yield f"{name}.weight", (width,)
    yield f"{name}.bias", (width,)


def _mlp() -> Shapes:
    yield from _linear("l1", 784, 512)
    yield from _linear("l2", 512, 512)
    yield from _linear("l3", 512, 10)


def _gpt(prefix: str = "") -> Shapes:
    width = GPT.width
    yield f"{prefix}wte.weight", (GPT.vocabulary, width)
    yield f"{prefix}wpe.weight", (GPT.context, width)
    for i in range(GPT.layers):
        block = f"{prefix}blocks.{i}."
        yield from _norm(block + "ln1", width)
        yield from _norm(block + "ln2", width)
        yield from _linear(block + "qkv", width, 3 * width)
        yield from _linear(block + "proj", width, width)
        yield from _linear(block + "fc", width, 4 * width)
        yield from _linear(block + "fc2", 4 * width, width)
    yield from _norm(prefix + "lnf", width)
    yield f"{prefix}head.weight", (GPT.vocabulary, width)


def _decoder() -> Shapes:
    return _gpt("gpt.")


def _resnet() -> Shapes:
    yield "c0.weight", (64, 3, 3, 3)
    yield from _norm("b0", 64)
    inputs = 64
    for i in range(8):
        outputs = 64 * 2 ** (i // 2)
        block = f"blocks.{i}."
        yield block + "c1.weight", (outputs, inputs, 3, 3)
        yield from _norm(block + "b1", outputs)
        yield block + "c2.weight", (outputs, outputs, 3, 3)
        yield from _norm(block + "b2", outputs)
        if inputs != outputs:
            yield block + "sc.0.weight", (outputs, inputs, 1, 1)
            yield from _norm(block + "sc.1", outputs)
        inputs = outputs
    yield from _linear("fc", 512, 10)


def _lstm() -> Shapes:
    yield from _linear("ih", LSTM.inputs, 4 * LSTM.hidden)
    yield from _linear("hh", LSTM.hidden, 4 * LSTM.hidden)
    yield from _linear("out", LSTM.hidden, LSTM.classes)


def _many() -> Shapes:
    for i in range(ADAM_PARAMETERS):
        yield f"p.{i}", (64, 64)


_SHAPES = {
    "mlp": _mlp,
    "gpt": _gpt,
    "decode": _decoder,
    "resnet": _resnet,
    "lstm": _lstm,
    "adam300": _many,
}


def _buffers(workload: str, params: Arrays) -> Arrays:
    if workload == "decode":
        return _cache()
    if workload != "resnet":
        return {}
    norms = [n.removesuffix(".bias") for n in params if n.endswith("bias")]
    return {k: v for n in norms if n != "fc" for k, v in _running(n, params).items()}


def _running(norm: str, params: Arrays) -> Arrays:
    width = len(params[norm + ".bias"])
    return {
        norm + ".running_mean": np.zeros(width, np.float32),
        norm + ".running_var": np.ones(width, np.float32),
        norm + ".num_batches_tracked": np.array(0),
    }


def _cache() -> Arrays:
    """The static key-value cache, and the positions to compare with."""
    shape = (1, GPT.heads, GPT.context, GPT.width // GPT.heads)
    names = [f"{kind}{i}" for i in range(GPT.layers) for kind in "kv"]
    empty = {n: np.zeros(shape, np.float32) for n in names}
    return {**empty, "positions": np.arange(GPT.context)}
