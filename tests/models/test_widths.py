"""With a base width, the best learning rate of a model does not change with its width."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

from workbench.experiment import Experiment
from workbench.experiment.training_section import ParameterGroup
from workbench.foundation.errors import ExperimentError
from workbench.models.configurations import configure
from workbench.training.optimizers import grouped, groups_of
from workbench.training.planning.settings import resolve

RATES = [2.0**-power for power in (4, 6, 8)]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads that wait for each other cost more than these products."""
    usual = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(usual)


def adam_of(model: nn.Module, factors: dict[str, float], lr: float) -> torch.optim.Adam:
    groups = {pattern: ParameterGroup(lr_factor=factor) for pattern, factor in factors.items()}
    divided = grouped(model.named_parameters(), groups, 1)
    return torch.optim.Adam(
        [{"params": group["params"], "lr": lr * group.get("lr_factor", 1.0)} for group in divided]
    )


def build(name: str, values: dict[str, Any], **shapes: Any) -> tuple[nn.Module, dict[str, float]]:
    torch.manual_seed(0)
    configuration = configure(name, values)
    return configuration.build(**shapes), configuration.rate_factors()


def loss_of_perceptron(width: int, base_width: int | None, lr: float) -> float:
    images, digits = (torch.tensor(item) for item in load_digits(return_X_y=True))
    images = images.float() / 16
    values = {"hidden_width": width, "num_layers": 3, "base_width": base_width}
    model, factors = build("mlp", values, input_shape=(64,), num_outputs=10, vocabulary_size=None)
    optimizer, random = adam_of(model, factors, lr), torch.Generator().manual_seed(1)
    for _ in range(50):
        rows = torch.randint(0, len(images), (64,), generator=random)
        optimizer.zero_grad()
        functional.cross_entropy(model(images[rows]), digits[rows]).backward()
        optimizer.step()
    with torch.no_grad():
        return functional.cross_entropy(model(images), digits).item()


def best_rate(width: int, base_width: int | None) -> float:
    return min(RATES, key=lambda lr: loss_of_perceptron(width, base_width, lr))


@pytest.mark.slow
def test_the_best_rate_of_a_narrow_perceptron_suits_a_wide_one() -> None:
    narrow = best_rate(32, None)
    assert best_rate(256, 32) == narrow
    assert best_rate(256, None) < narrow, "without a base width, it falls"


def moved_scores(width: int, base_width: int | None, *, num_outputs: int) -> float:
    """Return by how much a few steps change the scores of a transformer."""
    values = {"width": width, "num_layers": 2, "num_heads": 4, "base_width": base_width}
    model, factors = build(
        "transformer", values, input_shape=(16,), num_outputs=num_outputs, vocabulary_size=40
    )
    random = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, 40, (8, 17), generator=random)
    optimizer, before = adam_of(model, factors, 2.0**-7), model(tokens[:, :-1]).detach()
    for _ in range(4):
        optimizer.zero_grad()
        scores = model(tokens[:, :-1])
        targets = tokens[:, 1:] if scores.dim() == 3 else tokens[:, 0] % num_outputs
        functional.cross_entropy(scores.reshape(-1, num_outputs), targets.reshape(-1)).backward()
        optimizer.step()
    with torch.no_grad():
        return (model(tokens[:, :-1]) - before).square().mean().sqrt().item()


@pytest.mark.slow
@pytest.mark.parametrize("num_outputs", [40, 3], ids=["language model", "classes"])
def test_steps_change_the_scores_of_a_wide_transformer_as_much_as_of_a_narrow_one(
    num_outputs: int,
) -> None:
    narrow = moved_scores(32, 32, num_outputs=num_outputs)
    assert narrow == moved_scores(32, None, num_outputs=num_outputs)
    scaled, usual = (moved_scores(256, base, num_outputs=num_outputs) for base in (32, None))
    assert 0.4 < scaled / narrow < 2.5
    assert usual / narrow > 2.5


@pytest.mark.parametrize(
    ("name", "values", "shapes"),
    [
        (
            "mlp",
            {"hidden_width": 64, "num_layers": 3, "dropout": 0.1},
            {"input_shape": (9,), "num_outputs": 4, "vocabulary_size": None},
        ),
        (
            "transformer",
            {"width": 64, "num_layers": 2},
            {"input_shape": (8,), "num_outputs": 3, "vocabulary_size": 20},
        ),
    ],
)
def test_the_rate_falls_for_every_matrix_whose_inputs_grow_and_nothing_else(
    name: str, values: dict[str, Any], shapes: dict[str, Any]
) -> None:
    width = "hidden_width" if name == "mlp" else "width"
    wide, factors = build(name, {**values, "base_width": 16}, **shapes)
    narrow, _ = build(name, {**values, width: 16}, **shapes)
    base = dict(narrow.named_parameters())
    groups = {pattern: ParameterGroup(lr_factor=factor) for pattern, factor in factors.items()}
    scaled = {
        id(item)
        for group in grouped(wide.named_parameters(), groups, 1)
        if group.get("lr_factor", 1.0) == 16 / 64
        for item in group["params"]
    }
    for path, parameter in wide.named_parameters():
        grows = parameter.dim() == 2 and "embedding" not in path
        grows = grows and parameter.shape[1] > base[path].shape[1]
        assert (id(parameter) in scaled) is grows, path


def groups_in(model: dict[str, Any], **training: Any) -> dict[str, ParameterGroup]:
    experiment = Experiment(
        model={"name": "mlp", **model},
        data="digits",
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        training=training,
    )
    return groups_of(experiment, resolve(experiment, {}))


def test_weight_decay_does_not_fall_with_the_rate() -> None:
    (group,) = groups_in(
        {"hidden_width": 256, "base_width": 64},
        optimizer="adamw",
        optimizer_options={"weight_decay": 0.1},
    ).values()
    assert group.lr_factor == 0.25
    assert group.weight_decay == pytest.approx(0.4)
    (plain,) = groups_in({"hidden_width": 256, "base_width": 64}, optimizer="adam").values()
    assert plain.weight_decay is None
    assert groups_in({"hidden_width": 256}, optimizer="sgd") == {}


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"optimizer": "sgd"}, "needs Adam, not sgd"),
        ({"optimizer": "adam", "initialisation": "he"}, "has its own initial weights"),
        (
            {"optimizer": "adam", "parameter_groups": {"bias": {"lr_factor": 2.0}}},
            "has its own parameter groups",
        ),
    ],
)
def test_what_would_undo_the_scaling_is_refused(training: dict[str, Any], message: str) -> None:
    with pytest.raises(ExperimentError, match=message):
        groups_in({"hidden_width": 256, "base_width": 64}, **training)


def test_models_that_do_not_scale_are_refused() -> None:
    with pytest.raises(ExperimentError, match="text_encoder does not scale"):
        configure("text_encoder", {"base_width": 32})
    with pytest.raises(ExperimentError, match="no early exits"):
        configure("mlp", {"base_width": 32, "exits": 1})
