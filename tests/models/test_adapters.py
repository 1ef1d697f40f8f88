from __future__ import annotations

import itertools
import math
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.builders.examples import examples
from workbench.experiment.metric_declarations import TASKS
from workbench.foundation.errors import ExperimentError, UnknownNameError
from workbench.models import LOSSES, METRICS
from workbench.models.adapters import build_model, load_loss, load_metrics, num_parameters
from workbench.models.losses import cross_entropy, mean_squared_error
from workbench.models.metrics import BatchMetric, WholeMetric, mean_over_samples


class Totals:
    """What training does with metrics: adds over batches and workers, then finishes."""

    def __init__(self, metrics: dict[str, BatchMetric]) -> None:
        self.metrics = metrics
        self.sums = dict.fromkeys(metrics, (0.0, 0))

    def add(self, outputs: torch.Tensor, targets: torch.Tensor) -> None:
        for name, metric in self.metrics.items():
            total, count = metric.measure(outputs, targets)
            self.join({name: (float(total), int(count))})

    def join(self, sums: dict[str, tuple[float, int]]) -> None:
        for name, (total, count) in sums.items():
            self.sums[name] = (self.sums[name][0] + total, self.sums[name][1] + count)

    def values(self) -> dict[str, float]:
        return {
            name: self.metrics[name].finish(total / count)
            for name, (total, count) in self.sums.items()
        }


SHAPES = {"input_shape": (3,), "num_outputs": 2, "vocabulary_size": None}
MODULE = """
from torch import nn

def build(configuration):
    return nn.Linear(3, configuration["units"])

def half_right(outputs, targets):
    return (outputs * 0).sum() + 0.5

ANSWER = 42
"""


@pytest.fixture
def own_module(tmp_path, monkeypatch) -> str:
    (tmp_path / "own_model.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "own_model"
    sys.modules.pop("own_model", None)


def test_a_function_gets_the_whole_configuration_and_nothing_else(own_module):
    built = build_model(f"{own_module}:build", {"units": 7, "lr": 0.1}, **SHAPES)
    assert built(torch.zeros(1, 3)).shape == (1, 7)
    seen = []
    build_model(
        lambda configuration: seen.append(configuration) or nn.Identity(), {"lr": 0.1}, **SHAPES
    )
    assert seen == [{"lr": 0.1}]


@pytest.mark.parametrize(
    ("returned", "said"), [(None, "returned None"), (nn.Linear, "returned an object of type type")]
)
def test_a_function_that_returns_no_module_is_told_what_it_returned(returned, said):
    with pytest.raises(ExperimentError) as caught:
        build_model(lambda configuration: returned, {}, **SHAPES)
    assert said in str(caught.value)
    assert caught.value.field == "model"


def test_an_unknown_parameter_of_a_zoo_model_lists_the_known_ones():
    with pytest.raises(ExperimentError, match="hidden_width") as caught:
        build_model("mlp", {"lr": 0.1}, **SHAPES)
    assert caught.value.field == "search.lr"
    with pytest.raises(ExperimentError) as caught:
        build_model("mlp", {"width": 3}, **SHAPES, field="model")
    assert caught.value.field == "model.width"


def test_frozen_parameters_are_not_counted_and_shared_ones_once():
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False), nn.Linear(3, 1))
    model[1].weight = model[0].weight
    model[2].weight.requires_grad_(False)
    assert num_parameters(model) == 9 + 1


@pytest.mark.parametrize("task", ["classification", "regression", "language_model"])
def test_every_task_has_a_loss_and_metrics(task):
    assert load_loss(None, task) is LOSSES.load(TASKS[task].loss)
    assert list(load_metrics(None, task)) == list(TASKS[task].metrics)


def test_losses_and_metrics_can_be_named_by_reference_or_given(own_module):
    assert load_loss("workbench.models.losses:huber", "regression") is LOSSES.load("huber")
    assert load_loss(mean_squared_error, "classification") is mean_squared_error
    totals = Totals(load_metrics(["accuracy", f"{own_module}:half_right"], "classification"))
    totals.add(torch.eye(3), torch.tensor([0, 1, 0]))
    assert totals.values() == pytest.approx({"accuracy": 2 / 3, "half_right": 0.5})


def test_a_metric_may_return_numbers(own_module):
    values = {
        "mean": lambda outputs, targets: float((outputs.argmax(1) == targets).double().mean()),
        "numpy_mean": lambda outputs, targets: (
            (outputs.argmax(1) == targets).double().mean().numpy()[()]
        ),
        "total": lambda outputs, targets: (
            float((outputs.argmax(1) == targets).sum()),
            len(targets),
        ),
    }
    totals = Totals(load_metrics(values, "classification"))
    totals.add(torch.eye(3), torch.tensor([0, 1, 0]))
    totals.add(torch.eye(3)[:1], torch.tensor([0]))
    assert totals.values() == pytest.approx(dict.fromkeys(values, 3 / 4))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "None"),
        (np.ma.masked, "a masked value"),
        (torch.tensor(1j), "a complex value"),
        ("high", "str"),
    ],
)
def test_a_metric_that_returns_no_number_is_refused_by_the_name_of_its_function(value, words):
    def mine(outputs, targets):
        return value

    def total(outputs, targets):
        return value, len(targets)

    for function in (mine, total):
        [metric] = load_metrics({"any": function}, "classification").values()
        with pytest.raises(
            ExperimentError, match=f"{function.__name__} returned .*{words} is not a number"
        ):
            metric.measure(torch.eye(3), torch.tensor([0, 1, 0]))


@pytest.mark.parametrize(
    ("metrics", "field"),
    [
        (["acuracy"], "metrics.acuracy"),
        (["own_model:ANSWER"], "metrics.ANSWER"),
        ({"mine": 3}, "metrics.mine"),
    ],
)
def test_a_metric_that_is_none_is_refused_by_its_name(own_module, metrics, field):
    with pytest.raises(ExperimentError) as caught:
        load_metrics(metrics, "classification")
    assert caught.value.field == field
    with pytest.raises(UnknownNameError, match="cross_entropy"):
        load_loss("crossentropy", "classification")


TASK_OF_METRIC = {
    "accuracy": "classification",
    "top5_accuracy": "classification",
    "perplexity": "language_model",
    "bits_per_byte": "language_model",
    "mean_squared_error": "regression",
    "root_mean_squared_error": "regression",
    "mean_absolute_error": "regression",
}


def sample(task: str, num_samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(num_samples)
    if task == "regression":
        return torch.randn(num_samples, 1, generator=generator), torch.randn(
            num_samples, generator=generator
        )
    shape = (num_samples, 5) if task == "language_model" else (num_samples,)
    return torch.randn(*shape, 9, generator=generator), torch.randint(9, shape, generator=generator)


@examples(25)
@given(cuts=st.lists(st.integers(1, 40), max_size=6), num_workers=st.integers(1, 3))
def test_every_metric_and_loss_is_exact_however_the_set_is_cut(cuts, num_workers):
    of_samples = {
        name for name in METRICS.names() if not isinstance(METRICS.load(name), WholeMetric)
    }
    of_pairs = {"reward_accuracy", "reward_margin", "recall_at_1"}
    assert set(TASK_OF_METRIC) == of_samples - of_pairs
    losses = {"cross_entropy": "classification", "huber": "regression"}
    for name, task in [*TASK_OF_METRIC.items(), *losses.items()]:
        metric = (
            METRICS.load(name) if name in TASK_OF_METRIC else mean_over_samples(LOSSES.load(name))
        )
        outputs, targets = sample(task, 40)
        whole = Totals({name: metric})
        whole.add(outputs, targets)
        workers = [Totals({name: metric}) for _ in range(num_workers)]
        borders = sorted({0, 40, *cuts})
        for turn, (first, last) in enumerate(itertools.pairwise(borders)):
            workers[turn % num_workers].add(outputs[first:last], targets[first:last])
        summed = Totals({name: metric})
        for worker in workers:
            summed.join(worker.sums)
        assert summed.values()[name] == pytest.approx(whole.values()[name], rel=1e-5)


def test_metrics_have_their_textbook_values():
    outputs, targets = torch.tensor([[2.0], [4.0]]), torch.tensor([1.0, 1.0])
    totals = Totals(load_metrics(["mean_squared_error", "root_mean_squared_error"], "regression"))
    totals.add(outputs, targets)
    assert totals.values() == pytest.approx(
        {"mean_squared_error": 5.0, "root_mean_squared_error": math.sqrt(5)}
    )
    even = Totals(load_metrics(["perplexity"], "language_model"))
    even.add(torch.zeros(2, 3, 11), torch.full((2, 3), 10))
    assert even.values()["perplexity"] == pytest.approx(11, rel=1e-5)
    fifth_and_sixth = Totals(load_metrics(["top5_accuracy"], "classification"))
    fifth_and_sixth.add(-torch.arange(8.0).repeat(2, 1), torch.tensor([4, 5]))
    assert fifth_and_sixth.values() == {"top5_accuracy": 0.5}


def test_errors_have_the_unit_of_a_target_that_was_standardised():
    names = ["mean_absolute_error", "mean_squared_error", "root_mean_squared_error", "mean_error"]
    own = {name: name for name in names[:3]} | {
        names[3]: lambda outputs, targets: (outputs - targets).mean()
    }
    totals = Totals(load_metrics(own, "regression", target_scale=604.0))
    totals.add(torch.tensor([[2.0], [4.0]]), torch.tensor([1.0, 1.0]))
    errors = [totals.values()[name] for name in names]
    assert errors == pytest.approx([2 * 604, 5 * 604**2, math.sqrt(5) * 604, 2.0])


def test_a_model_that_diverged_is_measured():
    totals = Totals(load_metrics(["perplexity"], "language_model"))
    totals.add(torch.tensor([[0.0, 1e6]]), torch.tensor([0]))
    assert totals.values()["perplexity"] == math.inf
    totals.add(torch.tensor([[math.nan, 0.0]]), torch.tensor([0]))
    assert math.isnan(totals.values()["perplexity"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_regression_outputs_never_broadcast_against_targets_of_any_type(dtype):
    outputs = torch.tensor([[1.0], [3.0]], requires_grad=True)
    loss = mean_squared_error(outputs, torch.tensor([1, 3], dtype=dtype))
    loss.backward()
    assert (loss.dtype, loss.item()) == (torch.float32, 0)


def test_class_numbers_of_any_integer_type_are_understood():
    outputs = torch.randn(3, 4)
    expected = cross_entropy(outputs, torch.tensor([0, 3, 1]))
    for dtype in (torch.uint8, torch.int32):
        assert cross_entropy(outputs, torch.tensor([0, 3, 1], dtype=dtype)) == expected


def test_cross_entropy_of_a_language_model_is_that_of_all_its_positions():
    outputs, targets = sample("language_model", 4)
    expected = nn.functional.cross_entropy(outputs.reshape(-1, 9), targets.reshape(-1))
    assert cross_entropy(outputs, targets).item() == pytest.approx(expected.item())
