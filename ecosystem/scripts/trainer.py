"""Ten steps of `transformers.Trainer`; prints losses, and programs run in each step."""

import json
import sys
import tempfile

from transformers import Trainer, TrainerCallback, TrainingArguments

from counting import programs_run
from models import build

STEPS = 10


class Count(TrainerCallback):
    def __init__(self):
        self.runs = []

    def on_step_end(self, args, state, control, **kwargs):
        self.runs.append(programs_run())


name, where = sys.argv[1:]
model, batch = build(name)
whole = batch(4 * STEPS, 0)
rows = [{k: v[i] for k, v in whole.items()} for i in range(4 * STEPS)]
count = Count()
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder, per_device_train_batch_size=4, max_steps=STEPS,
        logging_steps=STEPS, save_strategy="no", report_to=[], seed=0,
        use_cpu=where == "cpu", learning_rate=1e-3,
        use_cache=True,  # without, causal models look for packed sequences: a read
    )  # fmt: skip
    trainer = Trainer(model, arguments, train_dataset=rows, callbacks=[count])
    trainer.train()
    device = str(next(model.parameters()).device)
    trainer.save_model(folder)
    loss = next(h["loss"] for h in trainer.state.log_history if "loss" in h)
print(json.dumps({"losses": [loss], "runs": count.runs, "device": device}))
