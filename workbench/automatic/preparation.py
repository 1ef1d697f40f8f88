"""One division into learning and test samples, folds of the former, and what is kept of each and where.

What the run is given holds the folds; the test samples lie in another object that only the final score opens.
So no trial, no early stop and no choice between models can see one: they are not there. What a fold's model
reads with (encoder, scale of the target) is learnt from the train part of that fold alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import cloudpickle
import numpy as np

from workbench.automatic.question import Question, take
from workbench.automatic.scores import simplest_guess
from workbench.automatic.targets import Asked
from workbench.data import Datasets
from workbench.data.encoders import Encoder, SampleKind, learn_encoder
from workbench.data.splits import ArraySplit, divisor, split_indices
from workbench.errors import RunError

TEST_FRACTION = 0.2
VALIDATION_FRACTION = 0.2
# Most learning samples for that many folds: what few samples say on a choice depends on which they are.
MOST_FOLDS = 5
_FOLDS = ((1_000, MOST_FOLDS), (5_000, 3))
# Every fold is encoded and sent by itself.
_MOST_FOLDED_NUMBERS = 10_000_000


@dataclass(frozen=True)
class Fold:
    """One way to divide the learning samples, encoded.

    Attributes:
        train_inputs: Encoded train samples.
        train_targets: Class numbers, or standardised numbers as float32.
        validation_inputs: Encoded validation samples.
        validation_targets: As those of train.
    """

    train_inputs: np.ndarray = field(repr=False)
    train_targets: np.ndarray = field(repr=False)
    validation_inputs: np.ndarray = field(repr=False)
    validation_targets: np.ndarray = field(repr=False)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one encoded sample."""
        return self.train_inputs.shape[1:]


@dataclass(frozen=True)
class LearningData:
    """What trials learn from and are compared on; called by a worker, it is a data set.

    Attributes:
        folds: One for each repeat of a training.
        training_seeds: The seed of the training on each fold.
        class_names: Names of the classes, by number; empty for a regression.
    """

    folds: tuple[Fold, ...]
    training_seeds: tuple[int, ...]
    class_names: tuple[str, ...]

    def __call__(self, _options: Mapping[str, Any], training_seed: int | None = None) -> Datasets:
        """Return the fold of a training as a data set; the first where nothing is trained."""
        seeds = self.training_seeds
        fold = self.folds[seeds.index(training_seed) if training_seed in seeds else 0]
        return Datasets(
            name="automl",
            task="classification" if self.class_names else "regression",
            train=ArraySplit(fold.train_inputs, fold.train_targets),
            validation=ArraySplit(fold.validation_inputs, fold.validation_targets),
            input_shape=fold.input_shape,
            num_outputs=self.num_outputs,
            class_names=self.class_names,
        )

    @property
    def num_outputs(self) -> int:
        """Classes, or one number."""
        return len(self.class_names) or 1


@dataclass(frozen=True)
class Reader:
    """From samples to what the models of one fold take, and from their outputs to the unit of the target.

    Attributes:
        encoder: Learnt from the train part of the fold.
        target_mean: What is added to a predicted number, once scaled.
        target_scale: What a predicted number is multiplied by.
    """

    encoder: Encoder = field(repr=False)
    target_mean: float = 0.0
    target_scale: float = 1.0

    def in_units(self, outputs: np.ndarray) -> np.ndarray:
        """Return numbers in the unit of the target; probabilities stay as they are."""
        return outputs * self.target_scale + self.target_mean


@dataclass(frozen=True)
class Interpreter:
    """What is needed to read a person's samples and to answer in their words.

    Attributes:
        kind: What a sample is.
        asked: Whether a class or a number is predicted.
        readers: One for each fold.
        labels: The value of each class as it was given, by number.
        target_name: What the target is called, where it has a name.
        text_columns: The columns of a table that texts are read from.
    """

    kind: SampleKind
    asked: Asked
    readers: tuple[Reader, ...] = field(repr=False)
    labels: tuple[Any, ...] = field(repr=False)
    target_name: str | None
    text_columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class HeldOut:
    """What no trial sees: the test samples, and what is needed to say something about them.

    Attributes:
        interpreter: How samples are read.
        samples: Test samples as they were given.
        targets: Class numbers, or numbers in their own unit.
        guess: The simplest guess, from the learning targets.
        num_samples: Learning and test samples.
        notes: What a person should know about the data.
    """

    interpreter: Interpreter
    samples: Any = field(repr=False)
    targets: np.ndarray = field(repr=False)
    guess: np.ndarray = field(repr=False)
    num_samples: tuple[int, int]
    notes: tuple[str, ...]


def divide(question: Question, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Divide samples into those to learn from and those to test on, each class in the same shares.

    Args:
        question: The samples.
        seed: Seed of the division.

    Returns:
        Sorted sample numbers: disjoint, complete, none empty.
    """
    classes = question.targets if question.asked == "classification" else None
    return split_indices(len(question), validation_fraction=TEST_FRACTION, seed=seed, classes=classes)


def fold(num_samples: int, num_folds: int, seed: int, classes: np.ndarray | None) -> list[np.ndarray]:
    """Choose the validation samples of each fold.

    Args:
        num_samples: Samples to learn from.
        num_folds: One fold holds a part out; several hold each sample out once.
        seed: Seed of the division.
        classes: Class of each sample, for folds that keep the share of each class.

    Returns:
        Sorted sample numbers, none empty; those of several folds are disjoint and complete.
    """
    if num_folds == 1:
        held_out = split_indices(
            num_samples, validation_fraction=VALIDATION_FRACTION, seed=seed, classes=classes
        )[1]
        return [held_out]
    order = np.random.default_rng(seed).permutation(num_samples)
    if classes is not None:
        order = order[np.argsort(classes[order], kind="stable")]
    return [np.sort(order[first::num_folds]) for first in range(num_folds)]


def num_folds_for(num_learning: int, num_numbers: int) -> int:
    """Return how many folds samples are worth.

    Args:
        num_learning: Samples to learn from.
        num_numbers: Numbers that these are once they are encoded.
    """
    if num_numbers > _MOST_FOLDED_NUMBERS:
        return 1
    return next((folds for most, folds in _FOLDS if num_learning <= most), 1)


def prepare(question: Question, seed: int, training_seeds: Sequence[int]) -> tuple[LearningData, HeldOut]:
    """Divide and encode samples.

    Args:
        question: The samples.
        seed: Seed of the division.
        training_seeds: Seeds of the repeats of a training; at least as many as there may be folds.

    Raises:
        DataError: If nothing can be learnt from the learning samples.
    """
    learning, test = divide(question, seed)
    samples, targets = take(question.samples, learning), question.targets[learning]
    classes = targets if question.asked == "classification" else None
    parts = fold(len(learning), 1, seed, classes)
    made = [_encode(question, samples, targets, part) for part in parts]
    num_folds = num_folds_for(len(learning), made[0][0].train_inputs[0].size * len(learning))
    if num_folds > 1:
        parts = fold(len(learning), num_folds, seed, classes)
        made = [_encode(question, samples, targets, part) for part in parts]
    interpreter = Interpreter(
        question.kind, question.asked, tuple(reader for _, reader in made), question.labels,
        question.target_name, question.text_columns,
    )  # fmt: skip
    folds = tuple(encoded for encoded, _ in made)
    guess = simplest_guess(targets, len(question.class_names) or None)
    held_out = HeldOut(
        interpreter, take(question.samples, test), question.targets[test], guess,
        (len(learning), len(test)), question.notes,
    )  # fmt: skip
    return LearningData(folds, tuple(training_seeds[:num_folds]), question.class_names), held_out


def _encode(
    question: Question, samples: Any, targets: np.ndarray, validation: np.ndarray
) -> tuple[Fold, Reader]:
    """Encode learning samples with what those that are not held out tell."""
    train = np.setdiff1d(np.arange(len(targets)), validation)
    reader = Reader(learn_encoder(question.kind, take(samples, train), date_formats=question.date_formats))
    scaled = targets
    if question.asked == "regression":
        mean = float(targets[train].mean())
        scale = float(divisor(np.asarray(mean), targets[train].std()))
        reader = Reader(reader.encoder, mean, scale)
        scaled = ((targets - mean) / scale).astype(np.float32)
    inputs = [reader.encoder.encode(take(samples, part)) for part in (train, validation)]
    return Fold(inputs[0], scaled[train], inputs[1], scaled[validation]), reader


def pack(held_out: HeldOut) -> tuple[str, bytes]:
    """Return what is kept of a test part: the SHA-256 of the bytes, and the bytes."""
    payload = cloudpickle.dumps(held_out)
    return hashlib.sha256(payload).hexdigest(), payload


def unpack(sha256: str, payload: bytes) -> HeldOut:
    """Return what was packed.

    Args:
        sha256: What the bytes must hash to: they are code once they are loaded.
        payload: The bytes.

    Raises:
        RunError: If these are other bytes.
    """
    if hashlib.sha256(payload).hexdigest() != sha256:
        raise RunError(
            "the test part of this run is not the one that was stored",
            next_step="Start again from the data: wb.automl(data).",
        )
    return cloudpickle.loads(payload)
