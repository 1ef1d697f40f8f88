"""Data sets of Hugging Face and metrics of torchmetrics are used as they are, on one worker and on
two.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.services.process_group import run_together
from workbench.experiment import Experiment
from workbench.experiment.plan import PartialPlan
from workbench.foundation.events import TrialEnded, TrialReported
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

NUM_TRAIN, NUM_VALIDATION = 48, 21


def load_rows(options: Mapping[str, Any]) -> Any:
    import datasets

    def part(num_samples: int) -> Any:
        inputs = np.random.default_rng(num_samples).normal(size=(num_samples, 4)).astype(np.float32)
        rows = {"features": inputs.tolist(), "label": (inputs[:, 0] > 0).astype(int).tolist()}
        dataset = datasets.Dataset.from_dict(rows)
        match options["format"]:
            case "torch":
                return dataset.with_format("torch")
            case "stream":
                return dataset.with_format("torch").to_iterable_dataset(num_shards=3)
        return dataset

    return part(NUM_TRAIN), part(NUM_VALIDATION)


class Line(torch.nn.Module):
    """Takes the features of a row."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, features: Any) -> torch.Tensor:
        return self.layer(features)


def train(
    rank: int, num_workers: int, meeting: str | None, folder: str, given: tuple[str, list[Any]]
) -> tuple[TrialEnded, list[TrialReported]]:
    """Train on data of a kind, with metrics."""
    kind, metrics = given
    sizes = (
        {"samples_per_epoch": NUM_TRAIN, "validation_samples": NUM_VALIDATION}
        if kind == "stream"
        else {}
    )
    experiment = Experiment(
        model=f"{__name__}:Line",
        data={
            "name": f"{__name__}:load_rows",
            "task": "classification",
            "num_outputs": 2,
            "format": kind,
            **sizes,
        },
        metrics=metrics,
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        training={"epochs": 3, "global_batch": 12, "lr": 0.1},
    )
    reports: list[TrialReported] = []

    def take(event: Any) -> bool:
        if isinstance(event, TrialReported) and "val_loss" in event.values:
            reports.append(event)
        return False

    task = TrialTask(
        "r",
        0,
        0,
        experiment.model_dump_json(),
        folder=folder,
        seed=3,
        rank=rank,
        num_workers=num_workers,
        meeting=meeting,
        plan=PartialPlan.of(workers=num_workers),
    )
    return run_trial(task, take), reports


@pytest.mark.parametrize("kind", ["lists", "torch", "stream"])
def test_a_dataset_of_hugging_face_trains_alike_on_one_worker_and_two(
    kind: str, tmp_path: Path
) -> None:
    pytest.importorskip("datasets")
    ended, alone = train(0, 1, None, str(tmp_path / "alone"), (kind, []))
    assert ended.state == "complete", ended.traceback
    assert alone[-1].values["val_loss"] < alone[0].values["val_loss"]
    [(ended, together), _] = run_together(train, 2, str(tmp_path / "together"), (kind, []))
    assert ended.state == "complete", ended.traceback
    losses = [[report.values["val_loss"] for report in reports] for reports in (alone, together)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_a_metric_of_torchmetrics_sees_the_whole_validation_part_on_two_workers(
    tmp_path: Path,
) -> None:
    pytest.importorskip("torchmetrics")
    named: list[Any] = [{"name": "torchmetrics.classification:MulticlassF1Score", "num_classes": 2}]
    _, alone = train(0, 1, None, str(tmp_path / "alone"), ("lists", named))
    [(ended, together), _] = run_together(train, 2, str(tmp_path / "together"), ("lists", named))
    assert ended.state == "complete", ended.traceback
    values = [
        [report.values["val_MulticlassF1Score"] for report in reports]
        for reports in (alone, together)
    ]
    assert values[0] == pytest.approx(values[1], rel=1e-4)
    assert 0.5 < values[0][-1] <= 1.0
