"""Trials that are cloned while their run goes on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import JsonValue

from tests.services.sweeps import Sweep
from tests.training.test_clones import walk
from workbench.experiment import Experiment
from workbench.foundation.errors import ArgumentError, ExperimentError, RunError
from workbench.foundation.events import (
    CommandHandled,
    TrialEnded,
    TrialEnqueued,
    TrialPlanned,
    TrialProposed,
    TrialReported,
    TrialStarted,
)
from workbench.runs import Run
from workbench.runs.bundles.bundle import narrow
from workbench.store.database import Store
from workbench.store.history.lineage import parts_of
from workbench.sweeps.clones import BeginsFrom, check_clone

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("free_pool")]

STEPS = 12


def start(store: Store, **fields: object) -> Sweep:
    """A run whose trial walks towards 0 at a rate of 0.5 and saves each of its steps."""
    sweep = Sweep.create(
        store,
        "descend",
        **{
            "options": {"steps": STEPS, "pause_s": 0.1},
            "search": {"rate": {"choices": [0.5, 0.25, 0.125]}},
            "sampler": "grid",
            "budget": {"trials": 1},
            **fields,
        },
    )
    if "search" not in fields:
        store.command(sweep.run_id, "enqueue", {"params": {"rate": 0.5}})
    return sweep


def clone(
    sweep: Sweep,
    trial: int,
    changes: Mapping[str, JsonValue],
    begins_from: BeginsFrom = "weights",
) -> CommandHandled:
    number = sweep.store.command(
        sweep.run_id, "clone", {"trial": trial, "set": dict(changes), "from_": begins_from}
    )
    return sweep.wait_for(CommandHandled, lambda event: event.command == number)


def losses(sweep: Sweep, trial: int) -> dict[int, float]:
    return {event.step: event.values["loss"] for event in sweep.of(TrialReported, trial)}


def test_a_clone_continues_its_parent_with_another_value_while_that_goes_on(store: Store) -> None:
    sweep = start(store).drive()
    sweep.wait_for(TrialReported, lambda event: event.step == 3)
    answer = clone(sweep, 0, {"rate": 0.25})
    assert answer.done, answer.message
    assert "rate 0.5 -> 0.25; at most 2 configurations now" in (answer.message or "")
    again = clone(sweep, 0, {"rate": 0.125}, "start")
    assert again.done, again.message
    sweep.wait("complete")

    parent, cloned, fresh = sweep.trials
    wanted = walk([0.5] * STEPS)
    assert losses(sweep, 0) == {step: pytest.approx(wanted[step - 1]) for step in range(1, 13)}
    values = losses(sweep, 1)
    first = min(values)
    assert 3 < first <= STEPS, "it begins where its parent was"
    wanted = walk([0.5] * (first - 1) + [0.25] * (STEPS - first + 1))
    assert values == {step: pytest.approx(wanted[step - 1]) for step in range(first, 13)}
    assert min(losses(sweep, 2)) == 1
    assert [trial.state for trial in sweep.trials] == ["complete"] * 3
    assert parent.clone is None
    assert cloned.clone is not None
    assert (cloned.clone.of, cloned.clone.first_step, cloned.continued) == (0, 1, 0)
    assert fresh.clone is not None
    assert (fresh.clone.of, fresh.clone.begins_from, fresh.continued) == (0, "start", None)
    enqueued = [event.clone for event in sweep.of(TrialEnqueued)]
    assert enqueued == [event.clone for event in sweep.of(TrialProposed)]
    left = store.artifacts_of(sweep.run_id).below("trials/00000/branches").stamps()
    assert left == {}, "no clone needs the copy any more"
    sweep.assert_sound()


def test_a_clone_of_a_complete_function_is_accepted_with_the_doubt_in_words(store: Store) -> None:
    sweep = start(store, budget={"trials": 2}, resources={"concurrency": 1}).drive()
    sweep.wait_for(TrialReported, lambda event: (event.trial, event.step) == (1, 1))
    answer = clone(sweep, 0, {"rate": 0.125})
    sweep.wait("complete")
    assert answer.done, answer.message
    assert "trial 0 is complete: the clone fails if its loop is over" in (answer.message or "")
    assert [trial.state for trial in sweep.trials] == ["complete", "complete", "failed"]
    assert "the training was over at the checkpoint of trial 0" in (sweep.trials[2].message or "")


@pytest.mark.slow
def test_a_replay_repeats_clones_with_the_same_curves(store: Store) -> None:
    sweep = start(store).drive()
    sweep.wait_for(TrialReported, lambda event: event.step == 3)
    assert clone(sweep, 0, {"rate": 0.25}).done
    sweep.wait("complete")
    again = Sweep(store, store.create_run(sweep.experiment))
    store.command(again.run_id, "replay", {"run_id": sweep.run_id})
    again.drive().wait("complete")
    assert losses(again, 0) == losses(sweep, 0)
    assert losses(again, 1) == losses(sweep, 1)
    left = store.artifacts_of(again.run_id).below("trials/00000/branches").stamps()
    assert left == {}
    again.assert_sound()


def test_what_cannot_be_cloned_is_refused_in_words(store: Store) -> None:
    sweep = start(store, options={"steps": 1000, "pause_s": 0.1}).drive()
    sweep.wait_for(TrialReported, lambda event: event.step == 2)
    run = Run(store, sweep.run_id)
    refusals: list[tuple[int, dict[str, JsonValue], str, type[Exception]]] = [
        (7, {"rate": 0.25}, "trial: the run has no trial 7; allowed: 0", ArgumentError),
        (0, {"ratte": 0.25}, "set.ratte: this parameter is not searched", ExperimentError),
        (0, {"ratte": 0.25}, "Did you mean rate?", ExperimentError),
        (0, {"rate": 0.3}, "set.rate: 0.3 is not an allowed value", ExperimentError),
        (0, {}, "set: the clone would train exactly like trial 0", ExperimentError),
        (0, {"rate": 0.5}, "set: the clone would train exactly like trial 0", ExperimentError),
    ]
    for trial, changes, why, kind in refusals:
        with pytest.raises(kind) as caught:
            run.clone(trial, set=changes)
        assert why in str(caught.value)
        refused = clone(sweep, trial, changes)
        assert (refused.done, why in (refused.message or "")) == (False, True), refused.message
    with pytest.raises(ArgumentError, match="from_"):
        run.clone(0, set={"rate": 0.25}, from_="middle")  # type: ignore[arg-type]
    run.stop()
    sweep.wait("stopped")
    with pytest.raises(RunError, match=r"has ended \(stopped\)"):
        run.clone(0, set={"rate": 0.25})


def test_a_trial_without_a_checkpoint_can_only_be_cloned_from_its_start(
    store: Store, notes: Path
) -> None:
    sweep = Sweep.create(
        store,
        "hold",
        options={"until": "go", "notes": str(notes)},
        search={"x": {"choices": [0.5, 0.25]}},
        budget={"trials": 1},
    ).drive()
    sweep.wait_for(TrialReported)
    refused = clone(sweep, 0, {"x": 0.25})
    assert not refused.done
    assert "needs checkpoints, but the function has no parameter `folder`" in (
        refused.message or ""
    )
    assert clone(sweep, 0, {"x": 0.25}, "start").done
    (notes / "go").touch()
    sweep.wait("complete")
    assert [trial.params["x"] for trial in sweep.trials].count(0.25) >= 1
    assert len(sweep.trials) == 2


@pytest.mark.slow
def test_a_clone_of_a_clone_and_a_killed_driver(store: Store) -> None:
    sweep = start(store, options={"steps": 20, "pause_s": 0.1}, resources={"concurrency": 2})
    sweep.drive()
    sweep.wait_for(TrialReported, lambda event: event.step == 2)
    assert clone(sweep, 0, {"rate": 0.25}).done
    sweep.wait_for(TrialReported, lambda event: (event.trial, event.step >= 8) == (1, True))
    assert clone(sweep, 1, {"rate": 0.125}).done
    store.command(sweep.run_id, "stop", {})
    sweep.wait("stopped")
    sweep.drive().wait("complete")
    first, second = min(losses(sweep, 1)), min(losses(sweep, 2))
    assert 2 < first < second <= 20
    rates = [0.5] * (first - 1) + [0.25] * (second - first) + [0.125] * (21 - second)
    wanted = walk(rates)
    assert losses(sweep, 2) == {step: pytest.approx(wanted[step - 1]) for step in range(second, 21)}
    sweep.assert_sound()


SCRIPT = """
import pathlib, sys, time
rate, folder = float(sys.argv[1]), pathlib.Path(sys.argv[2])
saved = folder / "state.txt"
epoch, x = 0, 4.0
if saved.exists():
    epoch, x = (float(word) for word in saved.read_text().split())
while epoch < 10:
    epoch, x = int(epoch) + 1, x - rate * x
    partly = folder / "partly"
    partly.write_text(f"{epoch} {x!r}")
    partly.replace(saved)
    print(f"epoch {epoch} loss {x!r}", flush=True)
    time.sleep(0.1)
"""


def test_a_script_with_a_checkpoint_can_be_cloned(store: Store, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    sweep = start(
        store, train=None, command=f"python {script} {{rate}} {{folder}} {{seed}}", step="epoch"
    ).drive()
    sweep.wait_for(TrialReported, lambda event: event.step == 3)
    assert clone(sweep, 0, {"rate": 0.125}).done
    sweep.wait("complete")
    values = losses(sweep, 1)
    first = min(values)
    assert 3 < first <= 10
    assert [trial.state for trial in sweep.trials] == ["complete"] * 2
    for step, loss in values.items():
        assert loss == pytest.approx(4.0 * 0.5 ** (first - 1) * 0.875 ** (step - first + 1))
    sweep.assert_sound()


@pytest.mark.slow
def test_a_model_is_cloned_with_its_weights(store: Store) -> None:
    sweep = start(
        store,
        train=None,
        model={"name": "mlp", "hidden_width": 16},
        data="digits",
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        search={
            "lr": {"choices": [0.1, 0.01]},
            "num_layers": {"choices": [1, 2]},
        },
        training={"epochs": 60},
    ).drive()
    sweep.wait_for(TrialReported, lambda event: (event.epoch or 0) >= 5)
    shown = sweep.trials[0].params
    other_lr = 0.11 - float(shown["lr"])  # type: ignore[arg-type]
    deeper = clone(sweep, 0, {"num_layers": 3 - int(shown["num_layers"])})  # type: ignore[call-overload]
    assert not deeper.done
    assert "num_layers cannot change while the weights of trial 0 stay" in (deeper.message or "")
    answer = clone(sweep, 0, {"lr": round(other_lr, 6)})
    assert answer.done, answer.message
    sweep.wait("complete")
    cloned = sweep.trials[1]
    [planned] = sweep.of(TrialPlanned, 1)
    assert cloned.clone is not None
    assert (cloned.clone.step, cloned.clone.epoch) == (planned.begins_step, planned.begins_epoch)
    reports = sweep.of(TrialReported, 1)
    assert min(report.step for report in reports) > (planned.begins_step or 0) > 0
    assert reports[-1].epoch == 60
    before = [
        event.values["val_loss"]
        for event in sweep.of(TrialReported, 0)
        if event.epoch == planned.begins_epoch and "val_loss" in event.values
    ]
    first = next(event.values["val_loss"] for event in reports if "val_loss" in event.values)
    assert first < 1.5 * before[-1] < 1.0, "it begins with what its parent had learned"
    started = sweep.of(TrialStarted, 1)[0]
    assert started.resumed_from is not None
    assert "trials/00000/branches/" in started.resumed_from
    ended = sweep.of(TrialEnded, 0)
    assert ended[0].state == "complete", "its parent went on"

    # As a schedule of two parts, its bundle trains the same weights again.
    parts = parts_of(sweep.history, cloned)
    assert [until for until, _ in parts] == [planned.begins_epoch, 60]
    again = Sweep(store, store.create_run(narrow(sweep.experiment, cloned, parts)))
    again.launch("inline")
    assert again.trials[1].values == cloned.values


def test_parameters_that_no_longer_exist_are_dropped(store: Store) -> None:
    sweep = start(
        store,
        search={
            "kind": {"choices": ["a", "b"]},
            "rate": {"low": 0.1, "high": 0.5, "when": {"kind": "a"}},
            "size": {"choices": [1, 2], "when": {"kind": "b"}},
        },
        sampler="random",
        options={"steps": 1},
    )
    store.command(sweep.run_id, "enqueue", {"params": {"kind": "a", "rate": 0.25}})
    sweep.launch("inline")
    history = sweep.history
    assert check_clone(history, 0, {"kind": "b", "size": 2}, "start") == {"kind": "b", "size": 2}
    with pytest.raises(ExperimentError, match=r"set\.size: missing"):
        check_clone(history, 0, {"kind": "b"}, "start")
    with pytest.raises(ExperimentError, match=r"set\.size: it exists only if kind is b"):
        check_clone(history, 0, {"size": 2}, "start")


@pytest.mark.slow
def test_trials_that_only_decay_differently_share_the_part_before(store: Store) -> None:
    fields = {
        "model": {"name": "mlp", "hidden_width": 16},
        "data": "digits",
        "objectives": [{"metric": "val_loss", "goal": "minimize"}],
        "search": {"schedule_options.decay": {"choices": [0.25, 0.5, 1.0]}},
        "training": {"epochs": 4, "schedule": "wsd"},
        "resources": {"concurrency": 1},
        "sampler": "grid",
        "budget": {"trials": 3},
    }
    sweep = Sweep(store, store.create_run(Experiment(**fields)))  # pyright: ignore
    sweep.launch("inline")
    trials = {trial.params["schedule_options.decay"]: trial for trial in sweep.trials}
    earlier, later = sorted((trials[0.25], trials[0.5]), key=lambda trial: trial.number)
    assert (earlier.trunk_of, later.trunk_of, trials[1.0].trunk_of) == (None, earlier.number, None)
    assert later.trunk_s > 0
    kept = store.artifacts_of(sweep.run_id).below(f"trials/{earlier.number:05}/trunk")
    assert kept.stamps() == {}, "no further trial needs it"
    single = Sweep(store, store.create_run(Experiment(**fields | {"budget": {"trials": 1}})))  # pyright: ignore
    store.command(single.run_id, "enqueue", {"params": later.params})
    single.launch("inline")
    assert single.trials[0].values == later.values
