"""Trees that judge an encoding by its loss on validation rows."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.models import quick_trees
from workbench.models.quick_trees import FoldArrays, loss_of_trees

NUM_ROWS = 400


def fold(targets_of) -> FoldArrays:
    random = np.random.default_rng(0)
    inputs = random.integers(0, 2, size=(2 * NUM_ROWS, 1)).astype(np.float32)
    targets = targets_of(inputs[:, 0], random)
    return inputs[:NUM_ROWS], targets[:NUM_ROWS], inputs[NUM_ROWS:], targets[NUM_ROWS:]


def test_the_loss_of_classes_is_that_of_their_shares() -> None:
    """One feature of two values leaves nothing to learn but the share of each value."""
    parts = fold(lambda sides, random: (random.random(len(sides)) < 0.2 + 0.6 * sides).astype(int))
    shares = [parts[1][parts[0][:, 0] == side].mean() for side in (0, 1)]
    of_second = np.array(shares)[parts[2][:, 0].astype(int)]
    expected = -np.log(np.where(parts[3] == 1, of_second, 1.0 - of_second)).mean()
    assert loss_of_trees(parts, "classification", 0) == pytest.approx(expected, rel=1e-3)


def test_the_loss_of_numbers_is_their_squared_error() -> None:
    parts = fold(lambda sides, random: 3.0 * sides + random.normal(size=len(sides)))
    means = [parts[1][parts[0][:, 0] == side].mean() for side in (0, 1)]
    expected = ((parts[3] - np.array(means)[parts[2][:, 0].astype(int)]) ** 2).mean()
    assert loss_of_trees(parts, "regression", 0) == pytest.approx(expected, rel=1e-3)


def test_the_last_of_many_rows_are_learned_from_unless_they_are_of_one_class(monkeypatch) -> None:
    monkeypatch.setattr(quick_trees, "_MAX_JUDGED", NUM_ROWS // 2)
    monkeypatch.setattr(quick_trees, "_LEAST_JUDGED", 1)
    random = np.random.default_rng(0)
    sides = random.integers(0, 2, size=(NUM_ROWS, 1)).astype(np.float32)
    # The later half knows the opposite of the others.
    later = np.arange(NUM_ROWS) >= NUM_ROWS // 2
    opposite = np.where(later, 1.0 - sides[:, 0], sides[:, 0])
    assert loss_of_trees((sides, opposite, sides, 1.0 - sides[:, 0]), "regression", 0) < 0.01
    one_class = np.where(later, 1, sides[:, 0]).astype(int)
    assert loss_of_trees((sides, one_class, sides, one_class), "classification", 0) < 0.7
