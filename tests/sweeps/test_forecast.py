from __future__ import annotations

import os
import socket
from dataclasses import replace
from typing import Any

import pytest

from workbench.advisor.plan_variants import plan_with
from workbench.advisor.stored_advice import Estimate
from workbench.experiment import Experiment
from workbench.experiment.plan import PartialPlan
from workbench.foundation.events import AttemptEnded, Event, TrialEnded, TrialProposed, TrialStarted
from workbench.hardware.resources import likely_cluster
from workbench.store.database import Store
from workbench.sweeps.forecast import Forecast, expected, forecast_of, num_epochs_of

PLAIN = PartialPlan.of(precision="fp32", strategy="ddp", recompute="none")
FIELDS: dict[str, Any] = {
    "model": "mlp",
    "data": "digits",
    "objectives": [{"metric": "val_loss", "goal": "minimize"}],
    "training": {"epochs": 5},
    "search": {"lr": {"low": 0.1, "high": 1.0}},
}


def foretell(**fields: Any) -> Forecast:
    """Of 1,000 samples in steps of 100 that take a second, on two of five places.

    50 s a training.
    """
    experiment = Experiment(**FIELDS | fields)
    return forecast_of(
        experiment,
        plan_with(PLAIN, 2, 50),
        Estimate(1.0, 0.5, 2.0),
        num_epochs=num_epochs_of(experiment),
        num_train_samples=1000,
        num_places=5,
        on_gpu=False,
        state_bytes=10,
    )


def test_trainings_beside_each_other_share_the_time() -> None:
    foretold = foretell(budget={"trials": 5}, repeats=3)
    assert (foretold.at_once, foretold.num_trainings) == (2, 15)
    assert foretold.trial_s == Estimate(50.0, 25.0, 100.0)
    assert foretold.run_s == Estimate(400.0, 200.0, 800.0), "eight rounds"
    assert foretold.worker_hours == pytest.approx(15 * 2 * 50 / 3600)
    assert "Without early stopping, 15 trials take about 6 min 40 s" in str(foretold)


def test_turns_are_said_to_cost_time() -> None:
    foretold = foretell(budget={"trials": 5}, repeats=3, early_stop={"turns": 6})
    assert foretold.turns == 6
    assert "Without turns, 15 trials take about 6 min 40 s" in str(foretold)


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        # 15 trainings of 50 s, two at a time, in eight rounds: 400 s, between 200 and 800 s.
        ({"trials": 5, "price": "9 EUR/h"}, "which costs about 1.00 EUR (0.50 EUR to 2.00 EUR)"),
        # 15 x 50 s on half a GPU for each of two workers.
        ({"trials": 5, "price": "9 EUR/GPU-h"}, "costs about 1.88 EUR (0.94 EUR to 3.75 EUR)"),
        # The limit ends the run, so its price is known.
        ({"time": 60, "price": "9 EUR/h"}, "ends the run, which costs about 0.15 EUR and uses"),
        # Two trials of two workers with half a GPU each, for a minute.
        ({"time": 60, "price": "9 EUR/GPU-h"}, "which costs about 0.30 EUR and uses"),
        # 15 x 50 s at 72 W.
        ({"trials": 5}, "ends the run, which uses about 15 Wh (7.5 Wh to 30 Wh)"),
        ({"time": 60}, "which uses about 2.4 Wh"),
    ],
)
def test_money_and_energy_are_foretold_before_the_start(budget: dict[str, Any], words: str) -> None:
    experiment = Experiment(
        **FIELDS | {"budget": budget, "repeats": 3, "resources": {"gpus_per_worker": 0.5}}
    )
    forecast = forecast_of(
        experiment,
        plan_with(PLAIN, 2, 50),
        Estimate(1.0, 0.5, 2.0),
        num_epochs=num_epochs_of(experiment),
        num_train_samples=1000,
        num_places=5,
        on_gpu=True,
        state_bytes=None,
        power_w=72.0,
    )
    assert words in str(forecast)


@pytest.mark.parametrize(
    ("budget", "ends_by"),
    [
        ({"trials": 4}, "trials"),
        ({"trials": 4, "time": 101}, "trials"),
        ({"trials": 4, "time": 99}, "time"),
        ({"time": 60}, "time"),
        ({"plateau": 3}, None),
    ],
)
def test_the_limit_that_is_met_first_ends_the_run(
    budget: dict[str, Any], ends_by: str | None
) -> None:
    foretold = foretell(budget=budget)
    assert foretold.ends_by == ends_by
    assert ("trials" in budget) == (foretold.run_s is not None)


@pytest.mark.parametrize(
    ("resources", "budget", "said"),
    [
        ({"keep_best": 3}, {"trials": 20}, (100, "run")),  # three, and the two that train
        ({"keep_best": "all"}, {"trials": 20}, (400, "run")),
        ({"keep_best": "all"}, {"time": 60}, (20, "trial")),
        ({"keep_best": "all", "max_checkpoints_size": 70}, {"trials": 20}, (70, "run")),
    ],
)
def test_checkpoints_grow_to_what_is_kept(
    resources: dict[str, Any], budget: dict[str, Any], said: tuple[int, str]
) -> None:
    foretold = foretell(resources=resources, budget=budget)
    assert (foretold.checkpoints_bytes, foretold.checkpoints_of) == said


def test_searched_epochs_count_as_they_are_drawn() -> None:
    foretold = foretell(training={}, search={"epochs": {"choices": [2]}})
    assert foretold.trial_s.value == 20.0


COMMAND: dict[str, Any] = {
    "name": "program",
    "command": "python train.py {args}",
    "objectives": [{"metric": "loss", "goal": "minimize"}],
    "search": {"width": {"choices": [8, 16]}},
    "budget": {"trials": 8, "price": "36 EUR/h"},
}


def record(store: Store, durations_s: list[float], **changes: Any) -> None:
    """Store a run on this machine whose complete trials took so long, and a pruned one."""
    run_id = store.create_run(Experiment(**COMMAND | changes))
    events: list[Event] = []
    for trial, duration_s in enumerate([*durations_s, 1000.0]):
        state = "complete" if trial < len(durations_s) else "pruned"
        events += [
            TrialProposed(trial=trial, params={"width": 8}, configuration=trial, seed=trial),
            TrialStarted(trial=trial, attempt=0, worker_pids=[1], time_unix_s=100.0),
            TrialEnded(trial=trial, attempt=0, state=state, step=1, time_unix_s=100.0 + duration_s),
        ]
    with store.writer(run_id, owner_pid=os.getpid(), owner_host=socket.gethostname()) as writer:
        writer.append(*events)


def test_a_program_takes_as_long_as_the_trials_of_its_last_run_on_this_machine(
    store: Store,
) -> None:
    cluster = likely_cluster()
    at_once = {"resources": {"concurrency": 1}}
    experiment = Experiment(**COMMAND | at_once)
    assert expected(store, experiment, cluster) is None
    record(store, [500.0])
    record(store, [10.0, 20.0, 30.0])
    record(store, [], name="nothing has ended")
    record(store, [70.0], command="python other.py {args}")
    record(store, [80.0], search={"width": {"choices": [64]}})

    forecast = expected(store, experiment, cluster)

    assert forecast is not None
    assert forecast.trial_s.value == 20.0
    assert (forecast.trial_s.low, forecast.trial_s.high) == pytest.approx((11.0, 29.0))
    assert forecast.run_s is not None
    assert forecast.run_s.value == 8 * 20.0
    assert forecast.money is not None
    assert forecast.money.value == pytest.approx(8 * 20.0 * 0.01)
    assert str(forecast).startswith("1 trial runs at once, and one takes about 20 s (11 s to 29 s)")
    elsewhere = replace(cluster, nodes=tuple(replace(node, host="?") for node in cluster.nodes))
    assert expected(store, experiment, elsewhere) is None


def test_trials_in_turns_say_nothing_about_the_time_of_a_whole_trial(store: Store) -> None:
    record(store, [10.0, 20.0])
    run_id = store.create_run(Experiment(**COMMAND))
    times: dict[str, Any] = {"trial": 0, "attempt": 0}
    turn = AttemptEnded(**times, reason="turn", message="", turn=1, time_unix_s=150.0)
    again = {**times, "attempt": 1}
    with store.writer(run_id, owner_pid=os.getpid(), owner_host=socket.gethostname()) as writer:
        writer.append(
            TrialProposed(trial=0, params={"width": 8}, configuration=0, seed=0),
            TrialStarted(**times, worker_pids=[1], time_unix_s=100.0),
            turn,
            TrialStarted(**again, worker_pids=[1], time_unix_s=200.0),
            TrialEnded(**again, state="complete", step=1, time_unix_s=203.0),
        )
    forecast = expected(store, Experiment(**COMMAND), likely_cluster())
    assert forecast is not None
    assert forecast.trial_s.value == 15.0
