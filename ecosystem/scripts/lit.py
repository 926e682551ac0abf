"""Two epochs of Lightning's `Trainer` on a device that Lightning does not know: the
accelerator is the class that Lightning asks for then. Prints losses and programs."""

import json
import sys

import lightning
import torch
from lightning.pytorch.accelerators import Accelerator
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import nn

from counting import programs_run

where = sys.argv[1]
if where != "cpu":
    import tarry  # noqa: F401  (the device)


class Tarry(Accelerator):
    def setup_device(self, device):
        """Nothing to set up."""

    def teardown(self):
        """Nothing to tear down."""

    @staticmethod
    def parse_devices(devices):
        return devices

    @staticmethod
    def get_parallel_devices(devices):
        return [torch.device(where, i) for i in range(devices)]

    @staticmethod
    def auto_device_count():
        return 1

    @staticmethod
    def is_available():
        return True

    @staticmethod
    def name():
        return where

    def get_device_stats(self, device):
        return {}


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 1))
        self.losses, self.runs = [], []

    def training_step(self, batch, index):
        x, y = batch
        loss = nn.functional.mse_loss(self.layers(x), y)
        self.losses.append(loss.detach())
        return loss

    def on_train_batch_end(self, *args):
        self.runs.append(programs_run())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


torch.manual_seed(0)
net = Net()
data = torch.utils.data.TensorDataset(torch.randn(20, 16), torch.randn(20, 1))
trainer = lightning.Trainer(
    accelerator="cpu" if where == "cpu" else Tarry(), devices=1, max_epochs=2,
    strategy="auto" if where == "cpu" else SingleDeviceStrategy(torch.device(where, 0)),
    logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False,
)  # fmt: skip
trainer.fit(net, torch.utils.data.DataLoader(data, batch_size=4))
device = str(net.losses[0].device)
losses = [loss.item() for loss in net.losses]
print(json.dumps({"losses": losses, "runs": net.runs, "device": device}))
