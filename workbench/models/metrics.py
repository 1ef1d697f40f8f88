"""Metrics that are exact over an evaluation set, however it is cut into batches and workers.

A metric measures a batch as (total, count): the sum over its predictions and how many there were. Totals
and counts are added over batches and workers, and only the quotient is finished (a root, an exponential).
So the last, smaller batch weighs what it should, and every worker may hold a different number of samples.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from workbench.errors import ExperimentError
from workbench.experiment.goals import Goal
from workbench.models import class_scores
from workbench.models.calls import num_samples, output_in
from workbench.models.losses import listed, paired
from workbench.models.ranking import macro_roc_auc
from workbench.reported_values import result_of, side_value_of, why_no_result

Loss = Callable[[Any, Any], Tensor]
IGNORED = -100
"""The class that torch's losses leave out, such as that of padding."""


def _same(mean: float) -> float:
    return mean


def _exponential(mean: float) -> float:
    # A model that has diverged has a perplexity of infinity, not an OverflowError.
    return math.exp(mean) if mean < 709.0 else math.inf if mean == mean else math.nan


@dataclass(frozen=True)
class Metric:
    """A quantity to measure on an evaluation set.

    Attributes:
        measure: (outputs, targets) -> (total, count) of one batch; the total is a scalar tensor that stays
            on the device, so that an evaluation waits for the device only once, and so may the count be.
        finish: What turns the mean over all predictions into the metric.
        power_of_unit: 1 where it has the unit of the targets, 2 where it has its square, 0 where it has none.
        goal: In which direction a metric of another package is better; those of the workbench are declared in
            `experiment.metric_declarations`.
    """

    measure: Callable[[Any, Any], tuple[Tensor, int | Tensor]]
    finish: Callable[[float], float] = _same
    power_of_unit: int = 0
    goal: Goal | None = None

    def of_targets_divided_by(self, scale: float) -> Metric:
        """Return the metric in the unit of the target, for targets that were standardised.

        Args:
            scale: What the targets were divided by, in their unit; more than 0.
        """
        factor = scale**self.power_of_unit
        return self if factor == 1.0 else replace(self, finish=lambda mean: factor * self.finish(mean))


@dataclass(frozen=True)
class WholeMetric:
    """A quantity of an evaluation set as a whole, such as an area under a curve.

    Attributes:
        make: Makes an object with `update(outputs, targets)`, called for each batch, and `compute()`.
        reads_classes: Whether the predicted classes are enough in place of outputs, which are much larger.
        goal: As that of `Metric`.
    """

    make: Callable[[], Any]
    reads_classes: bool = False
    goal: Goal | None = None

    def compute(self, batches: Iterable[tuple[Any, Any]]) -> float:
        """Return the value over some batches of outputs and targets.

        Raises:
            ExperimentError: If it is not a number.
        """
        made = self.make()
        if hasattr(made, "sync_on_compute"):  # of torchmetrics, which would gather what was gathered already
            made.sync_on_compute = False
        for outputs, targets in batches:
            made.update(outputs, targets)
        value = made.compute()
        number = result_of(value)
        if number is None:
            raise ExperimentError(
                f"compute of {type(made).__name__} returned an object of type {type(value).__name__}: "
                f"{why_no_result(value)}",
                field="metrics", allowed="a number",
            )  # fmt: skip
        return number


AnyMetric = Metric | WholeMetric


def mean_over_samples(function: Loss) -> Metric:
    """Make a metric of a function that returns the mean over a batch, such as a loss.

    Args:
        function: (outputs, targets) -> mean over the samples of the batch, a scalar tensor.

    Returns:
        A metric that weighs each batch by its number of samples.
    """

    def measure(outputs: Any, targets: Any) -> tuple[Tensor, int]:
        count = num_samples(targets) or num_samples(outputs)
        return function(outputs, targets).detach() * count, count

    return Metric(measure)


def as_measured(value: Any, name: str) -> Tensor:
    """Return what code of the user measured as a tensor; a boolean is a share of 0 or 1.

    Args:
        value: A number of any library, or a tensor, for which the device is not waited for.
        name: What measured it.

    Raises:
        ExperimentError: If it is masked, complex, missing or anything else that is not a number.
    """
    if isinstance(value, Tensor) and not value.is_complex():
        return value
    number = side_value_of(value)
    if number is None:
        raise ExperimentError(
            f"{name} returned an object of type {type(value).__name__}: {why_no_result(value)}",
            field="metrics", allowed="a number",
        )  # fmt: skip
    return torch.tensor(number, dtype=torch.float64)


def _num_counted(targets: Tensor) -> Tensor:
    """Return how many targets count, on the device: those that a loss ignores, too, do not."""
    return (targets != IGNORED).sum()


def _correct(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    return (output_in(outputs).argmax(dim=-1) == targets).sum(), _num_counted(targets)


def _correct_in_five(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    scores = output_in(outputs)
    best = scores.topk(min(5, scores.shape[-1]), dim=-1).indices
    return (best == targets.unsqueeze(-1)).any(dim=-1).sum(), _num_counted(targets)


def _squared_error(outputs: Tensor, targets: Tensor) -> tuple[Tensor, int]:
    predicted, wanted = paired(outputs, targets)
    return (predicted - wanted).square().sum(), targets.numel()


def _absolute_error(outputs: Tensor, targets: Tensor) -> tuple[Tensor, int]:
    predicted, wanted = paired(outputs, targets)
    return (predicted - wanted).abs().sum(), targets.numel()


def _negative_log_likelihood(outputs: Tensor, targets: Tensor) -> tuple[Tensor, int]:
    return functional.cross_entropy(
        *listed(output_in(outputs).float(), targets), reduction="sum"
    ), targets.numel()


class ClassCounts:
    """Counts how often each class is predicted where another or the same is right, over a whole set.

    Example:
        >>> import torch
        >>> counts = ClassCounts(class_scores.intersection_over_union)
        >>> counts.update(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0]))
        >>> counts.compute()
        0.5
    """

    def __init__(self, score: class_scores.ClassScore) -> None:
        """Begin without counts.

        Args:
            score: The score of a class.
        """
        self._score = score
        self._counts = torch.zeros(3, 0, dtype=torch.float64)

    def update(self, outputs: Tensor, targets: Tensor) -> None:
        """Add a batch of outputs or predicted classes; targets of -100 are left out."""
        predicted = outputs.argmax(dim=-1) if outputs.dim() > targets.dim() else outputs
        is_counted = targets != IGNORED
        predicted, wanted = predicted[is_counted].long(), targets[is_counted].long()
        if not len(wanted):
            return
        size = max(self._counts.shape[1], int(torch.maximum(predicted.max(), wanted.max())) + 1)
        right = wanted[predicted == wanted]
        counts = torch.stack([each.bincount(minlength=size) for each in (right, predicted, wanted)])
        self._counts = functional.pad(self._counts, (0, size - self._counts.shape[1])) + counts

    def compute(self) -> float:
        """Return the mean score of the classes that occur or were predicted; NaN where there are none."""
        return class_scores.mean_score(self._score, self._counts.numpy())


class RocAuc:
    """Keeps the probabilities of a whole set, and measures how well they separate each class from the rest.

    Example:
        >>> import torch
        >>> area = RocAuc()
        >>> area.update(torch.tensor([[2.0, 0.0], [0.0, 2.0], [1.0, 0.0]]), torch.tensor([0, 1, 0]))
        >>> area.compute()
        1.0
    """

    def __init__(self) -> None:
        """Begin without samples."""
        self._probabilities: list[Tensor] = []
        self._classes: list[Tensor] = []

    def update(self, outputs: Tensor, targets: Tensor) -> None:
        """Add a batch of outputs (samples, classes) and the true classes."""
        self._probabilities.append(output_in(outputs).double().softmax(dim=-1).cpu())
        self._classes.append(targets.cpu())

    def compute(self) -> float:
        """Return the mean over the classes that occur; NaN where there are fewer than two."""
        return macro_roc_auc(torch.cat(self._probabilities).numpy(), torch.cat(self._classes).numpy())


MEAN_IOU = WholeMetric(
    functools.partial(ClassCounts, class_scores.intersection_over_union), reads_classes=True
)
MACRO_F1 = WholeMetric(functools.partial(ClassCounts, class_scores.f1), reads_classes=True)
BALANCED_ACCURACY = WholeMetric(functools.partial(ClassCounts, class_scores.recall), reads_classes=True)
ROC_AUC = WholeMetric(RocAuc)
ACCURACY = Metric(_correct)
TOP5_ACCURACY = Metric(_correct_in_five)
MEAN_SQUARED_ERROR = Metric(_squared_error, power_of_unit=2)
ROOT_MEAN_SQUARED_ERROR = Metric(
    _squared_error, finish=lambda mean: math.sqrt(mean) if mean >= 0 else mean, power_of_unit=1
)
MEAN_ABSOLUTE_ERROR = Metric(_absolute_error, power_of_unit=1)
PERPLEXITY = Metric(_negative_log_likelihood, finish=_exponential)
