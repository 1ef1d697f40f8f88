"""Language models by folder follow a plain loop, however a step is divided."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.builders.language_models import conversations, write_lines, write_model
from tests.builders.ways import OF_REPLICAS
from tests.services.process_group import run_together
from workbench.data.batches import global_batches
from workbench.experiment import Experiment
from workbench.foundation.events import Event, TrialReported
from workbench.training import checkpoint
from workbench.training.loading import load_trial_data
from workbench.training.task import TrialTask
from workbench.training.trial import run_trial

SEED = 5
BATCH = 8
LR = 0.005


def experiment(
    folder: Path,
    *,
    data: dict[str, Any] | None = None,
    plan: dict[str, Any] | None = None,
    **training: Any,
) -> Experiment:
    return Experiment(
        model={"name": "hf", "path": str(folder)},
        data={
            "name": "conversations",
            "path": str(folder / "train.jsonl"),
            "sequence": 128,
            **(data or {}),
        },
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        training={
            "epochs": 2,
            "global_batch": BATCH,
            "lr": LR,
            "lr_rule": "constant",
            "schedule": "constant",
            "warmup_epochs": 0,
            **training,
        },
        plan=plan or {},
    )


def train(written: Experiment, folder: Path, **task: Any) -> dict[str, float]:
    """Train a trial and return its last reported values."""
    events: list[Event] = []

    def report(event: Event) -> bool:
        events.append(event)
        return False

    made = TrialTask("run", 0, 0, written.model_dump_json(), folder=str(folder), seed=SEED, **task)
    ended = run_trial(made, report)
    assert ended.state == "complete", ended
    reports = [event.values for event in events if isinstance(event, TrialReported)]
    return next((values for values in reversed(reports) if "val_loss" in values), {})


def plain_losses(model: Any, split: Any, rows: Any) -> tuple[torch.Tensor, int]:
    """Return the total loss of rows and the number of tokens, for each conversation alone."""
    totals, num = [], 0
    for row in rows:
        for ids, is_counted in split.documents(int(row)):
            tokens = torch.tensor(ids, dtype=torch.int64)[None]
            labels = torch.where(torch.tensor(is_counted)[None], tokens, -100)
            count = int((labels[:, 1:] != -100).sum())
            totals.append(model(input_ids=tokens, labels=labels).loss * count)
            num += count
    return torch.stack(totals).sum(), num


def plain_loop(model: Any, datasets: Any, epochs: int) -> list[float]:
    """Train a model of transformers as anybody would, and return the loss of each step."""
    trained = [item for item in model.parameters() if item.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=LR, weight_decay=0.0)
    split, losses = datasets.train, []
    model.train()
    for epoch in range(epochs):
        for rows in global_batches(
            len(split),
            global_batch=BATCH,
            epoch=epoch,
            seed=SEED,
            shuffle=True,
            groups=split.shuffle_groups,
        ):
            total, num = plain_losses(model, split, rows)
            (total / num).backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(total.detach() / num))
    return losses


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    write_model(folder)
    write_lines(folder / "train.jsonl", conversations(80))
    return folder


WAYS: dict[str, dict[str, Any]] = {
    "whole steps": {"data": {"packing": False}},
    "micro batches of packed rows": {"data": {"packing": True}, "plan": {"micro_batch": 2}},
}


@pytest.mark.parametrize("way", WAYS)
def test_a_training_follows_a_plain_loop(way, folder, tmp_path):
    from transformers import AutoModelForCausalLM

    epochs = 10 if way.startswith("micro") else 5  # about 50 steps
    written = experiment(folder, epochs=epochs, **WAYS[way])
    values = train(written, tmp_path)
    datasets = load_trial_data("run", written, SEED)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    losses = plain_loop(model, datasets, epochs)
    assert losses[-1] < 0.5 * losses[0]
    model.eval()
    with torch.no_grad():
        total, num = plain_losses(model, datasets.validation, np.arange(len(datasets.validation)))
    assert values["val_loss"] == pytest.approx(float(total / num), abs=1e-4)
    stored = checkpoint.read(tmp_path / "checkpoints" / "last.pt")["strategy"]["model"]
    for name, value in model.state_dict().items():
        torch.testing.assert_close(stored[f"inner.{name}"], value, rtol=1e-3, atol=1e-4)


def train_on_two(
    rank: int, num_workers: int, meeting: str, folders: tuple[str, str], strategies: list[str]
) -> None:
    model, folder = map(Path, folders)
    for strategy in strategies:
        written = experiment(model, plan={"workers": 2, "strategy": strategy}, epochs=1)
        train(
            written,
            folder / strategy,
            rank=rank,
            num_workers=num_workers,
            meeting=meeting + strategy,
        )


@pytest.mark.parametrize(
    "strategies", [["ddp"], pytest.param(sorted({*OF_REPLICAS} - {"ddp"}), marks=pytest.mark.slow)]
)
def test_two_workers_train_what_one_does(strategies, folder, tmp_path):
    train(experiment(folder, epochs=1), tmp_path / "one")
    alone = checkpoint.read(tmp_path / "one" / "checkpoints" / "last.pt")["strategy"]["model"]
    run_together(train_on_two, 2, (str(folder), str(tmp_path)), strategies)
    for strategy in strategies:
        path = tmp_path / strategy / "checkpoints" / "last.pt"
        stored = checkpoint.read(path)["strategy"]["model"]
        for name, value in alone.items():
            torch.testing.assert_close(stored[name], value, rtol=1e-3, atol=1e-4)
