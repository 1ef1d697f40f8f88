"""A share of the training samples is the same each time, and a part of every larger share."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.data import load
from workbench.data.splits import ArraySplit, Datasets, TokenSplit
from workbench.foundation.errors import ExperimentError
from workbench.training.loading import with_share


def make(num: int) -> Datasets:
    split = ArraySplit(np.arange(num)[:, None], np.arange(num))
    return Datasets("numbers", "regression", split, split, (1,), 1)


def targets(datasets: Datasets) -> set[int]:
    return set(datasets.train.batch(np.arange(len(datasets.train)))[1].tolist())


def test_a_smaller_share_is_a_part_of_a_larger_one_and_validation_stays_whole() -> None:
    whole = make(100)
    tenth, half = with_share(whole, 0.1, seed=3), with_share(whole, 0.5, seed=3)
    assert (len(tenth.train), len(half.train), len(half.validation)) == (10, 50, 100)
    assert targets(tenth) < targets(half) < targets(whole)
    assert targets(with_share(whole, 0.1, seed=4)) != targets(tenth)
    assert with_share(whole, 1.0, seed=3) is whole
    assert len(with_share(whole, 1e-9, seed=3).train) == 1


def test_samples_that_are_not_one_array_are_read_by_their_numbers() -> None:
    tokens = TokenSplit(np.arange(41), 4, 4)
    windows = Datasets("text", "language_model", tokens, tokens, (4,), 50, vocabulary_size=50)
    half = with_share(windows, 0.5, seed=0).train
    inputs, following = half.batch(np.arange(len(half)))
    assert inputs.shape == (5, 4)
    assert (following == inputs + 1).all()
    assert not getattr(half, "draws_samples", False)


def test_samples_in_an_order_of_their_own_are_all_used() -> None:
    class Ordered:
        def begin(self, epoch: int, seed: int) -> None: ...
        def __len__(self) -> int:
            return 4

        def batch(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return indices, indices

    ordered = Datasets("stream", "regression", Ordered(), Ordered(), (1,), 1)
    with pytest.raises(ExperimentError, match="has a sampler or is a stream"):
        with_share(ordered, 0.5, seed=0)


def test_digits_keep_their_shape() -> None:
    digits = load("digits", {})
    small = with_share(digits, 0.25, seed=0)
    assert len(small.train) == round(len(digits.train) / 4)
    assert (
        small.train.batch(np.arange(3))[0].shape[1:]
        == digits.train.batch(np.arange(3))[0].shape[1:]
    )
