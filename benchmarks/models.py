"""The workloads' models and optimizers in plain PyTorch, float32, for any device."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workloads import (
    ADAM_PARAMETERS,
    ADAM_RATE,
    FACTOR,
    GPT,
    GPT_DECAY,
    LEARNING_RATE,
    LSTM,
    MOMENTUM,
)


class MLP(nn.Module):
    """784-512-512-10."""

    def __init__(self) -> None:
        super().__init__()
        self.l1, self.l2 = nn.Linear(784, 512), nn.Linear(512, 512)
        self.l3 = nn.Linear(512, 10)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        h = F.relu(self.l1(x))
        h = F.relu(self.l2(h))
        return F.cross_entropy(self.l3(h), y)


class Block(nn.Module):
    """A transformer block, its norms first."""

    def __init__(self) -> None:
        super().__init__()
        d = GPT.width
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.fc, self.fc2 = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def split(self, x: Tensor) -> list[Tensor]:
        """Query, key and value, each [batch, heads, time, width of a head]."""
        B, T, C = x.shape
        parts = self.qkv(self.ln1(x)).split(C, dim=2)
        return [t.view(B, T, GPT.heads, C // GPT.heads).transpose(1, 2) for t in parts]

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + self.proj(attended.transpose(1, 2).reshape(x.shape))
        return x + self.fc2(F.gelu(self.fc(self.ln2(x))))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(x)
        return self.finish(x, F.scaled_dot_product_attention(q, k, v, is_causal=True))

    def decode(
        self, x: Tensor, pos: Tensor, mask: Tensor, keys: Tensor, values: Tensor
    ) -> Tensor:
        q, k, v = self.split(x)
        keys[:, :, pos] = k
        values[:, :, pos] = v
        attended = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
        return self.finish(x, attended)


class Transformer(nn.Module):
    """A GPT; `forward` is the loss of predicting `y`."""

    def __init__(self) -> None:
        super().__init__()
        self.wte = nn.Embedding(GPT.vocabulary, GPT.width)
        self.wpe = nn.Embedding(GPT.context, GPT.width)
        self.blocks = nn.ModuleList(Block() for _ in range(GPT.layers))
        self.lnf = nn.LayerNorm(GPT.width)
        self.head = nn.Linear(GPT.width, GPT.vocabulary, bias=False)

    def forward(self, tokens: Tensor, y: Tensor) -> Tensor:
        pos = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.wte(tokens) + self.wpe(pos)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.lnf(x))
        return F.cross_entropy(logits.view(-1, GPT.vocabulary), y.view(-1))


class Decoder(nn.Module):
    """One token a call; the key-value cache is static, in buffers written in place."""

    def __init__(self) -> None:
        super().__init__()
        self.gpt = Transformer()
        shape = (1, GPT.heads, GPT.context, GPT.width // GPT.heads)
        for i in range(GPT.layers):
            self.register_buffer(f"k{i}", torch.zeros(shape))
            self.register_buffer(f"v{i}", torch.zeros(shape))
        self.register_buffer("positions", torch.arange(GPT.context))

    def forward(self, token: Tensor, pos: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """From token [1, 1] at pos [1]: the next of both, and the highest logit."""
        x = self.gpt.wte(token) + self.gpt.wpe(pos)
        mask = (self.positions <= pos)[None, None, None, :]
        for i, block in enumerate(self.gpt.blocks):
            cache = getattr(self, f"k{i}"), getattr(self, f"v{i}")
            x = block.decode(x, pos, mask, *cache)
        logits = self.gpt.head(self.gpt.lnf(x))[:, -1]
        top, chosen = logits.max(-1)
        return chosen[:, None], pos + 1, top


class Basic(nn.Module):
    """A basic residual block."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.c1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.c2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.b1, self.b2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.sc = nn.Sequential()
        if inputs != outputs:
            shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.sc = nn.Sequential(shortcut, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.b1(self.c1(x)))
        return F.relu(self.b2(self.c2(h)) + self.sc(x))


class ResNet(nn.Module):
    """ResNet-18's blocks on 32×32 images."""

    def __init__(self) -> None:
        super().__init__()
        self.c0, self.b0 = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64)
        widths = [64, 64, 64, 128, 128, 256, 256, 512, 512]
        self.blocks = nn.ModuleList(
            Basic(a, b, 1 if a == b else 2) for a, b in pairwise(widths)
        )
        self.fc = nn.Linear(512, 10)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        x = F.relu(self.b0(self.c0(x)))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.fc(x.mean((2, 3))), y)


class LSTMCell(nn.Module):
    """A cell unrolled over x [batch, time, inputs]; classifies from the last state."""

    def __init__(self) -> None:
        super().__init__()
        self.ih = nn.Linear(LSTM.inputs, 4 * LSTM.hidden)
        self.hh = nn.Linear(LSTM.hidden, 4 * LSTM.hidden)
        self.out = nn.Linear(LSTM.hidden, LSTM.classes)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        h = torch.zeros(x.shape[0], LSTM.hidden, device=x.device)
        c = torch.zeros(x.shape[0], LSTM.hidden, device=x.device)
        for t in range(x.shape[1]):
            i, f, g, o = (self.ih(x[:, t]) + self.hh(h)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return F.cross_entropy(self.out(h), y)


class Many(nn.Module):
    """300 parameters of 64×64, for the optimizer alone."""

    def __init__(self) -> None:
        super().__init__()
        self.p = nn.ParameterList(
            nn.Parameter(torch.zeros(64, 64)) for _ in range(ADAM_PARAMETERS)
        )


def chain(x: Tensor, y: Tensor, ops: int) -> Tensor:
    """`ops` operations, every other one an addition and a multiplication."""
    for _ in range(ops // 2):
        x = x + y
        x = x * FACTOR
    return x


def inplace_chain(x: Tensor, y: Tensor, ops: int) -> Tensor:
    """The same in place, on a copy."""
    z = x.clone()
    for _ in range(ops // 2):
        z.add_(y)
        z.mul_(FACTOR)
    return z


MODELS = {
    "mlp": MLP,
    "gpt": Transformer,
    "decode": Decoder,
    "resnet": ResNet,
    "lstm": LSTMCell,
    "adam300": Many,
}


def make_optimizer(workload: str, model: nn.Module) -> torch.optim.Optimizer:
    """SGD with momentum; AdamW for the GPT, Adam for the 300 parameters."""
    params = model.parameters()
    if workload == "adam300":
        return torch.optim.Adam(params, lr=ADAM_RATE)
    rate = LEARNING_RATE[workload]
    if workload == "gpt":
        return torch.optim.AdamW(params, lr=rate, weight_decay=GPT_DECAY)
    return torch.optim.SGD(params, lr=rate, momentum=MOMENTUM)
