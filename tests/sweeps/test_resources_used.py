"""Objectives and constraints on what trials use of the hardware: speed, energy and money."""

from __future__ import annotations

import os
import socket
from typing import Any

import pytest

from tests.services.sweeps import Sweep
from workbench.experiment import Experiment
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import (
    TrialEnded,
    TrialPlanned,
    TrialReported,
    TrialStarted,
    steady_unix_s,
)
from workbench.runs import Run
from workbench.store.database import Store
from workbench.store.history.trial_columns import columns_of
from workbench.sweeps.ledger import Ledger
from workbench.sweeps.trial_reports import Referee, ResourcesUsed

MODEL: dict[str, Any] = {
    "model": "mlp",
    "data": "digits",
    "search": {"hidden_width": {"choices": [8, 16, 32]}},
}
ACCURACY = {"metric": "val_accuracy", "goal": "maximize"}
SPEED = {"metric": "samples_per_s", "goal": "maximize"}
ENERGY = {"metric": "energy_wh", "goal": "minimize"}
MONEY = {"metric": "money", "goal": "minimize"}


def trial_of(
    store: Store,
    experiment: Experiment,
    reports: list[dict[str, Any]],
    *,
    lasts_s: float = 90.0,
    gpus: list[list[str]] | None = None,
    num_places: int = 1,
    energy_wh: list[float] | None = None,
    loading_s: float = 0.0,
) -> tuple[TrialEnded, Ledger]:
    """Let one trial report every 30 s, and return its end."""
    run_id = store.create_run(experiment)
    ledger = Ledger(store, run_id)
    metered = iter(energy_wh or ())
    resources = ResourcesUsed(
        ledger,
        energy_wh_of=lambda number, is_read_now: next(metered, None),
        num_places=lambda: num_places,
    )
    referee = Referee(ledger, resources)
    began_s = steady_unix_s()
    with store.writer(run_id, owner_pid=os.getpid(), owner_host=socket.gethostname()) as writer:
        ledger.replay(writer)
        proposal = ledger.study.ask()
        assert proposal is not None
        ledger.record(proposal.event())
        started = TrialStarted(
            trial=0, attempt=0, worker_pids=[1, 2], gpus=gpus or [], time_unix_s=began_s
        )
        planned = TrialPlanned(trial=0, plan={}, time_unix_s=began_s + loading_s)
        told = [
            TrialReported(
                trial=0,
                attempt=0,
                step=index + 1,
                epoch=index + 1.0,
                time_unix_s=began_s + 30.0 * (index + 1),
                **report,
            )
            for index, report in enumerate(reports)
        ]
        end = TrialEnded(
            trial=0,
            attempt=0,
            state="complete",
            values=reports[0]["values"] if experiment.trains_model else {},
            step=len(reports),
            time_unix_s=began_s + lasts_s,
        )
        ended = referee.take_in(0, [started, planned, *told, end], stop=None)
    assert isinstance(ended, TrialEnded)
    return ended, ledger


@pytest.mark.parametrize(
    ("price", "num_places", "expected"),
    [
        ("4 EUR/h", 1, 4.0 * 90 / 3600),
        ("4 EUR/h", 2, 4.0 * 90 / 3600 / 2),  # two trials share the machine
        ("3 USD/GPU-h", 2, 3.0 * 90 * 2 / 3600),  # two workers with a GPU each
    ],
)
def test_a_trial_costs_its_share_of_the_machine_or_its_gpus_until_its_end(
    store: Store, price: str, num_places: int, expected: float
) -> None:
    experiment = Experiment(**MODEL, objectives=[ACCURACY, MONEY], budget={"price": price})
    reports: list[dict[str, Any]] = [
        {"values": {"val_accuracy": 0.9}},
        {"values": {"val_accuracy": 0.8}},
    ]
    gpus = [["0"], ["1"]]
    ended, ledger = trial_of(store, experiment, reports, gpus=gpus, num_places=num_places)
    assert ended.values == {"val_accuracy": 0.9, "money": pytest.approx(expected)}
    # The reports grow with the time, so that curves show where money goes.
    trial = ledger.history.trials[0]
    assert trial.last_values["money"] == pytest.approx(expected * 60 / 90)


@pytest.mark.parametrize(
    ("price", "expected"),
    [("4 EUR/h", 4.0 * 70 / 3600), ("3 USD/GPU-h", 3.0 * 70 * 2 / 3600)],
)
def test_money_does_not_depend_on_which_trial_had_to_start_the_workers(
    store: Store, price: str, expected: float
) -> None:
    experiment = Experiment(**MODEL, objectives=[ACCURACY, MONEY], budget={"price": price})
    reports: list[dict[str, Any]] = [{"values": {"val_accuracy": 0.9}}]
    ended, _ = trial_of(store, experiment, reports, gpus=[["0"], ["1"]], loading_s=20.0)
    assert ended.values["money"] == pytest.approx(expected)


def test_speed_and_energy_are_those_of_the_whole_trial_and_not_of_its_best_checkpoint(
    store: Store,
) -> None:
    experiment = Experiment(**MODEL, objectives=[ACCURACY, SPEED, ENERGY])
    reports: list[dict[str, Any]] = [
        {"values": {"val_accuracy": 0.9}, "samples_per_s": 100.0},
        {"values": {"val_accuracy": 0.8}, "samples_per_s": 250.0},
    ]
    ended, _ = trial_of(store, experiment, reports, energy_wh=[1.0, 2.0, 3.5])
    assert ended.values == {"val_accuracy": 0.9, "samples_per_s": 250.0, "energy_wh": 3.5}


def test_a_number_that_a_function_reports_itself_is_the_one_that_counts(store: Store) -> None:
    experiment = Experiment(
        train="tests.sweeps.sweep_functions:curve",
        search={"x": {"low": 0.0, "high": 1.0}},
        objectives=[{"metric": "loss", "goal": "minimize"}, MONEY, ENERGY],
        budget={"price": "4 EUR/h"},
    )
    reports = [{"values": {"loss": 0.3, "money": 7.0}}, {"values": {"loss": 0.2, "money": 8.0}}]
    ended, ledger = trial_of(store, experiment, reports, energy_wh=[1.0, 2.0, 2.5])
    assert ended.values == {"loss": 0.2, "money": 8.0, "energy_wh": 2.5}
    columns = [column.name for column in columns_of(ledger.history)]
    assert columns.count("energy_wh") == columns.count("money") == 1
    assert not {"values.energy_wh", "values.money"} & set(columns)


def test_energy_that_nothing_meters_fails_the_trial_with_its_name(store: Store) -> None:
    experiment = Experiment(**MODEL, objectives=[ACCURACY, ENERGY])
    ended, _ = trial_of(store, experiment, [{"values": {"val_accuracy": 0.9}}])
    assert ended.state == "failed"
    assert "did not report energy_wh" in (ended.message or "")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"objectives": [MONEY, ACCURACY]}, "objectives.0.metric: money cannot be the first"),
        ({"objectives": [ACCURACY, MONEY]}, "budget.price: missing"),
        (
            {"objectives": [ACCURACY], "constraints": [{"metric": "money", "at_most": 1}]},
            "budget.price: missing",
        ),
        (
            {"objectives": [ACCURACY, {**SPEED, "value": "best"}]},
            "objectives.1.value: samples_per_s counts for a whole trial",
        ),
    ],
)
def test_what_cannot_be_followed_is_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(ExperimentError, match=problem):
        Experiment(**MODEL, **fields)


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.usefixtures("free_pool")
def test_a_sweep_finds_the_front_of_accuracy_speed_and_money_in_one_column_each(
    store: Store,
) -> None:
    experiment = Experiment(
        **MODEL,
        objectives=[ACCURACY, SPEED, MONEY],
        constraints=[{"metric": "money", "at_most": 1.0}],
        training={"epochs": 2},
        budget={"trials": 2, "price": "2 EUR/h"},
        resources={"concurrency": 1},
    )
    sweep = Sweep(store, store.create_run(experiment)).drive().wait("complete")
    table = Run(store, sweep.run_id).trials
    assert list(table["state"]) == ["complete", "complete"]
    assert list(table["feasible"]) == [True, True]
    # One trial at a time pays for the whole machine, from when its model was built.
    trained_s = [trial.duration_s - trial.loading_s for trial in sweep.trials]
    assert list(table["money"]) == pytest.approx([2 * each / 3600 for each in trained_s], rel=0.2)
    assert (table["samples_per_s"] > 0).all()
    assert sum("samples_per_s" in name for name in table.columns) == 1
