"""Models that are fitted to all samples at once understand the same targets as those trained by
steps.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor
from torch.nn import functional

from tests.training.test_first_batch import CLASSES, INPUTS, NUMBERS, experiment, train
from workbench.models.configurations import FittedConfiguration, configure

TREES = {"name": "boosted_trees", "num_trees": 5, "min_samples_leaf": 2}
FORMS: dict[str, Tensor] = {
    "a column": CLASSES[:, None],
    "floats": CLASSES.float(),
    "one-hot": functional.one_hot(CLASSES, 3),
}


@pytest.mark.parametrize("model", [TREES, "sklearn.naive_bayes:GaussianNB"])
def test_another_form_of_the_same_classes_is_fitted_the_same(model: Any, tmp_path: Path) -> None:
    trained = []
    for name, targets in ({"numbers": CLASSES} | FORMS).items():
        (tmp_path / name).mkdir()
        ended, _ = train(tmp_path / name, experiment(targets, num_outputs=3, model=model))
        assert ended.state == "complete", ended.message
        trained.append(ended.values)
    assert all(values == pytest.approx(trained[0], rel=1e-5) for values in trained)


@pytest.mark.parametrize(
    ("targets", "said"),
    [(CLASSES + 1, "Subtract 1"), (CLASSES[:, None].repeat(1, 2), r"one class of each sample")],
)
def test_labels_without_a_meaning_are_not_fitted(
    targets: Tensor, said: str, tmp_path: Path
) -> None:
    ended, num_reports = train(tmp_path, experiment(targets, num_outputs=3, model=TREES))
    assert (ended.state, num_reports) == ("failed", 0)
    assert said in (ended.message or "")


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("boosted_trees", (0, 2)),
        ("boosted_trees", (1, 2, 3)),
        ("extra_trees", (0, 2)),
        ("extra_trees", (1, 2, 3)),
    ],
)
def test_trees_answer_with_the_numbers_of_the_classes_that_training_has(
    name: str, seen: tuple[int, ...]
) -> None:
    from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier

    inputs = INPUTS.numpy()
    classes = np.array(seen)[np.minimum(CLASSES.numpy(), len(seen) - 1)]
    options = {"num_trees": 7, "min_samples_leaf": 2}
    configuration = configure(name, options)
    assert isinstance(configuration, FittedConfiguration)
    *_, grown = configuration.grow(inputs, classes, num_classes=4, num_rounds=1, seed=0)
    if name == "extra_trees":
        rival: Any = ExtraTreesClassifier(7, min_samples_leaf=2, max_features=0.5, random_state=0)
    else:
        rival = HistGradientBoostingClassifier(
            max_iter=7, min_samples_leaf=2, early_stopping=False, random_state=0
        )
    expected = rival.fit(inputs, classes).predict_proba(inputs)
    probabilities = grown(INPUTS).softmax(-1).detach().numpy()
    np.testing.assert_allclose(probabilities[:, list(seen)], expected, atol=6e-3)
    assert set(probabilities.argmax(1)) <= set(seen)


def test_a_forest_predicts_several_numbers(tmp_path: Path) -> None:
    asked = experiment(
        NUMBERS, num_outputs=4, task="regression", model={"name": "forest", "num_trees": 5}
    )
    ended, _ = train(tmp_path, asked)
    assert ended.state == "complete", ended.message
    rival = experiment(NUMBERS, num_outputs=4, task="regression", model={**TREES})
    (tmp_path / "boosted").mkdir()
    refused, _ = train(tmp_path / "boosted", rival)
    assert "one number for each sample" in (refused.message or "")
