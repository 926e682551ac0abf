"""Ten steps of training, and generation, of unmodified models: as on the CPU, and one
program a step once the loop is steady."""

import pytest
import torch
from torch import nn

import tarry
from models import (
    GENERATORS,
    MODELS,
    TIMM,
    build,
    build_timm,
    text,
    timm_batch,
)
from tarry.ledger import ledger

STEPS, STEADY = 10, 4


def train(model: nn.Module, batches: list, loss_of, device: str) -> list[float]:
    """Losses of a plain loop; on the device, the steady steps are one program each."""
    model = model.to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses, cuts, compiles = [], 0, 0
    for i, batch in enumerate(batches):
        if i == STEADY:
            cuts, compiles = sum(ledger.cut_totals.values()), len(ledger.compiles)
        batch = {k: v.to(device) for k, v in batch.items()}
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    if device == "tarry":
        assert sum(ledger.cut_totals.values()) - cuts == STEPS - STEADY
        assert len(ledger.compiles) == compiles, str(tarry.explain())
    return [loss.item() for loss in losses]


def compare(make, batches, loss_of, rel: float = 1e-3) -> None:
    want = train(make(), batches, loss_of, "cpu")
    got = train(make(), batches, loss_of, "tarry")
    assert got == pytest.approx(want, rel=rel), (want, got)
    assert not ledger.fallbacks, ledger.fallbacks


@pytest.mark.parametrize("name", MODELS)
def test_transformers_train(name):
    _, batch = build(name)
    batches = [batch(4, seed) for seed in range(STEPS)]
    compare(lambda: build(name)[0], batches, lambda model, b: model(**b).loss)


@pytest.mark.parametrize("name", TIMM)
def test_timm_trains(name):
    batches = [timm_batch(4, seed) for seed in range(STEPS)]

    def loss_of(model, b):
        return nn.functional.cross_entropy(model(b["pixel_values"]), b["labels"])

    # Batch norm over four images amplifies the last bits from step to step.
    compare(lambda: build_timm(name), batches, loss_of, rel=5e-3)


@pytest.mark.parametrize("name", GENERATORS)
def test_generation_with_a_static_cache(name):
    found = []
    for device in ("cpu", "tarry"):
        model = build(name)[0].to(device).eval()
        prompt = text(2, 99)["input_ids"].to(device)
        options = {"do_sample": False, "cache_implementation": "static"}
        for _ in range(2):
            compiles = len(ledger.compiles)
            out = model.generate(prompt, max_new_tokens=8, **options)
        found.append(out.cpu())
    assert torch.equal(*found)
    assert len(ledger.compiles) == compiles  # the second call finds all programs
