from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.data.test_category_pairs import shops
from workbench.data import load
from workbench.data.category_targets import target_numbers
from workbench.data.encoders import encode_train, learn_encoder
from workbench.data.number_texts import NumberText
from workbench.data.row_splits import folds_of
from workbench.foundation.errors import ArgumentError, DataError, RunError
from workbench.models.adapters import load_metrics
from workbench.runs.automl.candidates import experiment_for, first_configurations
from workbench.runs.automl.given_data import take
from workbench.runs.automl.preparation import (
    VALIDATION_FRACTION,
    Fold,
    LearningData,
    divide,
    pack,
    prepare,
    repeated,
    unpack,
)
from workbench.runs.automl.task_detection import Problem, read_problem
from workbench.sweeps.preflight import check

SEEDS = (11, 12, 13, 14, 15)


def mixed(num_rows: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    size = rng.normal(size=num_rows)
    size[::9] = np.nan
    return pd.DataFrame(
        {
            "size": size,
            "city": rng.choice(["Rome", "Oslo", None], num_rows),
            "empty": np.full(num_rows, np.nan),
            "label": rng.choice(["no", "yes"], num_rows, p=[0.7, 0.3]),
        }
    )


def images() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.integers(0, 255, (60, 8, 8, 3)).astype(np.uint8), np.arange(60) % 3


def texts() -> tuple[list[str], list[str]]:
    words = ["cat sat on a mat", "rain falls on the hills", "stocks rose again today"]
    return [f"{words[index % 3]} number {index}" for index in range(60)], [
        str(i % 3) for i in range(60)
    ]


QUESTIONS = {
    "table": lambda: read_problem(mixed(), "label"),
    "numbers": lambda: read_problem((np.arange(200.0).reshape(100, 2), np.sin(np.arange(100.0)))),
    "images": lambda: read_problem(images()),
    "texts": lambda: read_problem(texts()),
}


def question_of(classes: np.ndarray | None, num_samples: int) -> Problem:
    targets = np.arange(float(num_samples)) if classes is None else classes
    asked = "regression" if classes is None else "classification"
    names = () if classes is None else tuple(map(str, np.unique(classes)))
    samples = pd.DataFrame({"x": np.arange(num_samples)})
    return Problem("table", asked, samples, targets, names, names, None, ())


@given(st.lists(st.integers(3, 40), min_size=2, max_size=5), st.integers(0, 1000), st.booleans())
def test_learning_and_test_samples_are_disjoint_complete_and_have_every_class(
    counts, seed, has_classes
):
    classes = np.repeat(np.arange(len(counts)), counts)
    parts = divide(question_of(classes if has_classes else None, len(classes)), seed)
    assert sorted(np.concatenate(parts)) == list(range(len(classes)))
    assert all(len(part) for part in parts)
    if has_classes:
        for part in parts:
            assert set(classes[part]) == set(range(len(counts)))


@pytest.mark.parametrize("name", QUESTIONS)
def test_nothing_that_is_learnt_or_chosen_by_depends_on_test_samples(name):
    """Other test samples, wild ones, give trials the same bytes.

    The same experiment, by its hash.
    """
    problem = QUESTIONS[name]()
    _, test = divide(problem, seed=5)
    learning, held_out = prepare(problem, 5, SEEDS)
    poisoned = replace_samples(problem, test)
    other, other_held_out = prepare(poisoned, 5, SEEDS)

    made = [
        experiment_for(problem.kind, part, held_out="0" * 64, time_s=60.0, seed=5, name="n").hash()
        for part in (learning, other)
    ]
    assert made[0] == made[1]
    inputs = [
        part.interpreter.readers[0].encoder.encode(part.samples)
        for part in (held_out, other_held_out)
    ]
    assert not np.array_equal(*inputs)
    assert np.array_equal(held_out.guess, other_held_out.guess)


def replace_samples(problem: Problem, test: np.ndarray) -> Problem:
    if problem.kind == "table":
        samples = problem.samples.copy()
        for name in samples.columns:
            is_number = samples[name].dtype.kind == "f"
            samples.loc[test, name] = 1e6 if is_number else "nowhere"
    else:
        samples = problem.samples.copy()
        samples[test] = 255 if problem.kind == "images" else "zzz unheard words cat rain stocks"
    targets = problem.targets.copy()
    if problem.task == "regression":
        targets[test] = 1e9
    return replace(problem, samples=samples, targets=targets)


@pytest.mark.parametrize("name", QUESTIONS)
def test_scales_and_vocabularies_are_those_of_the_train_part(name):
    problem = QUESTIONS[name]()
    rest, test = divide(problem, seed=0)
    learning, held_out = prepare(problem, 0, SEEDS)
    classes = problem.targets[rest] if problem.class_names else None
    folds = folds_of(
        len(rest),
        len(learning.folds),
        0,
        fraction=VALIDATION_FRACTION,
        classes=classes,
        blocks=problem.roles.blocks.take(rest),
    )
    assert held_out.num_samples == (len(rest), len(test))
    for (learnt, part), encoded, reader in zip(
        folds, learning.folds, held_out.interpreter.readers, strict=True
    ):
        train = rest[learnt]
        known = take(problem.samples, train)
        numbers = target_numbers(encoded.train_targets, len(problem.class_names) or None)
        alone = learn_encoder(problem.kind, known, targets=numbers)
        np.testing.assert_array_equal(encode_train(alone, known, numbers), encoded.train_inputs)
        validation = alone.encode(take(problem.samples, rest[part]))
        np.testing.assert_array_equal(validation, encoded.validation_inputs)
        assert np.isfinite(encoded.train_inputs).all()
        if problem.task == "regression":
            np.testing.assert_allclose(encoded.train_targets.std(), 1, atol=1e-5)
            said = reader.in_units(encoded.train_targets.astype(float), encoded.train_inputs)
            np.testing.assert_allclose(said, problem.targets[train], atol=1e-5)


def test_each_training_of_a_configuration_gets_a_fold_of_its_own():
    learning, _ = prepare(QUESTIONS["table"](), 0, SEEDS)
    assert len(learning.folds) == 5
    for seed, encoded in zip(SEEDS, learning.folds, strict=True):
        loaded = load(learning, {"held_out": "0"}, training_seed=seed)
        assert loaded.validation.batch(np.arange(1))[0].shape[1:] == encoded.input_shape
        np.testing.assert_array_equal(
            loaded.train.batch(np.arange(len(loaded.train)))[0], encoded.train_inputs
        )


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_experiment_can_be_carried_out_and_its_first_configurations_are_of_its_space(name):
    problem = QUESTIONS[name]()
    learning, _ = prepare(problem, 0, SEEDS)
    experiment = experiment_for(
        problem.kind, learning, held_out="0" * 64, time_s=60.0, seed=0, name="automl"
    )
    check(experiment)
    first = first_configurations(experiment)
    assert {params["family"] for params in first} == set(
        experiment.search.root["family"].values() or ()
    )
    for params in first:
        experiment.search.check(params)


@pytest.mark.parametrize(("num_train", "least"), [(50, 1), (20_000, 1), (100_000, 5)])
def test_forests_of_large_data_hold_more_samples_in_a_leaf_and_stay_small(
    num_train: int, least: int
) -> None:
    inputs, targets = (
        np.zeros((num_train, 2), dtype=np.float32),
        np.zeros(num_train, dtype=np.float32),
    )
    learning = LearningData((Fold(inputs, targets, inputs[:10], targets[:10]),), (1,), ())
    experiment = experiment_for("table", learning, held_out="0" * 64, time_s=60.0, seed=0, name="n")
    first = first_configurations(experiment)
    for params in first:
        experiment.search.check(params)
    for family, leaves in (("extra_trees", [3, 5]), ("forest", [3])):
        name = f"{family}_min_samples_leaf"
        leaf = experiment.search.root[name]
        assert (leaf.low, leaf.high) == (least, 10 * least)
        tried = [params[name] for params in first if params["family"] == family]
        assert tried == [least * leaf for leaf in leaves]


@pytest.mark.parametrize(("num_train", "most"), [(12, 11), (33, 32), (4_000, 64)])
def test_a_step_of_small_data_is_no_larger_than_any_fold(num_train: int, most: int) -> None:
    inputs, targets = (
        np.zeros((num_train, 2), dtype=np.float32),
        np.zeros(num_train, dtype=np.float32),
    )
    learning = LearningData((Fold(inputs, targets, inputs[:3], targets[:3]),), (1,), ())
    experiment = experiment_for("table", learning, held_out="0" * 64, time_s=60.0, seed=0, name="n")
    assert experiment.training.global_batch == most


def test_the_test_part_comes_back_only_as_it_was_stored():
    _, held_out = prepare(QUESTIONS["table"](), 0, SEEDS)
    sha256, payload = pack(held_out)
    np.testing.assert_array_equal(unpack(sha256, payload).targets, held_out.targets)
    with pytest.raises(RunError, match="not the one that was stored"):
        unpack(sha256, payload + b" ")


def test_trials_of_a_regression_report_their_errors_in_the_unit_of_the_target() -> None:
    rng = np.random.default_rng(5)
    numbers = pd.DataFrame({"x": rng.normal(size=200), "price": rng.lognormal(10, 1, 200)})
    learning, held_out = prepare(read_problem(numbers, "price"), 0, SEEDS)
    for seed, reader in zip(SEEDS, held_out.interpreter.readers, strict=True):
        datasets = load(learning, {"held_out": "0"}, training_seed=seed)
        _, scaled = datasets.validation.batch(np.arange(len(datasets.validation)))
        wrong_by = reader.in_units(scaled.astype(np.float64), scaled) - reader.target_mean
        metrics = load_metrics(None, "regression", target_scale=datasets.target_scale)
        guess, targets = torch.zeros(len(scaled), 1), torch.tensor(scaled)[:, None]
        scores = {name: metric.measure(guess, targets) for name, metric in metrics.items()}
        errors = {
            name: metrics[name].finish(float(total) / int(num))
            for name, (total, num) in scores.items()
        }
        assert errors["mean_absolute_error"] == pytest.approx(np.abs(wrong_by).mean(), rel=1e-4)
        assert errors["root_mean_squared_error"] == pytest.approx(
            np.sqrt((wrong_by**2).mean()), rel=1e-4
        )


def weighted() -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(5)
    weights = rng.choice([0.0, 1.0, 4.0], 200, p=[0.1, 0.6, 0.3])
    size = rng.normal(size=200)
    frame = pd.DataFrame({"size": size, "weight": weights, "y": 3 * size + rng.normal(size=200)})
    return frame, weights


def test_rows_are_learnt_from_in_proportion_to_their_weights():
    frame, weights = weighted()
    problem = read_problem(frame, "y", weight_column="weight")
    assert list(problem.samples.columns) == ["size"]
    assert len(problem) == (weights > 0).sum()
    learning, held_out = prepare(problem, 0, SEEDS)
    for part in learning.folds:
        distinct, counts = np.unique(part.train_inputs[:, 0], return_counts=True)
        heavy = counts > np.median(counts)
        assert counts[heavy].mean() / counts[~heavy].mean() == pytest.approx(4.0, rel=0.15)
        assert len(distinct) < len(part.train_targets)
    assert held_out.weights is not None
    assert set(held_out.weights) <= {1.0, 4.0}
    rows, _ = divide(problem, 0)
    assert problem.weights is not None
    mean = np.average(problem.targets[rows], weights=problem.weights[rows])
    assert held_out.guess[0] == pytest.approx(mean, abs=0.05)


def test_repeated_samples_have_the_shares_of_their_weights():
    weights = np.array([1.0, 2.0, 0.0, 5.0])
    rows = repeated(weights)
    assert np.bincount(rows, minlength=4).tolist() == [1, 2, 0, 5]
    assert len(repeated(np.ones(150_000))) == 150_000


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.full(200, -1.0), "weight_column: the weight in row 0 (from 0) is"),
        (np.full(200, "many"), "weight_column: the weight in row 0 (from 0) is 'many'"),
        (np.zeros(200), "weight_column: all weights are 0"),
    ],
)
def test_weights_are_numbers_from_0(weights, message):
    frame, _ = weighted()
    with pytest.raises(DataError) as raised:
        read_problem(frame.assign(weight=weights), "y", weight_column="weight")
    assert str(raised.value).startswith(message)


def test_numbers_have_no_weights_of_classes():
    with pytest.raises(ArgumentError, match="class_weights: numbers have no classes"):
        prepare(QUESTIONS["numbers"](), 0, SEEDS, class_weights="balanced")


def test_classes_that_count_the_same_have_factors():
    _, held_out = prepare(QUESTIONS["table"](), 0, SEEDS, class_weights="balanced")
    shares = held_out.guess
    assert held_out.class_factors == pytest.approx(tuple(shares.max() / shares))


def test_weights_of_validation_samples_are_exact() -> None:
    frame, _ = weighted()
    weights = np.random.default_rng(3).gamma(0.5, size=len(frame)) + 1.0
    problem = read_problem(frame.assign(weight=weights), "y", weight_column="weight")
    learning, held_out = prepare(problem, 0, SEEDS)
    num = sum(len(fold.validation_targets) for fold in learning.folds)
    known = held_out.weights_of_validation(num)
    assert known is not None
    rows, _ = divide(problem, 0)
    assert problem.weights is not None
    targets = np.concatenate(
        [
            held_out.interpreter.readers[number].in_units(
                fold.validation_targets.astype(float), fold.validation_inputs
            )
            for number, fold in enumerate(learning.folds)
        ]
    )
    exact = np.average(problem.targets[rows], weights=problem.weights[rows])
    assert np.average(targets, weights=known) == pytest.approx(exact)
    assert known.sum() == pytest.approx(len(rows), rel=1e-6)
    assert held_out.guess[0] == pytest.approx(exact)


def test_whole_numbers_repeat_samples_exactly() -> None:
    whole = np.random.default_rng(0).integers(0, 4, size=500).astype(float)
    np.testing.assert_array_equal(np.bincount(repeated(whole), minlength=500), whole)


def test_columns_are_encoded_in_pairs_only_if_all_columns_do_not_tell_as_much():
    """Shop and year together tell more than each of them in both tables.

    In the second one, another column tells what a shop adds.
    """
    together, target = shops()
    _, held_out = prepare(read_problem(together.assign(sold=target), "sold"), 0, SEEDS)
    every = [*held_out.interpreter.readers, held_out.all_rows.reader]
    assert [len(reader.encoder.pairs) for reader in every] == [1] * 4

    random = np.random.default_rng(0)
    size = together["shop"].map(dict(zip(together["shop"].unique(), range(60), strict=True)))
    added = size / 20.0 + (together["year"] - 2010) / 3.0 + random.normal(size=len(size)) / 2.0
    apart = together.assign(size=size, sold=added)
    problem = read_problem(apart, "sold")
    learning, held_out = prepare(problem, 0, SEEDS)
    known = problem.samples.iloc[divide(problem, 0)[0]]
    numbers = target_numbers(problem.targets[known.index], None)
    assert learn_encoder("table", known, targets=numbers).pairs
    readers = held_out.interpreter.readers
    assert all(not reader.encoder.pairs for reader in (*readers, held_out.all_rows.reader))
    for fold, reader in zip(learning.folds, readers, strict=True):
        assert fold.input_shape == reader.encoder.encode(apart[:1]).shape[1:]


def test_numbers_in_text_are_read_once_for_all_folds(monkeypatch):
    random = np.random.default_rng(0)
    weights = random.integers(10, 9_000, size=200)
    frame = pd.DataFrame(
        {"weight": [f"{weight:,} kg" for weight in weights], "sold": weights * 2.0}
    )
    problem = read_problem(frame, "sold")
    parsed: list[str] = []
    parse = NumberText.parse
    monkeypatch.setattr(
        NumberText, "parse", lambda form, text: [parsed.append(text), parse(form, text)][1]
    )
    learning, held_out = prepare(problem, 0, SEEDS)
    assert len(learning.folds) > 1
    assert len(parsed) == frame["weight"].nunique()
    # New rows, and those of the test part, are still as they were given.
    assert held_out.samples["weight"].str.endswith(" kg").all()
    reader = held_out.interpreter.readers[0]
    encoded = reader.encoder.encode(held_out.samples)[:, 0]
    exact = held_out.targets / 2.0
    assert np.corrcoef(encoded, exact)[0, 1] == pytest.approx(1.0)
    np.testing.assert_allclose(
        encoded * reader.encoder.columns[0].deviation + reader.encoder.columns[0].mean,
        exact,
        rtol=1e-5,
    )
