"""Classes with steps of their own: two optimizers, accumulation, workers, checkpoints and noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.builders.adversaries import Adversaries, load
from tests.services.process_group import run_together
from workbench.experiment import Experiment
from workbench.experiment.plan import PartialPlan
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import Event, TrialEnded, TrialReported
from workbench.sweeps.preflight import check
from workbench.training import checkpoint
from workbench.training.probes.first_step import try_first_steps
from workbench.training.probes.model_summary import summarise_model
from workbench.training.trained_model import read_model, write_weights
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

EPOCHS = 9
LR = 0.02


def experiment(name: str = "Adversaries", **fields: Any) -> Experiment:
    training: dict[str, Any] = {"epochs": EPOCHS, "global_batch": 12, "schedule": "constant"}
    training |= {"lr_rule": "constant", **fields.pop("training", {})}
    if name == "Adversaries":
        training |= {"lr": LR}
    settings: dict[str, Any] = {
        "train": f"tests.builders.adversaries:{name}",
        "data": {"name": "tests.builders.adversaries:load", "task": "other"},
        "objectives": [{"metric": "val_distance", "goal": "minimize"}],
    }
    return Experiment(**settings | fields, training=training)


def train(
    folder: Path, asked: Experiment, *, stop_at: str | None = None, **task: Any
) -> tuple[TrialEnded, list[TrialReported]]:
    """Train, and stop at the first event that `stop_at` names as `type step`."""
    events: list[TrialReported] = []

    def report(event: Event) -> bool:
        if isinstance(event, TrialReported) and any(
            name.startswith("val_") for name in event.values
        ):
            events.append(event)
        return f"{event.type} {getattr(event, 'step', None)}" == stop_at

    order = TrialTask(
        "run", 0, 0, asked.model_dump_json(), seed=3, folder=str(folder), resume=True, **task
    )
    ended = run_trial(order, report)
    assert ended.state != "failed", ended.traceback
    return ended, events


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return checkpoint.read(folder / "checkpoints" / "last.pt")["strategy"]["model"]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[TrialReported]]:
    """What one worker makes of two optimizers and micro batches of 6, with its folder."""
    folder = tmp_path_factory.mktemp("alone")
    return folder, train(folder, experiment(plan={"micro_batch": 6}))[1]


def by_hand(num_steps: int) -> dict[str, torch.Tensor]:
    """Train as a script would: the critic, then the generator, which sees the new critic."""
    torch.manual_seed(3)
    pair = Adversaries({})
    optimizers = pair.configure(lr=LR)
    inputs, targets = (torch.stack(part) for part in zip(*load({})[0], strict=True))
    pair.step((inputs[:2], targets[:2]), "critic")  # its lazy layer gets its shape
    order = [np.random.default_rng([3, epoch]).permutation(48) for epoch in range(EPOCHS)]
    for indices in np.concatenate(order)[: num_steps * 12].reshape(num_steps, 12):
        for name, optimizer in optimizers.items():
            optimizer.zero_grad()
            pair.step((inputs[indices], targets[indices]), name).backward()
            optimizer.step()
    return {
        **pair.critic.state_dict(prefix="critic."),
        **pair.generator.state_dict(prefix="generator."),
    }


def test_two_optimizers_take_turns_as_in_a_loop_written_by_hand(alone: tuple[Path, Any]) -> None:
    trained, expected = weights(alone[0]), by_hand(EPOCHS * 4)
    assert trained.keys() == expected.keys()
    for name, values in expected.items():
        torch.testing.assert_close(trained[name], values, rtol=1e-4, atol=1e-5)


def test_what_evaluate_returns_is_reported_and_the_noise_is_measured(
    alone: tuple[Path, list[TrialReported]],
) -> None:
    folder, reports = alone
    assert [set(report.values) for report in reports] == [
        {"train_loss", "val_distance", "val_fooled"}
    ] * EPOCHS
    assert reports[-1].values["val_distance"] < 0.8 * reports[0].values["val_distance"]
    smoother = checkpoint.read(folder / "checkpoints" / "last.pt")["noise"]["smoother"]
    assert smoother["num_steps"] == 1
    assert smoother["noise"] > 0


def test_a_stopped_training_goes_on_with_both_optimizers(
    alone: tuple[Path, Any], tmp_path: Path
) -> None:
    asked = experiment(plan={"micro_batch": 6})
    assert train(tmp_path, asked, stop_at="checkpoint_saved 8")[0].state == "stopped"
    train(tmp_path, asked)
    for name, values in weights(alone[0]).items():
        assert torch.equal(weights(tmp_path)[name], values)


def train_together(rank: int, num_workers: int, meeting: str, folder: str) -> Any:
    asked = experiment(plan={"workers": 2, "micro_batch": 3, "accumulation": 2})
    return train(Path(folder), asked, rank=rank, num_workers=num_workers, meeting=meeting)[1]


def test_two_workers_with_accumulation_make_the_steps_of_one(
    alone: tuple[Path, list[TrialReported]], tmp_path: Path
) -> None:
    reports = run_together(train_together, 2, str(tmp_path))[0]
    for report, wanted in zip(reports, alone[1], strict=True):
        assert report.values == pytest.approx(wanted.values, rel=1e-3)
    noise = [
        checkpoint.read(folder / "checkpoints" / "last.pt")["noise"]["smoother"]["noise"]
        for folder in (tmp_path, alone[0])
    ]
    assert noise[0] > 0
    for name, values in weights(alone[0]).items():
        torch.testing.assert_close(weights(tmp_path)[name], values, rtol=1e-3, atol=1e-5)


def test_weights_are_exported_under_the_names_of_the_attributes(
    alone: tuple[Path, Any], tmp_path: Path
) -> None:
    write_weights(alone[0] / "checkpoints" / "last.pt", tmp_path / "weights")
    model, datasets = read_model(experiment(), {}, tmp_path / "weights")
    assert torch.equal(
        model.state_dict()["generator.weight"], weights(alone[0])["generator.weight"]
    )
    (noise, _), _ = datasets.validation.batch(np.arange(2))
    owner: Any = model.owner
    assert owner.generator(noise).shape == (2, 2)


def test_one_optimizer_without_evaluate_reports_its_loss(tmp_path: Path) -> None:
    asked = experiment("Alone", objectives=[{"metric": "val_loss", "goal": "minimize"}])
    reports = train(tmp_path, asked)[1]
    assert reports[-1].values["val_loss"] < 0.5 * reports[0].values["val_loss"]


def test_the_first_step_and_the_memory_are_known_before() -> None:
    asked = experiment(search={"width": {"choices": [8]}})
    check(asked, on_this_machine=False)
    [step] = try_first_steps(asked)
    assert step.outcome == "fine"
    summary = summarise_model(asked, {"width": 8}, [4, 8], plan=PartialPlan())
    assert summary.problems == ()
    assert summary.num_parameters == 6 + 24 + 9
    assert summary.memory is not None


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"model": "mlp"}, "model"),
        ({"loss": "huber"}, "loss"),
        ({"metrics": ["accuracy"]}, "metrics"),
        ({"training": {"optimizer": "sgd"}}, "training.optimizer"),
        ({"plan": {"strategy": "fsdp"}}, "plan.strategy"),
        ({"plan": {"stages": 2}}, "plan.stages"),
        ({"plan": {"tensor": 2}}, "plan.tensor"),
        ({"search": {"strategy": {"choices": ["ddp", "zero1"]}}}, "search.strategy"),
        ({"search": {"exchange": {"choices": ["allreduce", "onebit"]}}}, "search.exchange"),
    ],
)
def test_what_own_steps_would_ignore_is_refused(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        experiment(**fields)
    assert field in str(caught.value)


def test_a_function_that_reads_its_data_itself_is_refused_with_data() -> None:
    with pytest.raises(ExperimentError, match="a train function reads its data itself"):
        check(experiment("report_only"), on_this_machine=False)


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("Wrong", {}, "step returned an object of type str"),
        ("load", {}, "tuple has no method configure"),
        ("Alone", {"training": {"lr": 0.1}}, "does not reach your optimizers"),
        (
            "Adversaries",
            {"objectives": [{"metric": "val_loss", "goal": "minimize"}]},
            "'val_loss' is not measured",
        ),
    ],
)
def test_what_cannot_make_steps_is_refused_by_name(
    name: str, fields: dict[str, Any], message: str, tmp_path: Path
) -> None:
    fields = {"objectives": [{"metric": "val_loss", "goal": "minimize"}], **fields}
    order = TrialTask(
        "run", 0, 0, experiment(name, **fields).model_dump_json(), folder=str(tmp_path)
    )
    ended = run_trial(order, lambda event: False)
    assert ended.state == "failed"
    assert message in str(ended.message)
