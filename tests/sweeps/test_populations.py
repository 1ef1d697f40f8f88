"""Populations that are really trained.

Killed drivers, several workers, and the winner trained again.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.services.sweeps import Sweep, make_experiment
from workbench.experiment import Experiment
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import (
    DriverStarted,
    Noted,
    ReplayPlanned,
    TrialEnded,
    TrialProposed,
    TrialStarted,
)
from workbench.runs import Run
from workbench.store.database import Store
from workbench.store.database.run_files import trial_folder
from workbench.sweeps.plan_checks import check_continuable
from workbench.sweeps.preflight import check

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("free_pool")]


def population(function: str = "descend", **fields: Any) -> Experiment:
    options = {"population": 4, "every": 3, "length": 9, **fields.pop("sampler_options", {})}
    return make_experiment(
        function,
        **{
            "search": {
                "rate": {"low": 1e-4, "high": 1.0, "log": True},
                "kind": {"choices": ["a", "b"]},
            },
            "sampler": {"name": "pbt", "options": {"changes": ["rate"], **options}},
            "resources": {"concurrency": 3},
            **fields,
        },
    )


def trained(sweep: Sweep) -> dict[tuple[int, int], tuple[Any, Any]]:
    """What each member was trained with in each part, and what that reached."""
    values = {event.trial: event.values for event in sweep.of(TrialEnded)}
    return {
        (event.segment.member, event.segment.end): (event.params, values[event.trial]["loss"])
        for event in sweep.of(TrialProposed)
        if event.segment is not None
    }


def assert_continued(sweep: Sweep) -> None:
    """Every part began with what its source had reached; functions keep that in their folders."""
    folder = Run(sweep.store, sweep.run_id).folder

    def walked(trial: int) -> list[float]:
        return json.loads(
            (folder / trial_folder(trial) / "checkpoints" / "walked.json").read_text()
        )

    for event in sweep.of(TrialProposed):
        part = event.segment
        assert part is not None
        assert len(walked(event.trial)) == part.end
        if part.continues is not None:
            assert walked(event.trial)[: part.begin] == walked(part.continues)


@pytest.mark.slow
def test_a_population_trains_in_parts_and_its_winner_can_be_trained_again(
    store: Store, tmp_path: Path
) -> None:
    sweep = Sweep(
        store, store.create_run(population(resources={"concurrency": 3, "keep_best": "all"}))
    )
    sweep.launch("inline").wait("complete")

    assert len(sweep.trials) == 12
    assert all(trial.state == "complete" for trial in sweep.trials)
    [note] = [event.message for event in sweep.of(Noted) if "at once" in event.message]
    assert note.startswith("3 trials at once, but the hardware has room for 2 (1 CPU each)")
    assert_continued(sweep)
    copied = [
        event
        for event in sweep.of(TrialProposed)
        if event.segment and event.segment.replaced is not None
    ]
    assert len(copied) == 2
    by_trial = {event.trial: event for event in sweep.of(TrialProposed)}
    for event in copied:
        assert event.segment is not None
        assert event.segment.continues is not None
        source = by_trial[event.segment.continues]
        assert event.params["kind"] == source.params["kind"]
    sweep.assert_sound()

    # The same seed, one after another: the same population.
    again = Sweep(store, store.create_run(population(resources={"concurrency": 1})))
    assert trained(again.launch("inline")) == trained(sweep)

    best = sweep.history.best()
    assert best is not None
    bundle = Run(store, sweep.run_id).export(tmp_path / "best")
    assert "--trials 3" in (bundle / "retrain.sh").read_text()
    retrained = Sweep(store, store.create_run(Experiment.from_file(bundle / "experiment.yaml")))
    retrained.launch("inline").wait("complete")
    assert retrained.trials[-1].values == best.values
    assert retrained.trials[-1].params == best.params


@pytest.mark.slow
def test_a_killed_driver_continues_the_population(store: Store) -> None:
    slow = population(options={"pause_s": 0.2}, resources={"concurrency": 2})
    sweep = Sweep(store, store.create_run(slow)).launch()
    sweep.wait_for(TrialStarted, lambda event: event.trial == 5)
    os.kill(sweep.of(DriverStarted)[-1].pid, signal.SIGKILL)
    sweep.wait("complete", timeout_s=120)

    assert len(sweep.of(DriverStarted)) == 2
    assert [trial.state for trial in sweep.trials] == ["complete"] * 12
    sweep.assert_sound()
    quick = Sweep(store, store.create_run(population())).launch("inline").wait("complete")
    assert trained(sweep) == trained(quick)


@pytest.mark.slow
def test_a_model_is_trained_in_parts_and_a_replay_reaches_the_same(store: Store) -> None:
    tuned = Experiment(
        model="mlp",
        data="digits",
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        search={
            "lr": {"low": 1e-4, "high": 0.3, "log": True},
            "dropout": {"low": 0.0, "high": 0.5},
            "hidden_width": {"choices": [8, 16]},
        },
        training={"epochs": 3, "schedule": "constant"},
        sampler={"name": "pb2", "options": {"population": 3, "every": 1}},
        resources={"concurrency": 2, "keep_best": 1},
    )
    sweep = Sweep(store, store.create_run(tuned)).launch("inline").wait("complete")
    assert [trial.state for trial in sweep.trials] == ["complete"] * 9
    assert [
        trial.last_epoch for trial in sweep.trials if trial.segment and trial.segment.end == 2
    ] == [2] * 3
    kept = [trial.number for trial in sweep.trials if trial.checkpoints_deleted is None]
    best = sweep.history.best()
    assert best is not None
    assert kept == [best.number]
    sweep.assert_sound()

    replay = (
        Sweep(store, store.create_run(tuned))
        .launch("inline", replay_of=sweep.run_id)
        .wait("complete")
    )
    assert replay.of(ReplayPlanned)
    assert [trial.values for trial in replay.trials] == [trial.values for trial in sweep.trials]
    replay.assert_sound()


@pytest.mark.slow
def test_several_workers_train_a_member(store: Store) -> None:
    pairs = population(
        "descend_together",
        plan={"workers": 2},
        resources={"concurrency": 1},
        sampler_options={"population": 2, "every": 4, "length": 8},
    )
    sweep = Sweep(store, store.create_run(pairs)).launch("inline").wait("complete")
    assert [(trial.state, len(trial.worker_pids)) for trial in sweep.trials] == [
        ("complete", 2)
    ] * 4
    assert sweep.trials[-1].last_step == 8
    sweep.assert_sound()


def test_a_member_that_fails_continues_from_another(store: Store) -> None:
    failing = population(
        "descend",
        options={"steps": 1000},
        search={"rate": {"choices": [0.5, -1e308]}},
        sampler_options={"population": 4, "resample": 0.0, "length": 8},
    )
    sweep = Sweep(store, store.create_run(failing)).launch("inline").wait("complete")
    states = [trial.state for trial in sweep.trials]
    assert states.count("failed") >= 1
    for event in sweep.of(TrialProposed):
        if event.segment is not None and event.segment.replaced is not None:
            assert event.segment.continues is not None
            assert sweep.trials[event.segment.continues].state == "complete"
    sweep.assert_sound()


def test_what_cannot_be_continued_is_refused_before_it_starts() -> None:
    with pytest.raises(ExperimentError, match="no parameter `folder`"):
        check(
            population(
                "curve",
                search={"x": {"low": 0.0, "high": 1.0}},
                sampler={"name": "pbt", "options": {"length": 8}},
            )
        )
    trees = Experiment(
        model="forest",
        data="digits",
        objectives=[{"metric": "val_accuracy", "goal": "maximize"}],
        search={"lr": {"low": 0.1, "high": 1.0}},
        sampler="pbt",
    )
    with pytest.raises(ExperimentError, match="no state"):
        check_continuable(trees)


@pytest.mark.slow
def test_the_command_line_shows_how_the_best_was_trained(store: Store) -> None:
    sweep = Sweep(store, store.create_run(population())).launch("inline").wait("complete")
    environment = {**os.environ, "WORKBENCH_STORE": store.url, "COLUMNS": "160"}

    def show(*arguments: str) -> str:
        command = [sys.executable, "-m", "workbench", "show", sweep.run_id, *arguments]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        ).stdout

    assert re.search(r"How it was trained\s+until step", show())
    copied = next(
        trial for trial in sweep.trials if trial.segment and trial.segment.replaced is not None
    )
    assert copied.segment is not None
    assert f"continues trial {copied.segment.continues}" in show("--trial", str(copied.number))
