"""Ten steps of a loop with `accelerate.Accelerator`, gradients clipped; prints losses,
and programs run in each step."""

import json
import sys

import torch
from accelerate import Accelerator

from counting import programs_run
from models import build

STEPS = 10

name, where = sys.argv[1:]
model, batch = build(name)
accelerator = Accelerator(cpu=where == "cpu")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=STEPS)
whole = batch(4 * STEPS, 0)
rows = [{k: v[i] for k, v in whole.items()} for i in range(4 * STEPS)]
loader = torch.utils.data.DataLoader(rows, batch_size=4)
model, optimizer, loader, schedule = accelerator.prepare(
    model, optimizer, loader, schedule
)
losses, runs = [], []
for inputs in loader:
    optimizer.zero_grad()
    loss = model(**inputs).loss
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    losses.append(loss.detach())
    runs.append(programs_run())
device = str(accelerator.device)
losses = [loss.item() for loss in losses]
print(json.dumps({"losses": losses, "runs": runs, "device": device}))
