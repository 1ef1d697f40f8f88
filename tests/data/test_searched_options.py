"""Options of the data are searched, and all trials are scored on the same samples in one unit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import workbench as wb
from workbench.data import DATASETS, Datasets, load, with_searched_options
from workbench.data.splits import IGNORED
from workbench.experiment import Component, Experiment
from workbench.foundation.errors import ExperimentError, RunError
from workbench.models.adapters import load_metrics
from workbench.store.database import Store
from workbench.sweeps.preflight import find_problems
from workbench.training.loading import load_trial_data
from workbench.training.planning.settings import resolve

TEXT = "It rains in Z\u00fcrich. " * 40


def validated(datasets: Datasets) -> np.ndarray:
    """Return all validation targets that count, in the unit of the target."""
    _, targets = datasets.validation.batch(np.arange(len(datasets.validation)))
    return targets[targets != IGNORED] * datasets.target_scale


def experiment(data: Any, search: Mapping[str, Any], **more: Any) -> Experiment:
    fields = {
        "model": "mlp",
        "objectives": [{"metric": "val_loss", "goal": "minimize"}],
        **more,
    }
    return Experiment(data=data, search=dict(search), **fields)


VALUES: dict[tuple[str, str], tuple[Any, Any]] = {
    ("series", "lookback"): (12, 60),
    ("series", "stride"): (1, 5),
    ("series", "normalisation"): ("standard", "robust"),
    ("text", "context"): (16, 37),
    ("text", "stride"): (8, 20),
    ("labelled_text", "context"): (2, 3),
    ("labelled_text", "vocabulary"): (3, 9),
    ("tagged_text", "vocabulary"): (3, 9),
    ("digits", "normalisation"): ("range", "none"),
    ("breast_cancer", "normalisation"): ("robust", "none"),
}


@pytest.mark.parametrize(("name", "option"), VALUES)
def test_trials_with_different_options_are_scored_on_the_same_targets(tmp_path, name, option):
    given = {}
    if name == "labelled_text":
        given["path"] = str(tmp_path / "texts.csv")
        frame = pd.DataFrame({"text": ["good words", "so bad"] * 20, "label": ["a", "b"] * 20})
        frame.to_csv(given["path"])
    if name == "tagged_text":
        given["path"] = str(tmp_path / "tags.txt")
        Path(given["path"]).write_text("Ada NAME\ncodes O\n\nBob NAME\nsings O\n\n" * 20)
    loaded = []
    for value in VALUES[name, option]:
        component = with_searched_options(
            Component(name=name, options=given), {f"data.{option}": value}
        )
        loaded.append(load(name, component.options, cache=tmp_path))
    np.testing.assert_allclose(validated(loaded[0]), validated(loaded[1]), rtol=1e-6)


def test_every_searchable_option_exists_and_is_tested():
    searchable = {
        (name, option) for name in DATASETS.names() for option in DATASETS.load(name).searchable
    }
    need_files = {
        ("images", "size"),
        ("images", "channels"),
        ("boxes", "size"),
        ("boxes", "channels"),
        ("table", "max_categories"),
        ("labelled_text", "tokenizer"),
    }
    assert searchable == VALUES.keys() | need_files
    for name, option in searchable:
        assert option in DATASETS.load(name).model_fields


def test_a_table_keeps_its_targets_with_more_categories(tmp_path):
    frame = pd.DataFrame({"town": [f"t{n % 9}" for n in range(60)], "price": np.arange(60.0)})
    frame.to_csv(tmp_path / "towns.csv", index=False)
    options = {"path": str(tmp_path / "towns.csv"), "target": "price", "task": "regression"}
    few, many = (
        load("table", {**options, "max_categories": number}, cache=tmp_path) for number in (2, 20)
    )
    assert few.input_shape != many.input_shape
    np.testing.assert_array_equal(validated(few), validated(many))


@pytest.mark.parametrize("context", [5, 16, 37, 70])
def test_bits_per_byte_do_not_depend_on_the_context(tmp_path, context):
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    data = load("text", {"path": str(path), "context": context, "score_all": True}, cache=tmp_path)
    metric = load_metrics(
        ["bits_per_byte"], "language_model", bytes_per_target=data.bytes_per_target
    )["bits_per_byte"]
    held_out = TEXT[round(len(TEXT) * 0.9) :][1:]
    inputs, targets = (
        torch.from_numpy(part) for part in data.validation.batch(np.arange(len(data.validation)))
    )
    scores = torch.zeros(*inputs.shape, data.num_outputs)
    total, count = metric.measure(scores, targets)  # type: ignore[union-attr]
    assert int(count) == len(held_out)
    # Every character is as likely as any other: log2(characters) bits for each.
    expected = len(held_out) * math.log2(data.num_outputs) / len(held_out.encode())
    bits = metric.finish(float(total) / float(count))  # type: ignore[union-attr]
    assert bits == pytest.approx(expected, rel=1e-5)


def test_bits_per_byte_need_text():
    with pytest.raises(ExperimentError, match="the bytes of the text are not known"):
        load_metrics(["bits_per_byte"], "language_model")


@pytest.mark.parametrize(
    ("data", "search", "field", "message"),
    [
        ("series", {"data.horizon": [6, 12]}, "data.horizon", "could not be compared"),
        ("series", {"data.targets": ["a"]}, "data.targets", "could not be compared"),
        ("text", {"data.max_characters": [10, 20]}, "data.max_characters", "a run for each value"),
        ("digits", {"data.nope": [1, 2]}, "data.nope", "no such option"),
        ("series", {"data.lookback": [0, 5]}, "data.lookback", "1"),
        (
            {"name": "series", "lookback": 8},
            {"data.lookback": [4, 8]},
            "data.lookback",
            "both set to 8 and searched",
        ),
    ],
)
def test_a_search_that_cannot_be_scored_is_refused_in_words(data, search, field, message):
    given = experiment(data, {name: {"choices": values} for name, values in search.items()})
    problems = list(find_problems(given))
    assert [problem.field for problem in problems] == [f"search.{field}"]
    assert message in str(problems[0])


def test_a_trial_reads_its_option_and_the_model_does_not_receive_it():
    given = experiment("series", {"data.lookback": {"choices": [8, 24]}, "num_layers": 1})
    assert list(find_problems(given)) == []
    shapes = [
        load_trial_data("run", given, params={"data.lookback": length}).input_shape[0]
        for length in (8, 24)
    ]
    assert shapes == [8, 24]
    assert resolve(given, {"data.lookback": 8, "num_layers": 1}).model == {"num_layers": 1}


@pytest.mark.slow
@pytest.mark.ray
def test_the_best_trial_is_exported_with_the_window_that_it_read(ray_head, empty_folder, tmp_path):
    given = experiment(
        "series",
        {"data.lookback": {"choices": [12, 36]}},
        name="lookback",
        model={"name": "mlp", "num_layers": 1, "hidden_width": 8},
        training={"epochs": 1, "global_batch": 64, "lr": 0.01, "samples": 0.1},
        plan={"workers": 1},
        sampler="grid",
        budget={"trials": 2},
    )
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run = wb.sweep(given, store=store, launcher="inline").wait()
        assert run.state == "complete"
        best = run.best
        assert best is not None
        lookback = best.params["data.lookback"]
        bundle = wb.load_bundle(run.export(tmp_path / "best"))
        assert bundle.experiment.data is not None
        assert bundle.experiment.data.options["lookback"] == lookback
        assert bundle.data.input_shape == (lookback, 2)
        assert len(bundle.model(torch.zeros(1, lookback, 2))) == 1
        with pytest.raises(RunError, match="trials differ in data"):
            run.ensemble()


def resized(config: Mapping[str, Any]) -> Any:
    """Return samples whose targets change only with the option `unit`."""
    rows = np.arange(40.0, dtype=np.float32)
    inputs = np.stack([rows] * int(config.get("width", 2)), axis=1)
    targets = (rows * float(config.get("unit", 1.0)))[:, None]
    return (inputs[:30], targets[:30]), (inputs[30:], targets[30:])


def test_own_data_may_have_any_option_that_keeps_its_validation_targets():
    own = {"name": f"{__name__}:resized", "task": "regression"}
    given = experiment(own, {"data.width": {"choices": [2, 5]}})
    assert list(find_problems(given)) == []
    loaded = [load_trial_data("own", given, params={"data.width": width}) for width in (5, 2)]
    assert [data.input_shape for data in loaded] == [(5,), (2,)]

    scaled = experiment(own, {"data.unit": {"choices": [1.0, 1000.0]}})
    load_trial_data("scaled", scaled, params={"data.unit": 1.0})
    with pytest.raises(ExperimentError, match="changes the validation samples") as caught:
        load_trial_data("scaled", scaled, params={"data.unit": 1000.0})
    assert caught.value.field == "search.data.unit"


def test_images_of_two_sizes_have_the_same_validation_files(tmp_path: Path):
    from PIL import Image

    for name in ("cat", "dog"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(6):
            picture = Image.new("RGB", (20, 20), (number * 30, 0, 0))
            picture.save(tmp_path / "images" / name / f"{number}.png")
    small, large = (
        load("images", {"path": str(tmp_path / "images"), "size": size}, cache=tmp_path / "cache")
        for size in (8, 16)
    )
    assert small.input_shape == (3, 8, 8)
    assert large.input_shape == (3, 16, 16)
    np.testing.assert_array_equal(small.validation.files, large.validation.files)  # type: ignore[attr-defined]
