"""One division into train, validation and test, and what is kept of each and where.

What the run is given holds train and validation; the test part lies in another object that only the final
score opens. So no trial, no early stop and no choice between models can see a test sample: it is not there.
Encoders and the scale of a target are learnt from the train part alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import cloudpickle
import numpy as np

from workbench.automatic.question import Asked, Question, take
from workbench.automatic.scores import simplest_guess
from workbench.data import Datasets
from workbench.data.encoders import Encoder, SampleKind, learn_encoder
from workbench.data.splits import ArraySplit, divisor, split_indices
from workbench.errors import RunError

TEST_FRACTION = 0.2
VALIDATION_FRACTION = 0.2


@dataclass(frozen=True)
class LearningData:
    """What trials learn from and are compared on; called by a worker, it is a data set.

    Attributes:
        train_inputs: Encoded train samples.
        train_targets: Class numbers, or standardised numbers as float32.
        validation_inputs: Encoded validation samples.
        validation_targets: As those of train.
        class_names: Names of the classes, by number; empty for a regression.
    """

    train_inputs: np.ndarray = field(repr=False)
    train_targets: np.ndarray = field(repr=False)
    validation_inputs: np.ndarray = field(repr=False)
    validation_targets: np.ndarray = field(repr=False)
    class_names: tuple[str, ...]

    def __call__(self, _options: Mapping[str, Any]) -> Datasets:
        """Return it as a data set; options say nothing to it."""
        return Datasets(
            name="automl",
            task="classification" if self.class_names else "regression",
            train=ArraySplit(self.train_inputs, self.train_targets),
            validation=ArraySplit(self.validation_inputs, self.validation_targets),
            input_shape=self.input_shape,
            num_outputs=self.num_outputs,
            class_names=self.class_names,
        )

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one encoded sample."""
        return self.train_inputs.shape[1:]

    @property
    def num_outputs(self) -> int:
        """Classes, or one number."""
        return len(self.class_names) or 1


@dataclass(frozen=True)
class Interpreter:
    """From what a person gives to what a model takes, and back from its outputs to what the person asked.

    Attributes:
        kind: What a sample is.
        asked: Whether a class or a number is predicted.
        encoder: Learnt from the train part.
        labels: The value of each class as it was given, by number.
        target_mean: What is added to a predicted number, once scaled.
        target_scale: What a predicted number is multiplied by.
        target_name: What the target is called, where it has a name.
    """

    kind: SampleKind
    asked: Asked
    encoder: Encoder = field(repr=False)
    labels: tuple[Any, ...] = field(repr=False)
    target_mean: float
    target_scale: float
    target_name: str | None

    def in_units(self, outputs: np.ndarray) -> np.ndarray:
        """Return probabilities as they are, and predicted numbers in the unit of the target."""
        return outputs if self.asked == "classification" else outputs * self.target_scale + self.target_mean


@dataclass(frozen=True)
class HeldOut:
    """What no trial sees: the test part, and what is needed to say something about it.

    Attributes:
        interpreter: How samples are read.
        inputs: Encoded test samples.
        targets: Class numbers, or numbers in their own unit.
        guess: The simplest guess, from the train targets.
        num_samples: Samples of train, validation and test.
        notes: What a person should know about the data.
    """

    interpreter: Interpreter
    inputs: np.ndarray = field(repr=False)
    targets: np.ndarray = field(repr=False)
    guess: np.ndarray = field(repr=False)
    num_samples: tuple[int, int, int]
    notes: tuple[str, ...]


def divide(question: Question, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Divide samples into train, validation and test, each class in the same shares.

    Args:
        question: The samples.
        seed: Seed of the division.

    Returns:
        Sorted sample numbers: disjoint, complete, none empty.
    """
    classes = question.targets if question.asked == "classification" else None
    rest, test = split_indices(len(question), validation_fraction=TEST_FRACTION, seed=seed, classes=classes)
    train, validation = split_indices(
        len(rest), validation_fraction=VALIDATION_FRACTION, seed=seed,
        classes=None if classes is None else classes[rest],
    )  # fmt: skip
    return rest[train], rest[validation], test


def prepare(question: Question, seed: int) -> tuple[LearningData, HeldOut]:
    """Divide and encode samples.

    Args:
        question: The samples.
        seed: Seed of the division.

    Raises:
        DataError: If nothing can be learnt from the train part.
    """
    train, validation, test = divide(question, seed)
    encoder = learn_encoder(question.kind, take(question.samples, train))
    inputs = [encoder.encode(take(question.samples, part)) for part in (train, validation, test)]
    targets, mean, scale, labels = question.targets, 0.0, 1.0, question.labels
    if question.asked == "regression":
        mean = float(targets[train].mean())
        scale = float(divisor(np.asarray(mean), targets[train].std()))
    scaled = ((targets - mean) / scale).astype(np.float32) if question.asked == "regression" else targets
    learning = LearningData(
        inputs[0], scaled[train], inputs[1], scaled[validation], class_names=question.class_names
    )
    interpreter = Interpreter(
        question.kind, question.asked, encoder, labels, mean, scale, question.target_name
    )
    guess = simplest_guess(targets[train], len(question.class_names) or None)
    sizes = (len(train), len(validation), len(test))
    return learning, HeldOut(interpreter, inputs[2], targets[test], guess, sizes, question.notes)


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
