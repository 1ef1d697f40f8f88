"""A trained trial is compressed by a run of its own, whose best trial is exported as a model to
deploy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from compressed_data import larger_of_two, two_values

import workbench as wb
from workbench.deploy.card import read_card
from workbench.deploy.compression.search import measure_on_test
from workbench.deploy.compression.trained_base import measure
from workbench.foundation.errors import ArgumentError, RunError
from workbench.foundation.events import Noted
from workbench.runs import Run
from workbench.runs.compressing import create_compression
from workbench.store.history.compression import compressed, describe_way

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture(scope="module")
def original(
    ray_head: Path, empty_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("original")
    experiment = wb.Experiment(
        model={"name": "mlp", "hidden_width": 48, "num_layers": 2},
        data={"name": larger_of_two},
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        search={"lr": {"choices": [0.01]}},
        training={"epochs": 3, "global_batch": 32},
        plan={"workers": 1},
        budget={"trials": 1},
    )
    with wb.Store.open(str(folder / "store.sqlite")) as store:
        yield wb.sweep(experiment, store=store, launcher="inline").wait()


@pytest.fixture(scope="module")
def smaller(original: Run) -> Run:
    return original.compress(
        trials=4, limits={"drop": "100%", "size": "1MB", "memory": "1GB"}, launcher="inline"
    ).wait()


def test_the_first_trials_are_no_compression_and_both_quantisers(smaller: Run) -> None:
    trials = list(smaller.history.trials.values())
    assert [trial.state for trial in trials] == ["complete"] * 4, [
        trial.message for trial in trials
    ]
    assert [trial.params["quantiser"] for trial in trials[:3]] == ["none", "dynamic", "static"]
    assert trials[3].params["pruning"] == 0.5
    assert trials[0].values["size_ratio"] == 1
    assert trials[0].values["drop"] == 0
    assert trials[3].values["size_ratio"] < 0.7
    limits = {item.metric: item.at_most for item in smaller.experiment.constraints}
    assert limits == {
        "latency_ratio_high": 0.97,
        "drop": 1.0,
        "size_bytes": 1e6,
        "memory_bytes": 1e9,
    }
    assert all(
        1e7 < trial.values["memory_bytes"] < 1e9 for trial in smaller.history.trials.values()
    )


def test_the_verdict_is_stored_and_recommends_nothing_that_is_slower(smaller: Run) -> None:
    verdict = compressed(smaller.history)
    notes = [event.message for event in smaller.events() if isinstance(event, Noted)]
    assert any(note.startswith(verdict.words) for note in notes)
    if verdict.recommended is not None:
        assert verdict.recommended.values["latency_ratio_high"] <= 0.97
        assert "on the test samples" in notes[-1]
    assert len(verdict.lost) == 4 - (verdict.recommended is not None)


def test_the_test_samples_are_measured_for_a_trial_and_its_base(smaller: Run) -> None:
    assert smaller.experiment.train is not None
    compression = smaller.experiment.train.load()
    words = measure_on_test(smaller.store, smaller.run_id, compression, smaller.history.trials[0])
    searched = re.search(r"test_accuracy is ([0-9.]+), and ([0-9.]+) for the base", words)
    assert searched is not None, words
    assert searched[1] == searched[2]  # nothing was compressed
    assert float(searched[1]) > 0.6


def test_each_trial_exports_the_model_that_was_measured(
    smaller: Run, original: Run, tmp_path: Path
) -> None:
    folder = smaller.export(tmp_path / "small", trial=3)
    values = smaller.history.trials[3].values
    stated = json.loads((folder / "files" / "compression.json").read_text())
    assert stated["values"] == pytest.approx({name: values[name] for name in stated["values"]})
    assert (stated["base"]["run_id"], stated["base"]["trial"]) == (original.run_id, 0)
    assert smaller.experiment.train is not None
    base = smaller.experiment.train.load().base
    _, datasets = base.build()
    measured = measure(folder / "files" / "model.onnx", base.experiment, datasets)
    assert measured["val_loss"] == pytest.approx(values["val_loss"], rel=1e-4)


@pytest.mark.parametrize("trial", [1, 2])
def test_the_bundle_of_a_quantised_model_predicts_and_states_where_it_comes_from(
    smaller: Run, tmp_path: Path, trial: int
) -> None:
    bundle = wb.load_bundle(smaller.export(tmp_path / "small", trial=trial))
    inputs = larger_of_two({}).validation.batch(np.arange(50))[0]
    answers = bundle.predict({"inputs": inputs})
    assert answers.classes is not None
    assert np.mean(answers.classes.astype(int) == (inputs[:, 0] > inputs[:, 1])) > 0.8
    card = read_card(tmp_path / "small")
    assert (card.run_id, card.trial, card.num_train_samples) == (smaller.run_id, trial, 200)
    assert describe_way(smaller.history.trials[trial].params) in card.model
    assert "val_loss" in {
        f"val_{metric.name}" for metric in card.metrics if metric.split == "validation"
    }


def test_the_base_measures_what_its_training_did(smaller: Run, original: Run) -> None:
    assert original.best is not None
    assert smaller.history.trials[0].values["val_loss"] == pytest.approx(
        original.best.values["val_loss"], rel=1e-3
    )


def test_what_cannot_be_compressed_is_refused_before_a_run_is_stored(original: Run) -> None:
    number = len(original.store.runs())
    with pytest.raises(ArgumentError, match="val_speed"):
        create_compression(original, objective="val_speed")
    for limits, words in (
        ({"speed": 1}, "cannot be limited"),
        ({"drop": "much"}, "limits.drop"),
        ({"memory": "-1MB"}, "limits.memory"),
    ):
        with pytest.raises(ArgumentError, match=words):
            create_compression(original, limits=limits)
    with pytest.raises(ArgumentError, match="no trial 7"):
        create_compression(original, trial=7)
    function = wb.sweep(
        {
            "train": two_values,
            "objectives": [{"metric": "val_loss", "goal": "minimize"}],
            "search": {"lr": 0.1},
            "budget": {"trials": 1},
        },
        store=original.store,
        launcher="inline",
    )
    with pytest.raises(RunError, match="only your code knows"):
        create_compression(function)
    assert len(original.store.runs()) == number + 1
