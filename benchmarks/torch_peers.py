"""PyTorch peers: the same loops on the CPU, on tarry and on torch_xla.

A backend knows its device, how to cut and how to wait; a loop is one workload's step,
the same for all backends. `lap(phase)` closes a phase of the step.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import models
from data import Data, projection
from records import End
from workloads import GPT, chain_ops

Lap = Callable[[str], None]


class Eager:
    """PyTorch on the CPU: nothing to cut, nothing to wait for."""

    device: Any = "cpu"

    def cut(self) -> None:
        pass

    def wait(self) -> None:
        pass

    def count(self, end: End) -> None:
        """Fill in what the backend counts."""

    def put(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.array(array)).to(self.device)


class Lazy(Eager):
    """What tarry and torch_xla share: metrics under the same names."""

    metrics: Any

    def count(self, end: End) -> None:
        total, nanoseconds, _ = self.metrics.metric_data("CompileTime") or (0, 0, ())
        end.compiles, end.compile_s = total, nanoseconds / 1e9
        for name in self.metrics.counter_names():
            if name.startswith("aten::"):
                end.fallbacks[name] = self.metrics.counter_value(name)


class Tarry(Lazy):
    def __init__(self) -> None:
        import tarry
        from tarry.debug import metrics

        self.metrics, self.device, self.cut = metrics, tarry.device(), tarry.sync

    def wait(self) -> None:
        torch.tarry.synchronize()


class TorchXla(Lazy):
    def __init__(self) -> None:
        import torch_xla
        from torch_xla.core.xla_model import wait_device_ops
        from torch_xla.debug import metrics

        self.metrics, self.device = metrics, torch_xla.device()
        self.cut, self.wait = torch_xla.sync, wait_device_ops


class Loop:
    """One workload on one backend."""

    def __init__(self, backend: Eager, workload: str, data: Data) -> None:
        self.backend, self.workload, self.data = backend, workload, data
        self.setup()
        backend.cut()
        backend.wait()

    def setup(self) -> None:
        raise NotImplementedError

    def prepare(self, i: int) -> None:
        """Before step `i`, outside its time."""

    def step(self, i: int, lap: Lap) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        """Wait for the step's results."""
        self.backend.wait()

    def loss(self) -> float:
        raise NotImplementedError

    def model(self) -> torch.nn.Module:
        model = models.MODELS[self.workload]()
        state = {**self.data.params, **self.data.buffers}
        model.load_state_dict({n: torch.from_numpy(a) for n, a in state.items()})
        return model.to(self.backend.device)


class Train(Loop):
    """Forward, backward, optimizer."""

    def setup(self) -> None:
        put = self.backend.put
        self.net = self.model()
        self.optimizer = models.make_optimizer(self.workload, self.net)
        self.batches = [(put(x), put(y)) for x, y in self.data.batches]

    def step(self, i: int, lap: Lap) -> None:
        x, y = self.batches[i % len(self.batches)]
        loss = self.net(x, y)
        lap("forward")
        loss.backward()
        lap("backward")
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.last = loss.detach()
        lap("optimizer")
        self.backend.cut()
        lap("cut")

    def loss(self) -> float:
        return self.last.item()


class Update(Loop):
    """The optimizer alone, on gradients that stay."""

    def setup(self) -> None:
        self.net = self.model()
        self.optimizer = models.make_optimizer(self.workload, self.net)
        for name, p in self.net.named_parameters():
            p.grad = self.backend.put(self.data.grads[name])

    def step(self, i: int, lap: Lap) -> None:
        self.optimizer.step()
        lap("optimizer")
        self.backend.cut()
        lap("cut")

    def loss(self) -> float:
        params = self.net.named_parameters()
        values = {n: p.detach().cpu().numpy() for n, p in params}
        return projection(values, self.data.grads)


class Decode(Loop):
    """One token a step; the host reads it, as it does to look for the end."""

    def setup(self) -> None:
        self.net = self.model().eval().requires_grad_(False)

    def prepare(self, i: int) -> None:
        if i % GPT.context == 0:
            self.token = self.backend.put(np.array([[1]]))
            self.pos = self.backend.put(np.array([0]))
            self.backend.cut()
            self.backend.wait()

    def step(self, i: int, lap: Lap) -> None:
        with torch.no_grad():
            self.token, self.pos, self.top = self.net(self.token, self.pos)
        lap("forward")
        self.backend.cut()
        lap("cut")

    def finish(self) -> None:
        int(self.token)
        self.backend.wait()

    def loss(self) -> float:
        return self.top.item()


class Chain(Loop):
    """Additions and multiplications of small tensors: the cost of an operation."""

    def setup(self) -> None:
        is_inplace = self.workload.startswith("inplace")
        self.run = models.inplace_chain if is_inplace else models.chain
        self.x, self.y = (self.backend.put(a) for a in self.data.batches[0])

    def step(self, i: int, lap: Lap) -> None:
        self.z = self.run(self.x, self.y, chain_ops(self.workload))
        lap("forward")
        self.backend.cut()
        lap("cut")

    def loss(self) -> float:
        return float(self.z.cpu().numpy().mean())


BACKENDS = {"eager": Eager, "tarry": Tarry, "torch_xla": TorchXla}


def load(peer: str, threads: int) -> Eager:
    """The backend of `peer`, its libraries imported."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    return BACKENDS[peer]()


def make_loop(backend: Eager, workload: str, data: Data) -> Loop:
    if chain_ops(workload):
        return Chain(backend, workload, data)
    kind = {"decode": Decode, "adam300": Update}.get(workload, Train)
    return kind(backend, workload, data)
