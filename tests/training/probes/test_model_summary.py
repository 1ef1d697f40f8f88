"""What is known of a model before it trains, counted by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn

from workbench.experiment import Experiment
from workbench.experiment.plan import PartialPlan
from workbench.foundation.errors import DataError, ExperimentError, RunError
from workbench.training.probes.model_summary import ModelSummary, summarise_model

FIELDS: dict[str, Any] = {
    "model": {"name": "mlp", "hidden_width": 32, "num_layers": 2},
    "data": "digits",
    "objectives": [{"metric": "val_loss", "goal": "minimize"}],
}


def picture(params: dict[str, Any] | None = None, **fields: Any) -> ModelSummary:
    return summarise_model(
        Experiment(**FIELDS | fields), params or {}, (8, 16), plan=PartialPlan.of(precision="fp32")
    )


def test_a_perceptron_has_the_numbers_that_its_layers_add_up_to() -> None:
    pictured = picture()
    weights = 64 * 32, 32 * 32, 32 * 10
    assert pictured.num_parameters == pictured.num_trained_parameters == sum(weights) + 32 + 32 + 10
    # Forward and to the weights everywhere; to the inputs not in the first layer.
    assert pictured.flops_per_sample == 2 * (2 * weights[0] + 3 * weights[1] + 3 * weights[2])
    assert pictured.memory is not None
    assert [step.micro_batch for step in pictured.memory.steps] == [8, 16]
    assert pictured.memory.steps[0].parameters_bytes == 4 * pictured.num_parameters
    assert [layer["name"] for layer in pictured.layers][:2] == ["layers", "layers.0"]
    assert pictured.problems == ()


OWN = """
import os, torch
from torch import nn

def looks(config):
    class Looks(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(64, 10)
            print("made")
        def forward(self, inputs):
            outputs = self.layer(inputs.flatten(1))
            return outputs * 2 if outputs.sum().item() > 0 else outputs
    return Looks()

def narrow(config):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 7))

def wrong(config):
    return nn.Sequential(nn.Flatten(), nn.Linear(63, 10))

def unwilling(config):
    return config["absent"]

def ends(config):
    os._exit(3)

def lazy(config):
    hidden = (nn.LazyLinear(32), nn.LazyBatchNorm1d(affine=False))
    return nn.Sequential(nn.Flatten(), *hidden, nn.LazyLinear(10))

def assigns(config):
    layer = nn.Linear(64, 10)
    with torch.no_grad():
        layer.bias[2:] = -4.5
    return nn.Sequential(nn.Flatten(), layer)

def eager(config):
    hidden = (nn.Linear(64, 32), nn.BatchNorm1d(32, affine=False))
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(32, 10))

def flat(config):
    class Flat(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(64, 10)
        def forward(self, inputs):
            return self.layer(inputs.flatten(1)).flatten()
    return Flat()
"""


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_pictured.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_a_lazy_model_is_summarised_as_the_same_model_with_its_shapes_written_out() -> None:
    lazy, eager = picture(model="own_pictured:lazy"), picture(model="own_pictured:eager")
    assert lazy.problems == ()
    assert (lazy.num_parameters, lazy.flops_per_sample) == (
        eager.num_parameters,
        eager.flops_per_sample,
    )
    assert lazy.memory is not None
    assert eager.memory is not None
    for step, other in zip(lazy.memory.steps, eager.memory.steps, strict=True):
        assert step.parameters_bytes == other.parameters_bytes
        assert step.optimizer_bytes == other.optimizer_bytes
        assert step.compute_peak_bytes == pytest.approx(other.compute_peak_bytes, rel=0.1)
    assert [layer["num_parameters"] for layer in lazy.layers] == [0, 64 * 32 + 32, 0, 32 * 10 + 10]


def test_a_model_that_looks_at_values_is_described_without_its_memory() -> None:
    pictured = picture(model="own_pictured:looks")
    assert pictured.num_parameters == 650
    assert pictured.flops_per_sample == 2 * 2 * 640
    assert (pictured.memory, pictured.problems) == (None, ())
    assert "cannot be estimated" in (pictured.words or "")


def test_the_memory_of_a_model_that_assigns_numbers_to_its_parameters_is_estimated() -> None:
    pictured = picture(model="own_pictured:assigns")
    assert pictured.memory is not None
    assert pictured.problems == ()


def test_the_memory_of_convolutions_with_channels_last_is_estimated() -> None:
    pictured = picture(model="convnet", plan={"memory_format": "channels_last"})
    assert pictured.memory is not None
    assert pictured.problems == ()


@pytest.mark.parametrize("optimizer", ["adafactor", "asgd"])
def test_an_optimizer_that_looks_at_values_is_no_problem_of_the_model(optimizer: str) -> None:
    pictured = picture(
        {"optimizer": optimizer}, search={"optimizer": {"choices": [optimizer, "sgd"]}}
    )
    assert (pictured.memory, pictured.problems) == (None, ())
    assert "optimizer" in (pictured.words or "")
    assert pictured.layers


@pytest.mark.parametrize(
    ("model", "field", "said"),
    [
        ("own_pictured:wrong", "model", "the model cannot take the data: 1, RuntimeError"),
        (
            "own_pictured:unwilling",
            "model.absent",
            "unwilling needs absent, which the",
        ),
        ({"name": "convnet", "width": 0}, "model.width", "0"),
        ("transformer", "model", "cannot take numbers of shape (1, 8, 8)"),
    ],
)
def test_what_is_wrong_is_said_under_the_field_that_caused_it(
    model: Any, field: str, said: str
) -> None:
    with pytest.raises(ExperimentError) as caught:
        picture(model=model)
    assert caught.value.field == field
    assert said in caught.value.problem


def test_a_searched_value_that_is_wrong_is_blamed_on_the_search() -> None:
    search = {"width": {"choices": [30]}, "num_heads": {"choices": [4]}}
    with pytest.raises(ExperimentError) as caught:
        picture({"width": 30, "num_heads": 4}, model="transformer", data="text", search=search)
    assert caught.value.field == "search.num_heads"


def test_data_that_is_missing_is_an_error_of_the_data() -> None:
    with pytest.raises(DataError, match=r"data\.path"):
        picture(data={"name": "table", "path": "no_such.csv", "target": "y"})


def test_a_model_with_fewer_outputs_than_classes_is_told_of() -> None:
    [problem] = picture(model="own_pictured:narrow").problems
    assert problem.field == "model"
    assert problem.problem == "the model returns 7 numbers, but the data has 10 classes"


def test_a_loss_that_cannot_take_the_outputs_is_told_of() -> None:
    pictured = picture(model="own_pictured:flat")
    assert pictured.flops_per_sample is None
    assert any(
        "the loss cannot take the outputs of the model" in each.problem
        for each in pictured.problems
    )


def test_code_that_ends_its_process_does_not_end_ours() -> None:
    with pytest.raises(RunError, match="ended with 3"):
        picture(model="own_pictured:ends")


def test_a_class_of_a_notebook_goes_along() -> None:
    class Net(nn.Module):
        def __init__(self, config: Any) -> None:
            super().__init__()
            self.output = nn.Linear(64, config["classes"])

        def forward(self, inputs: Tensor) -> Tensor:
            return self.output(inputs.flatten(1))

    pictured = picture({"classes": 10}, model=Net, search={"classes": 10})
    assert (pictured.num_parameters, pictured.layers[0]["output_shape"]) == (650, [10])


def test_a_frozen_part_is_not_trained() -> None:
    class Frozen(nn.Module):
        def __init__(self, config: Any) -> None:
            super().__init__()
            self.inner, self.output = nn.Linear(64, 4), nn.Linear(4, 10)
            self.inner.requires_grad_(False)

        def forward(self, inputs: Tensor) -> Tensor:
            return self.output(self.inner(inputs.flatten(1)))

    pictured = picture(model=Frozen)
    assert (pictured.num_parameters, pictured.num_trained_parameters) == (260 + 50, 50)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (
            {"name": "boosted_trees", "num_trees": 7},
            "7 boosted trees for each of 10 classes, 70 in all",
        ),
        ({"name": "extra_trees", "num_trees": 5}, "5 randomised trees that vote"),
        ({"name": "forest", "num_trees": 5}, "5 trees that vote"),
        ({"name": "one_of", "family": "forest"}, "200 trees that vote"),
    ],
)
def test_trees_have_no_layers_and_are_told_in_words(model: dict[str, Any], words: str) -> None:
    pictured = picture(model=model)
    assert (pictured.layers, pictured.memory, pictured.problems, pictured.flops_per_sample) == (
        (),
        None,
        (),
        None,
    )
    assert words in str(pictured.words)
    assert "no layers" in str(pictured.words)


def test_trees_refuse_data_that_they_cannot_take() -> None:
    with pytest.raises(ExperimentError, match="token ids") as refusal:
        picture(model="forest", data="text")
    assert refusal.value.field == "model"
