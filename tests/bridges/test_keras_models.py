from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("jax")
os.environ.setdefault("KERAS_BACKEND", "jax")
keras = pytest.importorskip("keras")

from workbench.bridges import keras as bridge  # noqa: E402 (after the choice of a backend)
from workbench.foundation.errors import ExperimentError  # noqa: E402
from workbench.models.configurations import configure  # noqa: E402
from workbench.models.layers import weights_of_layers  # noqa: E402

IMAGES = {"input_shape": (3, 10, 8), "num_outputs": 4, "vocabulary_size": None}
TOKENS = {"input_shape": (6,), "num_outputs": 11, "vocabulary_size": 11}
CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("mlp", {"hidden_width": 8, "activation": "gelu"}, IMAGES),
    ("convnet", {"width": 8, "num_blocks": 3}, IMAGES),
    ("convnet", {"width": 8, "normalisation": "group", "activation": "silu"}, IMAGES),
    ("resnet", {"depth": 8, "width": 4}, IMAGES),
    ("lstm", {"hidden_width": 8, "num_layers": 2}, TOKENS),
    ("lstm", {"hidden_width": 8}, {**IMAGES, "input_shape": (5, 3)}),
    ("transformer", {"width": 8, "num_layers": 2}, TOKENS),
    ("transformer", {"width": 8, "num_layers": 1}, {**TOKENS, "num_outputs": 3}),
]


def samples_of(shapes: dict[str, Any], outputs: torch.Size) -> tuple[torch.Tensor, torch.Tensor]:
    if shapes["vocabulary_size"] is None:
        inputs = torch.randn(7, *shapes["input_shape"])
    else:
        inputs = torch.randint(shapes["vocabulary_size"], (7, *shapes["input_shape"]))
    return inputs, torch.randint(shapes["num_outputs"], outputs[:-1])


@pytest.mark.parametrize(("name", "options", "shapes"), CASES)
def test_a_model_of_the_zoo_predicts_the_same_in_keras(
    name: str, options: dict[str, Any], shapes: dict[str, Any]
) -> None:
    torch.manual_seed(0)
    configuration = configure(name, options)
    module = configuration.build(**shapes)
    with torch.no_grad():  # some weights begin at 0, and would hide what they multiply
        for value in [*module.parameters(), *module.buffers()]:
            if value.is_floating_point():
                value += 0.1 * torch.rand_like(value)
    inputs, _ = samples_of(shapes, torch.Size((7, 1)))
    with torch.no_grad():
        wanted = module.eval()(inputs)
    _, targets = samples_of(shapes, wanted.shape)
    twin = bridge.build_model(configuration, **shapes)
    bridge.copy_weights(twin, list(weights_of_layers(module)))
    steps = bridge.KerasSteps(
        twin,
        (inputs.numpy(), targets.numpy()),
        batch=7,
        loss="cross_entropy",
        optimizer=keras.optimizers.SGD(0.1),
    )
    outputs, loss = steps.predict(7)
    np.testing.assert_allclose(outputs, wanted, atol=1e-4)
    scores = wanted.flatten(0, -2)
    assert loss == pytest.approx(
        float(torch.nn.functional.cross_entropy(scores, targets.flatten())), abs=1e-4
    )


@pytest.mark.parametrize(
    ("model", "name", "values", "reference"),
    [
        ("convnet", "sgd", {"momentum": 0.9, "nesterov": True}, torch.optim.SGD),
        ("mlp", "adam", {"betas": (0.8, 0.95)}, torch.optim.Adam),
        ("mlp", "adamw", {"weight_decay": 0.1}, torch.optim.AdamW),
        ("mlp", "adamw", {"weight_decay": 0.0}, torch.optim.AdamW),
    ],
)
def test_steps_change_the_weights_like_those_of_torch(
    model: str, name: str, values: dict[str, Any], reference: Any
) -> None:
    torch.manual_seed(1)
    configuration = configure(model, {})
    module = configuration.build(**IMAGES)
    inputs, targets = torch.randn(7, *IMAGES["input_shape"]), torch.randint(4, (7,))
    twin = bridge.build_model(configuration, **IMAGES)
    bridge.copy_weights(twin, list(weights_of_layers(module)))
    made = {"lr": 0.002, "momentum": 0.0, "weight_decay": 0.0, "clip_norm": None, **values}
    steps = bridge.KerasSteps(
        twin,
        (inputs.numpy(), targets.numpy()),
        batch=7,
        loss="cross_entropy",
        optimizer=bridge.make_optimizer(name, made),
    )
    optimizer: Any = reference(module.parameters(), lr=0.002, **values)
    for _ in range(3):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module.train()(inputs), targets).backward()
        optimizer.step()
    steps.make_first(3)
    outputs, _ = steps.predict(7)
    with torch.no_grad():
        # Torch's running variance is unbiased, and Keras adds epsilon before it corrects the bias.
        np.testing.assert_allclose(outputs, module.eval()(inputs), atol=5e-3)


def test_models_with_other_layers_are_refused_with_the_layer() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    layers = list(weights_of_layers(module))
    dense = [keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(2, name="last")]
    bridge.copy_weights(keras.Sequential(dense), layers)
    for other, words in (
        (dense[:2], "the Keras model has 1 layers with weights, and torch has 2"),
        ([*dense[:2], keras.layers.Dense(5, name="wide")], "wide"),
        ([*dense[:2], keras.layers.SimpleRNN(2)], "is a SimpleRNN"),
    ):
        if "SimpleRNN" in words:
            other = [keras.Input((2, 3)), *other[1:]]
        with pytest.raises(ExperimentError, match=words):
            bridge.copy_weights(keras.Sequential(other), layers)


def test_what_keras_cannot_do_alike_is_refused() -> None:
    with pytest.raises(ExperimentError, match="unet cannot be built in Keras"):
        bridge.build_model(configure("unet", {}), **IMAGES)
    with pytest.raises(ExperimentError, match="transformer with dropout"):
        bridge.build_model(configure("transformer", {"dropout": 0.1}), **TOKENS)
    given = {"lr": 0.1, "momentum": 0.0, "weight_decay": 0.0, "clip_norm": None}
    with pytest.raises(ExperimentError, match="lamb"):
        bridge.make_optimizer("lamb", given)
    with pytest.raises(ExperimentError, match="dampening"):
        bridge.make_optimizer("sgd", {**given, "dampening": 0.1})
