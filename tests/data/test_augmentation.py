from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.examples import examples
from workbench.data import Datasets
from workbench.data.augmentation import augmented
from workbench.data.sample_seeding import Draws
from workbench.data.splits import ArraySplit
from workbench.experiment.training_section import Augmentation
from workbench.foundation.errors import ExperimentError


def images(
    num: int = 6, task: str = "classification", shape: tuple[int, ...] = (2, 8, 8)
) -> Datasets:
    random = np.random.default_rng(0)
    inputs = random.normal(size=(num, *shape)).astype(np.float32)
    targets = (
        random.integers(0, 3, num) if task == "classification" else random.normal(size=(num, 2))
    )
    split = ArraySplit(inputs, targets)
    return Datasets("drawn", task, split, split, shape, 3 if task == "classification" else 2)  # type: ignore[arg-type]


def read(data: Datasets, indices: list[int], *, epoch: int = 0, seed: int = 0):
    """Return a batch as a training reads it."""
    draws = Draws(data.train)
    draws.batch(np.array(indices), epoch=epoch, seed=seed)  # finds out that it draws
    return draws.batch(np.array(indices), epoch=epoch, seed=seed)


CHANGES = {
    "mixup": {"mixup": 0.4},
    "noise": {"noise": 0.3},
    "crop": {"crop": 0.3},
    "flip": {"flip": 1.0},
    "cutout": {"cutout": 0.4},
    "rand_augment": {"rand_augment": 7.0},
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_depends_on_seed_epoch_and_sample_and_not_on_the_batch(name):
    data = augmented(images(), Augmentation(**CHANGES[name]))
    together = read(data, [0, 1, 2, 3, 4, 5])
    apart = [read(data, [index]) for index in range(6)]
    for part in (0, 1):
        np.testing.assert_array_equal(
            together[part], np.concatenate([batch[part] for batch in apart])
        )
    assert not np.array_equal(together[0], images().train.batch(np.arange(6))[0])
    if name != "flip":  # which is certain here
        assert not np.array_equal(together[0], read(data, [0, 1, 2, 3, 4, 5], epoch=1)[0])
        assert not np.array_equal(together[0], read(data, [0, 1, 2, 3, 4, 5], seed=1)[0])
    np.testing.assert_array_equal(
        data.validation.batch(np.arange(6))[0], images().train.batch(np.arange(6))[0]
    )


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "mixup": st.floats(0.1, 2),
            "noise": st.floats(0, 2),
            "crop": st.floats(0, 0.5),
            "flip": st.floats(0, 1),
            "cutout": st.floats(0, 0.9),
            "rand_augment": st.floats(0, 10),
        },
    ),
    st.tuples(st.integers(1, 3), st.integers(2, 17), st.integers(2, 17)),
)
@examples(60)
def test_any_images_keep_their_shape_and_stay_finite(changes, shape):
    data = augmented(images(3, shape=shape), Augmentation(**changes))
    inputs, targets = data.train.batch(np.arange(3))
    assert inputs.shape == (3, *shape)
    assert inputs.dtype == np.float32
    assert np.isfinite(inputs).all()
    if changes.get("mixup"):
        np.testing.assert_allclose(targets.sum(axis=1), 1.0, rtol=1e-5)


def test_mixed_targets_are_shares_of_two_classes_and_mixed_numbers_lie_between():
    _, shares = augmented(images(30), Augmentation(mixup=1.0)).train.batch(np.arange(30))
    assert shares.shape == (30, 3)
    assert ((shares > 0).sum(axis=1) <= 2).all()
    numbers = images(30, task="regression")
    _, mixed = augmented(numbers, Augmentation(mixup=1.0)).train.batch(np.arange(30))
    known = numbers.train.batch(np.arange(30))[1]
    assert (mixed <= known.max(axis=0) + 1e-6).all()
    assert (mixed >= known.min(axis=0) - 1e-6).all()


def test_a_square_is_blanked_and_the_rest_stays():
    before = images(1).train.batch(np.arange(1))[0][0]
    after = augmented(images(1), Augmentation(cutout=0.5)).train.batch(np.arange(1))[0][0]
    changed = (after != before).any(axis=0)
    rows, columns = np.flatnonzero(changed.any(axis=1)), np.flatnonzero(changed.any(axis=0))
    assert 2 <= len(rows) <= 4
    assert changed.sum() == len(rows) * len(columns)
    np.testing.assert_allclose(after[:, changed], before.mean(), rtol=1e-5)


def test_the_beginning_of_a_series_is_replaced_and_its_end_never():
    data = augmented(images(40, shape=(10, 2)), Augmentation(crop=0.5))
    before, after = (
        images(40, shape=(10, 2)).train.batch(np.arange(40))[0],
        data.train.batch(np.arange(40))[0],
    )
    np.testing.assert_array_equal(after[:, 5:], before[:, 5:])
    firsts = [
        int(np.argmax((row == old).all(axis=1))) for row, old in zip(after, before, strict=True)
    ]
    assert set(firsts) > {0, 5}
    for row, first in zip(after, firsts, strict=True):
        assert (row[:first] == row[first]).all()


def test_no_change_leaves_the_data_as_it_is():
    data = images()
    assert augmented(data, Augmentation()) is data


@pytest.mark.parametrize(
    ("data", "changes", "message"),
    [
        (
            images(shape=(5,)),
            {"flip": 0.5},
            "training.augment.flip: it cannot be used: samples are not images",
        ),
        (
            images(shape=(5,)),
            {"crop": 0.5},
            "training.augment.crop: it cannot be used: samples have no places",
        ),
    ],
)
def test_a_change_that_the_samples_cannot_have_is_refused(data, changes, message):
    with pytest.raises(ExperimentError) as caught:
        augmented(data, Augmentation(**changes))
    assert message in str(caught.value)


def test_token_ids_are_not_changed():
    split = ArraySplit(np.zeros((3, 4), dtype=np.int64), np.zeros(3, dtype=np.int64))
    tokens = Datasets("tokens", "classification", split, split, (4,), 2, vocabulary_size=9)
    with pytest.raises(ExperimentError, match="not one array of numbers"):
        augmented(tokens, Augmentation(noise=0.1))


def test_classes_of_pixels_stay_where_they_are():
    split = ArraySplit(
        np.zeros((3, 1, 8, 8), dtype=np.float32), np.zeros((3, 8, 8), dtype=np.int64)
    )
    masks = Datasets("masks", "classification", split, split, (1, 8, 8), 2, target_shape=(8, 8))
    with pytest.raises(ExperimentError, match="the targets stay at their places"):
        augmented(masks, Augmentation(crop=0.2))
    assert augmented(masks, Augmentation(cutout=0.2)) is not masks
