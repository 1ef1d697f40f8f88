"""Models and data sets whose batches are more than a pair of tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, IterableDataset, WeightedRandomSampler

NUM_SAMPLES = 50


def _draw(num_samples: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(num_samples)
    inputs = torch.randn(num_samples, 6, generator=generator)
    return inputs, (inputs[:, 0] > 0).long()


class Samples(Dataset):
    """Samples of one of several kinds, by number."""

    def __init__(self, kind: str, num_samples: int) -> None:
        self.kind = kind
        self.inputs, self.targets = _draw(num_samples)

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> Any:
        inputs, target = self.inputs[index], int(self.targets[index])
        match self.kind:
            case "named":
                return {"features": inputs, "labels": target, "name": f"sample {index}"}
            case "several":
                return inputs[:2], {"rest": inputs[2:]}, target
            case "lengths":
                return {"tokens": [1 + target] * (1 + index % 4), "label": target}
        return inputs, target


def pad(samples: list[dict[str, Any]]) -> dict[str, Tensor]:
    longest = max(len(sample["tokens"]) for sample in samples)
    tokens = [sample["tokens"] + [0] * (longest - len(sample["tokens"])) for sample in samples]
    padded = torch.tensor(tokens)
    return {
        "tokens": padded,
        "mask": padded > 0,
        "label": torch.tensor([sample["label"] for sample in samples]),
    }


def load(options: Mapping[str, Any]) -> Any:
    parts = [Samples(options["kind"], size) for size in (NUM_SAMPLES, 20)]
    if options["kind"] == "lengths":
        return tuple(DataLoader(part, batch_size=4, collate_fn=pad) for part in parts)
    return tuple(parts)


@dataclass
class Answer:
    logits: Tensor
    loss: Tensor | None = None


class Named(nn.Module):
    """Takes named inputs, labels among them, and returns a dataclass with its loss.

    It has a lazy layer.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.hidden, self.out = nn.LazyLinear(8), nn.Linear(8, 2)

    def forward(self, features: Tensor, labels: Tensor | None = None) -> Answer:
        logits = self.out(torch.tanh(self.hidden(features)))
        return Answer(logits, None if labels is None else functional.cross_entropy(logits, labels))


class Several(nn.Module):
    """Takes several inputs, and returns a mapping."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(4, 2)

    def forward(self, first: Tensor, others: dict[str, Tensor]) -> dict[str, Tensor]:
        return {
            "hidden": others["rest"].sum(),
            "logits": self.first(first) + self.second(others["rest"]),
        }


class Lengths(nn.Module):
    """Takes padded tokens and a mask."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.embedding, self.out = nn.Embedding(3, 4), nn.Linear(4, 2)

    def forward(self, tokens: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        mean = (self.embedding(tokens) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return self.out(mean), mask


class Targets(nn.Module):
    """Takes the targets as its last argument, and returns a tuple with its loss."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.out = nn.Linear(6, 2)

    def forward(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.out(inputs)
        return logits, functional.cross_entropy(logits, targets)


class Whole(nn.Module):
    """Takes the whole batch as one mapping, and returns nothing but its loss."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.out = nn.Linear(6, 2)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        return functional.cross_entropy(self.out(batch["features"]), batch["labels"])


KINDS: dict[str, dict[str, Any]] = {
    "named": {"model": "tests.builders.structured:Named"},
    "several": {"model": "tests.builders.structured:Several"},
    "lengths": {"model": "tests.builders.structured:Lengths"},
    "targets": {"model": "tests.builders.structured:Targets", "loss": "model"},
    "whole": {"model": "tests.builders.structured:Whole"},
}
"""The model and the loss for each kind of batch."""


def fields_of(kind: str) -> dict[str, Any]:
    """Return model, data, loss and objective of an experiment on one kind of batch."""
    task = {"task": "other"} if kind == "whole" else {"task": "classification", "num_outputs": 2}
    data = {
        "name": "tests.builders.structured:load",
        "kind": "named" if kind == "whole" else kind,
        **task,
    }
    return {**KINDS[kind], "data": data, "objectives": [{"metric": "val_loss", "goal": "minimize"}]}


class Stream(IterableDataset):
    """Numbers in an order that it draws itself, another one in each epoch."""

    def __init__(self, num_samples: int) -> None:
        self.num_samples = num_samples

    def __iter__(self) -> Iterator[tuple[Tensor, float]]:
        for number in torch.randperm(self.num_samples).tolist():
            yield torch.tensor([float(number)]), float(number)


def numbers(num_samples: int) -> Any:
    """Return the numbers below `num_samples` as pairs of themselves."""
    return [(torch.tensor([float(number)]), float(number)) for number in range(num_samples)]


def weighted(num_samples: int) -> DataLoader:
    """Return a loader whose sampler repeats some samples and leaves out others."""
    samples = numbers(num_samples)
    return DataLoader(samples, sampler=WeightedRandomSampler([1.0] * num_samples, num_samples))
