from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from workbench.data.augmentation import AugmentedSplit
from workbench.data.splits import ArraySplit
from workbench.data.targets import class_of_each
from workbench.experiment.training_section import Augmentation
from workbench.foundation.errors import DataError

CLASSES = np.array([2, 0, 1, 2])
FORMS = {
    "numbers": CLASSES,
    "a column": CLASSES[:, None],
    "floats": CLASSES.astype(np.float32),
    "one-hot": np.eye(3, dtype=np.int64)[CLASSES],
    "shares": 0.8 * np.eye(3)[CLASSES] + 0.1,
}


@pytest.mark.parametrize("form", FORMS)
def test_the_class_of_each_sample_is_known_in_every_form(form: str) -> None:
    assert class_of_each(FORMS[form], 3).tolist() == CLASSES.tolist()


def test_several_classes_of_a_sample_are_refused() -> None:
    with pytest.raises(DataError, match=r"\(4, 2\)"):
        class_of_each(np.zeros((4, 2)), 3)


def test_inputs_and_targets_of_different_lengths_are_refused_with_both_shapes() -> None:
    with pytest.raises(DataError, match=r"\(4, 2\).*\(3,\)"):
        ArraySplit(np.zeros((4, 2), np.float32), CLASSES[:3])


@pytest.mark.parametrize("form", ["a column", "floats", "one-hot"])
def test_mixed_samples_have_the_shares_of_their_classes_in_every_form(form: str) -> None:
    changes = Augmentation(mixup=0.4)
    mixed = []
    for targets in (CLASSES, FORMS[form]):
        np.random.seed(0)
        split: Any = AugmentedSplit(ArraySplit(np.zeros((4, 2), np.float32), targets), changes, 3)
        mixed.append(split.batch(np.arange(4))[1])
    np.testing.assert_allclose(mixed[1], mixed[0])
    np.testing.assert_allclose(mixed[0].sum(axis=1), 1.0, rtol=1e-6)
