from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from workbench.data import load
from workbench.foundation.errors import ExperimentError, UnknownNameError


def test_digits_are_split_by_class_and_standardised(tmp_path):
    digits = load("digits", {"validation_fraction": 0.25}, cache=tmp_path)
    inputs, targets = digits.train.batch(np.arange(len(digits.train)))
    held_out, held_out_targets = digits.validation.batch(np.arange(len(digits.validation)))
    assert len(inputs) + len(held_out) == 1797
    assert (digits.task, digits.input_shape, digits.num_outputs) == (
        "classification",
        (1, 8, 8),
        10,
    )
    assert (inputs.dtype, targets.dtype, inputs.shape[1:]) == (np.float32, np.int64, (1, 8, 8))
    assert abs(inputs.mean()) < 1e-5
    assert abs(inputs.std() - 1) < 1e-4
    shares = np.bincount(held_out_targets) / (np.bincount(targets) + np.bincount(held_out_targets))
    np.testing.assert_allclose(shares, 0.25, atol=0.005)


def test_breast_cancer_is_standardised_by_feature_with_the_statistics_of_train(tmp_path):
    cancer = load("breast_cancer", {}, cache=tmp_path)
    inputs, _ = cancer.train.batch(np.arange(len(cancer.train)))
    held_out, _ = cancer.validation.batch(np.arange(len(cancer.validation)))
    np.testing.assert_allclose(inputs.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(inputs.std(axis=0), 1, atol=1e-4)
    assert np.abs(held_out.mean(axis=0)).max() > 1e-3
    assert cancer.class_names == ("malignant", "benign")


def test_the_seed_decides_the_split_and_nothing_else_does(tmp_path):
    first, again, other = (load("digits", {}, cache=tmp_path, seed=seed) for seed in (1, 1, 2))
    everything = np.arange(len(first.validation))
    np.testing.assert_array_equal(
        first.validation.batch(everything)[0], again.validation.batch(everything)[0]
    )
    assert (first.validation.batch(everything)[1] != other.validation.batch(everything)[1]).any()


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"validaton_fraction": 0.1}, "data.validaton_fraction"),
        ({"validation_fraction": 1.0}, "data.validation_fraction"),
        ({"validation_fraction": "many"}, "data.validation_fraction"),
    ],
)
def test_wrong_options_are_refused_by_their_field(options, field):
    with pytest.raises(ExperimentError) as caught:
        load("digits", options)
    assert caught.value.field == field


def test_an_unknown_dataset_lists_the_known_ones():
    with pytest.raises(UnknownNameError, match="digits, breast_cancer, text, images, table"):
        load("mnist", {})


def test_data_loads_neither_torch_nor_pandas_nor_sklearn_nor_does_a_cached_dataset(tmp_path):
    load("digits", {}, cache=tmp_path)
    program = (
        "import sys; from pathlib import Path; from workbench.data import DATASETS, check_options,"
        " load\nfor name in DATASETS.names(): DATASETS.load(name)\nload('digits', {},"
        f" cache=Path({str(tmp_path)!r}))\nassert not {{'torch', 'pandas', 'sklearn', 'PIL'}} &"
        " set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
