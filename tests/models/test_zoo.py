from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import nn

from workbench.experiment import PlanSettings, Training
from workbench.foundation.errors import ExperimentError, UnknownNameError
from workbench.models import MODELS
from workbench.models.adapters import build_model, num_parameters
from workbench.models.configurations import check_value, configuration_type, configure

# model, configuration, shape of a sample, outputs, vocabulary, shape of the outputs of two samples
CASES: list[tuple[str, dict[str, Any], tuple[int, ...], int, int | None, tuple[int, ...]]] = [
    ("mlp", {}, (30,), 2, None, (2, 2)),
    ("mlp", {"num_layers": 0}, (1, 8, 8), 10, None, (2, 10)),
    ("mlp", {"activation": "gelu", "dropout": 0.3}, (5, 4), 1, None, (2, 1)),
    ("convnet", {}, (1, 8, 8), 10, None, (2, 10)),
    (
        "convnet",
        {"width": 4, "num_blocks": 5, "convolutions_per_block": 2},
        (1, 8, 8),
        3,
        None,
        (2, 3),
    ),
    ("convnet", {"width": 4, "dropout": 0.5}, (3, 224, 200), 3, None, (2, 3)),
    ("convnet", {"width": 4}, (3, 9, 17), 3, None, (2, 3)),
    ("resnet", {"depth": 8, "width": 4}, (1, 8, 8), 10, None, (2, 10)),
    ("resnet", {"depth": 14, "width": 3, "dropout": 0.1}, (3, 33, 47), 5, None, (2, 5)),
    ("resnet", {"depth": 8, "width": 2}, (3, 224, 224), 5, None, (2, 5)),
    ("lstm", {"num_layers": 2, "dropout": 0.2}, (7,), 11, 11, (2, 7, 11)),
    ("lstm", {"dropout": 0.2}, (7,), 3, 11, (2, 3)),
    ("lstm", {}, (12, 4), 1, None, (2, 1)),
    ("transformer", {"width": 16, "num_layers": 2}, (7,), 11, 11, (2, 7, 11)),
    ("transformer", {"width": 12, "num_heads": 3, "dropout": 0.1}, (7,), 3, 11, (2, 3)),
]


# model, configuration, shape of a sample, outputs, vocabulary, shape of targets, that of two
# samples' outputs
SHAPED: list[
    tuple[str, dict[str, Any], tuple[int, ...], int, int | None, tuple[int, ...], tuple[int, ...]]
] = [
    ("forecaster", {}, (12, 3), 8, None, (4, 2), (2, 8)),
    ("forecaster", {"num_layers": 0}, (5, 1), 1, None, (1, 1), (2, 1)),
    ("mlp", {}, (12, 3), 8, None, (4, 2), (2, 8)),
    ("text_encoder", {"width": 16, "num_layers": 2}, (7,), 3, 11, (), (2, 3)),
    ("text_encoder", {"width": 12, "num_heads": 3, "dropout": 0.1}, (7,), 3, 11, (7,), (2, 7, 3)),
    ("unet", {"width": 4}, (1, 8, 8), 3, None, (8, 8), (2, 8, 8, 3)),
    ("detector", {"width": 4}, (1, 16, 16), 3, None, (2, 5), (2, 4, 4, 7)),
    (
        "detector",
        {"width": 3, "num_blocks": 1, "dropout": 0.1},
        (3, 9, 17),
        2,
        None,
        (6, 5),
        (2, 4, 8, 6),
    ),
    (
        "unet",
        {"width": 3, "num_halvings": 3, "dropout": 0.1},
        (3, 13, 22),
        2,
        None,
        (13, 22),
        (2, 13, 22, 2),
    ),
]


def batch(input_shape: tuple[int, ...], vocabulary_size: int | None) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    if vocabulary_size is None:
        return torch.randn(2, *input_shape, generator=generator)
    return torch.randint(vocabulary_size, (2, *input_shape), generator=generator)


def build(
    model: str,
    configuration: dict[str, Any],
    shape: tuple[int, ...],
    outputs: int,
    size: int | None,
):
    return build_model(
        model, configuration, input_shape=shape, num_outputs=outputs, vocabulary_size=size
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[2]}")
def test_outputs_have_the_right_shape_and_every_parameter_a_gradient(case):
    model, configuration, shape, outputs, size, expected = case
    built = build(model, configuration, shape, outputs, size)
    predicted = built(batch(shape, size))
    assert predicted.shape == expected
    predicted.square().sum().backward()
    for name, parameter in built.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name


@pytest.mark.parametrize("case", SHAPED, ids=lambda case: f"{case[0]}-{case[5]}")
def test_outputs_have_the_shape_of_the_targets(case):
    model, configuration, shape, outputs, size, targets, expected = case
    built = build_model(
        model,
        configuration,
        input_shape=shape,
        num_outputs=outputs,
        vocabulary_size=size,
        target_shape=targets,
    )
    predicted = built(batch(shape, size))
    assert predicted.shape == expected
    predicted.square().sum().backward()
    assert all(parameter.grad is not None for parameter in built.parameters())


@pytest.mark.parametrize("model", ["convnet", "unet"])
def test_a_model_that_answers_in_another_shape_than_the_targets_is_refused(model):
    targets = (4, 4) if model == "unet" else (8, 8)
    with pytest.raises(
        ExperimentError, match=r"(makes one prediction for a sample|predicts every pixel)"
    ):
        build_model(model, {}, input_shape=(1, 8, 8), num_outputs=3, target_shape=targets)


def test_a_forecast_follows_a_series_that_has_moved():
    torch.manual_seed(0)
    built = build_model(
        "forecaster", {"num_layers": 0}, input_shape=(6, 1), num_outputs=2, target_shape=(2, 1)
    ).eval()
    window = torch.randn(1, 6, 1)
    torch.testing.assert_close(built(window + 5.0), built(window) + 5.0)


def test_padding_changes_no_answer_of_a_text():
    torch.manual_seed(0)
    built = build_model(
        "text_encoder", {"width": 16}, input_shape=(8,), num_outputs=3, vocabulary_size=11
    ).eval()
    text = torch.tensor([[4, 9, 2, 0, 0, 0, 0, 0]])
    torch.testing.assert_close(built(text), built(text[:, :3]))
    assert not torch.allclose(built(text), built(torch.tensor([[4, 9, 2, 5, 0, 0, 0, 0]])))


@pytest.mark.parametrize("name", MODELS.names())
def test_every_default_is_allowed_and_every_field_is_described(name):
    kind = configuration_type(name)
    assert kind().name == name
    for field, info in kind.model_fields.items():
        assert info.description, field
        assert info.description.endswith("."), field


def test_no_field_of_the_zoo_has_a_name_that_training_or_the_plan_uses():
    taken = {
        "epochs",
        "steps",
        "loss",
        "metrics",
        "recompute",
        *Training.model_fields,
        *PlanSettings.model_fields,
    }
    fields = set(
        itertools.chain(*(configuration_type(name).model_fields for name in MODELS.names()))
    )
    assert not fields & taken


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        # 30*8+8 + 8*8+8 + 8*2+2
        (("mlp", {"hidden_width": 8, "num_layers": 2}, (30,), 2, None), 338),
        # convolution 9*1*4, norm 2*4, convolution 9*4*8, norm 2*8, linear 8*10+10
        (("convnet", {"width": 4, "num_blocks": 2}, (1, 8, 8), 10, None), 36 + 8 + 288 + 16 + 90),
        # embedding 11*5, four gates of (5+6+2)*6, linear 6*11+11
        (("lstm", {"embedding_width": 5, "hidden_width": 6}, (7,), 11, 11), 55 + 312 + 77),
        # embeddings 11*8 + 7*8, block 2*16 norms + 24*8+24 + 8*8+8 + 32*8+32 + 32*8+8, last norm
        # 16, tied
        (
            ("transformer", {"width": 8, "num_layers": 1, "num_heads": 2}, (7,), 11, 11),
            144 + 872 + 16,
        ),
        # the counts that are published with the paper's networks
        (("resnet", {"depth": 20}, (3, 32, 32), 10, None), 269_722),
        (("resnet", {"depth": 56}, (3, 32, 32), 10, None), 853_018),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_number_of_parameters_is_what_the_formula_says(case, expected):
    assert num_parameters(build(*case)) == expected


def test_a_future_token_never_changes_earlier_outputs_of_the_transformer():
    torch.manual_seed(0)
    built = build("transformer", {"width": 16, "num_layers": 3}, (9,), 11, 11).eval()
    tokens = batch((9,), 11)
    before = built(tokens)
    for position in range(9):
        changed = tokens.clone()
        changed[:, position] = (changed[:, position] + 1) % 11
        after = built(changed)
        torch.testing.assert_close(after[:, :position], before[:, :position], rtol=0, atol=1e-6)
        assert not torch.allclose(after[:, position], before[:, position])


def test_the_transformer_starts_close_to_an_even_guess():
    torch.manual_seed(0)
    tokens = batch((33,), 64)
    outputs = build("transformer", {}, (32,), 64, 64)(tokens[:, :-1])
    loss = nn.functional.cross_entropy(outputs.flatten(0, 1), tokens[:, 1:].flatten())
    # ln 64 = 4.159; a wrong initialisation starts far above
    assert 3.8 < loss.item() < 4.5


def test_residual_blocks_start_as_the_identity():
    built = build("resnet", {"depth": 8, "width": 4}, (3, 8, 8), 2, None).eval()
    inputs = torch.rand(2, 4, 8, 8)
    torch.testing.assert_close(built.get_submodule("blocks.0")(inputs), inputs)


@pytest.mark.parametrize(
    ("model", "shape", "size", "message"),
    [
        ("convnet", (30,), None, "convnet cannot take numbers of shape (30,); allowed: images"),
        ("resnet", (16,), 5, "resnet cannot take token ids of shape (16,)"),
        ("mlp", (16,), 5, "mlp cannot take token ids"),
        ("lstm", (1, 8, 8), None, "lstm cannot take numbers of shape (1, 8, 8)"),
        ("transformer", (1, 8, 8), None, "transformer cannot take numbers"),
        ("transformer", (16,), None, "allowed: token ids of shape (context,)"),
    ],
)
def test_data_of_the_wrong_shape_is_refused_with_what_would_be_right(model, shape, size, message):
    with pytest.raises(ExperimentError) as caught:
        build(model, {}, shape, 3, size)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("model", "values", "field"),
    [
        ("mlp", {"widht": 8}, "search.widht"),
        ("mlp", {"hidden_width": 0}, "search.hidden_width"),
        ("mlp", {"hidden_width": 1.5}, "search.hidden_width"),
        ("mlp", {"hidden_width": True}, "search.hidden_width"),
        ("mlp", {"hidden_width": "128"}, "search.hidden_width"),
        ("mlp", {"activation": "swish"}, "search.activation"),
        ("convnet", {"dropout": 1.0}, "search.dropout"),
        ("convnet", {"dropout": float("nan")}, "search.dropout"),
        ("resnet", {"depth": 21}, "search.depth"),
        ("transformer", {"width": 10, "num_heads": 4}, "search.num_heads"),
    ],
)
def test_a_wrong_configuration_is_refused_by_its_field(model, values, field):
    with pytest.raises(ExperimentError) as caught:
        configure(model, values)
    assert caught.value.field == field


def test_an_unknown_model_lists_the_known_ones():
    with pytest.raises(UnknownNameError, match="mlp, convnet, resnet, lstm, transformer"):
        build("perceptron", {}, (3,), 2, None)


def test_one_value_is_checked_without_the_others():
    check_value("transformer", "width", 24, field="search.width.low")
    for model, parameter, value in (
        ("transformer", "width", 0),
        ("resnet", "depth", 21),
        ("mlp", "dropout", "no"),
    ):
        with pytest.raises(ExperimentError) as caught:
            check_value(model, parameter, value, field="search.it")
        assert caught.value.field == "search.it"
