"""What is told of a run's result, from runs as a driver would have written them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.builders.recorded_runs import append, begin, finish, record_run, trial_events
from workbench.experiment import Experiment
from workbench.foundation.events import Event
from workbench.runs import Run
from workbench.runs.result import result_of
from workbench.store.database import Store

DEFAULT = {"lr": 1e-3, "width": 32}


def of(folder: Path, *events: Event, ended: bool = True, **changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "model": "convnet",
        "data": "digits",
        "objectives": [{"metric": "val_accuracy", "goal": "maximize"}],
        "search": {
            "lr": {"low": 1e-4, "high": 0.5, "log": True},
            "width": {"choices": [8, 16, 32]},
        },
        "budget": {"trials": 5},
    }
    with Store.open(str(folder / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**fields | changes))
        append(store, run_id, [*begin(), *events, *(finish(9) if ended else ())])
        return result_of(Run(store, run_id).stored)


def test_the_best_stands_first_and_every_configuration_once(tmp_path: Path) -> None:
    run_id = record_run(tmp_path)
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        told = result_of(Run(store, run_id).stored)
    assert told["state"] == "complete"
    assert [(entry["place"], entry["trial"]) for entry in told["leaderboard"]] == [(1, 1), (2, 0)]
    assert told["best"] == told["leaderboard"][0]
    assert told["best"]["values"] == {"val_accuracy": 0.95}
    assert told["best"]["params"] == {"lr": 0.1, "width": 8}
    assert told["best"]["duration_s"] == pytest.approx(2.9)
    assert [offer["kind"] for offer in told["commands"]] == ["extend", "export"]
    assert told["commands"][0]["command"] == f"workbench extend {run_id} --more-trials 10"


def test_the_best_is_held_against_the_default_where_that_was_tried(tmp_path: Path) -> None:
    told = of(
        tmp_path,
        *trial_events(0, at_s=1, lr=1e-3, width=32, accuracy=0.8),
        *trial_events(1, at_s=2, lr=0.1, accuracy=0.95),
    )["default_comparison"]
    assert told["params"] == DEFAULT
    assert (told["default"]["trial"], told["values"]) == (0, {"val_accuracy": 0.8})
    assert told["gain"] == pytest.approx(0.15)
    assert told["words"].startswith("val_accuracy 0.95 instead of 0.8 with the default (trial 0)")
    assert "chance" in told["words"]
    assert told["try_it"] is None


def test_less_is_better_where_that_is_the_goal(tmp_path: Path) -> None:
    told = of(
        tmp_path,
        *trial_events(0, at_s=1, lr=1e-3, width=32, accuracy=0.8),
        *trial_events(1, at_s=2, lr=0.1, accuracy=0.5),
        objectives=[{"metric": "val_accuracy", "goal": "minimize"}],
    )["default_comparison"]
    assert told["gain"] == pytest.approx(0.3)


def test_a_default_that_is_the_best_is_said_to_be(tmp_path: Path) -> None:
    told = of(tmp_path, *trial_events(0, at_s=1, lr=1e-3, width=32))["default_comparison"]
    assert told["gain"] == 0.0
    assert "no configuration was better than the default" in told["words"]


def test_a_default_that_nobody_tried_is_unknown_and_can_be_tried(tmp_path: Path) -> None:
    ended = of(tmp_path, *trial_events(0, at_s=1))
    told, run_id = ended["default_comparison"], ended["run_id"]
    assert told["values"] is told["gain"] is told["default"] is None
    assert told["enqueue"] == DEFAULT
    assert "its result is unknown" in told["words"]
    assert told["try_it"] == {
        "command": f"workbench extend {run_id} --more-trials 1 --param lr=0.001 --param width=32",
        "python": f'wb.attach("{run_id}").extend(trials=1, enqueue={{"lr": 0.001, "width": 32}})',
    }
    running = of(tmp_path, *trial_events(0, at_s=1), ended=False)
    assert running["default_comparison"]["try_it"]["command"].startswith("workbench enqueue")


def test_a_default_that_did_not_come_to_an_end_is_said_to_be_unknown(tmp_path: Path) -> None:
    told = of(
        tmp_path,
        *trial_events(0, at_s=1, lr=1e-3, width=32, state="pruned"),
        *trial_events(1, at_s=2, lr=0.1),
    )["default_comparison"]
    assert told["gain"] is None
    assert told["words"] == "trial 0 tried the default and is pruned, so its result is unknown"
    assert told["default"]["state"] == "pruned"
    assert told["try_it"] is None


def test_a_default_outside_of_the_space_cannot_be_tried(tmp_path: Path) -> None:
    search = {"lr": {"low": 1e-4, "high": 0.5}, "width": {"choices": [8, 16]}}
    told = of(tmp_path, *trial_events(0, at_s=1), search=search)["default_comparison"]
    assert told["words"].startswith(
        "the default configuration cannot be tried, because it is outside the search space"
    )
    assert told["try_it"] is None


def test_a_default_that_only_a_persons_code_knows_is_not_compared(tmp_path: Path) -> None:
    told = of(tmp_path, *trial_events(0, at_s=1), model="json:dumps")["default_comparison"]
    assert told["unknown"] == ["width"]
    assert told["values"] is None


def test_a_run_without_a_complete_trial_has_no_best(tmp_path: Path) -> None:
    told = of(tmp_path, *trial_events(0, at_s=1, state="failed", reason="error"), ended=False)
    assert told["best"] is None
    assert told["leaderboard"] == []
