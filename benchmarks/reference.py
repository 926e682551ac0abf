"""The same math in pure JAX, keyed by the PyTorch models' parameter names.

A linear layer is one 2-D `dot_general` contracting both last dimensions, what ATen's
`addmm` of a transposed weight amounts to; on XLA:CPU it beats `x @ w.T` in three
dimensions, which copies every weight. Every function is pure; the optimizer's state and
the buffers go in and come out, so that a jitted step can be given them to overwrite.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax

from workloads import FACTOR, GPT, GPT_DECAY, LEARNING_RATE, LSTM, MOMENTUM

Arrays = dict[str, Array]
tree_map = jax.tree.map

# XLA:CPU's fusion pass recomputes shared values in an unrolled recurrence.
NO_FUSION = {"xla_disable_hlo_passes": "fusion"}


def linear(p: Arrays, name: str, x: Array) -> Array:
    weight, bias = p[name + ".weight"], p.get(name + ".bias")
    rows = x.reshape(-1, x.shape[-1])
    y = lax.dot_general(rows, weight, (((1,), (1,)), ((), ())))
    y = y.reshape(*x.shape[:-1], -1)
    return y if bias is None else y + bias


def cross_entropy(logits: Array, y: Array) -> Array:
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1)
    return -jnp.mean(chosen)


def mlp(p: Arrays, buffers: Arrays, x: Array, y: Array) -> tuple[Array, Arrays]:
    h = jax.nn.relu(linear(p, "l1", x))
    h = jax.nn.relu(linear(p, "l2", h))
    return cross_entropy(linear(p, "l3", h), y), buffers


def layer_norm(p: Arrays, name: str, x: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    variance = jnp.square(centred).mean(-1, keepdims=True)
    scaled = centred * lax.rsqrt(variance + 1e-5)
    return scaled * p[name + ".weight"] + p[name + ".bias"]


def split(p: Arrays, block: str, x: Array) -> list[Array]:
    """Query, key and value, each [batch, heads, time, width of a head]."""
    B, T, C = x.shape
    parts = jnp.split(linear(p, block + "qkv", layer_norm(p, block + "ln1", x)), 3, 2)
    return [
        a.reshape(B, T, GPT.heads, C // GPT.heads).transpose(0, 2, 1, 3) for a in parts
    ]


def attend(q: Array, k: Array, v: Array, mask: Array) -> Array:
    scores = (q @ k.swapaxes(-1, -2)) * q.shape[-1] ** -0.5
    return jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), -1) @ v


def finish(p: Arrays, block: str, x: Array, attended: Array) -> Array:
    merged = attended.transpose(0, 2, 1, 3).reshape(x.shape)
    x = x + linear(p, block + "proj", merged)
    h = linear(p, block + "fc", layer_norm(p, block + "ln2", x))
    return x + linear(p, block + "fc2", jax.nn.gelu(h, approximate=False))


def gpt(p: Arrays, buffers: Arrays, tokens: Array, y: Array) -> tuple[Array, Arrays]:
    T = tokens.shape[1]
    x = p["wte.weight"][tokens] + p["wpe.weight"][jnp.arange(T)]
    mask = jnp.tril(jnp.ones((T, T), bool))
    for i in range(GPT.layers):
        block = f"blocks.{i}."
        x = finish(p, block, x, attend(*split(p, block, x), mask))
    logits = linear(p, "head", layer_norm(p, "lnf", x))
    loss = cross_entropy(logits.reshape(-1, GPT.vocabulary), y.reshape(-1))
    return loss, buffers


def decode(
    params: Arrays, cache: Arrays, token: Array, pos: Array
) -> tuple[Arrays, Array, Array, Array]:
    """The cache written, the next token [1, 1] and position [1], the top logit."""
    p = {name.removeprefix("gpt."): a for name, a in params.items()}
    x = p["wte.weight"][token] + p["wpe.weight"][pos]
    mask = (jnp.arange(GPT.context) <= pos)[None, None, None, :]
    zero = jnp.zeros((), pos.dtype)
    at = (zero, zero, pos[0], zero)
    new = {}
    for i in range(GPT.layers):
        block = f"blocks.{i}."
        q, k, v = split(p, block, x)
        new[f"k{i}"] = keys = lax.dynamic_update_slice(cache[f"k{i}"], k, at)
        new[f"v{i}"] = values = lax.dynamic_update_slice(cache[f"v{i}"], v, at)
        x = finish(p, block, x, attend(q, keys, values, mask))
    logits = linear(p, "head", layer_norm(p, "lnf", x))[:, -1]
    chosen = jnp.argmax(logits, -1).astype(token.dtype)
    return new, chosen[:, None], pos + 1, logits.max(-1)


def conv(p: Arrays, name: str, x: Array, stride: int, padding: int) -> Array:
    return lax.conv_general_dilated(
        x,
        p[name + ".weight"],
        (stride, stride),
        [(padding, padding)] * 2,
        dimension_numbers=("NCHW", "OIHW", "NCHW"),
    )


def batch_norm(p: Arrays, old: Arrays, new: Arrays, name: str, x: Array) -> Array:
    """`x` by its own statistics; puts the running ones into `new`."""
    mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3))
    n = x.size // x.shape[1]
    running = {"mean": mean, "var": variance * (n / (n - 1))}
    for kind, value in running.items():
        key = f"{name}.running_{kind}"
        new[key] = 0.9 * old[key] + 0.1 * value
    new[name + ".num_batches_tracked"] = old[name + ".num_batches_tracked"] + 1
    scale = lax.rsqrt(variance + 1e-5) * p[name + ".weight"]
    mean, scale, bias = (
        a.reshape(1, -1, 1, 1) for a in (mean, scale, p[name + ".bias"])
    )
    return (x - mean) * scale + bias


def resnet(p: Arrays, buffers: Arrays, x: Array, y: Array) -> tuple[Array, Arrays]:
    new: Arrays = {}

    def conv_norm(conv_name: str, norm: str, x: Array, stride: int, pad: int) -> Array:
        return batch_norm(p, buffers, new, norm, conv(p, conv_name, x, stride, pad))

    x = jax.nn.relu(conv_norm("c0", "b0", x, 1, 1))
    for i in range(8):
        block = f"blocks.{i}."
        has_shortcut = block + "sc.0.weight" in p
        stride = 2 if has_shortcut else 1
        h = jax.nn.relu(conv_norm(block + "c1", block + "b1", x, stride, 1))
        h = conv_norm(block + "c2", block + "b2", h, 1, 1)
        if has_shortcut:
            x = conv_norm(block + "sc.0", block + "sc.1", x, stride, 0)
        x = jax.nn.relu(h + x)
    return cross_entropy(linear(p, "fc", x.mean((2, 3))), y), new


def lstm(p: Arrays, buffers: Arrays, x: Array, y: Array) -> tuple[Array, Arrays]:
    h = c = jnp.zeros((x.shape[0], LSTM.hidden))
    for t in range(x.shape[1]):
        gates = linear(p, "ih", x[:, t]) + linear(p, "hh", h)
        i, f, g, o = jnp.split(gates, 4, 1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return cross_entropy(linear(p, "out", h), y), buffers


def chain(x: Array, y: Array, ops: int) -> Array:
    for _ in range(ops // 2):
        x = x + y
        x = x * FACTOR
    return x


def sgd(p: Arrays, g: Arrays, state: Arrays, rate: float) -> tuple[Arrays, Arrays]:
    """SGD with momentum; `state` is the velocity."""
    state = tree_map(lambda m, g: MOMENTUM * m + g, state, g)
    return tree_map(lambda p, m: p - rate * m, p, state), state


def adam(
    p: Arrays, g: Arrays, state: tuple, rate: float, decay: float = 0.0
) -> tuple[Arrays, tuple]:
    """AdamW (Adam without `decay`); `state` is (step, first, second moment)."""
    step, first, second = state
    step = step + 1
    first = tree_map(lambda m, g: m + (g - m) * (1 - 0.9), first, g)
    second = tree_map(lambda v, g: v * 0.999 + (1 - 0.999) * g * g, second, g)
    t = step.astype(jnp.float32)
    size, root = rate / (1 - 0.9**t), jnp.sqrt(1 - 0.999**t)

    def update(p: Array, m: Array, v: Array) -> Array:
        return p * (1 - rate * decay) - size * m / (jnp.sqrt(v) / root + 1e-8)

    return tree_map(update, p, first, second), (step, first, second)


LOSSES = {"mlp": mlp, "gpt": gpt, "resnet": resnet, "lstm": lstm}


def make_step(workload: str) -> Callable[..., tuple[tuple, Array]]:
    """A training step: ((parameters, buffers, optimizer state), x, y) to both anew."""
    gradient = jax.value_and_grad(LOSSES[workload], has_aux=True)
    rate = LEARNING_RATE[workload]

    def step(state: tuple, x: Array, y: Array) -> tuple[tuple, Array]:
        p, buffers, moments = state
        (loss, buffers), g = gradient(p, buffers, x, y)
        if workload == "gpt":
            p, moments = adam(p, g, moments, rate, GPT_DECAY)
        else:
            p, moments = sgd(p, g, moments, rate)
        return (p, buffers, moments), loss

    return step
