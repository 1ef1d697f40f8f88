from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch

from workbench.data import Datasets, load
from workbench.data.splits import ArraySplit
from workbench.foundation.errors import DataError, ExperimentError

MODULE = """
import torch
from torch.utils.data import TensorDataset

def blobs(options):
    def part(num_samples):
        inputs = torch.randn(num_samples, options["num_features"])
        return TensorDataset(inputs, torch.zeros(num_samples, dtype=torch.long))
    return part(options.get("num_samples", 6)), part(3)
"""


@pytest.fixture
def blobs(tmp_path, monkeypatch) -> str:
    (tmp_path / "own_blobs.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "own_blobs:blobs"
    sys.modules.pop("own_blobs", None)


def test_a_pair_of_torch_datasets_is_described_by_the_options(blobs):
    loaded = load(blobs, {"num_features": 5, "task": "classification", "num_outputs": 4})
    assert (loaded.name, loaded.task, loaded.num_outputs) == (blobs, "classification", 4)
    assert loaded.input_shape == (5,)
    inputs, targets = loaded.train.batch(np.array([0, 5]))
    assert isinstance(inputs, torch.Tensor)
    assert inputs.shape == (2, 5)
    assert targets.dtype == torch.long
    assert len(loaded.validation) == 3


def test_a_callable_may_return_datasets_that_describe_themselves():
    split = ArraySplit(np.zeros((4, 2), dtype=np.float32), np.zeros(4, dtype=np.float32))
    described = Datasets("zeros", "regression", split, split, input_shape=(2,), num_outputs=1)
    assert load(lambda options: described, {}) is described


def test_the_outputs_follow_from_the_targets_of_a_regression():
    pairs = [(np.zeros(3), np.zeros(2))] * 4
    loaded = load(lambda options: (pairs, pairs, pairs), {"task": "regression"})
    assert (loaded.num_outputs, loaded.input_shape) == (2, (3,))
    assert loaded.test is not None


PAIRS = [(np.zeros(3), 0)] * 4


@pytest.mark.parametrize(
    ("returned", "options", "kind", "field", "part"),
    [
        (None, {}, DataError, "data", "returned an object of type NoneType"),
        ((PAIRS,), {}, DataError, "data", "allowed: Datasets, or a pair"),
        ((PAIRS, iter(PAIRS)), {}, DataError, "data", "iterated over repeatedly"),
        ((PAIRS, []), {}, DataError, "data", "validation of"),
        ((PAIRS, PAIRS), {}, ExperimentError, "data.task", "allowed: classification, regression"),
        (
            (PAIRS, PAIRS),
            {"task": "ranking"},
            ExperimentError,
            "data.task",
            "'ranking' is not valid",
        ),
        (
            (PAIRS, PAIRS),
            {"task": "classification"},
            ExperimentError,
            "data.num_outputs",
            "num_outputs",
        ),
        (([1, 2], [1, 2]), {"task": "regression"}, DataError, "data", "a pair (input, target)"),
        (([{"x": "a"}], [{"x": "a"}]), {"task": "other"}, DataError, "data", "the inputs of"),
        (([("a", "b")], PAIRS), {"task": "regression"}, DataError, "data", "the inputs of"),
        (
            ([(object(), 1)], PAIRS),
            {"task": "regression"},
            DataError,
            "data",
            "(input, target) pairs",
        ),
    ],
)
def test_what_a_function_must_not_return_is_refused(returned: Any, options, kind, field, part):
    with pytest.raises(kind) as caught:
        load(lambda options: returned, options)
    assert caught.value.field == field
    assert part in str(caught.value)


def test_a_function_that_cannot_be_imported_is_refused():
    with pytest.raises(ExperimentError) as caught:
        load("no_such_module:blobs", {})
    assert caught.value.field == "data"


def test_data_that_asks_for_the_seed_of_the_training_is_told_it():
    split = ArraySplit(np.zeros((4, 2), dtype=np.float32), np.zeros(4, dtype=np.float32))

    def folds(options, training_seed=None):
        return Datasets(
            f"fold {training_seed}", "regression", split, split, input_shape=(2,), num_outputs=1
        )

    assert load(folds, {}, training_seed=5).name == "fold 5"
    assert load(folds, {}).name == "fold None"


def test_an_option_takes_the_place_of_the_default_of_its_name() -> None:
    split = ArraySplit(np.zeros((4, 2), np.float32), np.zeros(4, np.float32))

    def load_own(options: dict[str, Any], noise: float = 0.0, *, fold: int = 0) -> Datasets:
        return Datasets(f"{noise} {fold} {sorted(options)}", "regression", split, split, (2,), 1)

    assert load(load_own, {"noise": 0.3}).name == "0.3 0 ['noise']"
    assert load(load_own, {"fold": 2}).name == "0.0 2 ['fold']"
