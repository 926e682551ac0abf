"""Training loops: the loss curve of the CPU, one program a step, no fallback.

`train` runs the same model, data and optimizer on both devices. From the fourth step on
a step may compile nothing and cuts exactly once.
"""

from contextlib import nullcontext

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import tarry
from harness import compile_count, cut_count, fallbacks, recent, same

STEPS = 20


def losses(
    model,
    batches,
    loss_of,
    make_optimizer,
    device,
    clip=None,
    extra=nullcontext,
    steps=STEPS,
):
    """The loss of each step; counts cuts and compiles of late steps on tarry."""
    model = model.to(device)
    optimizer = make_optimizer(model.parameters())
    batches = [[t.to(device) for t in batch] for batch in batches]
    kept, late = [], []
    for step in range(steps):
        before = cut_count(), compile_count()
        optimizer.zero_grad()
        with extra():
            loss = loss_of(model, *batches[step % len(batches)])
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        kept.append(loss.detach())
        after = cut_count(), compile_count()
        late.append((after[0] - before[0], after[1] - before[1]))
    if device == "tarry":
        assert late[3:] == [(1, 0)] * (steps - 3), f"{late}; {recent()}"
    return torch.stack(kept).float().cpu()


def train(make_model, batches, loss_of, make_optimizer=None, rtol=1e-3, **options):
    """Assert equal loss curves; returns the curve."""
    make_optimizer = make_optimizer or (lambda p: torch.optim.SGD(p, lr=0.05))
    curves = []
    for device in ("cpu", "tarry"):
        torch.manual_seed(0)
        with fallbacks(0):
            curves.append(
                losses(
                    make_model(), batches, loss_of, make_optimizer, device, **options
                )
            )
    torch.testing.assert_close(curves[1], curves[0], rtol=rtol, atol=1e-5)
    return curves[0]


def data(*shapes, classes=None, count=2):
    """`count` batches of normal tensors, and class numbers where asked for."""
    g = torch.Generator().manual_seed(1)
    batches = []
    for _ in range(count):
        batch = [torch.randn(s, generator=g) for s in shapes]
        if classes is not None:
            batch.append(torch.randint(classes, shapes[0][:1], generator=g))
        batches.append(batch)
    return batches


def tokens(vocabulary, batch, length, count=2):
    g = torch.Generator().manual_seed(2)
    return [
        [torch.randint(vocabulary, (batch, length), generator=g)] for _ in range(count)
    ]


def classify(model, x, y):
    return F.cross_entropy(model(x), y)


def mlp():
    return nn.Sequential(
        nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3)
    )


def small():
    return nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim)
        )

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (
            part.view(b, t, self.heads, c // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(c, 2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """Token and position embeddings, two blocks, output weights tied to the input's."""

    def __init__(self, vocabulary=13, dim=16, heads=2, length=8):
        super().__init__()
        self.token = nn.Embedding(vocabulary, dim)
        self.position = nn.Embedding(length, dim)
        self.blocks = nn.Sequential(Block(dim, heads), Block(dim, heads))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocabulary, bias=False)
        self.head.weight = self.token.weight

    def forward(self, ids):
        at = torch.arange(ids.shape[1], device=ids.device)
        return self.head(self.norm(self.blocks(self.token(ids) + self.position(at))))


def next_token(model, ids):
    logits = model(ids[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


class Residual(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outside), nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.short = nn.Sequential()
        if stride != 1 or inside != outside:
            self.short = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False),
                nn.BatchNorm2d(outside),
            )

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        y = self.norm2(self.conv2(y))
        y += self.short(x)
        return F.relu(y, inplace=True)


def resnet():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4),
        nn.ReLU(inplace=True), nn.MaxPool2d(2), Residual(4, 4, 1), Residual(4, 8, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3),
    )  # fmt: skip


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.cell = kind(4, 8, num_layers=2, batch_first=True)
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        return self.out(self.cell(x)[0][:, -1])


class Encoder(nn.Module):
    """A patch embedding, a class token and one transformer layer."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, 4)
        self.first = nn.Parameter(torch.zeros(1, 1, 16))
        self.layer = nn.TransformerEncoderLayer(
            16, 2, 32, dropout=0.0, batch_first=True, norm_first=True
        )
        self.out = nn.Linear(16, 3)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1)
        return self.out(self.layer(x)[:, 0])


class Crossed(nn.Module):
    """Attention of a few learned queries over a sequence, padding masked."""

    def __init__(self):
        super().__init__()
        self.query = nn.Parameter(torch.randn(2, 8))
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.out = nn.Linear(16, 3)

    def forward(self, x):
        padding = torch.zeros(x.shape[:2], dtype=torch.bool, device=x.device)
        padding[:, -1] = True
        query = self.query.expand(x.shape[0], -1, -1)
        y, weights = self.attention(query, x, x, key_padding_mask=padding)
        return self.out(y.flatten(1)) + weights.mean()


def autoencoder():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, 2, 1), nn.ReLU(), nn.Conv2d(4, 8, 3, 2, 1), nn.ReLU(),
        nn.ConvTranspose2d(8, 4, 3, 2, 1, output_padding=1), nn.ReLU(),
        nn.ConvTranspose2d(4, 1, 3, 2, 1, output_padding=1), nn.Sigmoid(),
    )  # fmt: skip


class Factors(nn.Module):
    """Two embedding tables whose rows' products predict a rating."""

    def __init__(self):
        super().__init__()
        self.users, self.items = nn.Embedding(7, 4), nn.Embedding(9, 4, padding_idx=0)
        self.bias = nn.Embedding(9, 1)

    def forward(self, ids):
        users, items = ids[:, 0] % 7, ids[:, 1]
        score = (self.users(users) * self.items(items)).sum(1)
        return score + self.bias(ids).sum((1, 2))


IMAGES = data((4, 3, 8, 8), classes=3)
SEQUENCES = data((4, 3, 4), classes=3)
ROWS = data((8, 6), classes=3)

MODELS = {
    "mlp": (mlp, ROWS, classify),
    "gpt": (GPT, tokens(13, 3, 8), next_token),
    "resnet": (resnet, IMAGES, classify),
    "lstm": (lambda: Recurrent(nn.LSTM), SEQUENCES, classify),
    "gru": (lambda: Recurrent(nn.GRU), SEQUENCES, classify),
    "vit": (Encoder, IMAGES, classify),
    "attention": (Crossed, data((4, 5, 8), classes=3), classify),
    "autoencoder": (
        autoencoder,
        [[x.sigmoid()] for (x,) in data((2, 1, 8, 8))],
        lambda model, x: F.binary_cross_entropy(model(x), x),
    ),
    "factors": (
        Factors,
        tokens(9, 6, 2),
        lambda model, ids: F.mse_loss(model(ids), ids.float().sum(1)),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_model(name):
    curve = train(*MODELS[name], lambda p: torch.optim.AdamW(p, lr=0.01))
    assert curve[-2:].mean() < curve[:2].mean()


OPTIMIZERS = {
    "sgd": lambda p, **o: torch.optim.SGD(p, lr=0.1, **o),
    "sgd_momentum": lambda p, **o: torch.optim.SGD(p, lr=0.1, momentum=0.9, **o),
    "sgd_nesterov": lambda p, **o: torch.optim.SGD(
        p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01, **o
    ),
    "adam": lambda p, **o: torch.optim.Adam(p, lr=0.01, **o),
    "adam_amsgrad": lambda p, **o: torch.optim.Adam(p, lr=0.01, amsgrad=True, **o),
    "adamw": lambda p, **o: torch.optim.AdamW(p, lr=0.01, **o),
    "rmsprop": lambda p, **o: torch.optim.RMSprop(p, lr=0.01, momentum=0.5, **o),
    "adagrad": lambda p, **o: torch.optim.Adagrad(p, lr=0.05, **o),
}
FUSED = ("sgd", "adam")  # those PyTorch has a fused form for, on this device


MODES = [
    (name, mode)
    for name in OPTIMIZERS
    for mode in ("default", "single", "fused")
    if mode != "fused" or name.startswith(FUSED)
]


@pytest.mark.parametrize("name, mode", MODES)
def test_optimizer(name, mode):
    options = {"single": {"foreach": False}, "fused": {"fused": True}}.get(mode, {})
    train(small, ROWS, classify, lambda p: OPTIMIZERS[name](p, **options), steps=8)


def test_clipped():
    train(mlp, ROWS, classify, lambda p: torch.optim.Adam(p, lr=0.02), clip=0.1)


def test_schedule_does_not_compile():
    def make(p):
        optimizer = torch.optim.SGD(p, lr=0.1, momentum=0.9)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
        optimizer.register_step_post_hook(lambda *_: schedule.step())
        return optimizer

    train(mlp, ROWS, classify, make)


def test_skipped_step_without_a_read():
    """A step with an infinite gradient is left out by `torch.where`, on the device."""

    def one(device):
        w = torch.ones(3).to(device).requires_grad_()
        kept = []
        for scale in (1.0, float("inf"), 2.0, float("nan"), 3.0):
            loss = (w * w * scale).sum()
            (grad,) = torch.autograd.grad(loss, w)
            good = torch.isfinite(grad).all()
            with torch.no_grad():
                w.copy_(torch.where(good, w - 0.1 * grad.nan_to_num(), w))
            kept.append(w.detach().clone())
            if device == "tarry":
                tarry.sync()
        return kept

    with fallbacks(0):
        before = compile_count()
        same(one("cpu"), one("tarry"))
        assert compile_count() - before <= 2


def test_grad_scaler():
    def one(device):
        torch.manual_seed(0)
        model = mlp().to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        scaler = torch.amp.GradScaler(device, init_scale=256.0, growth_interval=2)
        kept = []
        for step in range(6):
            x, y = (t.to(device) for t in ROWS[step % 2])
            optimizer.zero_grad()
            loss = classify(model, x, y) * (float("inf") if step == 3 else 1.0)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            kept += [model[0].weight.detach().clone(), torch.tensor(scaler.get_scale())]
        return [t.cpu() for t in kept]

    with fallbacks(0):
        for want, got in zip(one("cpu"), one("tarry")):
            torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-5)


def test_autocast():
    def half(device):
        torch.manual_seed(0)
        model, (x, y) = mlp().to(device), (t.to(device) for t in ROWS[0])
        with torch.autocast(device, dtype=torch.bfloat16):
            out = model(x)
            loss = F.cross_entropy(out.float(), y)
        loss.backward()
        assert (
            out.dtype is torch.bfloat16 and model[0].weight.grad.dtype is torch.float32
        )
        return loss.detach().cpu(), model[0].weight.grad.cpu()

    with fallbacks(0):
        for want, got in zip(half("cpu"), half("tarry")):
            torch.testing.assert_close(got, want, rtol=3e-2, atol=3e-2)


def test_autocast_trains():
    for device in ("cpu", "tarry"):
        torch.manual_seed(0)
        losses(
            mlp(), ROWS, classify, lambda p: torch.optim.AdamW(p, lr=0.01), device,
            extra=lambda: torch.autocast(device, dtype=torch.bfloat16),  # noqa: B023
        )  # fmt: skip


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing(reentrant):
    def loss_of(model, x, y):
        hidden = model[:3]
        x = x.detach().requires_grad_()
        return F.cross_entropy(
            model[3:](checkpoint(hidden, x, use_reentrant=reentrant)), y
        )

    train(mlp, ROWS, loss_of)


def test_checkpointing_repeats_the_dropout_mask():
    torch.manual_seed(0)
    x = torch.ones(64, device="tarry", requires_grad=True)
    y = checkpoint(lambda t: F.dropout(t * 2, 0.5), x, use_reentrant=False)
    y.sum().backward()
    assert torch.equal(y.detach().cpu(), x.grad.cpu())


def test_dropout_trains():
    def make():
        return nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.3), nn.Linear(16, 3))

    torch.manual_seed(0)
    curve = losses(
        make(), ROWS, classify, lambda p: torch.optim.SGD(p, lr=0.1), "tarry"
    )
    assert curve[-4:].mean() < curve[:4].mean()


def test_dropout_draws():
    layer = nn.Dropout(0.25).to("tarry")
    ones = torch.ones(4000, device="tarry")
    torch.manual_seed(3)
    first, second = layer(ones), layer(ones)
    torch.manual_seed(3)
    again = layer(ones)
    tarry.sync()
    third = layer(ones)
    a, b, c, d = (t.cpu() for t in (first, second, again, third))
    assert torch.equal(a, c) and torch.equal(b, d) and not torch.equal(a, b)
    assert 0.22 < (a == 0).float().mean() < 0.28
    assert torch.equal(a[a != 0].unique(), torch.tensor([1 / 0.75]))
    assert layer.eval()(ones) is ones


# torch.func scripts PyTorch's own decompositions when it is first used.
@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
def test_func_grad_and_vmap():
    def squared(w, x):
        return ((x @ w).tanh() ** 2).sum()

    def per_sample(device):
        g = torch.Generator().manual_seed(0)
        w = torch.randn(4, 3, generator=g).to(device)
        x = torch.randn(5, 4, generator=g).to(device)
        grad = torch.func.grad(squared)(w, x)
        each = torch.func.vmap(torch.func.grad(squared), (None, 0))(w, x)
        jacobian = torch.func.jacrev(lambda w: (x @ w).sin())(w)
        pushed = torch.func.jvp(lambda w: (x @ w).sin(), (w,), (torch.ones_like(w),))
        hessian = torch.func.hessian(lambda v: (v**3).sum())(w[0])
        return [grad, each, jacobian, *pushed, hessian]

    with fallbacks(0):
        same(per_sample("cpu"), per_sample("tarry"), strides=False)


def test_functional_call_and_double_backward():
    def penalty(device):
        torch.manual_seed(0)
        model, (x, y) = mlp().to(device), (t.to(device) for t in ROWS[0])
        loss = classify(model, x, y)
        grads = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
        sum((g * g).sum() for g in grads).backward()
        named = {k: v * 2 for k, v in model.named_parameters()}
        called = torch.func.functional_call(model, named, (x,))
        return [p.grad for p in model.parameters()] + [called]

    with fallbacks(0):
        same(penalty("cpu"), penalty("tarry"), strides=False)


def test_evaluation_is_one_program():
    model = resnet().to("tarry").eval()
    x = IMAGES[0][0].to("tarry")
    with torch.no_grad(), fallbacks(0):
        for step in range(3):
            before = compile_count()
            out = model(x)
            tarry.sync()
            assert compile_count() - before == (step == 0)
    same(model.cpu()(IMAGES[0][0]), out)


def test_running_statistics_follow():
    def train_one(device):
        torch.manual_seed(0)
        model = nn.BatchNorm1d(6).to(device)
        for x, _ in ROWS:
            model(x.to(device))
        return [model.running_mean, model.running_var, model.num_batches_tracked]

    same(train_one("cpu"), train_one("tarry"))


def test_gradient_accumulation():
    def accumulate(device):
        torch.manual_seed(0)
        model = mlp().to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            for x, y in ROWS:
                (classify(model, x.to(device), y.to(device)) / 2).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
        return [p.detach() for p in model.parameters()]

    with fallbacks(0):
        same(accumulate("cpu"), accumulate("tarry"), strides=False)
