"""Metrics that are no means over samples see all samples, in order, on any number of workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.services.process_group import run_together
from workbench.data.splits import ArraySplit
from workbench.experiment import Experiment
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import TrialReported
from workbench.models.adapters import load_metrics
from workbench.models.metrics import WholeMetric
from workbench.training.evaluation import evaluate
from workbench.training.probes.first_step import try_first_steps
from workbench.training.strategies.strategy import Worker
from workbench.training.strategies.worker_group import Group
from workbench.training.tensor_source import Source
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

ERRORS = np.random.default_rng(0).normal(size=37).astype(np.float32)


class Median:
    """The median of the targets."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale
        self.seen: list[torch.Tensor] = []

    def update(self, outputs: torch.Tensor, targets: torch.Tensor) -> None:
        assert len(outputs) == len(targets)
        self.seen.append(targets)

    def compute(self) -> torch.Tensor:
        return self.scale * torch.cat(self.seen).double().quantile(0.5)


class InOrder(Median):
    """1 where samples arrived in their order, else 0."""

    def compute(self) -> torch.Tensor:
        return torch.tensor(float(torch.cat(self.seen).tolist() == ERRORS.tolist()))


class Wordy(Median):
    """Returns no number."""

    def compute(self) -> Any:
        return {"median": 1.0}


class Identity:
    """Predicts its inputs."""

    def predict(self, inputs: Any) -> Any:
        return inputs

    def train(self, mode: bool) -> None:
        pass


def measure(rank: int, num_workers: int, meeting: str | None) -> dict[str, float]:
    group = Group(rank, num_workers, None, meeting)
    source = Source(ArraySplit(ERRORS[:, None], ERRORS), torch.device("cpu"))
    metrics = load_metrics(
        {"mean_absolute_error": "mean_absolute_error", "median": Median, "in_order": InOrder},
        "regression",
    )
    evaluated = evaluate(
        Identity(), source, metrics, batch=5, worker=Worker(rank, num_workers, group=group)
    )
    group.close()
    return evaluated


def test_the_value_is_that_of_all_samples_on_any_number_of_workers() -> None:
    expected = {"mean_absolute_error": 0.0, "median": float(np.median(ERRORS)), "in_order": 1.0}
    assert measure(0, 1, None) == pytest.approx(expected)
    for measured in run_together(measure, 3):
        assert measured == pytest.approx(expected)


def test_a_class_with_options_is_an_objective(tmp_path: Path) -> None:
    asked = Experiment(
        model="mlp",
        data="breast_cancer",
        metrics=[{"name": f"{__name__}:Median", "scale": 100.0}, "accuracy"],
        objectives=[{"metric": "val_Median", "goal": "minimize"}],
        training={"epochs": 1},
    )
    reports: list[TrialReported] = []

    def report(event: Any) -> bool:
        reports.append(event)
        return False

    ended = run_trial(TrialTask("run", 0, 0, asked.model_dump_json(), folder=str(tmp_path)), report)
    assert ended.state == "complete", ended.traceback
    assert ended.values["val_Median"] == 100.0, "most of the samples are of class 1"
    assert ended.values["val_accuracy"] > 0.5
    assert try_first_steps(asked)[0].outcome == "fine"


def test_an_object_is_copied_for_each_evaluation() -> None:
    [metric] = load_metrics({"median": Median(2.0)}, "regression").values()  # type: ignore[dict-item]
    assert isinstance(metric, WholeMetric)
    batches = [(torch.ones(3, 1), torch.tensor([1.0, 2.0, 3.0]))]
    assert [metric.compute(batches), metric.compute(batches[:1])] == [4.0, 4.0]


def test_a_value_that_is_no_number_is_refused() -> None:
    with pytest.raises(ExperimentError, match="returned an object of type dict"):
        WholeMetric(Wordy).compute([(torch.ones(1), torch.ones(1))])


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (True, "the boolean True"),
        (np.ma.masked, "a masked value"),
        (None, "None"),
        (torch.ones(2), r"\(2,\)"),
    ],
)
def test_a_value_that_converts_itself_is_no_number_either(value: Any, words: str) -> None:
    class Computes:
        def update(self, *_: Any) -> None:
            pass

        def compute(self) -> Any:
            return value

    with pytest.raises(
        ExperimentError, match=rf"compute of Computes returned .*: .*{words}.* is not a number"
    ):
        WholeMetric(Computes).compute([(torch.ones(1), torch.ones(1))])
