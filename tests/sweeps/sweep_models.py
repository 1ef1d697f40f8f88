"""Models that the tests of sweeps train."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import torch
import torch.distributed
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

_hoard: list[bytearray] = []


class Hungry(nn.Module):
    """A linear classifier of the digits whose training needs more memory than there is beyond a
    batch.

    The allocation that fails is a real one. On ranks other than `hungry_rank` there is no limit.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)
        nn.init.zeros_(self.linear.weight)
        self._fits = config["fits"]
        self._hungry_rank = config.get("hungry_rank")
        self._dies = config.get("dies", False)

    def forward(self, inputs: Tensor) -> Tensor:
        rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
        if self.training and len(inputs) > self._fits and self._hungry_rank in (None, rank):
            if self._dies:
                os.kill(os.getpid(), signal.SIGKILL)
            torch.empty(2**60)
        return self.linear(inputs.flatten(1))


class Greedy(nn.Module):
    """A classifier of the digits that needs more memory than there is until it is trained in a
    certain way.

    `until: blocks` fits where blocks are computed again, `until: shards` where parameters are cut.
    Again, the allocation that fails is a real one. Without `blocks` it has none.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        layers = [nn.Flatten(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10)]
        has_blocks = config.get("blocks", True)
        self.layers = nn.Sequential(*layers) if has_blocks else _Chain(layers)
        self._until, self._breaks = config["until"], config.get("breaks", False)

    def forward(self, inputs: Tensor) -> Tensor:
        is_recomputed = "forward" in self.layers.__dict__
        if self._breaks and is_recomputed:
            raise ValueError("it cannot be computed twice")
        fits = {"blocks": is_recomputed, "shards": isinstance(self, FSDPModule)}
        if self.training and not fits.get(self._until):
            torch.empty(2**60)
        return self.layers(inputs)


class _Chain(nn.Module):
    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self._names = [f"layer{number}" for number in range(len(layers))]
        for name, layer in zip(self._names, layers, strict=True):
            self.add_module(name, layer)

    def forward(self, inputs: Tensor) -> Tensor:
        for name in self._names:
            inputs = getattr(self, name)(inputs)
        return inputs


class Forgetful(nn.Module):
    """A linear classifier whose every training leaves memory behind in its process."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)
        _hoard.append(bytearray(b"1") * (config["mebibytes"] * 2**20))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.linear(inputs.flatten(1))


class Faulty(nn.Module):
    """A linear classifier that fails on one of its workers, or hangs there."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)
        self._how = config["how"]

    def forward(self, inputs: Tensor) -> Tensor:
        if torch.distributed.get_rank() == 1:
            if self._how == "fails":
                raise ValueError("rank 1 does not like this batch")
            if self._how == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(600)
        return self.linear(inputs.flatten(1))


class Waiting(nn.Module):
    """A small network that takes its time for each sample, as a busy device would, on however many
    cores.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self._sample_s = config["sample_s"]
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))

    def forward(self, inputs: Tensor) -> Tensor:
        time.sleep(self._sample_s * len(inputs))
        return self.layers(inputs)


class SpoiledBySmallParts(Waiting):
    """A network that learns the opposite as soon as a worker trains 32 samples of a batch or less,
    as a model does that is no longer right with another number of workers.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = super().forward(inputs)
        return -outputs if self.training and len(inputs) <= 32 else outputs


class _WaitingBlock(nn.Module):
    def __init__(self, num_inputs: int, num_outputs: int, sample_s: float) -> None:
        super().__init__()
        self._sample_s = sample_s
        self.linear = nn.Linear(num_inputs, num_outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        time.sleep(self._sample_s * len(inputs))
        return torch.tanh(self.linear(inputs))


def waiting_blocks(config: dict[str, Any]) -> nn.Module:
    """Return a network of blocks that take their time for each sample, to be divided into two
    stages.
    """
    sample_s = config["sample_s"]
    blocks = (_WaitingBlock(64, 32, sample_s), _WaitingBlock(32, 32, sample_s))
    return nn.Sequential(nn.Flatten(), *blocks, nn.Linear(32, 10))
