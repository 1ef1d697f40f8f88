"""The trials of a sweep answer together: selected, judged, predicted with and exported."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from overlapping_classes import noisy_classes

import workbench as wb
from tests.builders.recorded_runs import record_run
from tests.services.shell import Shell
from workbench.foundation.errors import ArgumentError, RunError
from workbench.runs import Run
from workbench.runs.bundles.ensemble import Ensemble
from workbench.store.database import Store

NUM_TRIALS = 4


@pytest.fixture(scope="module")
def run(
    ray_head: Path, empty_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("sweep")
    experiment = wb.Experiment(
        name="classes",
        model={"name": "mlp", "num_layers": 1},
        data={"name": noisy_classes},
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        search={"hidden_width": {"choices": [8, 16, 32, 64]}},
        sampler="grid",
        training={"epochs": 2, "global_batch": 32, "lr": 0.01},
        plan={"workers": 1},
        budget={"trials": NUM_TRIALS},
    )
    with Store.open(str(folder / "store.sqlite")) as store:
        yield wb.sweep(experiment, store=store, launcher="inline").wait()


@pytest.fixture(scope="module")
def ensemble(run: Run) -> Ensemble:
    """The ensemble of all trials. It is made once, because it measures every model."""
    return run.ensemble()


@pytest.mark.slow
@pytest.mark.ray
def test_a_sweep_is_combined_and_compared_with_its_best_trial(run: Run, ensemble: Ensemble) -> None:
    assert run.best is not None
    assert ensemble.single == run.best.number
    assert sorted(ensemble.candidates) == list(range(NUM_TRIALS))
    assert sum(ensemble.weights.values()) == pytest.approx(1.0)
    assert ensemble.weights.keys() <= set(ensemble.candidates)
    assert ensemble.test is not None
    assert ensemble.validation.num_samples in range(45, 56)  # one half of each class
    assert ensemble.test.num_samples == 100
    assert ensemble.is_better == (len(ensemble.weights) > 1 and ensemble.validation.low > 0)
    assert f"trial {run.best.number}" in ensemble.verdict
    assert len(str(ensemble).splitlines()) == 4
    assert len(run.ensemble(size=2).weights) <= 2


@pytest.mark.ray
def test_a_trial_alone_predicts_what_it_was_measured_with(run: Run, ensemble: Ensemble) -> None:
    inputs, targets = noisy_classes({}).validation.batch(np.arange(100))
    for number, trial in run.history.trials.items():
        alone = dataclasses.replace(ensemble, weights={number: 1.0})
        probabilities = alone.predict(inputs)
        loss = -np.log(probabilities[np.arange(100), targets]).mean()
        assert loss == pytest.approx(trial.values["val_loss"], rel=1e-5)


@pytest.mark.ray
def test_the_bundle_answers_as_the_ensemble_does(ensemble: Ensemble, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    weighted = dataclasses.replace(ensemble, weights={2: 0.5, 0: 0.3, 3: 0.2})
    inputs, _ = noisy_classes({}).validation.batch(np.arange(100))

    bundle = wb.load_bundle(weighted.export(tmp_path / "ensemble"))

    probabilities = bundle.predict(inputs).probabilities
    np.testing.assert_allclose(probabilities, weighted.predict(inputs), atol=1e-5)
    assert bundle.values["val_loss"] == weighted.validation.ensemble
    assert {(metric.name, metric.split) for metric in bundle.card.metrics} == {
        ("loss", "validation"),
        ("loss", "test"),
    }
    with pytest.raises(RunError, match="is not empty"):
        weighted.export(tmp_path / "ensemble")
    with pytest.raises(RunError, match="one trial has all the weight"):
        dataclasses.replace(ensemble, weights={2: 1.0}).export(tmp_path / "single")
    assert not (tmp_path / "single").exists()


@pytest.mark.ray
def test_the_verdict_recommends_only_what_is_shown_to_be_better(ensemble: Ensemble) -> None:
    altered = dataclasses.replace(ensemble, weights={2: 0.5, 0: 0.5}, single=0)
    for low, high, is_better, words in [
        (0.1, 0.2, True, "the ensemble is better than trial 0: use it where"),
        (-0.1, 0.2, False, "not shown to be better than trial 0: use trial 0 alone"),
        (-0.2, -0.1, False, "worse than trial 0: use trial 0 alone"),
    ]:
        judged = dataclasses.replace(altered.validation, low=low, high=high)
        verdict = dataclasses.replace(altered, validation=judged, test=None)
        assert (verdict.is_better, words in verdict.verdict) == (is_better, True)
    equal = dataclasses.replace(altered.validation, low=0.0, high=0.0)
    described = str(dataclasses.replace(altered, validation=equal, test=None))
    assert "improvement 0 to 0 (95 % interval)" in described
    better = dataclasses.replace(altered.validation, low=0.1, high=0.2)
    on_test = dataclasses.replace(altered.validation, low=-0.2, high=-0.1)
    assert not dataclasses.replace(altered, validation=better, test=on_test).is_better


@pytest.mark.ray
def test_the_command_prints_the_verdict_and_refuses_trials_that_cannot_be_used(
    run: Run, ensemble: Ensemble, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shell = Shell(tmp_path, capsys)
    store = ("--store", run.store.url)

    document = shell.json("ensemble", run.run_id, "--trial", "0", "--trial", "2", *store)

    assert (sorted(document["candidates"]), document["metric"], document["bundle"]) == (
        [0, 2],
        "val_loss",
        None,
    )
    assert math.isfinite(document["validation"]["low"])
    code, out, _ = shell("ensemble", run.run_id, *store)
    assert (code, out.splitlines()[-1]) == (0, str(ensemble).splitlines()[-1])
    code, _, err = shell("ensemble", run.run_id, "--trial", "17", *store)
    assert (code, "--trial: the run has no trial 17; allowed: 0 to" in err) == (2, True)
    code, _, err = shell("ensemble", run.run_id, "--trial", "1", *store)
    assert (code, "needs several trials; allowed: two or more" in err) == (2, True)


@pytest.mark.ray
def test_a_trial_whose_checkpoint_is_gone_is_left_out_and_named(
    run: Run, ensemble: Ensemble
) -> None:
    assert run.best is not None
    best = run.best.number
    others = [number for number in ensemble.candidates if number != best]
    folders = [
        Path(run.history.trials[number].best_checkpoint or "") for number in (best, *others[:2])
    ]
    folders[0].rename(folders[0].with_name("elsewhere"))
    try:
        left = run.ensemble()
        assert (left.single, left.candidates) == (others[0], tuple(others))
        assert f"without trial {best}, whose checkpoint cannot be read: " in str(left)
        assert list(left.to_json()["left_out"]) == [str(best)]
        for path in folders[1:]:
            path.rename(path.with_name("elsewhere"))
        with pytest.raises(
            RunError, match=r"1 of 4 can be used \(not trials \d, \d, \d, whose checkpoints"
        ):
            run.ensemble()
    finally:
        for path in folders:
            if not path.exists():
                path.with_name("elsewhere").rename(path)


@pytest.mark.ray
def test_an_objective_that_does_not_follow_from_predictions_names_the_option(
    run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, _, err = Shell(tmp_path, capsys)(
        "ensemble", run.run_id, "--metric", "loss", "--store", run.store.url
    )
    assert (code, "--metric: 'loss' is not an objective of the run; allowed: val_loss" in err) == (
        2,
        True,
    )


def test_runs_without_models_that_could_be_combined_are_refused(tmp_path: Path) -> None:
    automatic = {"name": "table", "path": "a.csv", "target": "y", "held_out": "0123"}
    url = str(tmp_path / "store.sqlite")
    ids = [record_run(tmp_path, **changes) for changes in ({}, {"data": automatic})]
    with Store.open(url) as store:
        own = wb.Experiment(train="a:b", objectives=[{"metric": "loss", "goal": "minimize"}])
        ids.append(store.create_run(own))
    kept, of_automl, of_function = (wb.attach(run_id, store=url) for run_id in ids)

    with pytest.raises(
        RunError, match=r"2 complete trials kept no checkpoint.*resources\.keep_best"
    ):
        kept.ensemble()
    with pytest.raises(ArgumentError, match="checkpoints of trial 0 are not kept; allowed: none"):
        kept.ensemble(trials=[0, 1])
    with pytest.raises(ArgumentError, match="trial 2 is pruned"):
        kept.ensemble(trials=[2])
    with pytest.raises(
        ArgumentError, match="'val_loss' is not an objective of the run; allowed: val_acc"
    ):
        kept.ensemble(metric="val_loss")
    with pytest.raises(ArgumentError, match="0 is not valid; allowed: a whole number from 1"):
        kept.ensemble(size=0)
    with pytest.raises(RunError, match=r"AutoML run is an ensemble already.*export"):
        of_automl.ensemble()
    with pytest.raises(RunError, match="train function or a program"):
        of_function.ensemble()
