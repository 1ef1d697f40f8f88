"""Brings outputs of a model and targets into one form, for losses, metrics and exports.

If a pair has a single meaning, it becomes scores with the classes last and class numbers, or two
tensors of numbers with the same shape. Nothing else is reshaped or broadcast. Any other pair is an
error that shows both shapes. Computing with the pairs is left to `losses` and `metrics`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from workbench.experiment.metric_declarations import Task
from workbench.foundation.errors import DataError, ExperimentError
from workbench.models.model_calls import output_in

Kind = Literal["classes", "numbers"]
"""How a loss or a metric reads outputs and targets."""
Form = Literal["numbers", "shares", "binary"]
"""The form of targets: class numbers, a share for each class (such as one-hot), or 0 and 1 for a
single score.
"""
SingleScores = Literal["logits", "probabilities", "unknown"]
"""The meaning of the outputs if a model has one number for two classes."""
IGNORED = -100
"""The class that torch's losses ignore. It is used for padding, for example."""
MIN_PROBABILITY = 1e-6
"""The smallest probability. 0 and 1 are moved by this much, so that their logits are finite."""
_SHARE_TOLERANCE = 1e-3
_DECLARATION = "class_dim"
_RESHAPES = re.compile(
    r"(?:Unsafe)?(?:View|Reshape|Squeeze|Unsqueeze|Select|Slice|T|Transpose|Permute|Alias|ToCopy|Clone|Clamp\w*)"
    r"Backward"
)
"""Autograd's names of operations that do not change values, or only limit them."""
_MAX_RESHAPED = 8
_Function = TypeVar("_Function", bound=Callable[..., Any])


def reads(kind: Kind) -> Callable[[_Function], _Function]:
    """Mark a function of (outputs, targets, pairing) so that it receives the pairing.

    Args:
        kind: How it reads outputs and targets.
    """

    def mark(function: _Function) -> _Function:
        function.__dict__["reads"] = kind
        return function

    return mark


def _nothing_declared() -> int | None:
    return None


@dataclass(eq=False)
class Pairing:
    """What is known about the outputs of a model and their targets.

    Attributes:
        task: The task of the data.
        num_outputs: Classes or numbers to predict, according to the data, or None if unknown.
        target_shape: Shape of one sample's targets, if the data has one. See `Datasets`.
        model: The model, in words.
        data: The data, in words.
        single_scores: The meaning of single numbers for two classes, according to the loss.
        declared: Returns the dimension of the classes in outputs, if the model declares it.
        remembers: Whether to remember that dimension, for batches that do not show it.
    """

    task: Task | None = None
    num_outputs: int | None = None
    target_shape: tuple[int, ...] = ()
    model: str = "the model"
    data: str = "the data"
    single_scores: SingleScores = "logits"
    declared: Callable[[], int | None] = _nothing_declared
    remembers: bool = True
    form: Form | None = field(default=None, init=False)
    """The form of the targets when they were last read."""
    num_scores: int | None = field(default=None, init=False)
    """Number of scores of the model when they were last read."""
    _target_ndim: int | None = field(default=None, init=False, repr=False)
    returns_outputs: bool = field(default=False, init=False)
    """Whether the model has returned more than a loss."""
    class_dim: int | None = field(default=None, init=False)
    """The dimension of the classes when outputs were last read, or None."""
    _remembered: int | None = field(default=None, init=False, repr=False)
    _has_soft_labels: bool = field(default=False, init=False, repr=False)

    def classes(
        self, outputs: Any, targets: Any, *, reader: str = "the loss", checks_numbers: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Return scores of classes, and the true classes.

        Outputs may be (batch, classes). They may have more dimensions, with the classes second or
        last. Or they are one score for each prediction, which separates two classes. Targets are
        class numbers of any type, in the shape of the predictions or as a column. Or they are
        shares of the classes.

        Args:
            outputs: The result of a model.
            targets: The targets of the same samples.
            reader: Name of the loss or metric, for messages.
            checks_numbers: Whether to check whole class numbers. torch's losses check them too.

        Returns:
            Scores (predictions, classes), and class numbers (predictions,) or shares (predictions,
            classes).

        Raises:
            ExperimentError: If they do not fit together, or could be read in two ways.
            DataError: If targets are not classes. This is only checked on the CPU.
        """
        scores, wanted = self._output(outputs, reader), self._target(targets, reader)
        if scores.ndim == 0 and wanted.numel() == 1:
            scores = scores.reshape(1)
        shape, target_shape = tuple(scores.shape), tuple(wanted.shape)
        reading = self._reading(shape, target_shape, reader)
        if reading is None and target_shape[:1] == (1,):  # the model has also squeezed the batch
            scores = scores.unsqueeze(0)
            reading = self._reading(tuple(scores.shape), target_shape, reader)
        if reading is None:
            self._refuse_classes(shape, target_shape, reader)
        class_dim, form = reading
        if form == "binary":
            scores = self._logits(scores, reader)
        scores = _with_classes_last(scores, class_dim)
        self._note(class_dim, shape, form, scores.shape[-1], wanted.ndim)
        if (
            self.num_outputs is not None
            and form != "shares"
            and scores.shape[-1] < self.num_outputs
        ):
            raise ExperimentError(
                f"{self.model} returns {_counted(shape, class_dim)}, but {self.data} has"
                f" {self.num_outputs} classes, so {reader} cannot compare outputs of shape {shape}"
                f" with targets of shape {target_shape}",
                field="model",
                allowed=f"{self.num_outputs} scores for each prediction",
                next_step=(
                    f"Let the model return {self.num_outputs} scores, or correct data.num_outputs."
                ),
            )
        if form == "shares":
            return self._with_shares(scores, wanted, class_dim)
        if (checks_numbers or wanted.is_floating_point()) and is_readable(wanted):
            self.check_targets(wanted, kind="classes")
        flat = wanted.reshape(-1)
        if flat.is_floating_point() and self._has_soft_labels:
            shares = torch.stack([1 - flat, flat], dim=-1)
            return scores.flatten(0, -2), shares.to(scores.dtype)
        return scores.flatten(0, -2), flat.long()

    def numbers(
        self, outputs: Any, targets: Any, *, reader: str = "the loss"
    ) -> tuple[Tensor, Tensor]:
        """Return outputs and targets of a regression with the same shape and type.

        The two may differ by dimensions of length 1, and one of them may be flat if the data has a
        `target_shape`. Nothing broadcasts.

        Args:
            outputs: The result of a model.
            targets: The targets of the same samples.
            reader: Name of the loss or metric, for messages.

        Raises:
            ExperimentError: If they do not fit together.
        """
        predicted, wanted = self._output(outputs, reader), self._target(targets, reader)
        shape, target_shape = tuple(predicted.shape), tuple(wanted.shape)
        if shape != target_shape:
            fits = _bare(shape) == _bare(target_shape) or self._is_flattened(shape, target_shape)
            # `squeeze` also removes the dimension of the samples, if there is only one sample.
            lost = target_shape[:1] == (1,) and _bare((1, *shape)) == _bare(target_shape)
            if not fits and not lost:
                self._refuse_numbers(shape, target_shape, reader)
            predicted = predicted.reshape(target_shape)
        return predicted, wanted.to(predicted.dtype)

    def scores(self, outputs: Any) -> Any:
        """Return outputs in the form of an exported model: scores with the classes last.

        If `classes` has not read a pair before, outputs are returned unchanged.

        Args:
            outputs: The result of a model.
        """
        output = output_in(outputs)
        if self.form is None or not isinstance(output, Tensor):
            return output
        if self.form == "binary" and self.single_scores == "probabilities":
            output = _logits_of(output)
        return _with_classes_last(output, self.class_dim)

    def check_fitted(self, targets: np.ndarray, *, are_shares: bool = False) -> None:
        """Check the targets for a model that is fitted to all samples at once.

        Args:
            targets: The targets of all training samples.
            are_shares: Whether they are shares of the classes, not class numbers.

        Raises:
            DataError: If targets are not classes, or not finite numbers.
        """
        if self.num_outputs is None:
            self.check_targets(targets, kind="numbers", where="train")
            return
        self.form = "shares" if are_shares else "numbers"
        self.num_scores = self.num_outputs
        self._target_ndim = targets.ndim
        self.class_dim = -1
        self.check_targets(targets, kind="classes", where="train")
        if not are_shares and (targets == IGNORED).any():
            raise DataError(
                f"the train targets of {self.data} use {IGNORED} for samples to ignore, but"
                f" {self.model} cannot ignore samples",
                field="data",
                allowed=f"from 0 to {self.num_outputs - 1}",
                next_step="Remove these samples.",
            )

    def check_targets(self, targets: Any, *, kind: Kind, where: str | None = None) -> None:
        """Check that the values of targets are valid.

        For classes, `classes` must have read a pair before.

        Args:
            targets: A tensor on the CPU or an array, samples first.
            kind: How a loss or metric reads them.
            where: The part of the data, for messages, or None for a batch.

        Raises:
            DataError: If a number is not finite, or the model has no score for a class.
        """
        values = _as_array(targets)
        whose = f"the targets of {self.data}"
        if where is not None:
            whose = f"the {where} targets of {self.data}"
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            place = _first_place(~np.isfinite(values))
            raise DataError(
                f"{whose} contain {values[place]} ({_named(place, where)})",
                field="data",
                allowed="finite numbers",
                next_step="Remove these samples, or fill in their targets.",
            )
        # A batch may mix classes into shares. These are checked together with outputs.
        if kind == "numbers" or self.form is None or values.ndim != self._target_ndim:
            return
        if self.form == "shares":
            self._check_shares(values, whose, where)
        else:
            self._check_numbers(values, whose, where)

    def _check_numbers(self, values: np.ndarray, whose: str, where: str | None) -> None:
        """Check that the model has a score for each class number."""
        num_classes = self.num_scores or self.num_outputs or 2
        if values.dtype.kind == "f" and (fractions := values != np.rint(values)).any():
            if self.form == "binary" and values.min() >= 0 and values.max() <= 1:
                self._has_soft_labels = True
                return
            place = _first_place(fractions)
            raise DataError(
                f"{whose} are not classes: {values[place]:g} ({_named(place, where)})",
                field="data",
                allowed=f"whole numbers from 0 to {num_classes - 1}",
                next_step="Number the classes from 0, or choose the task regression.",
            )
        # Almost always, all are valid. Minimum and maximum show that without a copy.
        if not values.size or (values.min() >= 0 and values.max() < num_classes):
            return
        known = values[values != IGNORED]
        if not known.size or (known.min() >= 0 and known.max() < num_classes):
            return
        low, high = int(known.min()), int(known.max())
        wrong = ((values < 0) & (values != IGNORED)) | (values >= num_classes)
        place = _first_place(wrong)
        if low >= 1 and high == num_classes:  # the batch may have no sample of the first class
            step = "Subtract 1 if your first class has the number 1. Here, the first class is 0."
        elif num_classes == 2 and set(np.unique(known).tolist()) <= {-1, 1}:
            step = "Write 0 for -1: (labels + 1) // 2."
        elif low < 0:
            step = f"Number the classes from 0, and write {IGNORED} for samples to ignore."
        else:
            step = (
                f"Number the classes from 0, write {IGNORED} for samples to ignore, or let the"
                f" model return {high + 1} scores (data.num_outputs)."
            )
        raise DataError(
            f"{whose} range from {low} to {high}, but {self.model} has scores for {num_classes}"
            f" classes: {int(values[place])} is not one of them ({_named(place, where)})",
            field="data",
            allowed=f"from 0 to {num_classes - 1}, or {IGNORED} for samples to ignore",
            next_step=step,
        )

    def _check_shares(self, values: np.ndarray, whose: str, where: str | None) -> None:
        if not values.size:
            return
        class_dim = -1 if self.class_dim is None else self.class_dim
        sums = np.asarray(values.sum(axis=class_dim, dtype=np.float64))
        wrong = np.abs(sums - 1) > _SHARE_TOLERANCE
        if not wrong.any() and values.min() >= 0:
            return
        if bool(np.isin(values, (0, 1)).all()):
            place = _first_place(wrong)
            raise DataError(
                f"{whose} have {int(sums[place])} classes for one sample ({_named(place, where)})",
                field="data",
                allowed="one class for each prediction",
                next_step=(
                    "For several classes at once, set your own loss and metrics, such as"
                    " torch.nn.functional:binary_cross_entropy_with_logits with float targets."
                ),
            )
        if not wrong.any():
            wrong = np.asarray((values < 0).any(axis=class_dim))
        place = _first_place(wrong)
        raise DataError(
            f"{whose} are not shares of the classes: they add up to {sums[place]:g}"
            f" ({_named(place, where)})",
            field="data",
            allowed="shares from 0 to 1 that add up to 1, or class numbers",
            next_step="Give each sample the number of its class, from 0.",
        )

    def _with_shares(
        self, scores: Tensor, wanted: Tensor, class_dim: int | None
    ) -> tuple[Tensor, Tensor]:
        assert class_dim is not None
        if is_readable(wanted):
            self.check_targets(wanted, kind="classes")
        shares = _moved(wanted, class_dim).to(scores.dtype)
        return scores.flatten(0, -2), shares.flatten(0, -2)

    def _reading(
        self, shape: tuple[int, ...], target_shape: tuple[int, ...], reader: str
    ) -> tuple[int | None, Form] | None:
        """Return the dimension of the classes, or None, and the form of the targets."""
        has_single_scores = target_shape in (shape, (*shape, 1))
        if len(shape) == 1:
            if not has_single_scores:
                return None
            return None, "binary"
        readings = _readings(shape, target_shape)
        # Equal shapes of outputs and targets: two classes with one score, or shares of the classes.
        if self.num_outputs in (1, 2) and len(shape) > 1 and has_single_scores:
            is_class_dim = shape[-1] == self.num_outputs or shape[1] == 1
            if not is_class_dim:  # a sample has several predictions with one score each
                return None, "binary"
        if len(readings) < 2:
            return next(iter(readings), None)
        reading = self._preferred(readings, shape)
        if reading is not None:
            return reading
        raise ExperimentError(
            f"{reader} can read outputs of shape {shape} from {self.model} and targets of shape"
            f" {target_shape} in two ways: the classes may be in dimension 1 or in dimension"
            f" {len(shape) - 1}",
            field="model",
            allowed="shapes in which only one dimension can be the classes",
            next_step=(
                f"Set an attribute of the model's class or function: {_DECLARATION} = 1, or"
                f" {_DECLARATION} = -1 if the classes come last."
            ),
        )

    def _preferred(
        self, readings: list[tuple[int, Form]], shape: tuple[int, ...]
    ) -> tuple[int, Form] | None:
        """Return the reading that fits the number of classes or the known dimension."""
        if self.num_outputs is not None:
            # A single score separates two classes.
            sizes = {self.num_outputs, 1} if self.num_outputs == 2 else {self.num_outputs}
            fitting = [reading for reading in readings if shape[reading[0]] in sizes]
            if len(fitting) == 1:
                return fitting[0]
            readings = fitting or readings
        # A batch with a clear meaning may have come before, or the model declares the dimension.
        known = self._remembered
        if known is None:
            known = self.declared()
        if known is None:
            return None
        return next((reading for reading in readings if reading[0] == known % len(shape)), None)

    def _logits(self, scores: Tensor, reader: str) -> Tensor:
        """Return single scores of two classes as logits."""
        # Only checked once, because reading values waits for the device.
        if self.single_scores == "unknown" and has_values(scores):
            if bool(((scores >= 0) & (scores <= 1)).all()):
                raise ExperimentError(
                    f"{self.model} returns one number from 0 to 1 for each prediction, and {reader}"
                    " cannot tell whether these are probabilities or logits",
                    field="model",
                    allowed=(
                        "probabilities if the loss is binary_cross_entropy of torch.nn.functional,"
                        " and logits if it is binary_cross_entropy_with_logits"
                    ),
                    next_step="Set loss to one of these, or use your own metrics.",
                )
            self.single_scores = "logits"
        if self.single_scores == "logits" and scores.requires_grad and _are_of_sigmoid(scores):
            raise ExperimentError(
                f"{self.model} ends with a sigmoid, but {reader} expects logits: it would apply a"
                " second sigmoid, and every sample would count as class 1",
                field="model",
                allowed=(
                    "logits, or probabilities if the loss is binary_cross_entropy of"
                    " torch.nn.functional"
                ),
                next_step=(
                    "Remove the sigmoid, or write loss: torch.nn.functional:binary_cross_entropy."
                ),
            )
        if self.single_scores == "probabilities":
            return _logits_of(scores)
        return scores

    def _note(
        self,
        class_dim: int | None,
        shape: tuple[int, ...],
        form: Form,
        num_scores: int,
        target_ndim: int,
    ) -> None:
        self.form = form
        self.num_scores = num_scores
        self._target_ndim = target_ndim
        self.class_dim = class_dim
        if class_dim == len(shape) - 1:  # remember "last": another batch may have more dimensions
            self.class_dim = -1
        if self.remembers and class_dim is not None and len(shape) > 2:
            self._remembered = self.class_dim

    def _is_flattened(self, shape: tuple[int, ...], target_shape: tuple[int, ...]) -> bool:
        if len(self.target_shape) < 2 or shape[:1] != target_shape[:1]:
            return False
        flat = (math.prod(self.target_shape),)
        return {shape[1:], target_shape[1:]} == {self.target_shape, flat}

    def _output(self, outputs: Any, reader: str) -> Tensor:
        output = output_in(outputs)
        if not isinstance(output, Tensor):
            raise ExperimentError(
                f"{self.model} returns an object of type {type(outputs).__name__}, and"
                f" {reader} finds no tensor in it",
                field="model",
                allowed="a tensor, or a tuple, mapping or dataclass with a tensor",
                next_step=(
                    "Return the tensor to compare with the targets. In a mapping, call it `logits`."
                ),
            )
        if not output.is_floating_point():
            kind = "whole"
            step = "Return scores as floats, before argmax or rounding, which has no gradient."
            if output.is_complex():
                kind = "complex"
                step = "Return the real part, or set your own loss and metrics."
            name = str(output.dtype).removeprefix("torch.")
            raise ExperimentError(
                f"{self.model} returns {kind} numbers ({name}) of shape {tuple(output.shape)},"
                f" which {reader} cannot compare with targets",
                field="model",
                allowed="floats",
                next_step=step,
            )
        return output

    def _target(self, targets: Any, reader: str) -> Tensor:
        if isinstance(targets, Tensor) and not targets.is_complex():
            return targets
        described = f"of type {type(targets).__name__}"
        if isinstance(targets, Tensor):
            described = "complex numbers"
        raise ExperimentError(
            f"the targets of {self.data} are {described}, which {reader} cannot compare with"
            " outputs",
            field="data",
            allowed="one tensor of real numbers",
            next_step=(
                "Return one target for each sample, or set your own loss and metrics, which receive"
                " the targets unchanged."
            ),
        )

    def _refuse_classes(
        self, shape: tuple[int, ...], target_shape: tuple[int, ...], reader: str
    ) -> NoReturn:
        num = "classes" if self.num_outputs is None else str(self.num_outputs)
        batch = target_shape[0] if target_shape else "batch"
        allowed = (
            f"outputs ({batch}, {num}) with targets ({batch},), or as many more dimensions in both"
        )
        if len(shape) == 2 and shape[0] != batch and shape[1] == batch:
            step = "The samples come first: transpose the outputs of the model."
        elif shape[:1] != target_shape[:1]:
            step = (
                "Let the model return as many predictions as there are samples, the samples first."
            )
        elif len(target_shape) > 1 and len(shape) == 2:
            step = "Let the model score each position of a sample, or give each sample one class."
        elif len(shape) == 1:
            step = "Let the model return a score for each class: (batch, classes)."
        else:
            step = "Give the outputs the dimensions of the targets, and one more for the classes."
        self._refuse(shape, target_shape, reader, allowed, step)

    def _refuse_numbers(
        self, shape: tuple[int, ...], target_shape: tuple[int, ...], reader: str
    ) -> NoReturn:
        if shape[::-1] == target_shape:
            step = "The samples come first: transpose the outputs of the model."
        elif shape[:1] != target_shape[:1]:
            step = (
                "Let the model return as many predictions as there are samples, the samples first."
            )
        elif math.prod(shape) == math.prod(target_shape):
            step = (
                "Give them the same shape, in the model or in the data. For example:"
                " outputs.flatten(1)."
            )
        elif len(target_shape) == 1:
            step = (
                "Let the model return one number for each sample, or give each sample as many"
                " targets."
            )
        else:
            step = f"Let the model return {math.prod(target_shape[1:])} numbers for each sample."
        self._refuse(shape, target_shape, reader, f"outputs of shape {target_shape}", step)

    def _refuse(
        self,
        shape: tuple[int, ...],
        target_shape: tuple[int, ...],
        reader: str,
        allowed: str,
        step: str,
    ) -> NoReturn:
        raise ExperimentError(
            f"{reader} cannot compare the outputs of {self.model}, of shape {shape}, with the"
            f" targets of {self.data}, of shape {target_shape}",
            field="model",
            allowed=allowed,
            next_step=step,
        )


UNKNOWN = Pairing(remembers=False)
"""A pairing that only knows the shapes of outputs and targets."""


def class_numbers(wanted: Tensor) -> Tensor:
    """Return the class of each prediction. For shares, it is the class with the largest share."""
    if wanted.is_floating_point():
        return wanted.argmax(dim=-1)
    return wanted


def num_predictions(wanted: Tensor) -> int | Tensor:
    """Return how many targets count, on their device. Ignored targets do not."""
    if wanted.is_floating_point():
        return len(wanted)
    return (wanted != IGNORED).sum()


def is_readable(values: Tensor) -> bool:
    """Return whether values can be read without waiting for a device or a compiler."""
    return type(values) is Tensor and values.device.type == "cpu" and has_values(values)


def has_values(values: Tensor) -> bool:
    """Return whether a tensor has values that can be read, maybe after waiting for a device."""
    return (
        values.device.type != "meta"
        and not isinstance(values, FakeTensor)
        and not torch.compiler.is_compiling()
        and not torch._C._functorch.is_batchedtensor(values)  # pyright: ignore[reportAttributeAccessIssue]
        and not torch._C._functorch.is_gradtrackingtensor(values)  # pyright: ignore[reportAttributeAccessIssue]
    )


def declared_class_dim(function: Any) -> int | None:
    """Return the dimension of the classes that a model or its class declares as `class_dim`.

    Raises:
        ExperimentError: If it is not a whole number.
    """
    declared = getattr(function, _DECLARATION, None)
    if declared is not None and (not isinstance(declared, int) or isinstance(declared, bool)):
        raise ExperimentError(
            f"its {_DECLARATION} is {declared!r}",
            field="model",
            allowed="1 or -1, the dimension of the classes",
        )
    return declared


def _readings(shape: tuple[int, ...], target_shape: tuple[int, ...]) -> list[tuple[int, Form]]:
    """Return the ways to read such shapes: the dimension of the classes, and the targets' form."""
    readings: list[tuple[int, Form]] = []
    for dim in dict.fromkeys((len(shape) - 1, 1)) if shape else ():
        rest = (*shape[:dim], *shape[dim + 1 :])
        as_column = (*shape[:dim], 1, *shape[dim + 1 :])
        if target_shape in (rest, as_column, (*rest, 1)):
            readings.append((dim, "binary" if shape[dim] == 1 else "numbers"))
        elif target_shape == shape:
            readings.append((dim, "shares"))
    return readings


def _logits_of(probabilities: Tensor) -> Tensor:
    """Return finite logits of probabilities."""
    return torch.logit(probabilities, eps=MIN_PROBABILITY)


def _are_of_sigmoid(scores: Tensor) -> bool:
    """Return whether scores in training come from a sigmoid, maybe in another shape."""
    # Go back over reshapes in the graph to the operation that has made the values.
    made_by = scores.grad_fn
    for _ in range(_MAX_RESHAPED):
        if made_by is None or _RESHAPES.match(made_by.name()) is None:
            break
        made_by = made_by.next_functions[0][0]
    return made_by is not None and made_by.name().startswith("SigmoidBackward")


def _with_classes_last(scores: Tensor, class_dim: int | None) -> Tensor:
    """Return scores with the classes last.

    A single score for two classes becomes the score of the second class, and the first class gets
    0. The softmax of (0, score) is the logistic function of the score, so loss and probabilities do
    not change.
    """
    if class_dim is None:
        return torch.stack([torch.zeros_like(scores), scores], dim=-1)
    moved = _moved(scores, class_dim)
    if moved.shape[-1] > 1:
        return moved
    return torch.cat([torch.zeros_like(moved), moved], dim=-1)


def _moved(values: Tensor, class_dim: int) -> Tensor:
    if class_dim in (-1, values.ndim - 1):
        return values
    return values.movedim(class_dim, -1)


def _bare(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape without the dimensions of length 1 after the samples."""
    return (*shape[:1], *(size for size in shape[1:] if size != 1))


def _counted(shape: tuple[int, ...], class_dim: int | None) -> str:
    if class_dim is None or shape[class_dim] == 1:
        return "1 number"
    return f"{shape[class_dim]} numbers"


def _as_array(values: Any) -> np.ndarray:
    if isinstance(values, Tensor):
        values = values.detach().cpu()  # your own data set may have its samples on a GPU
        if values.dtype == torch.bfloat16:  # numpy has no such type
            values = values.float()
        return values.numpy()
    return np.asarray(values)


def _first_place(is_wrong: np.ndarray) -> tuple[int, ...]:
    return tuple(int(place) for place in np.unravel_index(int(np.argmax(is_wrong)), is_wrong.shape))


def _named(place: tuple[int, ...], where: str | None) -> str:
    sample = f"sample {place[0] if place else 0}"
    if where is None:
        return f"{sample} of the batch"
    return sample
