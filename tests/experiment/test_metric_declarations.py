"""A metric declares its direction once, and nobody guesses one that was not declared."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

import workbench as wb
from workbench.experiment import Experiment
from workbench.experiment.federated import client_metrics
from workbench.experiment.metric_declarations import (
    METRICS,
    TASKS,
    declaration_of,
    declared_goal,
    goal_in,
    goal_of,
    is_share,
)
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import DriverStarted, TrialPlanned, TrialProposed
from workbench.foundation.registry import load_object
from workbench.models import METRICS as REGISTRY
from workbench.models.adapters import declared_goals, load_metrics
from workbench.models.metrics import WholeMetric
from workbench.models.model_calls import AnswerRewards, EmbeddedPairs
from workbench.store.history import History
from workbench.sweeps.run_notes import notes_of_limits

LOSS = [{"metric": "val_loss", "goal": "minimize"}]


@wb.metric(goal="minimize")
def accuracy_gap(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs - targets).abs().mean()


@wb.metric(goal="maximize")
class Highest:
    def update(self, outputs: Any, targets: Any) -> None: ...

    def compute(self) -> float:
        return 1.0


class OfTorchmetrics(Highest):
    """What a metric of torchmetrics declares."""

    goal = None
    higher_is_better = False


def undeclared(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return outputs.mean()


@pytest.mark.parametrize("declared", METRICS, ids=lambda item: item.name)
def test_every_known_metric_has_a_direction_and_an_object_that_computes_it(declared: Any) -> None:
    assert goal_of(f"val_{declared.name}") == declared.goal
    references = [item for item in (declared.measure, declared.loss) if item is not None]
    assert references
    for reference in references:
        assert load_object(f"workbench.models.{reference}") is not None


COMPUTED = [
    item
    for item in METRICS
    if item.measure and item.tasks != ("detection",) and item.name != "top5_accuracy"
]  # both need data of their own


@pytest.mark.parametrize("declared", COMPUTED, ids=lambda item: item.name)
def test_a_right_prediction_is_better_than_a_wrong_one_in_the_declared_direction(
    declared: Any,
) -> None:
    if declared.tasks == ("regression",):
        targets = torch.arange(6.0).unsqueeze(1)
        right, wrong = targets, targets + 1
    elif declared.tasks == ("text_pairs",):
        targets, vectors = torch.arange(3), torch.eye(3)
        right = EmbeddedPairs(vectors, vectors, torch.tensor(1.0))
        wrong = right._replace(second=vectors.roll(1, dims=0))
    elif declared.tasks == ("preferences",):
        targets = torch.zeros(3)
        rewards = torch.tensor([2.0, 0.5, 3.0]), torch.tensor([1.0, -0.5, 2.5])
        right, wrong = AnswerRewards(*rewards), AnswerRewards(*reversed(rewards))
    else:
        targets = torch.tensor([0, 1, 2, 0, 1, 2])
        right = torch.nn.functional.one_hot(targets, 3).float() * 8
        wrong = right.roll(1, dims=1)
    good, bad = (_measured(declared.name, outputs, targets) for outputs in (right, wrong))
    assert (good > bad) == (declared.goal == "maximize")
    assert not is_share(declared.name) or 0 <= bad < good <= 1


def _measured(name: str, outputs: Any, targets: torch.Tensor) -> float:
    metric = load_metrics([name], "classification", bytes_per_target=1.0)[name]
    if isinstance(metric, WholeMetric):
        return metric.compute([(outputs, targets)])
    total, count = metric.measure(outputs, targets)
    return metric.finish(float(total) / float(count))


@pytest.mark.parametrize(
    "name", ["f1_loss", "val_f1", "accuracy_gap", "lossless", "val_", "", "val_val_loss"]
)
def test_a_name_that_only_resembles_a_known_one_has_no_direction(name: str) -> None:
    assert goal_of(name) is None


def test_everything_that_the_loop_reports_has_a_direction() -> None:
    for task in TASKS:
        named = [*TASKS[task].metrics, TASKS[task].loss]
        assert None not in [goal_of(f"val_{name}") for name in named]
    assert None not in [goal_of(name) for name in client_metrics(["accuracy", "perplexity"])]
    assert [goal_of(f"val_accuracy_client_{kind}") for kind in ("min", "std")] == [
        "maximize",
        "minimize",
    ]


@pytest.mark.parametrize(
    ("found", "goal"),
    [
        (accuracy_gap, "minimize"),
        (functools.partial(accuracy_gap), "minimize"),
        (Highest, "maximize"),
        (Highest(), "maximize"),
        (functools.partial(Highest), "maximize"),
        (OfTorchmetrics, "minimize"),
        (OfTorchmetrics(), "minimize"),
        (undeclared, None),
    ],
)
def test_a_metric_of_the_users_own_declares_its_direction_on_itself(
    found: Any, goal: str | None
) -> None:
    assert declared_goal(found) == goal
    loaded = load_metrics({"mine": found}, "regression", target_scale=2.0)
    assert declared_goals(loaded) == ({} if goal is None else {"val_mine": goal})


def test_a_wrong_direction_is_refused_where_it_is_declared() -> None:
    with pytest.raises(ExperimentError, match="'up' is not the goal of a metric"):
        wb.metric(goal="up")  # pyright: ignore[reportArgumentType]
    undeclared_as_up = functools.partial(undeclared)
    wrong = type("Wrong", (Highest,), {"goal": "highest"})
    with pytest.raises(ExperimentError) as caught:
        load_metrics({"mine": wrong}, "regression")
    assert caught.value.field == "metrics.mine"
    assert declared_goal(undeclared_as_up) is None


def test_the_names_of_the_table_count_only_where_the_workbench_computes_them() -> None:
    zoo = Experiment(model="mlp", data="digits", objectives=LOSS)
    own = Experiment(
        model="mlp", data="digits", objectives=LOSS, metrics=["package.scores:accuracy"]
    )
    function = Experiment(train="package:train", objectives=LOSS)
    assert [goal_in(declared, "val_accuracy") for declared in (zoo, own, function)] == [
        "maximize",
        None,
        None,
    ]
    assert [goal_in(declared, "val_loss") for declared in (zoo, own, function)] == ["minimize"] * 3
    assert goal_in(own, "val_accuracy", {"val_accuracy": "minimize"}) == "minimize"


def test_an_objective_decides_for_its_own_experiment() -> None:
    objectives = [{"metric": "val_accuracy", "goal": "minimize"}]
    assert (
        goal_in(Experiment(model="mlp", data="digits", objectives=objectives), "val_accuracy")
        == "minimize"
    )


def test_what_a_metric_declares_reaches_the_history_of_its_run() -> None:
    experiment = Experiment(train="package:train", objectives=LOSS)
    events = [
        TrialProposed(trial=0, configuration=0, repeat=0, params={}, seed=0, source="sampler"),
        TrialPlanned(trial=0, plan={}, goals={"val_accuracy_gap": "minimize"}),
    ]
    history = History.of(experiment, [DriverStarted.model_construct(time_unix_s=0.0), *events])
    assert history.goal_of("val_accuracy_gap") == "minimize"
    assert history.goal_of("val_accuracy_other") is None


def test_the_registry_knows_the_declared_metrics() -> None:
    assert [name for name in REGISTRY.names() if declaration_of(name) is not None] == [
        item.name for item in METRICS if item.measure
    ]


def test_an_objective_that_looks_for_the_worst_value_is_noted() -> None:
    def notes(metric: str, goal: str, **changes: Any) -> list[str]:
        objectives = [{"metric": metric, "goal": goal}]
        return notes_of_limits(
            Experiment(**{"model": "mlp", "data": "digits", **changes}, objectives=objectives), 0
        )

    [note] = notes("val_accuracy", "minimize")
    assert note.startswith("objectives.0.goal: val_accuracy is better the higher it is")
    assert "Write maximize" in note
    assert (
        notes("val_accuracy", "maximize")
        == notes("val_mine", "minimize", metrics=["package:mine"])
        == []
    )
    assert notes("accuracy", "minimize", model=None, data=None, train="package:train") == []


def test_an_experiment_declares_the_direction_of_what_a_function_reports() -> None:
    experiment = Experiment(train="package:train", objectives=LOSS, goals={"f1": "maximize"})
    assert (goal_in(experiment, "f1"), goal_in(experiment, "f1_loss")) == ("maximize", None)
    assert Experiment.from_yaml(experiment.to_yaml()) == experiment
    without = Experiment(train="package:train", objectives=LOSS)
    assert without.replace(goals={}).hash() == without.hash()
    with pytest.raises(
        ExperimentError, match="val_loss is an objective and has its goal there"
    ) as caught:
        Experiment(train="package:train", objectives=LOSS, goals={"val_loss": "maximize"})
    assert "goals" in (caught.value.field or "")
    with pytest.raises(ExperimentError) as caught:
        Experiment(train="package:train", objectives=LOSS, goals={"f1": "up"})
    assert "goals" in str(caught.value)
