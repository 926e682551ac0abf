"""The demo: a small character-level GPT learns English on the device `tarry`.

Plain PyTorch for any device. The text is the language reference that every Python
ships. `optimizer.step()` ends each step with a cut, so a step is one program; the loss
is read every few steps only, and text is generated in a window of constant size, so
that generating takes one program too.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pydoc_data.topics import topics

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True, slots=True)
class Size:
    """What is trained, and for how long."""

    layers: int = 3
    width: int = 128
    heads: int = 4
    block: int = 64  # characters the model sees
    batch: int = 16
    steps: int = 400
    every: int = 10  # steps between two reads of the loss
    rate: float = 3e-3
    generated: int = 300  # characters


FULL = Size()
QUICK = Size(layers=1, block=32, steps=80, generated=40)


class Layer(nn.Module):
    """Causal self-attention, then two linear layers, each added to its input."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.norm1, self.norm2 = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
        self.qkv = nn.Linear(size.width, 3 * size.width)
        self.out = nn.Linear(size.width, size.width)
        self.up = nn.Linear(size.width, 4 * size.width)
        self.down = nn.Linear(4 * size.width, size.width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))

    def attend(self, x: Tensor) -> Tensor:
        batch, block, width = x.shape
        heads = self.qkv(x).view(batch, block, 3, self.heads, width // self.heads)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, block, width))


class GPT(nn.Module):
    """Characters (batch, block) int64 -> scores (batch, block, characters)."""

    def __init__(self, characters: int, size: Size) -> None:
        super().__init__()
        self.what = nn.Embedding(characters, size.width)
        self.where = nn.Embedding(size.block, size.width)
        self.layers = nn.Sequential(*[Layer(size) for _ in range(size.layers)])
        self.norm = nn.LayerNorm(size.width)
        self.scores = nn.Linear(size.width, characters)

    def forward(self, seen: Tensor) -> Tensor:
        x = self.what(seen) + self.where.weight
        return self.scores(self.norm(self.layers(x)))


class Corpus:
    """A text as character numbers."""

    def __init__(self, text: str) -> None:
        self.characters = sorted(set(text))
        number = {c: i for i, c in enumerate(self.characters)}
        self.data = torch.tensor([number[c] for c in text])

    def batch(self, size: Size) -> Tensor:
        """Random pieces of the text: (batch, block + 1) int64."""
        starts = torch.randint(len(self.data) - size.block - 1, (size.batch, 1))
        return self.data[starts + torch.arange(size.block + 1)]

    def text(self, numbers: list[int]) -> str:
        return "".join([self.characters[n] for n in numbers])


Report = Callable[[int, float, float], None]


def train(
    model: GPT, corpus: Corpus, size: Size, device: str, report: Report
) -> list[float]:
    """The losses read, one every `size.every` steps and the last.

    `report` is called with each: (step, loss, characters per second since the last).
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=size.rate)
    slower = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, size.steps)
    losses, before, begun = [], 0, time.perf_counter()
    for step in range(1, size.steps + 1):
        batch = corpus.batch(size).to(device)
        scores = model(batch[:, :-1])
        loss = F.cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        slower.step()
        if step == 1 or step % size.every == 0 or step == size.steps:
            losses.append(loss.item())
            now, done = time.perf_counter(), (step - before) * size.batch * size.block
            report(step, losses[-1], done / (now - begun))
            before, begun = step, now
    return losses


@torch.no_grad()
def generate(model: GPT, corpus: Corpus, size: Size, device: str) -> str:
    """`size.generated` characters that go on from the start of the text."""
    window = corpus.data[: size.block].reshape(1, -1).to(device)
    numbers = []
    for _ in range(size.generated):
        odds = torch.softmax(model(window)[:, -1] / 0.8, -1)
        drawn = torch.multinomial(odds, 1)
        window = torch.cat([window[:, 1:], drawn], 1)
        numbers.append(int(drawn))
    return corpus.text(numbers)


def run(
    console: Console, size: Size = FULL, steps: int | None = None, device: str = "tarry"
) -> list[float]:
    """Train, show the loss falling and a sample of text; the losses read."""
    size = replace(size, steps=steps or size.steps)
    torch.manual_seed(0)
    corpus = Corpus("\n".join(topics.values()))
    model = GPT(len(corpus.characters), size)
    weights = sum(p.numel() for p in model.parameters())
    say(
        console,
        f"A GPT of {size.layers} layers and {weights:,} weights learns "
        f"{len(corpus.data):,} characters of English on the device '{device}'.",
    )
    model.to(device)
    losses = watch(
        console, size, lambda report: train(model, corpus, size, device, report)
    )
    say(console, f"The loss fell from {losses[0]:.2f} to {losses[-1]:.2f}.")
    say(console, "It writes:\n")
    say(console, generate(model, corpus, size, device) + "\n")
    return losses


def say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def watch(
    console: Console, size: Size, work: Callable[[Report], list[float]]
) -> list[float]:
    """A live line on a terminal, else a plain line for every loss read."""

    def line(step: int, loss: float, rate: float) -> str:
        return f"step {step:>4}  loss {loss:.3f}  {rate:>8,.0f} tokens/s"

    if not console.is_terminal:
        return work(lambda *read: say(console, line(*read)))
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("compiling the first step", total=size.steps)
        return work(
            lambda step, *read: progress.update(
                task, completed=step, description=line(step, *read)
            )
        )
