"""What people can ask of a run while it goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.services.sweeps import Sweep
from tests.services.waiting import wait_until
from workbench.experiment.changes import describe_changes
from workbench.foundation.events import (
    CommandHandled,
    PriorTrialAdded,
    TrialEnded,
    TrialReported,
    TrialStarted,
)
from workbench.runs import Run
from workbench.store.database import Store

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("free_pool")]


def hold(store: Store, notes: Path, **fields: object) -> Sweep:
    """A run whose trials report every 0.1 s until they are told to stop."""
    options = {"notes": str(notes), **fields.pop("options", {})}  # type: ignore[dict-item]
    return Sweep.create(store, "hold", options=options, **fields)


def handled(sweep: Sweep, number: int) -> CommandHandled:
    return sweep.wait_for(CommandHandled, lambda event: event.command == number)


def test_stop_ends_a_run_before_its_trials_are_done_and_resume_ends_it(
    store: Store, notes: Path
) -> None:
    sweep = hold(
        store,
        notes,
        options={"until": "resumed"},
        budget={"trials": 3},
        resources={"concurrency": 2},
        seed=5,
    ).drive()
    for number in (0, 1):
        sweep.wait_for(TrialReported, lambda event, number=number: event.trial == number)

    store.command(sweep.run_id, "stop", {})
    store.command(sweep.run_id, "stop", {})
    sweep.wait("stopped")
    assert sweep.history.reason == "person"
    assert {trial.state for trial in sweep.trials} == {"stopped"}
    assert handled(sweep, 2).done
    before = sweep.trials

    sweep.drive()
    for number in (0, 1):
        sweep.wait_for(
            TrialReported, lambda event, number=number: (event.trial, event.attempt) == (number, 1)
        )
    (notes / "resumed").touch()
    sweep.wait("complete")
    assert len(sweep.trials) == 3
    assert [trial.state for trial in sweep.trials] == ["complete"] * 3
    assert [trial.params for trial in sweep.trials[:2]] == [trial.params for trial in before]
    assert [trial.attempts for trial in sweep.trials] == [2, 2, 1]
    sweep.assert_sound()


@pytest.mark.slow
def test_one_trial_can_be_stopped_and_the_run_goes_on(store: Store, notes: Path) -> None:
    sweep = hold(store, notes, options={"steps": 100}, budget={"trials": 2}).drive()
    sweep.wait_for(TrialReported, lambda event: event.step >= 2)

    number = store.command(sweep.run_id, "stop_trial", {"trial": 0})
    assert handled(sweep, number).done
    sweep.wait_for(TrialEnded, lambda event: (event.trial, event.state) == (0, "stopped"))
    sweep.wait_for(TrialStarted, lambda event: event.trial == 1)
    for wrong, why in (
        ({"trial": 0}, "is not running"),
        ({"trial": 7}, "is not running"),
        ({"trial": "first"}, "trial: 'first' is not valid"),
        ({}, "trial: missing"),
    ):
        refusal = handled(sweep, store.command(sweep.run_id, "stop_trial", wrong))
        assert not refusal.done
        assert why in refusal.message
    store.command(sweep.run_id, "stop_trial", {"trial": 1})
    sweep.wait("complete")
    assert [trial.state for trial in sweep.trials] == ["stopped", "stopped"]
    sweep.assert_sound()


@pytest.mark.slow
def test_a_configuration_can_be_tried_next(store: Store, notes: Path) -> None:
    sweep = hold(store, notes, options={"steps": 20}, budget={"trials": 3}).drive()
    sweep.wait_for(TrialStarted)

    assert handled(sweep, store.command(sweep.run_id, "enqueue", {"params": {"x": 0.125}})).done
    refusals = [
        handled(sweep, store.command(sweep.run_id, "enqueue", arguments))
        for arguments in ({"params": {"x": 7.0}}, {"params": {"y": 0.5}}, {"params": 3}, {})
    ]
    assert [refusal.done for refusal in refusals] == [False] * 4
    assert "x" in refusals[0].message
    assert handled(sweep, store.command(sweep.run_id, "enqueue", {"params": {"x": 0.25}})).done
    late = handled(sweep, store.command(sweep.run_id, "enqueue", {"params": {"x": 0.75}}))
    assert not late.done, "it would never be tried"
    assert "Extend the run by one trial first" in late.message
    sweep.wait("complete")
    assert (sweep.trials[1].params, sweep.trials[1].source) == ({"x": 0.125}, "enqueued")
    assert [trial.source for trial in sweep.trials] == ["sampler", "enqueued", "enqueued"]


def test_a_limit_below_what_has_begun_states_what_becomes_of_that_and_of_the_queue(
    store: Store, notes: Path
) -> None:
    sweep = hold(
        store, notes, options={"until": "go"}, budget={"trials": 9}, resources={"concurrency": 2}
    )
    sweep.drive()
    for number in (0, 1):
        sweep.wait_for(TrialReported, lambda event, number=number: event.trial == number)
    assert handled(sweep, store.command(sweep.run_id, "enqueue", {"params": {"x": 0.125}})).done

    answer = handled(sweep, store.command(sweep.run_id, "set", {"budget.trials": 1})).message
    assert answer == (
        "at most 1 configuration, but 2 have already started and will be finished and"
        " 1 enqueued configuration will not be tried"
    )
    (notes / "go").touch()
    sweep.wait("complete")
    assert (
        sweep.history.message
        == "its budget was lowered to 1 when 2 configurations had already started. 1 enqueued"
        " configuration was not tried"
    )


def test_commands_that_nobody_knows_or_that_lack_something_are_refused(
    store: Store, notes: Path
) -> None:
    sweep = hold(store, notes, options={"steps": 30}, budget={"trials": 1}).drive()

    refusals = [
        handled(sweep, store.command(sweep.run_id, kind, arguments))
        for kind, arguments in (
            ("dance", {}),
            ("warm_start", {}),
            ("warm_start", {"run_id": "nobody"}),
        )
    ]
    assert [refusal.done for refusal in refusals] == [False] * 3
    allowed = refusals[0].message.partition("allowed: ")[2].split(", ")
    assert {"stop", "stop_trial", "set", "enqueue", "extend", "warm_start", "replay"} <= {*allowed}
    assert sweep.wait().state == "complete"


@pytest.mark.slow
def test_earlier_runs_teach_the_sampler_before_its_first_proposal(store: Store) -> None:
    search = {"x": {"low": 0.0, "high": 1.0}}
    earlier = Sweep.create(store, "curve", search=search, budget={"trials": 12}, seed=1).launch(
        "inline"
    )
    other = Sweep.create(
        store,
        "two_objectives",
        objectives=[{"metric": "size", "goal": "minimize"}],
        budget={"trials": 1},
    ).launch("inline")
    later = Sweep.create(store, "curve", search=search, sampler="tpe", budget={"trials": 8}, seed=2)

    later.launch(warm_start=[earlier.run_id, other.run_id]).wait("complete")

    assert [event.from_trial for event in later.of(PriorTrialAdded)] == list(range(12))
    kinds = [event.type for event in later.events]
    assert kinds.index("prior_trial_added") < kinds.index("trial_proposed")
    taught, refused = later.of(CommandHandled)
    assert (taught.done, refused.done) == (True, False)
    assert "other objectives" in refused.message
    unprepared = [trial.params["x"] for trial in earlier.trials[:8]]
    prepared = [trial.params["x"] for trial in later.trials]
    assert sum(map(float, prepared)) < sum(map(float, unprepared))  # type: ignore[arg-type]
    later.assert_sound()


@pytest.mark.slow
def test_a_stop_that_comes_before_any_trial_starts_stops_the_run_until_it_is_resumed(
    store: Store, notes: Path
) -> None:
    sweep = hold(store, notes, options={"steps": 1}, budget={"trials": 1})
    store.command(sweep.run_id, "stop", {})
    sweep.drive()
    sweep.wait("stopped")
    assert sweep.trials == []
    wait_until(lambda: not store.is_driven(sweep.run_id))

    store.command(sweep.run_id, "stop", {})
    Run(store, sweep.run_id).resume(launcher="inline")
    assert sweep.state == "complete"
    assert [(event.kind, event.done) for event in sweep.of(CommandHandled)] == [
        ("stop", True),
        ("stop", False),
        ("resume", True),
    ]


@pytest.mark.slow
def test_the_search_space_changes_while_trials_run_and_a_resumed_run_goes_on_in_it(
    store: Store, notes: Path
) -> None:
    sweep = hold(store, notes, options={"steps": 3}, budget={"trials": 8}, seed=5).drive()
    sweep.wait_for(TrialReported)
    refused = handled(sweep, store.command(sweep.run_id, "set", {"search": {"x": 7}}))
    assert not refused.done
    assert "search.x" in refused.message

    changed = handled(sweep, store.command(sweep.run_id, "set", {"search": {"x": {"low": 0.75}}}))
    assert changed.done, changed.message
    assert changed.message.startswith("x is searched among ")
    begun = len(sweep.trials)
    sweep.wait_for(TrialStarted, lambda event: event.trial >= begun)
    store.command(sweep.run_id, "stop", {})
    sweep.wait("stopped")
    before = sweep.trials

    sweep.drive().wait("complete")
    assert [trial.params for trial in sweep.trials[: len(before)]] == [
        trial.params for trial in before
    ]
    assert len(sweep.trials) == 8
    assert all(trial.params["x"] >= 0.75 for trial in sweep.trials[begun:])
    assert describe_changes(sweep.history.experiment, sweep.history.in_force) == [
        "search.x numbers from 0.0 to 1.0 -> numbers from 0.75 to 1.0"
    ]
    sweep.assert_sound()
