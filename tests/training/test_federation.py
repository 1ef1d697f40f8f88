"""Federations: one round is what its definition says, and nothing depends on workers or
interruptions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.services.process_group import run_together
from workbench.data import load
from workbench.experiment import Experiment
from workbench.experiment.plan import PartialPlan
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import CheckpointSaved, Event, TrialEnded, TrialReported
from workbench.training import checkpoint
from workbench.training.federated.clients import clients_of
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

NUM_TRAIN = len(load("digits", {}).train)


def experiment(federated: dict[str, Any], **fields: Any) -> Experiment:
    training = {
        "epochs": 2,
        "global_batch": 16,
        "lr": 0.1,
        "optimizer": "sgd",
        "schedule": "constant",
    }
    settings: dict[str, Any] = {
        "model": {"name": "mlp", "dropout": 0.3},
        "data": "digits",
        "objectives": [{"metric": "val_accuracy", "goal": "maximize"}],
        "training": training | fields.pop("training", {}),
    }
    return Experiment(**settings | fields, federated={"clients": 8, "fraction": 0.5, **federated})


def train(
    order: Experiment,
    folder: Path | str,
    *,
    stop_at: str | None = None,
    resume: bool = False,
    rank: int = 0,
    num_workers: int = 1,
    meeting: str | None = None,
    **task: Any,
) -> tuple[TrialEnded, list[Event]]:
    """Train, and stop at the first event that `stop_at` names as `type step`."""
    events: list[Event] = []

    def report(event: Event) -> bool:
        events.append(event)
        return f"{event.type} {getattr(event, 'step', None)}" == stop_at

    asked = TrialTask(
        "run",
        0,
        0,
        order.model_dump_json(),
        seed=5,
        folder=str(folder),
        resume=resume,
        rank=rank,
        num_workers=num_workers,
        meeting=meeting,
        **task,
    )
    return run_trial(asked, report), events


def weights(folder: Path | str) -> dict[str, torch.Tensor]:
    return checkpoint.read(Path(folder) / "checkpoints" / "last.pt")["strategy"]["model"]


def values(events: list[Event]) -> list[dict[str, float]]:
    return [event.values for event in events if isinstance(event, TrialReported)]


def are_equal(one: Path, other: Path) -> bool:
    first, second = weights(one), weights(other)
    return all(torch.equal(first[name], second[name]) for name in first)


WHOLE = {"epochs": 3, "global_batch": NUM_TRAIN, "lr_rule": "constant", "momentum": 0.0}


@pytest.mark.parametrize("secure", [False, True])
def test_one_local_epoch_of_the_full_batch_on_all_clients_is_a_step_of_sgd(
    secure: bool, tmp_path: Path
) -> None:
    model = {"name": "mlp", "dropout": 0.0}
    order = experiment(
        {"fraction": 1.0, "partition": {"dirichlet": 0.3}, "secure": secure},
        model=model,
        training=WHOLE,
    )
    ended, _ = train(order, tmp_path / "federated")
    assert ended.state == "complete", ended.traceback
    plain = Experiment(**{**order.model_dump(mode="json"), "federated": None})
    train(plain, tmp_path / "plain")
    expected = weights(tmp_path / "plain")
    for name, value in weights(tmp_path / "federated").items():
        assert (value - expected[name]).abs().max() < 1e-6, name


def test_a_proximal_term_of_0_is_fedavg_and_a_large_one_holds_clients_back(tmp_path: Path) -> None:
    moved = {}
    for proximal in (None, 0.0, 5.0):
        given = {} if proximal is None else {"proximal": proximal}
        order = experiment({"local_epochs": 3, **given}, training={"global_batch": 64})
        ended, _ = train(order, tmp_path / str(proximal))
        assert ended.state == "complete", ended.traceback
        moved[proximal] = sum(
            float(value.square().sum()) for value in weights(tmp_path / str(proximal)).values()
        )
    assert are_equal(tmp_path / "None", tmp_path / "0.0")
    assert not are_equal(tmp_path / "None", tmp_path / "5.0")
    assert moved[5.0] < moved[0.0]


def test_clients_without_samples_change_nothing(tmp_path: Path) -> None:
    # So uneven that many of the clients hold nothing, and some rounds have none that do.
    order = experiment(
        {"clients": 200, "fraction": 0.01, "partition": {"dirichlet": 1e-3}}, training={"epochs": 6}
    )
    ended, events = train(order, tmp_path)
    assert ended.state == "complete", ended.traceback
    accuracies = [value["val_accuracy"] for value in values(events)]
    assert len(set(accuracies)) < len(accuracies), (
        "a round of empty clients leaves the model as it is"
    )
    assert all(np.isfinite(list(value.values())).all() for value in values(events))


EVERYTHING = {
    "clients": 9,
    "fraction": 0.8,
    "local_epochs": 2,
    "partition": {"dirichlet": 0.3},
    "server": "fedadam",
    "server_lr": 0.02,
    "proximal": 0.01,
    "failures": 0.2,
    "stragglers": 0.4,
}


def federate_all_on(
    rank: int, num_workers: int, meeting: str, texts: dict[str, str], folder: str
) -> Any:
    return {
        name: train(
            Experiment.model_validate_json(text),
            f"{folder}/{name}",
            rank=rank,
            num_workers=num_workers,
            meeting=f"{meeting}-{name}",
            plan=PartialPlan.of(workers=num_workers),
        )
        for name, text in texts.items()
    }


def test_two_workers_give_what_one_gives_bit_for_bit(tmp_path: Path) -> None:
    orders = {
        name: experiment({**EVERYTHING, **others}, training={"global_batch": 64})
        for name, others in (("plain", {}), ("secure", {"secure": True}))
    }
    texts = {name: order.model_dump_json() for name, order in orders.items()}
    answers, silent = run_together(federate_all_on, 2, texts, str(tmp_path))
    assert all(events == [] for _, events in silent.values()), "rank 0 alone reports"
    for name, order in orders.items():
        one, events = train(order, tmp_path / "one" / name)
        two, of_two = answers[name]
        assert (one.state, two.state) == ("complete", "complete"), two.traceback
        assert values(of_two) == values(events)
        assert are_equal(tmp_path / "one" / name, tmp_path / name)


@pytest.mark.parametrize("server", ["fedavgm", "fedyogi"])
def test_a_federation_resumes_as_if_nothing_had_happened(server: str, tmp_path: Path) -> None:
    order = experiment(
        {**EVERYTHING, "server": server},
        training={"epochs": 3, "global_batch": 64, "schedule": "cosine", "optimizer": "adam"},
    )
    whole, reported = train(order, tmp_path / "whole")
    stopped, before = train(order, tmp_path / "broken", stop_at="checkpoint_saved 2")
    resumed, after = train(order, tmp_path / "broken", resume=True)
    assert (whole.state, stopped.state, resumed.state) == (
        "complete",
        "stopped",
        "complete",
    ), whole.traceback
    assert values(before) == values(reported)[:2]
    assert values(after) == values(reported), "earlier reports are passed on again"
    assert are_equal(tmp_path / "whole", tmp_path / "broken")
    assert resumed.values == whole.values


def test_a_round_is_a_step_and_an_epoch_and_can_be_the_last(tmp_path: Path) -> None:
    order = experiment({}, training={"epochs": 5, "evaluate_every": 2})
    ended, events = train(order, tmp_path, stop_at="trial_reported 4")
    assert (ended.state, ended.step) == ("stopped", 4)
    reports = [event for event in events if isinstance(event, TrialReported)]
    assert [(event.step, event.epoch) for event in reports] == [
        (1, 1.0),
        (2, 2.0),
        (3, 3.0),
        (4, 4.0),
    ]
    assert ["val_accuracy" in event.values for event in reports] == [False, True, False, True]
    assert any(isinstance(event, CheckpointSaved) for event in events)


def test_a_report_counts_bytes_and_the_spread_over_clients(tmp_path: Path) -> None:
    _, events = train(experiment({"failures": 0.0}), tmp_path)
    num_values = sum(value.numel() for value in weights(tmp_path).values())
    first, second = values(events)
    # Half of the clients take part: each receives and sends all weights, of 4 bytes.
    assert first["bytes_per_client"] == 4 * 2 * 4 * num_values / 8
    assert second["bytes_per_client"] == 2 * first["bytes_per_client"]
    assert (
        second["val_accuracy_client_min"]
        <= second["val_accuracy"]
        <= second["val_accuracy_client_max"]
    )
    assert second["val_accuracy_client_std"] > 0


def test_rounds_end_at_the_target_and_are_counted(tmp_path: Path) -> None:
    target = {"metric": "val_accuracy", "at_least": 0.5}
    order = experiment(
        {"local_epochs": 3, "target": target},
        objectives=[{"metric": "rounds_to_target", "goal": "minimize"}],
        training={"epochs": 30, "lr": 0.3},
    )
    ended, events = train(order, tmp_path)
    assert ended.state == "complete", ended.traceback
    reports = values(events)
    assert len(reports) < 30
    assert [report["rounds_to_target"] for report in reports] == [31.0] * (len(reports) - 1) + [
        len(reports)
    ]
    assert all(report["val_accuracy"] < 0.5 for report in reports[:-1])
    assert reports[-1]["val_accuracy"] >= 0.5
    assert ended.values["rounds_to_target"] == len(reports)
    again, _ = train(order, tmp_path, resume=True)
    assert (again.state, again.step, again.values) == ("complete", ended.step, ended.values)


@pytest.mark.parametrize("aggregation", ["trimmed_mean", "krum"])
def test_robust_aggregations_learn(aggregation: str, tmp_path: Path) -> None:
    order = experiment({"aggregation": aggregation, "local_epochs": 2}, training={"epochs": 4})
    ended, events = train(order, tmp_path)
    assert ended.state == "complete", ended.traceback
    assert values(events)[-1]["val_loss"] < values(events)[0]["val_loss"]


def test_searched_settings_replace_those_of_the_section(tmp_path: Path) -> None:
    searched = experiment(
        {},
        search={
            "federated.local_epochs": {"low": 1, "high": 4},
            "federated.partition.dirichlet": {"choices": [0.1, 1.0]},
        },
    )
    params = {"federated.local_epochs": 3, "federated.partition.dirichlet": 0.1}
    ended, _ = train(searched, tmp_path / "searched", params=params)
    assert ended.state == "complete", ended.traceback
    train(experiment({"local_epochs": 3, "partition": {"dirichlet": 0.1}}), tmp_path / "set")
    assert are_equal(tmp_path / "searched", tmp_path / "set")


def test_a_batch_normalised_model_is_aggregated_with_its_statistics(tmp_path: Path) -> None:
    order = experiment(
        {"clients": 4},
        model={"name": "resnet", "width": 8, "depth": 8},
        training={"epochs": 1, "global_batch": 64},
    )
    ended, _ = train(order, tmp_path)
    assert ended.state == "complete", ended.traceback
    means = [value for name, value in weights(tmp_path).items() if name.endswith("running_mean")]
    assert means
    assert any(float(value.abs().sum()) > 0 for value in means)


def test_classes_cannot_divide_data_without_classes(tmp_path: Path) -> None:
    order = Experiment(
        model="transformer",
        data={"name": "text", "context": 8},
        federated={"clients": 2, "partition": {"labels": 1}},
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
    )
    ended, _ = train(order, tmp_path)
    assert ended.state == "failed"
    assert "federated.partition" in (ended.message or "")
    with pytest.raises(ExperimentError, match="cannot hold 10 classes"):
        raise_failure(experiment({"clients": 3, "partition": {"labels": 2}}), tmp_path)


def raise_failure(order: Experiment, folder: Path) -> None:
    from workbench.training.federated.clients import clients_of

    assert order.federated is not None
    clients_of(load("digits", {}), order.federated, 0)


def test_clients_hold_the_samples_that_the_data_name_for_them(tmp_path: Path) -> None:
    rows = [
        f"{number % 11},{number % 7},{'north' if number < 60 else 'south'},{number % 3}"
        for number in range(90)
    ]
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,hospital,y", *rows]))
    table = {
        "name": "table",
        "path": str(tmp_path / "rows.csv"),
        "target": "y",
        "client": "hospital",
    }
    order = experiment({"clients": 2, "fraction": 1.0, "partition": "owners"}, data=table)
    ended, events = train(order, tmp_path / "run")
    assert ended.state == "complete", ended.traceback
    assert len(values(events)) == 2

    datasets = load(
        "table", {name: value for name, value in table.items() if name != "name"}, seed=5
    )
    assert order.federated is not None
    clients = clients_of(datasets, order.federated, 5)
    assert datasets.owners is not None
    for shards, owners in zip((clients.train, clients.validation), datasets.owners, strict=True):
        assert [owners[shard].tolist() for shard in shards] == [
            [0] * len(shards[0]),
            [1] * len(shards[1]),
        ]
        assert sum(map(len, shards)) == len(owners)

    ended, _ = train(
        experiment({"clients": 3, "partition": "owners"}, data=table), tmp_path / "other"
    )
    assert "there are 3 clients, but the data has samples of 2" in (ended.message or "")
    ended, _ = train(experiment({"partition": "owners"}), tmp_path / "none")
    assert "digits does not say which client a sample belongs to" in (ended.message or "")


def test_a_client_that_takes_too_long_is_left_out_of_the_round(tmp_path: Path) -> None:
    order = experiment(
        {"clients": 4, "fraction": 1.0, "partition": "owners", "timeout": "1.5s", "secure": True},
        model="tests.training.slow_clients:build",
        data="tests.training.slow_clients:data",
        training={"epochs": 1},
    )
    ended, events = train(order, tmp_path / "slow")
    assert ended.state == "complete", ended.traceback
    (value,) = values(events)
    assert value["clients_answered"] == 3.0
    num_values = sum(each.numel() for each in weights(tmp_path / "slow").values())
    # Four receive float32, three send fixed point, its weight, and the secret they share with the
    # fourth.
    assert value["bytes_per_client"] == (4 * 4 * num_values + 3 * (8 * num_values + 8 + 32)) / 4
    assert np.isfinite(value["val_accuracy"])  # the masks of the fourth are gone from the sum


def test_a_federation_whose_clients_never_answer_fails(tmp_path: Path) -> None:
    ended, _ = train(experiment({"clients": 2, "fraction": 1.0, "timeout": 1e-6}), tmp_path)
    assert (ended.state, ended.reason) == ("failed", "error")
    assert "no client answered" in (ended.message or "")


def test_bytes_to_the_target_are_those_of_the_rounds_to_it(tmp_path: Path) -> None:
    target = {"metric": "val_accuracy", "at_least": 0.99}
    order = experiment(
        {"target": target}, objectives=[{"metric": "bytes_to_target", "goal": "minimize"}]
    )
    _, events = train(order, tmp_path)
    first, second = values(events)
    assert (first["rounds_to_target"], first["clients_answered"]) == (3.0, 4.0)
    assert first["bytes_to_target"] == second["bytes_to_target"] == 3 * first["bytes_per_client"]
    with pytest.raises(ExperimentError, match="bytes_to_target needs a target"):
        experiment({}, objectives=[{"metric": "bytes_to_target", "goal": "minimize"}])


def wide_data(_: dict[str, Any]) -> Any:
    """Return rows whose feature has a standard deviation of thousands, which running variances
    follow.
    """
    inputs = torch.randn(600, 1, generator=torch.Generator().manual_seed(0)) * 2881.0
    rows = torch.utils.data.TensorDataset(inputs, (inputs[:, 0] > 0).long())
    return torch.utils.data.Subset(rows, range(500)), torch.utils.data.Subset(rows, range(500, 600))


def normalised_model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.BatchNorm1d(1), torch.nn.Linear(1, 2))


def test_a_masked_sum_that_could_wrap_around_is_refused_and_the_weight_is_named(
    tmp_path: Path,
) -> None:
    order = Experiment(
        model=f"{__name__}:normalised_model",
        data={"name": f"{__name__}:wide_data", "task": "classification", "num_outputs": 2},
        objectives=[{"metric": "val_accuracy", "goal": "maximize"}],
        training={"epochs": 1, "global_batch": 10, "lr": 0.01, "optimizer": "sgd"},
        federated={"clients": 2, "fraction": 1.0, "secure": True},
    )
    ended, _ = train(order, tmp_path)
    assert (ended.state, ended.reason) == ("failed", "error")
    assert ended.message is not None
    assert "0.running_var" in ended.message
    assert "2 clients" in ended.message
    assert "federated.secure" in ended.message
