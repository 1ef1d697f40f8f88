"""Better spaces for a run: what is noted, with which command, and what is not noted."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders.report_pages import report_html
from tests.builders.studies import make_experiment
from workbench.experiment import Experiment
from workbench.foundation.events import (
    DriverStarted,
    Event,
    RunStateChanged,
    TrialEnded,
    TrialProposed,
    TrialStarted,
)
from workbench.runs.space_suggestions import how_to_freeze, how_to_widen
from workbench.store.history import History

RATE = {"lr": {"low": 1e-4, "high": 0.1, "log": True}}


def events_of(values: list[float], name: str, *, is_over: bool) -> list[Event]:
    """A run whose loss is its trial's number, so that the first trial is the best."""
    recorded: list[Event] = [
        DriverStarted(pid=1, host="host", num_cpus=4, versions={}),
        RunStateChanged(state="running"),
    ]
    for trial, value in enumerate(values):
        recorded += [
            TrialProposed(trial=trial, params={name: value}, configuration=trial, seed=trial),
            TrialStarted(trial=trial, attempt=0, worker_pids=[trial]),
            TrialEnded(trial=trial, attempt=0, state="complete", values={"loss": float(trial)}),
        ]
    return [*recorded, RunStateChanged(state="complete", reason="trials")] if is_over else recorded


def run_of(
    search: dict[str, Any], best: float, *, count: int = 12, is_over: bool = True
) -> tuple[Experiment, list[Event]]:
    (name, domain), *_ = search.items()
    middle = (
        (domain["low"] * domain["high"]) ** 0.5
        if domain.get("log")
        else (domain["low"] + domain["high"]) // 2
    )
    experiment = make_experiment(search=search)
    return experiment, events_of([best, *[middle] * (count - 1)], name, is_over=is_over)


def note_of(search: dict[str, Any], best: float, **options: Any) -> str | None:
    note = how_to_widen("r-1", History.of(*run_of(search, best, **options)))
    return None if note is None else str(note)


def test_the_command_widens_the_range_of_a_run_that_has_ended_or_is_under_way() -> None:
    experiment, events = run_of(RATE, 0.098)
    note = how_to_widen("r-1", History.of(experiment, events))
    assert note is not None
    assert note.lead == (
        "lr=0.098 is at the end of its range. A wider range may hold better values. To widen it"
    )
    assert note.words == ("extend", "r-1", "--more-trials", "10", "--search", 'lr={"high": 1}')
    page = report_html(experiment, events, run_id="r-1", how_to_widen=note)
    assert '<p class="notice">lr=0.098 is at the end of its range' in page
    alive = how_to_widen("r-1", History.of(*run_of(RATE, 1.1e-4, is_over=False)))
    assert alive is not None
    assert alive.words == ("set", "r-1", "--search", 'lr={"low": 1e-05}')


@pytest.mark.parametrize(
    ("search", "best", "options"),
    [
        (RATE, 0.05, {}),
        (RATE, 0.1, {"count": 9}),
        ({"dropout": {"low": 0.0, "high": 0.5}}, 0.0, {}),
        ({"share": {"low": 0.2, "high": 1.0}}, 1.0, {}),
        ({"layers": {"low": 2, "high": 4}}, 4, {}),
        ({"micro_batch": {"low": 8, "high": 64}}, 64, {}),
    ],
)
def test_nothing_is_noted_within_a_range_by_chance_or_at_a_natural_end(
    search: dict[str, Any], best: float, options: dict[str, Any]
) -> None:
    assert note_of(search, best, **options) is None


def test_whole_numbers_stay_whole_and_shares_stay_shares() -> None:
    widths = how_to_widen("r-1", History.of(*run_of({"width": {"low": 8, "high": 64}}, 64)))
    assert widths is not None
    assert widths.arguments["search"] == {"width": {"high": 120}}
    share = how_to_widen("r-1", History.of(*run_of({"share": {"low": 0.2, "high": 0.8}}, 0.8)))
    assert share is not None
    assert share.arguments["search"] == {"share": {"high": 1.0}}


NOTHING, MUCH = (0.0, 0.0, 0.02), (0.9, 0.8, 1.0)
TWO = {**RATE, "width": {"low": 8, "high": 64}}


def freezing(
    importance: dict[str, tuple[float, float, float]], **changes: Any
) -> tuple[str, ...] | None:
    """The command for a run with two parameters whose best trial has lr=0.01."""
    is_over = changes.pop("is_over", True)
    experiment = make_experiment(search=TWO, **changes)
    note = how_to_freeze(
        "r-1", History.of(experiment, events_of([0.01] * 3, "lr", is_over=is_over)), importance
    )
    return None if note is None else note.words


def test_what_decides_nothing_is_frozen_in_a_run_under_way_or_in_one_that_is_continued() -> None:
    assert freezing({"lr": NOTHING, "width": MUCH}, is_over=False) == (
        "set",
        "r-1",
        "--search",
        "lr=0.01",
    )
    ended = freezing({"lr": NOTHING, "width": MUCH})
    assert ended == ("extend", "r-1", "--more-trials", "10", "--search", "lr=0.01")
    assert freezing({"lr": MUCH, "width": MUCH}) is None


def test_no_sampler_that_refuses_another_space_is_offered_one() -> None:
    for is_over in (True, False):
        assert freezing({"lr": NOTHING, "width": MUCH}, sampler="qmc", is_over=is_over) is None
