"""A study whose search space changes while it goes on."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.examples import examples
from tests.builders.studies import Drive, make_experiment
from workbench.experiment.changes import SEARCH, merge_changes, with_changes
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import SettingsChanged, TrialEnqueued
from workbench.search.sampler_and_pruner import placed

SPACE: dict[str, Any] = {
    "x": {"low": 0.0, "high": 1.0},
    "n": {"low": 1, "high": 64, "log": True},
    "kind": {"choices": ["a", "b"]},
    "y": {"low": 0.0, "high": 1.0, "when": {"kind": "b"}},
}
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "x": st.sampled_from(
            [0.25, {"low": 0.4}, {"low": -1.0, "high": 2.0}, {"choices": [0.1, 0.9]}]
        ),
        "n": st.sampled_from([8, {"low": 4, "high": 16}, {"high": 256}]),
        "kind": st.sampled_from(["a", "b", {"choices": ["a", "b", "c"]}]),
        "y": st.sampled_from([0.5, {"high": 0.5}]),
    },
)


def leave_many(changes: list[dict[str, Any]]) -> bool:
    """Return whether a space has more configurations than the test tries."""
    x = [wanted["x"] for wanted in changes if "x" in wanted]
    has_few_x = any(isinstance(domain, float) or "choices" in domain for domain in x)
    return not (has_few_x and any(wanted.get("n") == 8 for wanted in changes))


def change(drive: Drive, given: dict[str, Any]) -> int:
    """Change the space as a driver does, which stores all changes since the beginning."""
    before = [
        event.settings[SEARCH] for event in drive.events if isinstance(event, SettingsChanged)
    ]
    merged = merge_changes(drive.experiment, before[-1] if before else {}, given)  # type: ignore[arg-type]
    drive.events.append(SettingsChanged(settings={SEARCH: merged}))
    return drive.study.change_search(merged)


def loss(params: Any, _rung: int = 1) -> float:
    return (params["x"] - 0.3) ** 2 + 0.01 * params["n"] + 0.1 * params.get("y", 1.0)


SOME_CHANGES = st.lists(CHANGES, min_size=2, max_size=3).filter(leave_many)


@pytest.mark.parametrize("name", ["auto", "tpe", "random"])
@given(data=st.data())
@examples(2)
def test_proposals_lie_in_the_space_in_force_and_are_those_of_a_rebuilt_study(
    name: str, data: st.DataObject
) -> None:
    drive = Drive(make_experiment(search=SPACE, sampler=name, early_stop={"pruner": "median"}))
    for given_changes in data.draw(SOME_CHANGES, label="changes"):
        running = drive.ask()
        for _ in range(5):
            drive.train(loss, rungs=2)
        if given_changes:
            change(drive, given_changes)
        rebuilt = drive.rebuilt()
        assert rebuilt.experiment == drive.study.experiment
        assert rebuilt.ask() == copy.deepcopy(drive.study).ask()
        for _ in range(3):
            proposal = drive.train(loss, rungs=2)
            assert drive.study.experiment.search.check(proposal.params) == proposal.params
        drive.report(running.trial, 1, loss=loss(running.params))
        drive.end(running.trial)
        assert drive.rebuilt().ask() == copy.deepcopy(drive.study).ask()


def test_trials_count_where_they_lie_in_the_new_space() -> None:
    drive = Drive(make_experiment(search={"x": {"low": 0.0, "high": 1.0}}, sampler="random"))
    tried = [drive.train(lambda params, _: params["x"]).params for _ in range(30)]
    changed = with_changes(drive.experiment, {"x": {"low": 0.5, "high": 1.0}}).search
    inside = [params for params in tried if placed(params, changed) is not None]
    assert (
        change(drive, {"x": {"low": 0.5}})
        == len(inside)
        == sum(params["x"] >= 0.5 for params in tried)
    )
    assert change(drive, {"x": {"low": 0.0}}) == 30, "what was left out counts again"


def test_what_lies_inside_teaches_the_sampler() -> None:
    """Proposals after a change depend on what the trials inside the new space have shown."""

    def num_near_after(scale: float) -> int:
        drive = Drive(make_experiment(search={"x": {"low": 0.0, "high": 1.0}}))
        tried: list[float] = []

        def value(params: dict[str, Any], _: object) -> float:
            tried.append(params["x"])
            return scale * (params["x"] - 0.7) ** 2

        for _ in range(6):
            drive.train(value)
        change(drive, {"x": {"low": 0.2}})
        for _ in range(3):
            drive.train(value)
        return sum(abs(x - 0.7) < 0.05 for x in tried[6:])

    assert num_near_after(1.0) >= 2
    assert num_near_after(-1.0) == 0


def test_trials_with_other_values_of_what_decides_nothing_count_once_it_is_frozen() -> None:
    drive = Drive(
        make_experiment(
            search={name: {"low": 0.0, "high": 1.0} for name in ("x", "idle")},
            sampler="random",
            seed=3,
        )
    )
    for _ in range(60):
        drive.train(lambda params, _: params["x"])
    assert change(drive, {"idle": 0.5}) == 60
    assert all(drive.train(lambda params, _: params["x"]).params["idle"] == 0.5 for _ in range(3))
    assert change(drive, {"x": 0.5}) == 0, "x decides all, so that its other values show nothing"


def test_an_enqueued_configuration_must_lie_in_the_new_space() -> None:
    drive = Drive(make_experiment())
    drive.study.apply(TrialEnqueued(params={"x": 0.9}))
    with pytest.raises(ExperimentError, match="does not contain an enqueued configuration"):
        change(drive, {"x": {"high": 0.5}})
    assert drive.study.experiment == drive.experiment
    assert drive.study.ask().params == {"x": 0.9}  # type: ignore[union-attr]


def test_trials_of_every_space_are_exported(tmp_path: Path) -> None:
    drive = Drive(make_experiment(search=SPACE, sampler="random"))
    for changes in (
        {"x": {"low": -2.0, "high": -1.0}, "kind": {"choices": ["b", "c"]}},
        {"x": 0.5},
    ):
        for _ in range(4):
            drive.train(loss)
        change(drive, changes)
    drive.train(loss)
    url = f"sqlite:///{tmp_path}/study.sqlite"
    drive.study.export(url, "changed")
    copied = optuna.load_study(study_name="changed", storage=url).trials
    assert len(copied) == 9
    assert copied[-1].params["x"] == 0.5
