"""The computation of a client and of the server in one round, with only torch and numpy.

The module is copied into an application for Flower, with the modules of the workbench that it
imports. Flower moves weights between devices and selects the clients.
"""

from __future__ import annotations

import base64
import io
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from workbench.data.sample_seeding import seed_generators, seed_of
from workbench.training.federated.server import Server, krum, trimmed_mean, weighted_mean

CLIENT_FILE = "client-{:05}.npz"
"""The samples of a client in a simulation, by its number."""
SETTINGS, MODEL = "settings.json", "model.json"
TRAIN, EVALUATE, INITIAL = "train", "evaluate", "initial"
_PREFIX = "model."
Weights = dict[str, np.ndarray]


@dataclass(frozen=True)
class Update:
    """What a client sends: its weights, its number of samples, and its mean loss."""

    weights: Weights
    num_samples: int
    loss: float


class Learning:
    """The model of a federation and the settings of its rounds."""

    def __init__(self, folder: Path) -> None:
        """Load what the workbench has written.

        Args:
            folder: Holds the settings and the model.
        """
        self.settings: dict[str, Any] = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        self._packed: dict[str, str] = json.loads((folder / MODEL).read_text(encoding="utf-8"))
        self._programs: dict[str, nn.Module] = {}

    def initial(self) -> Weights:
        """Return the weights with which the first round starts."""
        with np.load(io.BytesIO(unpacked(self._packed[INITIAL]))) as stored:
            return {name: stored[name] for name in self.settings["sent"]}

    def train(
        self, weights: Weights, inputs: np.ndarray, targets: np.ndarray, *, number: int, client: int
    ) -> Update:
        """Train on the samples of a client, from the weights of a round.

        Args:
            weights: The weights of the round, by name.
            inputs: Its samples, as the model takes them.
            targets: Their targets.
            number: The round, from 0.
            client: The number of the client. With the seed and the round, it determines the order
                of the samples.
        """
        settings, batch = self.settings, self.settings["batch"]
        program = self._holding(TRAIN, weights)
        parameters = {name: item for name, item in _named(program) if name in settings["trained"]}
        anchor = [item.detach().clone() for item in parameters.values()]
        optimizer = _optimizer(settings, parameters)
        for group in optimizer.param_groups:
            group["lr"] = settings["rates"][number] * group.get("lr_factor", 1.0)
        seed = seed_of(settings["seed"], number, client)
        seed_generators(seed)
        loss_sum, num_trained = 0.0, 0
        for local_epoch in range(settings["local_epochs"]):
            order = np.random.default_rng([seed, local_epoch]).permutation(len(targets))
            for first in range(0, len(order), batch):
                chosen = order[first : first + batch]
                loss, _ = program(
                    torch.from_numpy(inputs[chosen]), torch.from_numpy(targets[chosen])
                )
                if settings["proximal"]:
                    # Source: Li et al., "Federated Optimization in Heterogeneous Networks", 2020.
                    pairs = zip(parameters.values(), anchor, strict=True)
                    distance = torch.stack([(item - at).square().sum() for item, at in pairs]).sum()
                    loss = loss + 0.5 * settings["proximal"] * distance
                loss.backward()
                if settings["clip_norm"] is not None:
                    nn.utils.clip_grad_norm_(list(parameters.values()), settings["clip_norm"])
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                loss_sum += float(loss.detach()) * len(chosen)
                num_trained += len(chosen)
        state = _state(program)
        sent = {name: state[name].detach().float().numpy().copy() for name in settings["sent"]}
        return Update(sent, len(targets), loss_sum / num_trained if num_trained else 0.0)

    def evaluate(
        self, weights: Weights, inputs: np.ndarray, targets: np.ndarray
    ) -> dict[str, float]:
        """Measure weights on samples.

        Args:
            weights: The weights of a round, by name.
            inputs: The samples.
            targets: Their targets.

        Returns:
            The mean loss and, for classes, the accuracy. Both are 0 without any sample.
        """
        program, batch = self._holding(EVALUATE, weights), self.settings["batch"]
        names = ("loss", "accuracy") if self.settings["has_classes"] else ("loss",)
        sums, num_counted = dict.fromkeys(names, 0.0), 0.0
        for first in range(0, len(targets), batch):
            wanted = torch.from_numpy(targets[first : first + batch])
            with torch.inference_mode():
                loss, right = program(torch.from_numpy(inputs[first : first + batch]), wanted)
            sums["loss"] += float(loss) * len(wanted)
            if "accuracy" in sums:
                sums["accuracy"] += float(right[0])
                num_counted += float(right[1])
        counts = {"loss": len(targets), "accuracy": num_counted}
        return {name: value / max(1, counts[name]) for name, value in sums.items()}

    def _holding(self, name: str, weights: Weights) -> nn.Module:
        """Return a program that holds these weights."""
        if name not in self._programs:
            exported = torch.export.load(io.BytesIO(unpacked(self._packed[name])))
            self._programs[name] = exported.module()
        program = self._programs[name]
        state = _state(program)
        with torch.no_grad():
            for key, value in weights.items():
                state[key].copy_(torch.from_numpy(value))
        return program


class Aggregation:
    """The server: changes of clients in, new weights out."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Take the settings that a `Learning` has read."""
        self._settings = settings
        self._server = Server(**settings["server"])

    def step(self, before: Weights, updates: Sequence[tuple[Weights, int]]) -> Weights:
        """Return the weights after a round.

        Args:
            before: The weights of the round.
            updates: What each client sent, in their order: its weights and its number of samples.
        """
        names = self._settings["sent"]
        start = _flat(before, names)
        change = self._aggregate([(_flat(sent, names) - start, number) for sent, number in updates])
        if change is None:
            return before
        is_trained = np.concatenate(
            [np.full(before[name].size, name in self._settings["trained"]) for name in names]
        )
        step = change.copy()  # values that are not parameters, such as running means, are averaged
        step[is_trained] = self._server.step(change[is_trained])
        ends = np.cumsum([before[name].size for name in names])
        parts = np.split(start + step, ends[:-1])
        return {
            name: part.reshape(before[name].shape).astype(before[name].dtype)
            for name, part in zip(names, parts, strict=True)
        }

    def _aggregate(self, changes: Sequence[tuple[np.ndarray, int]]) -> np.ndarray | None:
        way = self._settings["aggregation"]
        if way == "mean":
            return weighted_mean((change, float(number)) for change, number in changes)
        present = [change for change, number in changes if number]
        if not present:
            return None
        if way == "krum":
            return present[krum(present, self._settings["num_bad"])]
        return trimmed_mean(present, self._settings["trim"])


def packed(content: bytes) -> str:
    """Return bytes as text, because Flower sends no other files."""
    return base64.b64encode(zlib.compress(content, 9)).decode("ascii")


def unpacked(text: str) -> bytes:
    """Return what `packed` was given."""
    return zlib.decompress(base64.b64decode(text))


def _flat(weights: Weights, names: Sequence[str]) -> np.ndarray:
    return np.concatenate([weights[name].ravel() for name in names]).astype(np.float64)


def _named(program: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(name.removeprefix(_PREFIX), item) for name, item in program.named_parameters()]


def _state(program: nn.Module) -> dict[str, Tensor]:
    return {name.removeprefix(_PREFIX): value for name, value in program.state_dict().items()}


def _optimizer(
    settings: Mapping[str, Any], parameters: Mapping[str, nn.Parameter]
) -> torch.optim.Optimizer:
    groups = []
    for group in settings["optimizer"]["groups"]:
        options = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in group["options"].items()
        }
        groups.append({"params": [parameters[name] for name in group["names"]], **options})
    return getattr(torch.optim, settings["optimizer"]["name"])(groups)
