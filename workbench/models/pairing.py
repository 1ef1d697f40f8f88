"""How outputs of a model meet their targets.

The one place that decides it, for losses, metrics and exports.

What has a single meaning is brought into one form: scores with the classes last and class numbers,
or two tensors of numbers of one shape. Nothing is reshaped or broadcast beyond that. Everything
else is refused with both shapes. What is computed of a pair is left to `losses` and `metrics`.
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
from workbench.models.calls import output_in

Kind = Literal["classes", "numbers"]
"""As what a loss or a metric reads outputs and targets."""
Form = Literal["numbers", "shares", "binary"]
"""What targets are: class numbers, a share for each class (such as one-hot), or 0 and 1 of a single
score.
"""
SingleScores = Literal["logits", "probabilities", "unknown"]
"""What a model returns that has one number for two classes."""
IGNORED = -100
"""The class that torch's losses leave out, such as that of padding."""
MIN_PROBABILITY = 1e-6
"""The least probability of which there is a logit."""
_SHARE_TOLERANCE = 1e-3
_DECLARATION = "class_dim"
_RESHAPES = re.compile(
    r"(?:Unsafe)?(?:View|Reshape|Squeeze|Unsqueeze|Select|Slice|T|Transpose|Permute|Alias|ToCopy|Clone|Clamp\w*)"
    r"Backward"
)
"""What autograd calls a step that leaves values as they are, or bounds them."""
_MAX_RESHAPED = 8
_Function = TypeVar("_Function", bound=Callable[..., Any])


def reads(kind: Kind) -> Callable[[_Function], _Function]:
    """Mark a function of (outputs, targets, pairing) with what it reads, so that it is given the
    pairing.

    Args:
        kind: What it reads.
    """

    def mark(function: _Function) -> _Function:
        function.__dict__["reads"] = kind
        return function

    return mark


def _nothing_declared() -> int | None:
    return None


@dataclass(eq=False)
class Pairing:
    """What is known of the outputs of a model and of their targets.

    Attributes:
        task: The task of the data.
        num_outputs: Classes or numbers to predict, as the data states it; None where that is
            unknown.
        target_shape: Shape of one sample's targets where the data states it; see `Datasets`.
        model: The model, in words.
        data: The data, in words.
        single_scores: What single numbers of two classes are, as the loss takes them.
        declared: Returns the dimension of outputs that holds the classes, where the model declares
            it.
        remembers: Whether to remember which dimension that was, for batches that do not show it.
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
    """What the targets of the classes were when they were last read."""
    num_scores: int | None = field(default=None, init=False)
    """Number of classes that the model had scores for when it was last read."""
    _target_ndim: int | None = field(default=None, init=False, repr=False)
    returns_outputs: bool = field(default=False, init=False)
    """Whether the model has returned more than a loss."""
    class_dim: int | None = field(default=None, init=False)
    """The dimension of the outputs that held the classes when they were last read.

    None for none.
    """
    _remembered: int | None = field(default=None, init=False, repr=False)
    _has_soft_labels: bool = field(default=False, init=False, repr=False)

    def classes(
        self, outputs: Any, targets: Any, *, reader: str = "the loss", checks_numbers: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Return scores of classes and what is right.

        Understood are outputs (batch, classes), with the classes in the second or last dimension of
        more, and one score for each prediction that separates two classes. Targets are class
        numbers of any type, in the shape of the predictions or as a column, or a share for each
        class.

        Args:
            outputs: What a model returned.
            targets: Of the same samples.
            reader: Name of the loss or metric, for messages.
            checks_numbers: Whether to look at whole class numbers; torch's losses refuse wrong
                ones, too.

        Returns:
            Scores (predictions, classes), and class numbers (predictions,) or shares (predictions,
            classes).

        Raises:
            ExperimentError: If they do not fit together, or could be understood in two ways.
            DataError: If targets are no classes; found out on the CPU only.
        """
        scores, wanted = self._output(outputs, reader), self._target(targets, reader)
        if scores.ndim == 0 and wanted.numel() == 1:
            scores = scores.reshape(1)
        shape, target_shape = tuple(scores.shape), tuple(wanted.shape)
        found = self._reading(shape, target_shape, reader)
        if (
            found is None and target_shape and target_shape[0] == 1
        ):  # `squeeze` took the batch away, too
            scores = scores.unsqueeze(0)
            found = self._reading(tuple(scores.shape), target_shape, reader)
        if found is None:
            self._refuse_classes(shape, target_shape, reader)
        class_dim, form = found
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
                f"{self.model} returns {_counted(shape, class_dim)} and {self.data} has"
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
        """Return outputs and targets of a regression in one shape and type, so that nothing
        broadcasts.

        The two may differ by dimensions of length 1, and by `target_shape`, whose targets are flat.

        Args:
            outputs: What a model returned.
            targets: Of the same samples.
            reader: Name of the loss or metric, for messages.

        Raises:
            ExperimentError: If they do not fit together.
        """
        predicted, wanted = self._output(outputs, reader), self._target(targets, reader)
        shape, target_shape = tuple(predicted.shape), tuple(wanted.shape)
        if shape != target_shape:
            fits = _bare(shape) == _bare(target_shape) or self._is_flattened(shape, target_shape)
            # `squeeze` takes the dimension of the samples away, too, where there is one.
            lost = target_shape[:1] == (1,) and _bare((1, *shape)) == _bare(target_shape)
            if not fits and not lost:
                self._refuse_numbers(shape, target_shape, reader)
            predicted = predicted.reshape(target_shape)
        return predicted, wanted.to(predicted.dtype)

    def scores(self, outputs: Any) -> Any:
        """Return outputs as an export answers: of classes a score for each one, the classes last.

        Outputs stay as they are where `classes` has read no pair before.

        Args:
            outputs: What a model returned.
        """
        found = output_in(outputs)
        if self.form is None or not isinstance(found, Tensor):
            return found
        if self.form == "binary" and self.single_scores == "probabilities":
            found = _logits_of(found)
        return _with_classes_last(found, self.class_dim)

    def check_fitted(self, targets: np.ndarray, *, are_shares: bool = False) -> None:
        """Refuse targets that a model cannot be fitted to which takes all samples at once.

        Args:
            targets: Of all samples of train.
            are_shares: Whether they are shares of the classes, and not class numbers.

        Raises:
            DataError: If targets are no classes, or no finite numbers.
        """
        if self.num_outputs is None:
            self.check_targets(targets, kind="numbers", where="train")
            return
        self.form, self.num_scores = "shares" if are_shares else "numbers", self.num_outputs
        self._target_ndim, self.class_dim = targets.ndim, -1
        self.check_targets(targets, kind="classes", where="train")
        if not are_shares and (targets == IGNORED).any():
            raise DataError(
                f"the train targets of {self.data} leave out samples by {IGNORED}, which"
                f" {self.model} cannot",
                field="data",
                allowed=f"from 0 to {self.num_outputs - 1}",
                next_step="Leave these samples out.",
            )

    def check_targets(self, targets: Any, *, kind: Kind, where: str | None = None) -> None:
        """Refuse targets whose values mean nothing.

        For classes, `classes` must have read a pair before.

        Args:
            targets: A tensor on the CPU or an array, the sample first.
            kind: As what a loss or metric reads them.
            where: Which part of the data, for messages; None for a batch.

        Raises:
            DataError: If numbers are not finite, or a class is one that the model has no score for.
        """
        values = _as_array(targets)
        of_split = "" if where is None else f"{where} "
        whose = f"the {of_split}targets of {self.data}"
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            place = _first_place(~np.isfinite(values))
            raise DataError(
                f"{whose} hold {values[place]} ({_named(place, where)})",
                field="data",
                allowed="finite numbers",
                next_step="Leave these samples out, or fill in their targets.",
            )
        # Shares of classes that a batch mixes, for example, are judged where outputs meet them.
        if kind == "numbers" or self.form is None or values.ndim != self._target_ndim:
            return
        if self.form == "shares":
            self._check_shares(values, whose, where)
        else:
            self._check_numbers(values, whose, where)

    def _check_numbers(self, values: np.ndarray, whose: str, where: str | None) -> None:
        """Refuse class numbers for which the model has no score."""
        num_classes = self.num_scores or self.num_outputs or 2
        fractions = values != np.rint(values) if values.dtype.kind == "f" else np.zeros(0)
        if fractions.any():
            if self.form == "binary" and values.min() >= 0 and values.max() <= 1:
                self._has_soft_labels = True
                return
            place = _first_place(fractions)
            raise DataError(
                f"{whose} are no classes: {values[place]:g} ({_named(place, where)})",
                field="data",
                allowed=f"whole numbers from 0 to {num_classes - 1}",
                next_step="Number the classes from 0, or choose the task regression.",
            )
        # Nearly always all are right, which is seen without a copy of those that count.
        if not values.size or (values.min() >= 0 and values.max() < num_classes):
            return
        known = values[values != IGNORED]
        if not known.size or (known.min() >= 0 and known.max() < num_classes):
            return
        low, high = int(known.min()), int(known.max())
        wrong = ((values < 0) & (values != IGNORED)) | (values >= num_classes)
        place = _first_place(wrong)
        if low >= 1 and high == num_classes:  # a batch need not hold the first class
            step = "Subtract 1 if your first class has the number 1: here it has the number 0."
        elif num_classes == 2 and set(np.unique(known).tolist()) <= {-1, 1}:
            step = "Write 0 for -1: (labels + 1) // 2."
        elif low < 0:
            step = f"Number the classes from 0, and write {IGNORED} for what should not count."
        else:
            step = (
                f"Number the classes from 0, write {IGNORED} for what should not count, or let the"
                f" model return {high + 1} scores (data.num_outputs)."
            )
        raise DataError(
            f"{whose} go from {low} to {high}, and {self.model} has scores for {num_classes}"
            f" classes: {int(values[place])} is none of them ({_named(place, where)})",
            field="data",
            allowed=f"from 0 to {num_classes - 1}, or {IGNORED} for what should not count",
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
                f"{whose} mark {int(sums[place])} classes of one sample ({_named(place, where)})",
                field="data",
                allowed="one class for each prediction",
                next_step=(
                    "For several classes at once name a loss and metrics of your own, such as "
                    "torch.nn.functional:binary_cross_entropy_with_logits with float targets."
                ),
            )
        place = _first_place(wrong if wrong.any() else np.asarray((values < 0).any(axis=class_dim)))
        raise DataError(
            f"{whose} are no shares of the classes: they add up to {sums[place]:g}"
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
        """Return the dimension of the classes, None where there is none, and what targets are."""
        if len(shape) == 1:
            return (None, "binary") if target_shape in (shape, (*shape, 1)) else None
        readings = _readings(shape, target_shape)
        if self.num_outputs in (1, 2) and len(shape) > 1 and target_shape in (shape, (*shape, 1)):
            is_class_dim = shape[-1] == self.num_outputs or shape[1] == 1
            if not is_class_dim:  # one score for each of several predictions of a sample
                return None, "binary"
        if len(readings) < 2:
            return next(iter(readings), None)
        if self.num_outputs is not None:
            fitting = [
                each
                for each in readings
                if shape[each[0]] == self.num_outputs
                or (shape[each[0]] == 1 and self.num_outputs == 2)
            ]
            if len(fitting) == 1:
                return fitting[0]
            readings = fitting or readings
        known = self._remembered if self._remembered is not None else self.declared()
        for each in readings:
            if known is not None and each[0] == known % len(shape):
                return each
        raise ExperimentError(
            f"{reader} can understand outputs of shape {shape} of {self.model} and targets of shape"
            f" {target_shape} in two ways: the classes may be in dimension 1 or in dimension"
            f" {len(shape) - 1}",
            field="model",
            allowed="shapes of which only one dimension can be that of the classes",
            next_step=(
                f"Declare it as an attribute of the model's class or function: {_DECLARATION} = 1,"
                f" or {_DECLARATION} = -1 where the classes come last."
            ),
        )

    def _logits(self, scores: Tensor, reader: str) -> Tensor:
        """Return single scores of two classes as logits."""
        # Looked at once, wherever it is: from then on it is known, so that no step waits for a
        # device.
        if self.single_scores == "unknown" and has_values(scores):
            if bool(((scores >= 0) & (scores <= 1)).all()):
                raise ExperimentError(
                    f"{self.model} returns one number from 0 to 1 for each prediction, and {reader}"
                    " cannot tell whether these are probabilities or logits",
                    field="model",
                    allowed=(
                        "probabilities where the loss is binary_cross_entropy of"
                        " torch.nn.functional, and logits where it is"
                        " binary_cross_entropy_with_logits"
                    ),
                    next_step="Name one of these losses, or metrics of your own.",
                )
            self.single_scores = "logits"
        if self.single_scores == "logits" and scores.requires_grad and _are_of_sigmoid(scores):
            raise ExperimentError(
                f"{self.model} ends with a sigmoid, and {reader} takes its answers for logits: it"
                " would apply another one, and every sample would count as class 1",
                field="model",
                allowed=(
                    "logits; or probabilities where the loss is binary_cross_entropy of "
                    "torch.nn.functional"
                ),
                next_step=(
                    "Leave out the sigmoid, or write loss:"
                    " torch.nn.functional:binary_cross_entropy."
                ),
            )
        return _logits_of(scores) if self.single_scores == "probabilities" else scores

    def _note(
        self,
        class_dim: int | None,
        shape: tuple[int, ...],
        form: Form,
        num_scores: int,
        target_ndim: int,
    ) -> None:
        self.form, self.num_scores, self._target_ndim = form, num_scores, target_ndim
        self.class_dim = -1 if class_dim == len(shape) - 1 else class_dim
        if self.remembers and class_dim is not None and len(shape) > 2:
            self._remembered = self.class_dim

    def _is_flattened(self, shape: tuple[int, ...], target_shape: tuple[int, ...]) -> bool:
        if len(self.target_shape) < 2 or shape[:1] != target_shape[:1]:
            return False
        flat = (math.prod(self.target_shape),)
        return {shape[1:], target_shape[1:]} == {self.target_shape, flat}

    def _output(self, outputs: Any, reader: str) -> Tensor:
        found = output_in(outputs)
        if not isinstance(found, Tensor):
            raise ExperimentError(
                f"{self.model} returns an object of type {type(outputs).__name__}, of which"
                f" {reader} can read no tensor",
                field="model",
                allowed="a tensor, or a tuple, mapping or dataclass that holds one",
                next_step=(
                    "Return the tensor that is compared with the targets; in a mapping it is"
                    " `logits`."
                ),
            )
        if not found.is_floating_point():
            kind = "complex" if found.is_complex() else "whole"
            name = str(found.dtype).removeprefix("torch.")
            step = (
                "Return the real part, or another loss and metrics of your own."
                if found.is_complex()
                else "Return scores as floats, before argmax or rounding, which has no gradient."
            )
            raise ExperimentError(
                f"{self.model} returns {kind} numbers ({name}) of shape {tuple(found.shape)}, which"
                f" {reader} cannot compare with targets",
                field="model",
                allowed="floats",
                next_step=step,
            )
        return found

    def _target(self, targets: Any, reader: str) -> Tensor:
        if isinstance(targets, Tensor) and not targets.is_complex():
            return targets
        what = (
            "complex numbers"
            if isinstance(targets, Tensor)
            else f"of type {type(targets).__name__}"
        )
        raise ExperimentError(
            f"the targets of {self.data} are {what}, which {reader} cannot compare with outputs",
            field="data",
            allowed="one tensor of real numbers",
            next_step=(
                "Return one target for each sample, or name a loss and metrics of your own, which "
                "receive the targets as they are."
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
            step = (
                "Let the outputs have the dimensions of the targets, and one more for the classes."
            )
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
                "Bring them into one shape, in the model or in the data: outputs.flatten(1), for"
                " example."
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
"""Of outputs and targets of which nothing is known but their shapes."""


def class_numbers(wanted: Tensor) -> Tensor:
    """Return the class of each prediction: that with the largest share where targets are shares."""
    return wanted.argmax(dim=-1) if wanted.is_floating_point() else wanted


def is_readable(values: Tensor) -> bool:
    """Return whether the values of a tensor can be looked at without waiting for a device or a
    compiler.
    """
    return type(values) is Tensor and values.device.type == "cpu" and has_values(values)


def has_values(values: Tensor) -> bool:
    """Return whether a tensor has values that can be looked at, perhaps after waiting for a
    device.
    """
    return (
        values.device.type != "meta"
        and not isinstance(values, FakeTensor)
        and not torch.compiler.is_compiling()
        and not torch._C._functorch.is_batchedtensor(values)  # pyright: ignore[reportAttributeAccessIssue]
        and not torch._C._functorch.is_gradtrackingtensor(values)  # pyright: ignore[reportAttributeAccessIssue]
    )


def declared_class_dim(function: Any) -> int | None:
    """Return the dimension of the classes that a model, or what makes it, declares as its
    `class_dim`.

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
    """Return the ways in which such shapes fit.

    The dimension of the classes, and the form of targets.
    """
    found: list[tuple[int, Form]] = []
    for dim in dict.fromkeys((len(shape) - 1, 1)) if shape else ():
        rest = (*shape[:dim], *shape[dim + 1 :])
        as_column = (*shape[:dim], 1, *shape[dim + 1 :])
        if target_shape in (rest, as_column, (*rest, 1)):
            found.append((dim, "binary" if shape[dim] == 1 else "numbers"))
        elif target_shape == shape:
            found.append((dim, "shares"))
    return found


def _logits_of(probabilities: Tensor) -> Tensor:
    """Return the logits of probabilities, of which 0 and 1 are a little more and less."""
    return torch.logit(probabilities, eps=MIN_PROBABILITY)


def _are_of_sigmoid(scores: Tensor) -> bool:
    """Return whether scores of a training are answers of a sigmoid, perhaps in another shape."""
    made_by = scores.grad_fn
    for _ in range(_MAX_RESHAPED):
        if made_by is None or _RESHAPES.match(made_by.name()) is None:
            break
        made_by = made_by.next_functions[0][0]
    return made_by is not None and made_by.name().startswith("SigmoidBackward")


def _with_classes_last(scores: Tensor, class_dim: int | None) -> Tensor:
    """Return scores with the classes last.

    A single score of two classes becomes that of the second one.

    The softmax of (0, score) is the logistic function of the score, so that loss and probabilities
    are equal.
    """
    if class_dim is None:
        return torch.stack([torch.zeros_like(scores), scores], dim=-1)
    moved = _moved(scores, class_dim)
    return torch.cat([torch.zeros_like(moved), moved], dim=-1) if moved.shape[-1] == 1 else moved


def _moved(values: Tensor, class_dim: int) -> Tensor:
    is_last = class_dim in (-1, values.ndim - 1)
    return values if is_last else values.movedim(class_dim, -1)


def _bare(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape without the dimensions of length 1 after the samples."""
    return (*shape[:1], *(size for size in shape[1:] if size != 1))


def _counted(shape: tuple[int, ...], class_dim: int | None) -> str:
    num = 1 if class_dim is None else shape[class_dim]
    return "1 number" if num == 1 else f"{num} numbers"


def _as_array(values: Any) -> np.ndarray:
    if isinstance(values, Tensor):
        values = values.detach().cpu()  # a data set of the user's may hold its samples on a GPU
        return (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    return np.asarray(values)


def _first_place(is_wrong: np.ndarray) -> tuple[int, ...]:
    return tuple(int(place) for place in np.unravel_index(int(np.argmax(is_wrong)), is_wrong.shape))


def _named(place: tuple[int, ...], where: str | None) -> str:
    number = place[0] if place else 0
    return f"sample {number}" if where is not None else f"sample {number} of the batch"
