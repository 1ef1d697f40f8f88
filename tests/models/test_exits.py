"""Early exits: over every model of the zoo, and over sequences of a user's own."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import torch
from torch import nn
from torch.nn import functional

from workbench.foundation.errors import ExperimentError
from workbench.models import MODELS, Aggregate
from workbench.models.adapters import build_model
from workbench.models.configurations import FittedConfiguration, configuration_type, configure
from workbench.models.exits import EarlyExits, SceneExits, check_task, joint

IMAGE: dict[str, Any] = {"input_shape": (1, 8, 8)}
TEXT: dict[str, Any] = {"input_shape": (7,), "vocabulary_size": 20}
ZOO: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "mlp": ({"num_layers": 3, "exits": 1}, IMAGE),
    "convnet": ({"num_blocks": 3, "exits": 2}, IMAGE),
    "resnet": ({"depth": 8, "exits": 2}, IMAGE),
    "lstm": ({"num_layers": 3, "exits": 2, "dropout": 0.1}, TEXT),
    "transformer": ({"num_layers": 3, "width": 8, "exits": 2}, TEXT),
    "text_encoder": ({"num_layers": 2, "width": 8, "exits": 1}, TEXT),
    "one_of": ({"family": "convnet", "convnet_num_blocks": 3, "convnet_exits": 2}, IMAGE),
}
"""What a model that is trained by steps is built with, and for which data."""
FITTED = {"boosted_trees", "forest", "extra_trees", "lightgbm", "xgboost", "catboost"}
WITHOUT = {
    "linear": "a single sum",
    "neighbours": "no layers",
    "forecaster": "numbers",
    "unet": "every pixel",
    "detector": "boxes",
    "tabular_mlp": "its members answer together",
    "foundation": "all train samples",
    "hf": "every position",
}


def built(model: str) -> EarlyExits:
    torch.manual_seed(0)
    values, shapes = ZOO[model]
    built_model = build_model(model, values, num_outputs=10, **shapes)
    assert isinstance(built_model, EarlyExits)
    return built_model


def inputs_of(model: str) -> torch.Tensor:
    _, shapes = ZOO[model]
    if "vocabulary_size" in shapes:
        return torch.randint(shapes["vocabulary_size"], (6, *shapes["input_shape"]))
    return torch.randn(6, *shapes["input_shape"])


def num_exits_of(model: str) -> int:
    return next(value for name, value in ZOO[model][0].items() if name.endswith("exits"))


def test_every_model_of_the_zoo_has_exits_or_a_reason_to_have_none() -> None:
    assert ZOO.keys() | FITTED | WITHOUT.keys() == set(MODELS.names())
    for name in FITTED:
        assert issubclass(configuration_type(name), FittedConfiguration)
        assert configure(name, {"exits": 2}).model_dump()["exits"] == 2
    for name, reason in WITHOUT.items():
        with pytest.raises(ExperimentError, match=reason) as caught:
            configure(name, {"exits": 1})
        assert caught.value.field == "search.exits"
        assert caught.value.next_step


@pytest.mark.parametrize("model", ZOO)
def test_the_last_exit_answers_as_the_model_without_exits(model: str) -> None:
    model_built, inputs = built(model).eval(), inputs_of(model)
    outputs = model_built.exit_outputs(inputs)
    assert len(outputs) == model_built.num_stages == num_exits_of(model) + 1
    assert {output.shape for output in outputs} == {(6, 10)}
    torch.testing.assert_close(outputs[-1], model_built(inputs))
    torch.testing.assert_close(model_built(inputs), model_built.model(inputs))


@pytest.mark.parametrize("model", ZOO)
def test_stages_pass_on_one_tensor_from_which_the_next_one_computes(model: str) -> None:
    found, inputs = built(model).eval(), inputs_of(model)
    values = inputs
    for number in range(found.num_stages):
        values = found.stage(number, values)
        assert values.shape[0] == 6
        assert values.dtype == torch.float32
    torch.testing.assert_close(values, found(inputs))


@pytest.mark.parametrize("model", ZOO)
def test_the_joint_loss_is_the_weighted_sum_and_reaches_every_exit(model: str) -> None:
    model_built, inputs, targets = built(model).train(), inputs_of(model), torch.arange(6)
    returned = model_built(inputs)
    loss = joint(functional.cross_entropy)(returned, targets)
    *early, last = [returned["early_exits"][n] for n in range(num_exits_of(model))] + [
        returned["logits"]
    ]
    known = functional.cross_entropy(last, targets) + 0.3 * sum(
        functional.cross_entropy(each, targets) for each in early
    )
    torch.testing.assert_close(loss, known)
    loss.backward()
    assert all(
        each.grad is not None and torch.isfinite(each.grad).all()
        for each in model_built.parameters()
    )
    for head in model_built.heads:
        assert all(each.grad.abs().sum() > 0 for each in head.parameters() if each.grad is not None)


def test_an_exit_of_a_text_is_not_changed_by_what_fills_it_up() -> None:
    encoder = built("text_encoder").eval()
    text = torch.tensor([[3, 4, 5, 0, 0, 0, 0]])
    filled = text.clone()
    with torch.no_grad():
        encoder.model.get_submodule("token_embedding").weight[0] = 0.0  # type: ignore[index]
        before = encoder.exit_outputs(text)
        encoder.model.get_submodule("token_embedding").weight[0] = 9.0  # type: ignore[index]
        after = encoder.exit_outputs(filled)
    for one, other in zip(before, after, strict=True):
        torch.testing.assert_close(one, other)


def test_a_loss_without_exits_stays_as_it_is() -> None:
    outputs, targets = torch.randn(4, 3), torch.arange(3).repeat(2)[:4]
    assert joint(functional.cross_entropy)(outputs, targets) == functional.cross_entropy(
        outputs, targets
    )


def test_own_sequences_take_exits() -> None:
    layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    early_exits = EarlyExits(layers, input_shape=(4,), num_outputs=3, num_exits=1, weight=1.0)
    assert [exit_output.shape for exit_output in early_exits.exit_outputs(torch.randn(2, 4))] == [
        (2, 3),
        (2, 3),
    ]


def test_more_exits_than_there_are_places_are_refused() -> None:
    with pytest.raises(ExperimentError, match="at most 1") as caught:
        build_model("mlp", {"exits": 5}, input_shape=(1, 8, 8), num_outputs=10)
    assert caught.value.field == "exits"


@pytest.mark.parametrize("model", ["lstm", "transformer", "text_encoder"])
def test_a_model_that_answers_at_every_position_has_no_exits(model: str) -> None:
    shapes: dict[str, Any] = {"input_shape": (7,), "vocabulary_size": 20, "num_outputs": 20}
    targets = {"target_shape": (7,), "num_outputs": 4} if model == "text_encoder" else {}
    with pytest.raises(ExperimentError, match="at every position"):
        build_model(model, ZOO[model][0], **(shapes | targets))


def test_exits_are_refused_where_a_sample_has_not_one_class() -> None:
    network = built("mlp")
    check_task(network, "classification", ())
    check_task(network.model, "regression", ())
    for task, shape in (("regression", ()), ("classification", (8, 8))):
        with pytest.raises(ExperimentError, match="probability of a class"):
            check_task(network, task, shape)


def scene_model(aggregate: str, **values: Any) -> SceneExits:
    torch.manual_seed(0)
    made = build_model(
        "convnet",
        {"num_blocks": 3, "width": 4, "exits": 2, "views": aggregate, **values},
        input_shape=(3, 1, 8, 8),
        num_outputs=10,
    )
    assert isinstance(made, SceneExits)
    return made.eval()


@pytest.mark.parametrize("aggregate", get_args(Aggregate))
def test_views_of_a_scene_are_joined_without_the_missing_ones(aggregate: str) -> None:
    model = scene_model(aggregate)
    views = torch.randn(5, 3, 1, 8, 8)
    mask = torch.tensor([[1, 1, 1], [1, 0, 1], [0, 1, 1], [0, 0, 1], [1, 0, 0]]).float()
    exits = model.exits
    with torch.no_grad():
        first, second, last = model.exit_outputs(views, mask)
        for scene in range(5):
            there = [place for place in range(3) if mask[scene, place]]
            features = torch.cat([exits.stage(0, views[scene, place, None]) for place in there])
            if aggregate == "concatenation":
                # A concatenation starts as the mean over all devices, with zeros for missing ones.
                joined = features.sum(dim=0, keepdim=True) / 3
            elif aggregate == "mean":
                joined = features.mean(dim=0, keepdim=True)
            else:
                joined = features.max(dim=0, keepdim=True).values
            after = exits.stage(1, joined)
            assert torch.allclose(second[scene], exits.heads[1](after)[0], atol=1e-5)
            assert torch.allclose(last[scene], exits.stage(2, after)[0], atol=1e-5)
            assert torch.allclose(first[scene, there], exits.heads[0](features), atol=1e-5)
        changed = torch.where(mask[:, :, None, None, None] == 1, views, torch.full((1,), 9.0))
        assert torch.equal(model.exit_outputs(changed, mask)[2], last)
        assert torch.allclose(model(views), model.exit_outputs(views)[2])


def test_a_concatenation_learns_from_which_views_are_missing() -> None:
    model = scene_model("concatenation")
    assert model.joint is not None
    num_channels = model.joint.layer.out_features
    with torch.no_grad():
        model.joint.layer.weight[:, -2] = 1.0  # the mask of the second view
    mask = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 1.0]])
    joined = model.joint(torch.zeros(2, 3 * num_channels, 4, 4), mask)
    assert torch.equal(joined[0], torch.ones(num_channels, 4, 4))
    assert torch.equal(joined[1], torch.zeros(num_channels, 4, 4))


def test_views_are_missing_in_training_and_each_exit_learns() -> None:
    model = scene_model("mean", missing_views=0.4, exit_weight=0.5).train()
    drawn = model._drawn(torch.zeros(20_000, 3))
    assert drawn.sum(dim=1).min() == 1
    # All three are missing with probability 0.4 ** 3, and then one of them is there anyway.
    assert float(1 - drawn.mean()) == pytest.approx(0.4 - 0.4**3 / 3, abs=0.01)
    targets = torch.randint(10, (6,))
    returned = model(torch.randn(6, 3, 1, 8, 8))
    loss = joint(functional.cross_entropy)(returned, targets)
    *views, second = [
        functional.cross_entropy(early_exit, targets) for early_exit in returned["early_exits"]
    ]
    last = functional.cross_entropy(returned["logits"], targets)
    assert len(views) == 3
    assert float(loss) == pytest.approx(float(last + 0.5 * sum(views) / 3 + 0.5 * second))
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.exits.heads.parameters())


@pytest.mark.parametrize(
    ("values", "input_shape"),
    [({"views": "mean"}, (3, 1, 8, 8)), ({"views": "max", "exits": 1}, (1, 8, 8))],
)
def test_views_need_an_exit_and_several_views(
    values: dict[str, Any], input_shape: tuple[int, ...]
) -> None:
    with pytest.raises(ExperimentError) as caught:
        build_model("convnet", values, input_shape=input_shape, num_outputs=10)
    assert caught.value.field is not None
    assert caught.value.field.endswith("views")
