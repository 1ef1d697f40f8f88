"""A perceptron for tables: an ensemble whose members share most of their weights.

Each number is embedded, piecewise linearly or by waves, so that the network can learn sharp edges.
Each member scales the inputs and the hidden units differently. The loss is the mean over the
members, and so is the prediction.

It has its own training loop. A step takes about a millisecond, and the loop for all models does
more than that between two steps.

Source: Gorishniy et al., On Embeddings for Numerical Features in Tabular Deep Learning (2022), for
the embeddings. Gorishniy et al., TabM: Advancing Tabular Deep Learning With Parameter-Efficient
Ensembling (2024), for the members, which share weights as in Wen et al., BatchEnsemble (2020).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from workbench.models.fitted_estimator import add_loaded_buffers
from workbench.models.staged_fitting import PASSES_RATIO, Growth

NumericEmbedding = Literal["piecewise", "periodic"]

_NUM_PIECES = 32
_NUM_WAVES = 12
_WAVE_DEVIATION = 0.3
# Rows that differ in a number of them decide whether a feature is a number.
_MIN_NUMBERS = 3
_MIN_PROBABILITY = 1e-7
# The members of many rows at once do not fit into the cache of a processor.
_PREDICTED_AT_ONCE = 1024
_WARM_UP_STEPS = 100
# Weights are averaged over about so many epochs, but over a few steps at least.
_AVERAGED_EPOCHS, _MIN_AVERAGED_STEPS = 1.0, 20.0


@dataclass(frozen=True)
class Settings:
    """The form of the network and how it is trained.

    Attributes:
        hidden_width: Units in each hidden layer.
        num_layers: Number of hidden layers, at least 1.
        num_members: Number of members of the ensemble.
        numeric_embedding: How numbers are embedded.
        embedding_width: Units of the embedding of each number.
        dropout: Probability that a hidden unit is dropped in training.
        step_size: Learning rate of AdamW.
        decay: Weight decay of AdamW.
        num_passes: The most passes over the samples.
        batch: Samples of a step, at most as many as there are.
    """

    hidden_width: int
    num_layers: int
    num_members: int
    numeric_embedding: NumericEmbedding
    embedding_width: int
    dropout: float
    step_size: float
    decay: float
    num_passes: float
    batch: int


class TabularMLP(nn.Module):
    """The mean of the members: logarithms of class probabilities, or numbers."""

    epochs: Tensor

    def __init__(self, num_layers: int, numeric_embedding: NumericEmbedding) -> None:
        """Build a network without weights. Loading a state adds them.

        Args:
            num_layers: Number of hidden layers.
            numeric_embedding: How numbers are embedded.
        """
        super().__init__()
        self.num_layers = num_layers
        self.names = (*_names(num_layers, numeric_embedding), *_FIXED, "epochs")
        add_loaded_buffers(self, self.names)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (batch, ...) numbers to (batch, num_outputs)."""
        weights: dict[str, Tensor] = {name: getattr(self, name) for name in self.names}
        rows = inputs.flatten(1)
        if torch.compiler.is_exporting() or len(rows) <= _PREDICTED_AT_ONCE:
            return _joined(weights, rows, self.num_layers)
        parts = rows.split(_PREDICTED_AT_ONCE)
        return torch.cat([_joined(weights, part, self.num_layers) for part in parts])


_FIXED = ("low", "high", "number", "edge", "slope", "mean", "scale")
"""What is known of the features and targets before the training. Classes have no mean."""


def _names(num_layers: int, numeric_embedding: NumericEmbedding) -> list[str]:
    """Return the names of the trained weights."""
    names = ["frequency"] if numeric_embedding == "periodic" else []
    names += ["embedding", "embedding_bias"]
    for layer in range(num_layers):
        names += [f"{kind}_{layer}" for kind in ("scale_in", "weight", "scale_out", "bias")]
    return [*names, "head", "head_bias"]


def _joined(weights: Mapping[str, Tensor], rows: Tensor, num_layers: int) -> Tensor:
    """Return the prediction of all members together."""
    outputs = _members(weights, rows, num_layers)
    if not len(weights["mean"]):
        return outputs.softmax(dim=2).mean(dim=1).clamp_min(_MIN_PROBABILITY).log()
    return outputs.mean(dim=1) * weights["scale"] + weights["mean"]


def _members(
    weights: Mapping[str, Tensor], rows: Tensor, num_layers: int, masks: Sequence[Tensor] = ()
) -> Tensor:
    """Return the outputs of each member as (batch, members, outputs).

    Args:
        weights: All weights by name.
        rows: (batch, features) numbers.
        num_layers: Number of hidden layers.
        masks: Factors of the hidden units of each layer in training.
    """
    values = _embedded(weights, rows)[:, None]
    for layer in range(num_layers):
        values = values * weights[f"scale_in_{layer}"]
        values = functional.linear(values, weights[f"weight_{layer}"])
        values = torch.addcmul(weights[f"bias_{layer}"], values, weights[f"scale_out_{layer}"])
        values = functional.relu(values)
        if masks:
            values = values * masks[layer]
    return torch.einsum("bkh,kho->bko", values, weights["head"]) + weights["head_bias"]


def _embedded(weights: Mapping[str, Tensor], rows: Tensor) -> Tensor:
    """Return rows with an embedding of each number, within the range of the train samples."""
    rows = torch.minimum(torch.maximum(rows, weights["low"]), weights["high"])
    if not len(weights["number"]):
        return rows
    numbers = rows.index_select(1, weights["number"])[:, :, None]
    if "frequency" in weights:
        angles = numbers * weights["frequency"]
        parts = torch.cat([angles.sin(), angles.cos()], dim=2)
    else:
        parts = ((numbers - weights["edge"]) * weights["slope"]).clamp(0.0, 1.0)
    embedded = torch.einsum("bfp,fpe->bfe", parts, weights["embedding"]) + weights["embedding_bias"]
    if "frequency" in weights:
        embedded = functional.relu(embedded)
    return torch.cat([rows, embedded.flatten(1)], dim=1)


def train_tabular_mlp(
    inputs: np.ndarray,
    targets: np.ndarray,
    *,
    num_classes: int | None,
    settings: Settings,
    num_rounds: int,
    seed: int,
    growth: Growth,
) -> Iterator[TabularMLP]:
    """Train a network, and yield it after each round.

    Args:
        inputs: See FittedConfiguration.grow.
        targets: Class numbers, or numbers as (samples,) or (samples, numbers).
        num_classes: Number of classes, or None for a regression.
        settings: The form of the network and how it is trained.
        num_rounds: Maximum number of parts of the work.
        seed: Seed of everything random.
        growth: Where an earlier attempt was, and what to store for a later one.
    """
    training = _Training(inputs, targets, num_classes, settings, seed)
    sizes = _steps_after_rounds(settings.num_passes * training.steps_of_epoch, num_rounds)
    growth.keep(training.state)
    if growth.state is not None:
        training.load(growth.state)
    for num_steps in sizes[growth.num_done :]:
        training.step_to(num_steps, sizes[-1])
        yield training.model()


def _steps_after_rounds(num_steps: float, num_rounds: int) -> list[int]:
    last = max(1, round(num_steps))
    wanted = [last / PASSES_RATIO**later for later in range(num_rounds)]
    return sorted({max(1, round(steps)) for steps in wanted})


class _Training:
    """The weights, their running means, and the samples."""

    def __init__(
        self,
        inputs: np.ndarray,
        targets: np.ndarray,
        num_classes: int | None,
        settings: Settings,
        seed: int,
    ) -> None:
        rows = np.ascontiguousarray(inputs, dtype=np.float32)
        self._settings, self._is_class = settings, num_classes is not None
        self._random = torch.Generator().manual_seed(seed)
        self._rows = torch.from_numpy(rows)
        mean, scale = np.zeros((2, 0))
        if num_classes is None:
            columns = targets.reshape(len(rows), -1).astype(np.float64)
            mean, scale = columns.mean(axis=0), columns.std(axis=0)
            scale = np.where(scale > 0.0, scale, 1.0)
            self._targets = torch.from_numpy(((columns - mean) / scale).astype(np.float32))
        else:
            self._targets = torch.from_numpy(targets.astype(np.int64))
        self._fixed = _features_of(rows) | {
            "mean": torch.from_numpy(mean.astype(np.float32)),
            "scale": torch.from_numpy(scale.astype(np.float32)),
        }
        num_outputs = num_classes or len(mean)
        self._weights = self._initial(rows.shape[1], num_outputs)
        self._names = list(self._weights)
        self._listed = [weight.requires_grad_() for weight in self._weights.values()]
        self._means = [weight.detach().clone() for weight in self._listed]
        self._optimizer = self._new_optimizer()
        self._batch = settings.batch
        self.steps_of_epoch = max(1, len(rows) // self._batch)
        self._step = 0
        self._order = torch.zeros(0, dtype=torch.int64)

    def _initial(self, num_features: int, num_outputs: int) -> dict[str, Tensor]:
        """Return random weights. Members start with different signs of the inputs."""
        chosen, numbers = self._settings, len(self._fixed["number"])
        members, hidden, embedding = (
            chosen.num_members,
            chosen.hidden_width,
            chosen.embedding_width,
        )
        weights: dict[str, Tensor] = {}
        num_parts = _NUM_PIECES
        if chosen.numeric_embedding == "periodic":
            num_parts = 2 * _NUM_WAVES
            normal = torch.randn(numbers, _NUM_WAVES, generator=self._random)
            weights["frequency"] = normal * (2.0 * math.pi * _WAVE_DEVIATION)
        weights["embedding"] = self._uniform(num_parts, numbers, num_parts, embedding)
        weights["embedding_bias"] = self._uniform(num_parts, numbers, embedding)
        width = num_features + numbers * embedding
        for layer in range(chosen.num_layers):
            signs = torch.ones(members, width)
            if layer == 0:
                signs = torch.randint(0, 2, (members, width), generator=self._random) * 2.0 - 1.0
            weights[f"scale_in_{layer}"] = signs
            weights[f"weight_{layer}"] = self._uniform(width, hidden, width)
            weights[f"scale_out_{layer}"] = torch.ones(members, hidden)
            weights[f"bias_{layer}"] = self._uniform(width, members, hidden)
            width = hidden
        weights["head"] = self._uniform(width, members, width, num_outputs)
        weights["head_bias"] = self._uniform(width, members, num_outputs)
        return weights

    def _uniform(self, num_inputs: int, *shape: int) -> Tensor:
        bound = 1.0 / math.sqrt(max(1, num_inputs))
        return torch.empty(shape).uniform_(-bound, bound, generator=self._random)

    def _new_optimizer(self) -> torch.optim.AdamW:
        is_decayed = [name.startswith(("weight", "head")) for name in self._names]
        is_decayed = [
            decayed and name != "head_bias"
            for decayed, name in zip(is_decayed, self._names, strict=True)
        ]
        pairs = list(zip(self._listed, is_decayed, strict=True))
        groups = [
            {
                "params": [weight for weight, decayed in pairs if decayed],
                "weight_decay": self._settings.decay,
            },
            {
                "params": [weight for weight, decayed in pairs if not decayed],
                "weight_decay": 0.0,
            },
        ]
        return torch.optim.AdamW(groups, lr=self._settings.step_size, fused=True)

    def step_to(self, num_steps: int, num_steps_of_all: int) -> None:
        """Train until so many steps are made."""
        warm_up = min(_WARM_UP_STEPS, max(1, num_steps_of_all // 10))
        averaged = max(_MIN_AVERAGED_STEPS, _AVERAGED_EPOCHS * self.steps_of_epoch)
        weights = [weight.detach() for weight in self._listed]
        while self._step < num_steps:
            self._make_step(min(1.0, (self._step + 1) / warm_up))
            self._step += 1
            newest = max(1.0 / averaged, 1.0 / self._step)
            # One call for all weights. For each of them, it would take as long as the step.
            torch._foreach_lerp_(  # pyright: ignore[reportPrivateImportUsage]
                self._means, weights, newest
            )

    def _make_step(self, factor: float) -> None:
        place = self._step % self.steps_of_epoch
        if place == 0:
            self._order = torch.randperm(len(self._rows), generator=self._random)
        chosen = self._order[place * self._batch : (place + 1) * self._batch]
        weights = self._fixed | self._weights
        settings = self._settings
        masks = self._masks(len(chosen)) if settings.dropout else ()
        outputs = _members(weights, self._rows[chosen], settings.num_layers, masks)
        targets = self._targets[chosen]
        if self._is_class:
            numbers = targets.repeat_interleave(settings.num_members)
            loss = functional.cross_entropy(outputs.flatten(0, 1), numbers)
        else:
            loss = (outputs - targets[:, None]).square().mean()
        self._optimizer.zero_grad()
        loss.backward()
        for group in self._optimizer.param_groups:
            group["lr"] = settings.step_size * factor
        self._optimizer.step()

    def _masks(self, num_rows: int) -> list[Tensor]:
        """Return the dropout of each layer. Members share it: drawing it for each takes longest."""
        part, width = self._settings.dropout, self._settings.hidden_width
        return [
            (torch.rand(num_rows, 1, width, generator=self._random) >= part) / (1.0 - part)
            for _ in range(self._settings.num_layers)
        ]

    def model(self) -> TabularMLP:
        """Return a network with a copy of the running means of the weights."""
        model = TabularMLP(self._settings.num_layers, self._settings.numeric_embedding)
        means = {name: mean.clone() for name, mean in zip(self._names, self._means, strict=True)}
        epochs = torch.tensor(self._step / self.steps_of_epoch)
        for name, value in (self._fixed | means | {"epochs": epochs}).items():
            setattr(model, name, value)
        return model.eval()

    def state(self) -> dict[str, Any]:
        """Return everything that the next steps depend on."""
        return {
            "weights": [weight.detach() for weight in self._listed],
            "means": self._means,
            "optimizer": self._optimizer.state_dict(),
            "random": self._random.get_state(),
            "order": self._order,
            "step": self._step,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        with torch.no_grad():
            for own, stored in zip(self._listed, state["weights"], strict=True):
                own.copy_(stored)
        self._means = [mean.clone() for mean in state["means"]]
        self._optimizer.load_state_dict(state["optimizer"])
        self._random.set_state(state["random"])
        self._order, self._step = state["order"], state["step"]


def _features_of(rows: np.ndarray) -> dict[str, Tensor]:
    """Return the range of each feature, which of them are numbers, and their pieces.

    A piece is a part of the range with about as many samples as each other piece.
    """
    numbers = [place for place in range(rows.shape[1]) if _is_number(rows[:, place])]
    edge, slope = np.zeros((2, len(numbers), _NUM_PIECES), dtype=np.float32)
    shares = np.linspace(0.0, 1.0, _NUM_PIECES + 1)
    for row, place in enumerate(numbers):
        cuts = np.unique(np.quantile(rows[:, place], shares, method="nearest"))
        edge[row, : len(cuts) - 1] = cuts[:-1]
        slope[row, : len(cuts) - 1] = 1.0 / np.maximum(np.diff(cuts), np.float32(1e-6))
    return {
        "low": torch.from_numpy(rows.min(axis=0)),
        "high": torch.from_numpy(rows.max(axis=0)),
        "number": torch.tensor(numbers, dtype=torch.int64),
        "edge": torch.from_numpy(edge),
        "slope": torch.from_numpy(slope),
    }


def _is_number(feature: np.ndarray) -> bool:
    """Return whether a feature is a number rather than one of two values."""
    return len(np.unique(feature)) >= _MIN_NUMBERS
