"""Losses that models compute themselves, as those of Hugging Face.

Equal trainings for every micro batch.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

from workbench.experiment import Experiment
from workbench.foundation.events import TrialEnded, TrialReported
from workbench.training import checkpoint
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

HERE = "tests.training.test_losses_of_models"
NUM_TOKENS, LENGTH, NUM_TRAIN, NUM_VALIDATION, BATCH, RATE = 7, 5, 40, 20, 16, 0.3
TOKENS = torch.randint(0, NUM_TOKENS, (60, LENGTH), generator=torch.Generator().manual_seed(3))
LABELS = TOKENS.masked_fill(
    torch.rand(60, LENGTH, generator=torch.Generator().manual_seed(4)) < 0.5, -100
)
LABELS[1] = -100  # a sample that counts nothing
# In validation all samples leave out equally many, so that nothing tells samples from targets
# there.
LABELS[NUM_TRAIN:] = TOKENS[NUM_TRAIN:].index_fill(1, torch.tensor([0, 2]), -100)


class Output(OrderedDict):
    """A mapping whose entries are attributes, too, like the outputs of transformers."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def flat_loss(logits: Tensor, labels: Tensor, **settings: Any) -> Tensor:
    return functional.cross_entropy(logits.reshape(-1, NUM_TOKENS), labels.reshape(-1), **settings)


class Model(nn.Module):
    """A small language model, with a loss of one of several kinds."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.out = nn.Embedding(NUM_TOKENS, 8), nn.Linear(8, NUM_TOKENS)
        self.kind = config["kind"]

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> Output:
        logits = self.out(torch.tanh(self.embedding(input_ids).cumsum(1)))
        if labels is None:
            return Output(logits=logits)
        return Output(loss=getattr(self, self.kind)(logits, labels), logits=logits)

    def next_token(self, logits: Tensor, labels: Tensor) -> Tensor:
        return flat_loss(logits[:, :-1], labels[:, 1:])

    def this_token(self, logits: Tensor, labels: Tensor) -> Tensor:
        return flat_loss(logits, labels)

    def penalised(self, logits: Tensor, labels: Tensor) -> Tensor:
        return flat_loss(logits, labels) + 0.01 * sum(
            each.square().sum() for each in self.parameters()
        )

    def by_sequence(self, logits: Tensor, labels: Tensor) -> Tensor:
        losses = functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
        return (losses.sum(1) / (labels != -100).sum(1).clamp(min=1)).mean()

    def summed(self, logits: Tensor, labels: Tensor) -> Tensor:
        return flat_loss(logits, labels, reduction="sum") / 100

    def weighted(self, logits: Tensor, labels: Tensor) -> Tensor:
        return flat_loss(logits, labels, weight=torch.arange(1.0, NUM_TOKENS + 1))

    def contrastive(self, logits: Tensor, labels: Tensor) -> Tensor:
        mean = logits.mean(1)
        return functional.cross_entropy(mean @ mean.T, torch.arange(len(mean)))


class Named(Dataset[Any]):
    def __init__(self, first: int, num: int) -> None:
        self.first, self.num = first, num

    def __len__(self) -> int:
        return self.num

    def __getitem__(self, index: int) -> Any:
        return {"input_ids": TOKENS[self.first + index], "labels": LABELS[self.first + index]}


def load(_options: Any) -> Any:
    return Named(0, NUM_TRAIN), Named(NUM_TRAIN, NUM_VALIDATION)


def run(folder: Path, kind: str, accumulation: int, task: str) -> tuple[TrialEnded, list[Any]]:
    of_task = (
        {"num_outputs": NUM_TOKENS, "vocabulary_size": NUM_TOKENS}
        if task == "language_model"
        else {}
    )
    asked = Experiment(
        model={"name": f"{HERE}:Model", "kind": kind},  # type: ignore[arg-type]
        data={"name": f"{HERE}:load", "task": task, **of_task},  # type: ignore[arg-type]
        objectives=[{"metric": "val_loss", "goal": "minimize"}],  # type: ignore[list-item]
        training={  # type: ignore[arg-type]
            "epochs": 2,
            "global_batch": BATCH,
            "lr": RATE,
            "lr_rule": "constant",
            "optimizer": "sgd",
            "momentum": 0.0,
            "schedule": "constant",
        },
        plan={"micro_batch": BATCH // accumulation, "accumulation": accumulation},  # type: ignore[arg-type]
    )
    events: list[Any] = []
    order = TrialTask(str(folder), 0, 0, asked.model_dump_json(), folder=str(folder))
    return run_trial(order, lambda event: bool(events.append(event))), events


def of_torch(kind: str) -> tuple[dict[str, Tensor], float]:
    """Return weights and the loss of validation after a plain loop over whole batches."""
    model = Model({"kind": kind})
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for epoch in range(2):
        order = np.random.default_rng([0, epoch]).permutation(NUM_TRAIN)
        for first in range(0, NUM_TRAIN, BATCH):
            indices = order[first : first + BATCH]
            optimizer.zero_grad()
            model(TOKENS[indices], LABELS[indices]).loss.backward()
            optimizer.step()
    with torch.no_grad():
        loss = model(TOKENS[NUM_TRAIN:], LABELS[NUM_TRAIN:]).loss.item()
    return model.state_dict(), loss


@pytest.mark.parametrize("task", ["language_model", "other"])
@pytest.mark.parametrize("kind", ["next_token", "this_token", "penalised", "by_sequence"])
def test_micro_batches_make_the_training_of_torch(kind: str, task: str, tmp_path: Path) -> None:
    expected, loss = of_torch(kind)
    for accumulation in (1, 4, 16):
        folder = tmp_path / str(accumulation)
        ended, events = run(folder, kind, accumulation, task)
        assert ended.state == "complete", ended.message
        content = checkpoint.read_latest(folder / "checkpoints")
        assert content is not None
        for name, values in content["strategy"]["model"].items():
            torch.testing.assert_close(values, expected[name], rtol=1e-5, atol=1e-6)
        values = [event.values for event in events if isinstance(event, TrialReported)]
        assert values[-1]["val_loss"] == pytest.approx(loss, rel=1e-5)


@pytest.mark.parametrize("kind", ["summed", "weighted", "contrastive"])
def test_a_loss_of_a_model_that_differs_in_parts_refuses_accumulation(
    kind: str, tmp_path: Path
) -> None:
    assert run(tmp_path / "whole", kind, 1, "language_model")[0].state == "complete"
    ended, _ = run(tmp_path / "parts", kind, 4, "language_model")
    assert ended.state == "failed"
    assert "plan.accumulation" in str(ended.message)
