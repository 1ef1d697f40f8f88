"""Metrics that are exact over an evaluation set, however it is cut into batches and workers.

A metric measures a batch as (total, count): the sum over its predictions, and their number. Totals
and counts are added over batches and workers, and divided at the end. Only then a root or an
exponential is taken, if the metric has one. So a smaller last batch has its true weight, and
workers may have different numbers of samples.
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

from workbench.experiment.goals import Goal
from workbench.foundation.errors import ExperimentError
from workbench.foundation.reported_values import result_of, side_value_of, why_no_result
from workbench.models import class_scores
from workbench.models.class_scores import macro_roc_auc
from workbench.models.model_calls import AnswerRewards, EmbeddedPairs, TokenLosses, num_samples
from workbench.models.pairing import (
    IGNORED,
    UNKNOWN,
    Kind,
    Pairing,
    class_numbers,
    num_predictions,
    reads,
)

Loss = Callable[[Any, Any], Tensor]
_AT_ONCE = 1024
"""Texts whose distances from all others are computed at once."""
_ROUNDING = 1e-5
"""Cosines with at most this difference count as equal."""


def _same(mean: float) -> float:
    return mean


def _exponential(mean: float) -> float:
    try:
        return math.exp(mean)
    except OverflowError:  # if a model has diverged, its perplexity is infinite
        return math.inf


@dataclass(frozen=True)
class BatchMetric:
    """A metric whose parts add up over batches.

    Attributes:
        measure: (outputs, targets) -> (total, count) of one batch. The total is a scalar tensor
            that stays on the device, so that an evaluation only waits for the device once. The
            count may also be such a tensor.
        finish: Turns the mean over all predictions into the metric.
        goal: Which direction is better, for a metric of another package. The workbench's own are
            declared in `experiment.metric_declarations`.
        adds_up: Whether totals and counts of the parts of an evaluation add up to the whole, or
            None if unknown. If they do not, the metric receives all outputs at once.
    """

    measure: Callable[[Any, Any], tuple[Tensor, int | Tensor]]
    finish: Callable[[float], float] = _same
    goal: Goal | None = None
    adds_up: bool | None = True

    def times(self, factor: float) -> BatchMetric:
        """Return the metric multiplied by a factor, such as the scale of standardised targets."""
        if factor == 1.0:
            return self
        return replace(self, finish=lambda mean: factor * self.finish(mean))


@dataclass(frozen=True)
class WholeMetric:
    """A metric of an evaluation set as a whole, such as an area under a curve.

    Attributes:
        make: Makes an object with `update(outputs, targets)`, called for each batch, and
            `compute()`.
        reads_classes: Whether the predicted classes are enough. Outputs are much larger.
        goal: Which direction is better, as for `BatchMetric`.
        reads: How it reads outputs and targets, if `make` has a parameter `pairing`. Otherwise
            None.
        pairing: How outputs meet targets.
    """

    make: Callable[..., Any]
    reads_classes: bool = False
    goal: Goal | None = None
    reads: Kind | None = None
    pairing: Pairing = UNKNOWN

    def begin(self) -> Any:
        """Return a new object, before the first batch."""
        if self.reads is None:
            return self.make()
        return self.make(pairing=self.pairing)

    def compute(self, batches: Iterable[tuple[Any, Any]]) -> float:
        """Return the value over some batches of outputs and targets.

        Raises:
            ExperimentError: If it is not a number.
        """
        made = self.begin()
        if hasattr(made, "sync_on_compute"):
            # Otherwise torchmetrics would gather the values of all workers a second time.
            made.sync_on_compute = False
        for outputs, targets in batches:
            made.update(outputs, targets)
        value = made.compute()
        number = result_of(value)
        if number is None:
            raise ExperimentError(
                f"compute of {type(made).__name__} returned an object of type"
                f" {type(value).__name__}: {why_no_result(value)}",
                field="metrics",
                allowed="a number",
            )
        return number


AnyMetric = BatchMetric | WholeMetric


def mean_over_samples(function: Loss) -> BatchMetric:
    """Return a metric for a function that returns the mean over a batch, such as a loss.

    Args:
        function: (outputs, targets) -> mean over the samples of the batch, a scalar tensor.

    Returns:
        A metric that weighs each batch by its number of samples.
    """

    def measure(outputs: Any, targets: Any) -> tuple[Tensor, int]:
        count = num_samples(targets) or num_samples(outputs)
        return function(outputs, targets).detach() * count, count

    return BatchMetric(measure)


def as_measured(value: Any, name: str) -> Tensor:
    """Return a value that your code has measured as a tensor. A boolean counts as 0 or 1.

    Args:
        value: A number of any library, or a tensor with one number. A tensor stays on its device,
            so that nothing waits for it.
        name: The function that has measured it.

    Raises:
        ExperimentError: If it is not a single number, or is masked or complex.
    """
    if isinstance(value, Tensor) and value.numel() == 1 and not value.is_complex():
        return value.detach().reshape(())
    number = side_value_of(value)
    if number is None:
        step = None
        if getattr(value, "ndim", 0) > 0:
            step = "Return its mean over the samples: .mean()."
        raise ExperimentError(
            f"{name} returned an object of type {type(value).__name__}: {why_no_result(value)}",
            field="metrics",
            allowed="one number, the mean over the samples, or a total and a count",
            next_step=step,
        )
    return torch.tensor(number, dtype=torch.float64)


@reads("classes")
def _correct(outputs: Any, targets: Any, pairing: Pairing = UNKNOWN) -> tuple[Tensor, int | Tensor]:
    if isinstance(outputs, TokenLosses):
        return outputs.num_right, outputs.num
    scores, wanted = pairing.classes(outputs, targets, reader="accuracy")
    return (scores.argmax(dim=-1) == class_numbers(wanted)).sum(), num_predictions(wanted)


@reads("classes")
def _correct_in_five(
    outputs: Any, targets: Any, pairing: Pairing = UNKNOWN
) -> tuple[Tensor, int | Tensor]:
    scores, wanted = pairing.classes(outputs, targets, reader="top5_accuracy")
    best = scores.topk(min(5, scores.shape[-1]), dim=-1).indices
    is_right = (best == class_numbers(wanted).unsqueeze(-1)).any(dim=-1)
    return is_right.sum(), num_predictions(wanted)


@reads("numbers")
def _squared_error(outputs: Any, targets: Any, pairing: Pairing = UNKNOWN) -> tuple[Tensor, int]:
    predicted, wanted = pairing.numbers(outputs, targets, reader="mean_squared_error")
    return (predicted - wanted).square().sum(), wanted.numel()


@reads("numbers")
def _absolute_error(outputs: Any, targets: Any, pairing: Pairing = UNKNOWN) -> tuple[Tensor, int]:
    predicted, wanted = pairing.numbers(outputs, targets, reader="mean_absolute_error")
    return (predicted - wanted).abs().sum(), wanted.numel()


@reads("classes")
def _negative_log_likelihood(
    outputs: Any, targets: Any, pairing: Pairing = UNKNOWN
) -> tuple[Tensor, int | Tensor]:
    if isinstance(outputs, TokenLosses):
        return outputs.total, outputs.num
    scores, wanted = pairing.classes(outputs, targets, reader="perplexity")
    total = functional.cross_entropy(scores.float(), wanted, reduction="sum")
    return total, num_predictions(wanted)


def _preferred(outputs: AnswerRewards, targets: Any) -> tuple[Tensor, int]:
    return (outputs.chosen > outputs.rejected).sum(), len(outputs.chosen)


def _margin(outputs: AnswerRewards, targets: Any) -> tuple[Tensor, int]:
    return (outputs.chosen - outputs.rejected).sum(), len(outputs.chosen)


def predicted_classes(
    outputs: Any, targets: Any, pairing: Pairing, reader: str
) -> tuple[Tensor, Tensor]:
    """Return the predicted and the true class of each prediction, in one dimension.

    Args:
        outputs: The result of a model.
        targets: The targets of the same samples.
        pairing: How the two meet.
        reader: Name of the metric that compares them, for messages.
    """
    scores, wanted = pairing.classes(outputs, targets, reader=reader)
    return scores.argmax(dim=-1), class_numbers(wanted)


class ClassCounts:
    """Counts how often each class is predicted correctly, predicted, and wanted, over a whole set.

    Example:
        >>> import torch
        >>> counts = ClassCounts(class_scores.intersection_over_union)
        >>> counts.update(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0]))
        >>> counts.compute()
        0.5
    """

    def __init__(self, score: class_scores.ClassScore, pairing: Pairing = UNKNOWN) -> None:
        """Start without counts.

        Args:
            score: The score of a class.
            pairing: How outputs meet targets.
        """
        self._score = score
        self._pairing = pairing
        self._counts = torch.zeros(3, 0, dtype=torch.float64)

    def update(self, outputs: Any, targets: Any) -> None:
        """Add a batch of outputs, or of predicted classes if they are whole numbers.

        The target -100 does not count.
        """
        is_whole = isinstance(outputs, Tensor) and not outputs.is_floating_point()
        if is_whole and outputs.shape == targets.shape:
            predicted = outputs
        else:
            predicted, targets = predicted_classes(
                outputs, targets, self._pairing, "a score of classes"
            )
        is_counted = targets != IGNORED
        predicted, wanted = predicted[is_counted].long(), targets[is_counted].long()
        if not len(wanted):
            return
        size = max(self._counts.shape[1], int(torch.maximum(predicted.max(), wanted.max())) + 1)
        right = wanted[predicted == wanted]
        counts = torch.stack(
            [classes.bincount(minlength=size) for classes in (right, predicted, wanted)]
        )
        self._counts = functional.pad(self._counts, (0, size - self._counts.shape[1])) + counts

    def compute(self) -> float:
        """Return the mean score of the classes that occur or are predicted, or NaN without any."""
        return class_scores.mean_score(self._score, self._counts.numpy())


class RocAuc:
    """Collects the probabilities of a whole set, to measure how well they separate the classes.

    Example:
        >>> import torch
        >>> area = RocAuc()
        >>> area.update(torch.tensor([[2.0, 0.0], [0.0, 2.0], [1.0, 0.0]]), torch.tensor([0, 1, 0]))
        >>> area.compute()
        1.0
    """

    def __init__(self, pairing: Pairing = UNKNOWN) -> None:
        """Start without samples.

        Args:
            pairing: How outputs meet targets.
        """
        self._pairing = pairing
        self._probabilities: list[Tensor] = []
        self._classes: list[Tensor] = []

    def update(self, outputs: Any, targets: Any) -> None:
        """Add a batch of outputs and the true classes. The target -100 does not count."""
        scores, wanted = self._pairing.classes(outputs, targets, reader="roc_auc")
        numbers = class_numbers(wanted)
        is_counted = numbers != IGNORED
        self._probabilities.append(scores[is_counted].double().softmax(dim=-1).cpu())
        self._classes.append(numbers[is_counted].cpu())

    def compute(self) -> float:
        """Return the mean over the classes that occur, or NaN if there are fewer than two."""
        return macro_roc_auc(
            torch.cat(self._probabilities).numpy(), torch.cat(self._classes).numpy()
        )


def _recall_at_1(outputs: EmbeddedPairs, targets: Any) -> tuple[Tensor, int]:
    """Return for how many first texts no second text is nearer than their own.

    Equal texts are equally near, so what is nearer by less than rounding does not count.
    """
    first, second = outputs.first.float(), outputs.second.float()
    own = (first * second).sum(dim=1)
    best = torch.cat([(some @ second.T).amax(dim=1) for some in first.split(_AT_ONCE)])
    return (own >= best - _ROUNDING).sum(), len(own)


def _of_classes(score: class_scores.ClassScore) -> WholeMetric:
    return WholeMetric(functools.partial(ClassCounts, score), reads_classes=True, reads="classes")


def with_pairing(metric: AnyMetric, pairing: Pairing) -> AnyMetric:
    """Return a metric that uses a pairing, if it reads outputs and targets as classes or numbers.

    Args:
        metric: The metric.
        pairing: How outputs meet targets.
    """
    if isinstance(metric, WholeMetric):
        return replace(metric, pairing=pairing)
    if kind_read_by(metric) is None:
        return metric
    measure: Callable[..., Any] = metric.measure
    return replace(metric, measure=functools.partial(measure, pairing=pairing))


def kind_read_by(loss_or_metric: Any) -> Kind | None:
    """Return how a loss or metric reads outputs and targets, or None if it takes them as is."""
    if isinstance(loss_or_metric, WholeMetric):
        return loss_or_metric.reads
    function = loss_or_metric
    if isinstance(function, BatchMetric):
        function = function.measure
    return getattr(without_options(function), "reads", None)


def without_options(function: Any) -> Any:
    """Return the function or class inside a `functools.partial`."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _root(mean: float) -> float:
    if mean < 0:  # only your own metric can be negative. It is shown as it is.
        return mean
    return math.sqrt(mean)


MEAN_IOU = _of_classes(class_scores.intersection_over_union)
MACRO_F1 = _of_classes(class_scores.f1)
BALANCED_ACCURACY = _of_classes(class_scores.recall)
ROC_AUC = WholeMetric(RocAuc, reads="classes")
ACCURACY = BatchMetric(_correct)
TOP5_ACCURACY = BatchMetric(_correct_in_five)
MEAN_SQUARED_ERROR = BatchMetric(_squared_error)
ROOT_MEAN_SQUARED_ERROR = BatchMetric(_squared_error, finish=_root)
MEAN_ABSOLUTE_ERROR = BatchMetric(_absolute_error)
PERPLEXITY = BatchMetric(_negative_log_likelihood, finish=_exponential)
BITS_PER_BYTE = BatchMetric(_negative_log_likelihood, finish=lambda mean: mean / math.log(2))
"""Bits for each target. `load_metrics` divides them by the bytes of a target."""
REWARD_ACCURACY = BatchMetric(_preferred)
REWARD_MARGIN = BatchMetric(_margin)
RECALL_AT_1 = BatchMetric(_recall_at_1, adds_up=False)
