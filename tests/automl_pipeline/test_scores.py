from __future__ import annotations

import numpy as np

from workbench.automl_pipeline.scores import scores_of, simplest_guess


def test_the_simplest_guess_scores_what_it_should():
    targets = np.array([0, 0, 0, 1])
    guessed = np.tile(simplest_guess(targets, 2), (4, 1))
    assert scores_of(guessed, targets, "classification")["accuracy"] == 0.75
    assert scores_of(guessed, targets, "classification")["balanced_accuracy"] == 0.5
    numbers = np.array([1.0, 2.0, 6.0])
    assert scores_of(np.tile(simplest_guess(numbers, None), (3, 1)), numbers, "regression")["r2"] == 0.0
