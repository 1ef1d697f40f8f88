"""Every shape with one meaning gives the values of torch and scikit-learn.

Every other is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import metrics as sklearn_metrics
from torch.nn import functional

from workbench.foundation.errors import DataError, ExperimentError, WorkbenchError
from workbench.models import LOSSES, METRICS
from workbench.models.adapters import load_loss, load_metrics
from workbench.models.metrics import BatchMetric
from workbench.models.pairing import Pairing

B, C, D = 12, 3, 5
GENERATOR = torch.Generator().manual_seed(1)
SCORES = torch.randn(B, C, generator=GENERATOR)
CLASSES = torch.randint(C, (B,), generator=GENERATOR)
DENSE = torch.randn(B, C, D, generator=GENERATOR)
DENSE_CLASSES = torch.randint(C, (B, D), generator=GENERATOR)
LOGITS = torch.randn(B, generator=GENERATOR)
LABELS = torch.randint(2, (B,), generator=GENERATOR)
ONE_HOT = functional.one_hot(CLASSES, C)


def pairing(num_outputs: int | None, **fields: Any) -> Pairing:
    return Pairing(task="classification", num_outputs=num_outputs, **fields)


def measured(name: str, outputs: Any, targets: Any, given: Pairing) -> float:
    task = "regression" if given.task == "regression" else "classification"
    metric = load_metrics([name], task, pairing=given)[name]
    if not isinstance(metric, BatchMetric):
        return metric.compute([(outputs[:5], targets[:5]), (outputs[5:], targets[5:])])
    parts = [metric.measure(outputs[a:b], targets[a:b]) for a, b in ((0, 5), (5, B))]
    total, count = (sum(float(part[place]) for part in parts) for place in (0, 1))
    return metric.finish(total / count)


def reading(name: str, given: Pairing) -> Callable[[Any, Any], Any]:
    """Return what applies a metric to one batch."""
    metric = load_metrics([name], "classification", pairing=given)[name]
    return metric.measure if isinstance(metric, BatchMetric) else metric.begin().update


def expected_of(name: str, scores: torch.Tensor, classes: torch.Tensor) -> float:
    """Return what scikit-learn computes of (N, C) scores and (N,) classes."""
    shares, wanted = scores.double().softmax(-1).numpy(), classes.numpy()
    predicted, labels = shares.argmax(1), np.arange(shares.shape[1])
    match name:
        case "accuracy":
            return sklearn_metrics.accuracy_score(wanted, predicted)
        case "top5_accuracy":
            return (
                1.0
                if shares.shape[1] <= 5
                else sklearn_metrics.top_k_accuracy_score(wanted, shares, k=5)
            )
        case "perplexity":
            return math.exp(sklearn_metrics.log_loss(wanted, shares, labels=labels))
        case "macro_f1":
            return sklearn_metrics.f1_score(wanted, predicted, average="macro")
        case "balanced_accuracy":
            return sklearn_metrics.balanced_accuracy_score(wanted, predicted)
        case "roc_auc":
            positive = shares if shares.shape[1] > 2 else shares[:, 1]
            return sklearn_metrics.roc_auc_score(wanted, positive, multi_class="ovr")
        case "mean_iou":
            return sklearn_metrics.jaccard_score(wanted, predicted, average="macro")
    raise AssertionError(name)


FLAT_DENSE = DENSE.movedim(1, -1).reshape(-1, C), DENSE_CLASSES.reshape(-1)
IN_TWO = torch.stack([torch.zeros(B), LOGITS], dim=1), LABELS
CLASS_METRICS = (
    "accuracy",
    "top5_accuracy",
    "perplexity",
    "macro_f1",
    "balanced_accuracy",
    "roc_auc",
    "mean_iou",
)
CLASS_FORMS: dict[
    str, tuple[torch.Tensor, torch.Tensor, int, tuple[torch.Tensor, torch.Tensor]]
] = {
    "numbers": (SCORES, CLASSES, C, (SCORES, CLASSES)),
    "a column": (SCORES, CLASSES[:, None], C, (SCORES, CLASSES)),
    "whole floats": (SCORES, CLASSES.double(), C, (SCORES, CLASSES)),
    "a column of floats": (SCORES, CLASSES[:, None].float(), C, (SCORES, CLASSES)),
    "bytes": (SCORES, CLASSES.to(torch.uint8), C, (SCORES, CLASSES)),
    "whole one-hot": (SCORES, ONE_HOT, C, (SCORES, CLASSES)),
    "one-hot": (SCORES, ONE_HOT.float(), C, (SCORES, CLASSES)),
    "classes second": (DENSE, DENSE_CLASSES, C, FLAT_DENSE),
    "classes last": (DENSE.movedim(1, -1), DENSE_CLASSES, C, FLAT_DENSE),
    "classes second, a channel": (DENSE, DENSE_CLASSES[:, None], C, FLAT_DENSE),
    "classes second, images": (DENSE[..., None], DENSE_CLASSES[..., None], C, FLAT_DENSE),
    "classes second, one-hot": (
        DENSE,
        functional.one_hot(DENSE_CLASSES, C).movedim(-1, 1).float(),
        C,
        FLAT_DENSE,
    ),
    "one score": (LOGITS, LABELS, 2, IN_TWO),
    "one score in a column": (LOGITS[:, None], LABELS, 2, IN_TWO),
    "one score, targets in a column": (LOGITS, LABELS[:, None].float(), 2, IN_TWO),
    "one score, both in a column": (LOGITS[:, None], LABELS[:, None].float(), 2, IN_TWO),
    "one score, bool": (LOGITS, LABELS.bool(), 2, IN_TWO),
}


@pytest.mark.parametrize("form", CLASS_FORMS)
def test_losses_and_metrics_of_classes_are_those_of_torch_and_scikit_learn(form: str) -> None:
    outputs, targets, num_classes, (scores, classes) = CLASS_FORMS[form]
    loss = load_loss(None, "classification", pairing=pairing(num_classes))(outputs, targets)
    assert loss.item() == pytest.approx(functional.cross_entropy(scores, classes).item(), rel=1e-6)
    for name in CLASS_METRICS:
        value = measured(name, outputs, targets, pairing(num_classes))
        assert value == pytest.approx(expected_of(name, scores, classes), rel=1e-5), name


def test_one_score_of_two_classes_has_the_loss_of_its_logistic_function() -> None:
    loss = load_loss(None, "classification", pairing=pairing(2))
    shares = torch.rand(B, generator=GENERATOR)
    for wanted in (LABELS.float(), shares):
        expected = functional.binary_cross_entropy_with_logits(LOGITS, wanted)
        assert loss(LOGITS[:, None], wanted).item() == pytest.approx(expected.item(), rel=1e-6)
    pixels, masks = torch.randn(2, 1, 4, 3), torch.randint(2, (2, 1, 4, 3))
    expected = functional.binary_cross_entropy_with_logits(pixels, masks.float())
    for targets in (masks, masks[:, 0], masks.float()):
        found = load_loss(None, "classification", pairing=pairing(2))(pixels, targets)
        assert found.item() == pytest.approx(expected.item(), rel=1e-6)


def test_soft_labels_have_the_loss_of_torch_and_are_right_where_their_largest_share_is() -> None:
    shares = torch.softmax(torch.randn(B, C, generator=GENERATOR), dim=1)
    loss = load_loss(None, "classification", pairing=pairing(C))(SCORES, shares)
    assert loss.item() == pytest.approx(functional.cross_entropy(SCORES, shares).item(), rel=1e-6)
    right = (SCORES.argmax(1) == shares.argmax(1)).double().mean().item()
    assert measured("accuracy", SCORES, shares, pairing(C)) == pytest.approx(right)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_ignored_targets_count_nowhere(dtype: torch.dtype) -> None:
    padded = torch.cat([CLASSES, torch.full((3,), -100)]).to(dtype)
    scores = torch.cat([SCORES, torch.randn(3, C, generator=GENERATOR)])
    loss = load_loss(None, "classification", pairing=pairing(C))(scores, padded)
    assert loss.item() == pytest.approx(functional.cross_entropy(SCORES, CLASSES).item(), rel=1e-6)
    for name in CLASS_METRICS:
        metric = load_metrics([name], "classification", pairing=pairing(C))[name]
        if isinstance(metric, BatchMetric):
            total, count = metric.measure(scores, padded)
            value = metric.finish(float(total) / float(count))
        else:
            value = metric.compute([(scores, padded)])
        assert value == pytest.approx(expected_of(name, SCORES, CLASSES), rel=1e-5), name


PREDICTED = torch.randn(B, generator=GENERATOR)
WANTED = torch.randn(B, generator=GENERATOR)
SEVERAL, WANTED_SEVERAL = (
    torch.randn(B, 4, generator=GENERATOR),
    torch.randn(B, 4, generator=GENERATOR),
)
NUMBER_FORMS = {
    "one each": (PREDICTED, WANTED),
    "outputs in a column": (PREDICTED[:, None], WANTED),
    "targets in a column": (PREDICTED, WANTED[:, None]),
    "both in a column": (PREDICTED[:, None], WANTED[:, None]),
    "several": (SEVERAL, WANTED_SEVERAL),
    "several, a channel": (SEVERAL[:, None], WANTED_SEVERAL),
    "doubles": (SEVERAL, WANTED_SEVERAL.double()),
    "whole": (PREDICTED, (10 * WANTED).long()),
    "flattened": (SEVERAL.reshape(B, 2, 2), WANTED_SEVERAL),
}
TORCH_LOSSES: dict[str, Callable[..., torch.Tensor]] = {
    "mean_squared_error": functional.mse_loss,
    "mean_absolute_error": functional.l1_loss,
    "huber": functional.huber_loss,
}


@pytest.mark.parametrize("form", NUMBER_FORMS)
def test_losses_and_metrics_of_numbers_are_those_of_torch_and_scikit_learn(form: str) -> None:
    outputs, targets = NUMBER_FORMS[form]
    given = Pairing(task="regression", target_shape=(2, 2))
    predicted, wanted = outputs.reshape(B, -1), targets.reshape(B, -1).float()
    for name, rival in TORCH_LOSSES.items():
        loss = load_loss(name, "regression", pairing=given)(outputs, targets)
        assert loss.item() == pytest.approx(rival(predicted, wanted).item(), rel=1e-6), name
    squared = sklearn_metrics.mean_squared_error(wanted, predicted)
    absolute = sklearn_metrics.mean_absolute_error(wanted, predicted)
    assert measured("mean_squared_error", outputs, targets, given) == pytest.approx(squared)
    assert measured("root_mean_squared_error", outputs, targets, given) == pytest.approx(
        squared**0.5
    )
    assert measured("mean_absolute_error", outputs, targets, given) == pytest.approx(absolute)


NUMBERS_REFUSED: dict[str, tuple[Any, torch.Tensor, str]] = {
    "transposed": (torch.zeros(4, B), torch.zeros(B, 4), "transpose"),
    "one number too many": (torch.zeros(B, 2), torch.zeros(B), "one number for each sample"),
    "fewer numbers": (torch.zeros(B, 1), torch.zeros(B, 4), "4 numbers for each sample"),
    "a row of samples": (torch.zeros(1, B), torch.zeros(B), "transpose|as many predictions"),
    "mean over the samples": (torch.zeros(1), torch.zeros(B), "as many predictions"),
    "other order of dimensions": (torch.zeros(B, 3, 2), torch.zeros(B, 2, 3), "the same shape"),
    "not stated to be flat": (torch.zeros(B, 2, 3), torch.zeros(B, 6), "the same shape"),
    "whole outputs": (
        torch.zeros(B, dtype=torch.long),
        torch.zeros(B),
        "before argmax or rounding",
    ),
    "complex outputs": (torch.zeros(B, dtype=torch.cfloat), torch.zeros(B), "real part"),
    "complex targets": (torch.zeros(B), torch.zeros(B, dtype=torch.cfloat), "unchanged"),
    "no tensor": (SimpleNamespace(text="no"), torch.zeros(B), "Return the tensor"),
}


@pytest.mark.parametrize("name", NUMBERS_REFUSED)
@pytest.mark.parametrize("reader", ["mean_squared_error", "mean_absolute_error", "huber"])
def test_numbers_that_do_not_fit_together_are_refused(name: str, reader: str) -> None:
    outputs, targets, step = NUMBERS_REFUSED[name]
    loss = load_loss(
        reader, "regression", pairing=Pairing(task="regression", model="net:Net", data="load")
    )
    with pytest.raises(ExperimentError, match=f"(?i){step}") as caught:
        loss(outputs, targets)
    assert "net:Net" in str(caught.value) or "targets of load" in str(caught.value)
    if (
        isinstance(outputs, torch.Tensor)
        and outputs.is_floating_point()
        and not targets.is_complex()
    ):
        assert str(tuple(outputs.shape)) in caught.value.problem
        assert str(tuple(targets.shape)) in caught.value.problem


CLASSES_REFUSED: dict[str, tuple[torch.Tensor, torch.Tensor, int, str]] = {
    "transposed": (SCORES.T, CLASSES, C, "transpose"),
    "labels from 1": (SCORES, CLASSES + 1, C, "Subtract 1"),
    "labels from 1 in a column": (SCORES, CLASSES[:, None] + 1, C, "Subtract 1"),
    "labels from 1 as floats": (SCORES, CLASSES.float() + 1, C, "Subtract 1"),
    "a label too large": (SCORES, CLASSES * 7, C, "return 15 scores"),
    "a negative label": (SCORES, CLASSES - 1, C, "write -100"),
    "labels -1 and 1": (LOGITS, 2 * LABELS - 1, 2, "Write 0 for -1"),
    "shares of one label": (SCORES, CLASSES + 0.5, C, "task regression"),
    "NaN": (SCORES, torch.where(CLASSES == 1, math.nan, CLASSES.float()), C, "fill in"),
    "several labels": (SCORES, torch.ones(B, C, dtype=torch.long), C, "your own"),
    "no label": (SCORES, torch.zeros(B, C), C, "your own"),
    "shares that add up to 3": (SCORES, 3 * ONE_HOT.float(), C, "number of its class"),
    "too few scores": (SCORES, CLASSES, 5, "return 5 scores"),
    "one score of three classes": (LOGITS[:, None], CLASSES, C, "return 3 scores"),
    "a label for each position": (SCORES, DENSE_CLASSES, C, "each position"),
    "a score for each position": (DENSE, CLASSES, C, "dimensions of the targets"),
    "two dimensions of one size": (
        torch.randn(B, C, C),
        torch.zeros(B, C, dtype=torch.long),
        C,
        "class_dim",
    ),
    "whole scores": (SCORES.long(), CLASSES, C, "before argmax"),
}


@pytest.mark.parametrize("name", CLASSES_REFUSED)
@pytest.mark.parametrize("reader", ["cross_entropy", "accuracy", "macro_f1", "roc_auc"])
def test_classes_that_do_not_fit_together_are_refused(name: str, reader: str) -> None:
    outputs, targets, num_classes, step = CLASSES_REFUSED[name]
    given = pairing(num_classes, model="net:Net", data="load")
    read = (
        load_loss(reader, "classification", pairing=given)
        if reader in LOSSES
        else reading(reader, given)
    )
    with pytest.raises(WorkbenchError, match=f"(?i){step}") as caught:
        read(outputs, targets)
    assert isinstance(caught.value, ExperimentError | DataError)
    assert caught.value.allowed
    assert "net:Net" in str(caught.value) or "of load" in str(caught.value)


def test_the_dimension_of_classes_is_declared_remembered_or_follows_from_their_number() -> None:
    square, wanted = (
        torch.randn(B, C, C, generator=GENERATOR),
        torch.randint(C, (B, C), generator=GENERATOR),
    )
    second = functional.cross_entropy(square, wanted).item()
    last = functional.cross_entropy(square.movedim(1, -1), wanted).item()
    loss = LOSSES.load("cross_entropy")
    for class_dim, expected in ((1, second), (-1, last)):
        declared = pairing(C, declared=lambda class_dim=class_dim: class_dim)
        assert loss(square, wanted, declared).item() == pytest.approx(expected)
    for example, expected in ((DENSE, second), (DENSE.movedim(1, -1), last)):
        remembering = pairing(C)
        loss(example, DENSE_CLASSES, remembering)
        assert loss(square, wanted, remembering).item() == pytest.approx(expected)
    # Of (batch, 4, 4) either could be meant, and of (4, 4, 3) with four samples only one has three
    # scores.
    odd, classes = torch.randn(4, 4, 3), torch.randint(3, (4, 4))
    expected = functional.cross_entropy(odd.movedim(-1, 1), classes).item()
    assert loss(odd, classes, pairing(3)).item() == pytest.approx(expected)


def test_a_model_that_squeezes_one_sample_is_understood() -> None:
    loss = load_loss(None, "classification", pairing=pairing(C))
    expected = functional.cross_entropy(SCORES[:1], CLASSES[:1]).item()
    assert loss(SCORES[:1].squeeze(), CLASSES[:1]).item() == pytest.approx(expected)
    of_numbers = load_loss(None, "regression", pairing=Pairing(task="regression"))
    assert of_numbers(torch.tensor(3.0), torch.tensor([1.0])).item() == pytest.approx(4.0)


def test_every_named_loss_and_metric_of_classes_and_numbers_is_compared_here() -> None:
    others = {"detection", "model", "mean_average_precision", "bits_per_byte"}
    others |= {"dpo", "reward_accuracy", "reward_margin", "contrastive", "recall_at_1"}  # of pairs
    known = {*CLASS_METRICS, *TORCH_LOSSES, "cross_entropy", "root_mean_squared_error"}
    assert {*LOSSES.names(), *METRICS.names()} == known | others


OWN_REFUSED: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "a vector": (
        lambda outputs, targets: (outputs - targets).square(),
        r"shape \(12,\).*\.mean\(\)",
    ),
    "an array": (
        lambda outputs, targets: (outputs - targets).numpy(),
        r"array of the shape \(12,\)",
    ),
    "nothing": (lambda outputs, targets: None, "None"),
    "a mapping": (lambda outputs, targets: {"error": 1.0}, "type dict"),
    "a complex number": (lambda outputs, targets: torch.tensor(1j), "a complex value"),
    "three values": (lambda outputs, targets: (1.0, 2.0, 3.0), "total and a count"),
    "a total that is a vector": (lambda outputs, targets: (outputs, 12), r"shape \(12,\)"),
    "a text": (lambda outputs, targets: "high", "type str"),
}


@pytest.mark.parametrize("name", OWN_REFUSED)
def test_what_is_no_number_is_refused_of_an_own_metric_and_loss(name: str) -> None:
    function, said = OWN_REFUSED[name]
    measure = load_metrics({"mine": function}, "regression")["mine"]
    assert isinstance(measure, BatchMetric)
    with pytest.raises(ExperimentError, match=said) as caught:
        measure.measure(PREDICTED, WANTED)
    assert caught.value.field == "metrics"
    loss = load_loss(function, "regression", pairing=Pairing())
    with pytest.raises(ExperimentError) as caught:
        loss(PREDICTED, WANTED)
    assert caught.value.field == "loss"


def test_one_number_in_any_form_is_an_own_metric() -> None:
    for value in (
        2.0,
        2,
        np.float32(2),
        np.array([2.0]),
        torch.tensor([[2.0]]),
        (torch.tensor([24.0]), 12),
    ):
        metric = load_metrics({"mine": lambda outputs, targets, value=value: value}, "regression")[
            "mine"
        ]
        assert isinstance(metric, BatchMetric)
        total, count = metric.measure(PREDICTED, WANTED)
        assert float(total) / float(count) == 2.0


def test_a_class_of_torch_is_a_loss_with_its_options() -> None:
    import functools

    of_class = functools.partial(torch.nn.CrossEntropyLoss, label_smoothing=0.1)
    loss = load_loss(of_class, "classification", pairing=pairing(C))(SCORES, CLASSES)
    expected = functional.cross_entropy(SCORES, CLASSES, label_smoothing=0.1)
    assert loss.item() == pytest.approx(expected.item())


def test_a_loss_without_a_gradient_is_refused() -> None:
    outputs = PREDICTED.clone().requires_grad_()
    loss = load_loss(
        lambda outputs, targets: (outputs.detach() - targets).mean(),
        "regression",
        pairing=Pairing(),
    )
    with pytest.raises(ExperimentError, match="nothing can be learned"):
        loss(outputs, WANTED)
