"""Early exits of trees: parts that add up to all of them, and answer like fewer trees."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_digits

from workbench.foundation.errors import ExperimentError
from workbench.models.configurations import FittedConfiguration, configure
from workbench.models.tree_exits import TreeExits
from workbench.models.trees import TreeEnsemble

MODELS = [("boosted_trees", {"num_trees": 6, "max_leaves": 5}), ("forest", {"num_trees": 9})]


def grown(
    model: str, values: dict[str, int], *, num_classes: int = 10
) -> tuple[TreeEnsemble, torch.Tensor]:
    data = load_digits() if num_classes == 10 else load_breast_cancer()
    inputs, targets = data.data[:400].astype(np.float32), data.target[:400]
    configuration = configure(model, values)
    assert isinstance(configuration, FittedConfiguration)
    *_, last = configuration.grow(inputs, targets, num_classes=num_classes, num_rounds=1, seed=0)
    assert isinstance(last, TreeEnsemble)
    return last, torch.from_numpy(inputs)


@pytest.mark.parametrize("num_classes", [2, 10])
@pytest.mark.parametrize(("model", "values"), MODELS)
def test_the_last_exit_answers_as_all_trees(
    model: str, values: dict[str, int], num_classes: int
) -> None:
    trees, inputs = grown(model, values, num_classes=num_classes)
    found = TreeExits(trees, 2)
    passed = inputs
    for number in range(found.num_stages):
        passed = found.stage(number, passed)
    outputs = found.exit_outputs(inputs)
    torch.testing.assert_close(passed, outputs[-1])
    torch.testing.assert_close(passed, trees(inputs).float(), rtol=1e-5, atol=1e-5)


def test_an_exit_of_boosted_trees_answers_as_the_model_of_fewer_rounds() -> None:
    trees, inputs = grown("boosted_trees", {"num_trees": 6, "max_leaves": 5})
    fewer, _ = grown("boosted_trees", {"num_trees": 3, "max_leaves": 5})
    torch.testing.assert_close(
        TreeExits(trees, 1).exit_outputs(inputs)[0], fewer(inputs).float(), rtol=1e-5, atol=1e-5
    )


def test_an_exit_of_a_forest_answers_with_shares_of_its_votes() -> None:
    trees, inputs = grown("forest", {"num_trees": 9})
    early = TreeExits(trees, 1).exit_outputs(inputs)[0].exp()
    # Classes without a vote have a small probability of their own.
    torch.testing.assert_close(early.sum(dim=1), torch.ones(len(inputs)), rtol=0, atol=0.01)


def test_exits_need_a_place_between_trees() -> None:
    with pytest.raises(ExperimentError, match="at most 3") as caught:
        configure("forest", {"num_trees": 4, "exits": 4}).build(
            input_shape=(5,), num_outputs=2, vocabulary_size=None
        )
    assert caught.value.field == "exits"
