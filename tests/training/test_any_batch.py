"""Models that take and return more than one tensor train like all others, on any number of
workers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.builders.structured import KINDS, fields_of
from tests.builders.ways import OF_REPLICAS
from tests.services.process_group import run_together
from workbench.experiment import Experiment
from workbench.experiment.plan import PartialPlan
from workbench.foundation.events import Event, TrialEnded, TrialReported
from workbench.models.model_calls import call_model
from workbench.training import checkpoint
from workbench.training.loss_and_metrics import loss_of
from workbench.training.probes.first_step import try_first_steps
from workbench.training.probes.model_summary import summarise_model
from workbench.training.tensor_source import Source
from workbench.training.trained_model import read_model, write_weights
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

EPOCHS = 8
TRAINING = {
    "epochs": EPOCHS,
    "global_batch": 10,
    "lr": 0.1,
    "optimizer": "sgd",
    "lr_rule": "constant",
}


def experiment(kind: str, **plan: Any) -> Experiment:
    return Experiment(**fields_of(kind), training=TRAINING, plan=plan)


def train(
    folder: Path, asked: Experiment, *, stop_at: str | None = None, **task: Any
) -> tuple[TrialEnded, list[TrialReported]]:
    """Train, and stop at the first event that `stop_at` names as `type step`."""
    events: list[TrialReported] = []

    def report(event: Event) -> bool:
        if isinstance(event, TrialReported) and "val_loss" in event.values:
            events.append(event)
        return f"{event.type} {getattr(event, 'step', None)}" == stop_at

    order = TrialTask(
        "run", 0, 0, asked.model_dump_json(), seed=3, folder=str(folder), resume=True, **task
    )
    ended = run_trial(order, report)
    assert ended.state != "failed", ended.traceback
    return ended, events


def num_measured(folder: Path) -> int:
    """Return in how many steps the gradient noise was measured."""
    return checkpoint.read(folder / "checkpoints" / "last.pt")["noise"]["smoother"]["num_steps"]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, list[TrialReported]]]:
    """What one worker makes of every kind of batch, with its folder."""
    trained = {}
    for kind in KINDS:
        folder = tmp_path_factory.mktemp(kind)
        trained[kind] = folder, train(folder, experiment(kind, micro_batch=5))[1]
    return trained


@pytest.mark.parametrize("kind", KINDS)
def test_any_batch_trains_is_evaluated_and_measured_for_its_noise(
    kind: str, alone: dict[str, Any]
) -> None:
    folder, reports = alone[kind]
    losses = [report.values["val_loss"] for report in reports]
    assert len(losses) == EPOCHS
    assert losses[-1] < 0.8 * losses[0]
    assert num_measured(folder) == 1, "the 31st of 40 steps"
    if kind != "whole":
        assert reports[-1].values["val_accuracy"] > 0.8


@pytest.mark.parametrize("kind", ["named", "targets"])
def test_a_stopped_training_goes_on_as_if_nothing_had_happened(
    kind: str, alone: dict[str, Any], tmp_path: Path
) -> None:
    folder, _ = alone[kind]
    asked = experiment(kind, micro_batch=5)
    assert train(tmp_path, asked, stop_at="checkpoint_saved 15")[0].state == "stopped"
    train(tmp_path, asked)
    written = [tmp_path / "weights", folder / "weights"]
    for path in written:
        write_weights(path.parent / "checkpoints" / "last.pt", path)
    resumed, whole = (read_model(asked, {}, path) for path in written)
    for name, values in whole[0].state_dict().items():
        assert torch.equal(resumed[0].state_dict()[name], values)
    model, datasets = whole
    inputs, targets = Source(datasets.validation, torch.device("cpu")).fetch(np.arange(20))
    loss = loss_of(asked, datasets)(call_model(model, inputs), targets)
    assert loss.item() == pytest.approx(alone[kind][1][-1].values["val_loss"], rel=1e-5)


# Every kind with one strategy, and every strategy with one kind: what a batch consists of is taken
# apart before a strategy sees it.
TOGETHER = [(OF_REPLICAS[0], kind) for kind in KINDS] + [
    (strategy, "lengths") for strategy in OF_REPLICAS[1:]
]


def train_all(rank: int, num_workers: int, meeting: str, folder: str) -> Any:
    results = {}
    for strategy, kind in TOGETHER:
        asked = experiment(
            kind, workers=num_workers, micro_batch=3, accumulation=2, strategy=strategy
        )
        asked = asked.replace(training={"global_batch": "auto", "reference_batch": 12})
        results[strategy, kind] = train(
            Path(folder) / f"{strategy}-{kind}",
            asked,
            rank=rank,
            num_workers=num_workers,
            meeting=f"{meeting}-{strategy}-{kind}",
        )[1]
    return results


def test_two_workers_with_accumulation_make_the_steps_of_one(tmp_path: Path) -> None:
    together = run_together(train_all, 2, str(tmp_path))[0]
    expected = {}
    for kind in KINDS:
        asked = experiment(kind, micro_batch=12).replace(training={"global_batch": 12})
        expected[kind] = train(tmp_path / kind, asked)[1]
    for strategy, kind in TOGETHER:
        for trained, wanted in zip(together[strategy, kind], expected[kind], strict=True):
            assert trained.values == pytest.approx(wanted.values, rel=1e-4), (strategy, kind)
        assert num_measured(tmp_path / f"{strategy}-{kind}") == 1


@pytest.mark.slow
def test_memory_operations_and_the_first_step_are_known_before() -> None:
    asked = experiment("named")
    [step] = try_first_steps(asked)
    assert step.outcome == "fine"
    summary = summarise_model(asked, {}, [4, 8], plan=PartialPlan())
    assert summary.problems == ()
    assert summary.num_parameters == 6 * 8 + 8 + 8 * 2 + 2
    assert summary.flops_per_sample == 6.0 * (6 * 8 + 8 * 2) - 2.0 * 6 * 8, (
        "inputs need no gradient"
    )
    assert summary.memory is not None
