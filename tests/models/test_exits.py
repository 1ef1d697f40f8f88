from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from workbench.errors import ExperimentError
from workbench.models.adapters import build_model
from workbench.models.exits import EarlyExits, joint

ZOO = [
    ("mlp", {"exits": 1}),
    ("convnet", {"num_blocks": 3, "exits": 2}),
    ("resnet", {"depth": 8, "exits": 2}),
]


def built(model: str, values: dict[str, int]) -> EarlyExits:
    torch.manual_seed(0)
    found = build_model(model, values, input_shape=(1, 8, 8), num_outputs=10)
    assert isinstance(found, EarlyExits)
    return found


@pytest.mark.parametrize(("model", "values"), ZOO)
def test_the_last_exit_answers_as_the_model_without_exits(model: str, values: dict[str, int]) -> None:
    found, inputs = built(model, values).eval(), torch.randn(5, 1, 8, 8)
    outputs = found.exit_outputs(inputs)
    assert len(outputs) == found.num_stages == values["exits"] + 1
    torch.testing.assert_close(outputs[-1], found(inputs))
    torch.testing.assert_close(found(inputs), found.model(inputs))


@pytest.mark.parametrize(("model", "values"), ZOO)
def test_the_joint_loss_is_the_weighted_sum_and_reaches_every_exit(
    model: str, values: dict[str, int]
) -> None:
    found, inputs, targets = built(model, values).train(), torch.randn(6, 1, 8, 8), torch.arange(6)
    returned = found(inputs)
    loss = joint(functional.cross_entropy)(returned, targets)
    *early, last = [returned["early_exits"][n] for n in range(values["exits"])] + [returned["logits"]]
    known = functional.cross_entropy(last, targets) + 0.3 * sum(
        functional.cross_entropy(each, targets) for each in early
    )
    torch.testing.assert_close(loss, known)
    loss.backward()
    assert all(head[-1].weight.grad.abs().sum() > 0 for head in found.heads)


def test_a_loss_without_exits_stays_as_it_is() -> None:
    outputs, targets = torch.randn(4, 3), torch.arange(3).repeat(2)[:4]
    assert joint(functional.cross_entropy)(outputs, targets) == functional.cross_entropy(outputs, targets)


def test_own_sequences_take_exits_and_other_models_are_refused() -> None:
    layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    found = EarlyExits(layers, input_shape=(4,), num_outputs=3, num_exits=1, weight=1.0)
    assert [each.shape for each in found.exit_outputs(torch.randn(2, 4))] == [(2, 3), (2, 3)]
    with pytest.raises(ExperimentError, match="not a sequence"):
        EarlyExits(nn.Bilinear(2, 2, 2), input_shape=(2,), num_outputs=2, num_exits=1, weight=1.0)


def test_more_exits_than_there_are_places_are_refused() -> None:
    with pytest.raises(ExperimentError, match="at most 1") as caught:
        built("mlp", {"exits": 5})
    assert caught.value.field == "exits"
