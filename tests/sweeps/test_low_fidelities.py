"""Functions, programs and models that are trained at low fidelities first."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.services.sweeps import Sweep
from workbench.experiment import Experiment
from workbench.foundation.events import TrialEnded
from workbench.runs import Run
from workbench.store.database import Store
from workbench.store.history.lineage import describe_continued, describe_segment
from workbench.sweeps.warm_start import prior_trials

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("free_pool")]

PROGRAM = Path(__file__).parents[1] / "training" / "program.py"


def check(sweep: Sweep, name: str, values: list[float]) -> None:
    """Low fidelities are marked with theirs, and no trial but full ones counts as a result."""
    sweep.wait("complete", timeout_s=120)
    for trial in sweep.trials:
        assert trial.params[name] in values
        is_full = trial.params[name] == values[-1]
        assert trial.state == ("complete" if is_full else "pruned"), trial.message
        assert (trial.fidelity is None) == is_full
        if not is_full:
            assert trial.message == f"{name} {trial.params[name]} of {values[-1]:g}"
    history = sweep.history
    best = history.best()
    assert best is not None
    assert best.params[name] == values[-1]
    assert all(trial.params[name] == values[-1] for trial in history.ranked())


@pytest.mark.slow
def test_a_function_is_trained_in_full_only_where_it_promises_most(
    store: Store, tmp_path: Path
) -> None:
    sweep = Sweep.create(
        store, "curve", budget={"trials": 9}, fidelity={"steps": [1, 9]}, sampler="auto"
    )
    check(sweep.launch("inline"), "steps", [1, 3, 9])
    trials = sweep.trials
    nums = [sum(trial.params["steps"] == steps for trial in trials) for steps in (1, 3, 9)]
    assert nums[0] == 9
    assert (
        describe_continued(sweep.history)
        == f"{len(trials)} trials of 9 configurations, by steps: 9 at 1, {nums[1]} at 3, {nums[2]}"
        " at 9"
    )
    best = sweep.history.best()
    assert best is not None
    assert best.resumes is not None
    assert describe_segment(sweep.history, best) == f"after trial {best.resumes} with steps 3 of 9"
    described = describe_segment(sweep.history, sweep.history.trials[best.resumes])
    assert str(described).endswith(f"trained further by trial {best.number}")

    bundle = Run(store, sweep.run_id).export(tmp_path / "best")
    again = Sweep(store, store.create_run(Experiment.from_file(bundle / "experiment.yaml")))
    again.launch("inline").wait("complete")
    assert [trial.values["loss"] for trial in again.trials] == [best.values["loss"]]

    wider = sweep.experiment.replace(fidelity=None, search={"steps": {"low": 1, "high": 9}})
    priors = prior_trials(store, sweep.run_id, wider)
    assert {prior.from_trial for prior in priors} == {
        trial.number for trial in sweep.history.ranked()
    }


def test_a_run_that_has_ended_is_extended_by_new_configurations_at_the_lowest_level(
    store: Store,
) -> None:
    fields: dict[str, Any] = {"budget": {"trials": 3}, "fidelity": {"steps": [1, 4]}}
    run = Sweep.create(store, "curve", **fields).launch("inline")
    check(run, "steps", [1, 4])
    num_before = len(run.trials)
    Run(store, run.run_id).extend(trials=3, launcher="inline")
    check(run, "steps", [1, 4])
    assert len({trial.configuration for trial in run.trials}) == 6
    assert [trial.params["steps"] for trial in run.trials[num_before:]].count(1) == 3
    assert len(run.of(TrialEnded)) == len(run.trials)


@pytest.mark.slow
def test_a_program_receives_its_level(store: Store) -> None:
    experiment = Experiment(
        command=[sys.executable, str(PROGRAM), "good", "{loss}", "{size}"],
        search={"loss": {"low": 0.0, "high": 1.0}},
        fidelity={"size": [16, 32, 64]},
        objectives=[{"metric": "loss", "goal": "minimize"}],
        budget={"trials": 4},
        resources={"concurrency": 2},
    )
    check(Sweep(store, store.create_run(experiment)).launch("inline"), "size", [16, 32, 64])


@pytest.mark.slow
def test_a_model_sees_a_share_of_its_samples_at_first(store: Store) -> None:
    experiment = Experiment(
        model={"name": "mlp", "hidden_width": 8},
        data="digits",
        fidelity={"samples": [0.25, 1.0]},
        objectives=[{"metric": "val_accuracy", "goal": "maximize"}],
        search={"lr": {"low": 1e-3, "high": 0.1, "log": True}},
        training={"epochs": 2, "global_batch": 32},
        plan={"workers": 1},
        budget={"trials": 4},
    )
    sweep = Sweep(store, store.create_run(experiment)).launch("inline")
    check(sweep, "samples", [0.25, 1.0])
    steps = {trial.params["samples"]: trial.last_step for trial in sweep.trials}
    assert steps[0.25] == pytest.approx(steps[1.0] / 4, abs=2)
