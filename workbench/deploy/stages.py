"""The stages of a model with early exits: `stages.json` of a bundle, calibration and thresholds.

Each stage is a separate graph. Its `inputs` are the features that the stage before it sent. Its
outputs are the calibrated `probabilities` of its exit and, except for the last stage, the
`features` for the next one. The second stage of a model that mixes the views of several devices
also takes a `mask` of the views that are there. A sample leaves at the first stage at which the
largest probability reaches the threshold.

Results on the validation split are stored, so that thresholds can be chosen again. The test split
is never read here. `workbench.models` trains exits, and `workbench.tiers` runs stages.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workbench.foundation.bundle_manifest import check_listed, complete_export
from workbench.foundation.errors import RunError
from workbench.foundation.files import sha256_of, write_atomically
from workbench.models import Aggregate

STAGES = "stages.json"
EVIDENCE = "validation.npz"
INPUTS = "inputs"
FEATURES = "features"
PROBABILITIES = "probabilities"
MASK = "mask"
_TOKEN_DTYPES = ("uint8", "uint16", "int32", "int64")
_HIGHEST = 64
_GOLDEN = (5**0.5 - 1) / 2
_TEMPERATURES = (0.05, 20.0)


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class Stage(_Part):
    """One part of the model, with its exit.

    Attributes:
        file: The file of its graph in the bundle.
        input_shape: The shape of its input for one sample.
        input_dtype: The type of its input.
        sent_dtype: The smallest type that can represent the input, in which it is sent. None for
            `input_dtype`.
        sent_shape: The shape of what one device sends, if the input joins those of several. None
            for `input_shape`.
        temperature: The outputs of the exit are divided by it before softmax.
        accuracy: Share of correct answers on the validation split if all samples left here.
        threshold: The probability from which a sample leaves here, or 0 in the last stage.
        share: Share of the samples that leave here at the thresholds.
    """

    file: str
    input_shape: tuple[int, ...]
    input_dtype: str = "float32"
    sent_dtype: str | None = None
    sent_shape: tuple[int, ...] | None = None
    temperature: float = Field(gt=0)
    accuracy: float = Field(ge=0, le=1)
    threshold: float = Field(ge=0, le=1)
    share: float = Field(ge=0, le=1)

    @property
    def wire_dtype(self) -> str:
        """The type in which its input is sent, unless it is quantised."""
        return self.sent_dtype or self.input_dtype

    @property
    def wire_shape(self) -> tuple[int, ...]:
        """The shape of what one device sends of its input."""
        return self.input_shape if self.sent_shape is None else self.sent_shape


class Scene(_Part):
    """How the views of several devices that see one scene are joined, before the second stage.

    Attributes:
        num_views: Number of devices that see a scene. The first stage takes one view.
        aggregate: How their features become one.
        accuracy_without: Share of correct answers at the last exit without each view, in order.
    """

    num_views: int = Field(ge=2)
    aggregate: Aggregate
    accuracy_without: tuple[float, ...] = ()


class Stages(_Part):
    """All stages in order.

    Attributes:
        version: The version of this format.
        stages: The stages.
        accuracy: Share of correct answers at the thresholds, on the validation split.
        num_samples: Number of validation samples.
        files: SHA-256 of each file by name.
        scene: How views are joined, or None if each sample is seen by one device.
    """

    version: int = 1
    stages: tuple[Stage, ...] = Field(min_length=1)
    accuracy: float = Field(ge=0, le=1)
    num_samples: int = Field(ge=0)
    files: dict[str, str] = {}
    scene: Scene | None = None

    def write(self, folder: Path) -> Stages:
        """Write the stages atomically, with the SHA-256 of their files in the bundle.

        Returns:
            The stages with these SHA-256.
        """
        names = [*(stage.file for stage in self.stages), EVIDENCE]
        files = {name: sha256_of(folder / name) for name in names if (folder / name).exists()}
        listed = self.model_copy(update={"files": files})
        write_atomically(folder / STAGES, listed.model_dump_json(indent=2) + "\n")
        return listed


def read_stages(folder: Path) -> Stages:
    """Read the stages of a bundle.

    Args:
        folder: The bundle.

    Raises:
        RunError: If it has none, or they cannot be read.
    """
    path = folder / STAGES
    complete_export(folder)
    try:
        stages = Stages.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise RunError(
            f"{folder} has no {STAGES}: its model has no early exits, or takes columns of a table",
            next_step=(
                "Train a model with exits on samples that are one array, such as convnet with the "
                "parameter exits: 1, and export it with --format onnx."
            ),
        ) from error
    except (OSError, ValueError, ValidationError, RecursionError) as error:
        raise RunError(
            f"{path} cannot be read: {error}", next_step="Export the model again."
        ) from error
    for stage in stages.stages:
        check_listed(folder, STAGES, stages.files, stage.file)
    return stages


@dataclass(frozen=True)
class Evidence:
    """The results of each exit on the validation split.

    Attributes:
        confidence: (samples, exits): the largest calibrated probability.
        is_correct: (samples, exits): whether the most likely class is correct.
        group_confidence: (samples, exits): the largest probability of a group of classes, if there
            are groups.
        group_is_correct: (samples, exits): whether the group of the most likely class is correct.
    """

    confidence: np.ndarray
    is_correct: np.ndarray
    group_confidence: np.ndarray | None = None
    group_is_correct: np.ndarray | None = None

    def of(self, samples: np.ndarray) -> Evidence:
        """Return the evidence of some samples by number. A repeated number counts twice."""
        arrays = (self.confidence, self.is_correct, self.group_confidence, self.group_is_correct)
        return Evidence(*(None if array is None else array[samples] for array in arrays))  # type: ignore[arg-type]

    def by_group(self) -> Evidence:
        """Return the evidence in which an answer counts as correct if its group is."""
        if self.group_is_correct is None:
            return self
        return replace(self, is_correct=self.group_is_correct)

    def last(self, num_exits: int) -> Evidence:
        """Return the evidence of the last exit, after earlier exits at which nothing leaves."""
        confidence = np.zeros((len(self.confidence), num_exits))
        is_correct = np.zeros(confidence.shape, dtype=bool)
        confidence[:, -1], is_correct[:, -1] = self.confidence[:, -1], self.is_correct[:, -1]
        evidence = Evidence(confidence, is_correct)
        if self.group_confidence is None or self.group_is_correct is None:
            return evidence
        groups = Evidence(self.group_confidence, self.group_is_correct).last(num_exits)
        return replace(
            evidence, group_confidence=groups.confidence, group_is_correct=groups.is_correct
        )

    def write(self, folder: Path) -> None:
        """Write them into a bundle."""
        np.savez(folder / EVIDENCE, confidence=self.confidence, is_correct=self.is_correct)


def read_evidence(folder: Path) -> Evidence:
    """Read the results of each exit on the validation split. See `read_stages`."""
    try:
        with np.load(folder / EVIDENCE, allow_pickle=False) as stored:
            return Evidence(stored["confidence"], stored["is_correct"])
    except (OSError, ValueError, KeyError) as error:
        raise RunError(
            f"{folder / EVIDENCE} cannot be read: {error}", next_step="Export the model again."
        ) from error


@dataclass(frozen=True)
class Calibration:
    """Exits whose probabilities are calibrated, and the thresholds chosen for them.

    Attributes:
        temperatures: The divisors of the outputs of each exit.
        evidence: The results of each exit.
        thresholds: The probability from which a sample leaves, for each exit.
        exits: (samples,): the exit at which each sample leaves.
        shares: The share of the samples that leaves at each exit.
    """

    temperatures: Sequence[float]
    evidence: Evidence
    thresholds: Sequence[float]
    exits: np.ndarray
    shares: np.ndarray

    @classmethod
    def of(cls, outputs: Sequence[np.ndarray], targets: np.ndarray) -> Calibration:
        """Calibrate exits.

        Args:
            outputs: For each exit (samples, classes): the inputs of softmax. If an exit sees each
                view of a sample alone, (samples, views, classes), of which the most confident view
                answers.
            targets: (samples,): the correct classes.
        """
        temperatures, probabilities = [], []
        for scores in outputs:
            num_views = scores.shape[1] if scores.ndim == 3 else 1
            flat = scores.reshape(-1, scores.shape[-1])
            temperatures.append(temperature_of(flat, np.repeat(targets, num_views)))
            shares = softmax(flat / temperatures[-1])
            probabilities.append(surest_view(shares.reshape(len(targets), num_views, -1)))
        evidence = Evidence(
            np.stack([scores.max(axis=1) for scores in probabilities], axis=1),
            np.stack([scores.argmax(axis=1) == targets for scores in probabilities], axis=1),
        )
        thresholds = choose_thresholds(evidence)
        exits = exits_at(evidence, thresholds)
        return cls(temperatures, evidence, thresholds, exits, shares_at(exits, len(outputs)))

    def stage(
        self,
        number: int,
        file: str,
        input_shape: tuple[int, ...],
        input_dtype: str,
        *,
        num_tokens: int | None = None,
    ) -> Stage:
        """Describe the stage that ends with an exit.

        Args:
            number: The exit, from 0.
            file: Name of its graph in the bundle.
            input_shape: Shape of its input, without the batch.
            input_dtype: Type of its input.
            num_tokens: Size of the vocabulary if its inputs are numbers of tokens, otherwise None.
        """
        return Stage(
            file=file,
            input_shape=input_shape,
            input_dtype=input_dtype,
            sent_dtype=smallest_dtype(num_tokens) if input_dtype == "int64" else None,
            temperature=self.temperatures[number],
            accuracy=float(self.evidence.is_correct[:, number].mean()),
            threshold=self.thresholds[number],
            share=float(self.shares[number]),
        )

    def write(self, folder: Path, stages: Sequence[Stage], scene: Scene | None = None) -> Stages:
        """Write stages and their results into the bundle with their graphs. Return the stages."""
        self.evidence.write(folder)
        listed = Stages(
            stages=tuple(stages),
            accuracy=accuracy_at(self.evidence, self.exits),
            num_samples=len(self.exits),
            scene=scene,
        )
        return listed.write(folder)


def surest_view(probabilities: np.ndarray) -> np.ndarray:
    """Return the answers of the most confident view of each sample.

    Args:
        probabilities: (samples, views, classes).

    Returns:
        (samples, classes).

    Example:
        >>> import numpy as np
        >>> surest_view(np.array([[[0.6, 0.4], [0.1, 0.9]]]))
        array([[0.1, 0.9]])
    """
    surest = probabilities.max(axis=2).argmax(axis=1)
    return probabilities[np.arange(len(probabilities)), surest]


def choose_thresholds(evidence: Evidence, *, tolerated_loss: float = 0.005) -> tuple[float, ...]:
    """Return the lowest thresholds at which answers are about as accurate as the last exit's.

    The exits are set one after another, starting with the first. Each may use a part of the
    tolerated loss.

    Args:
        evidence: The results of each exit on the validation split.
        tolerated_loss: Share of correct answers that may be lost in total.
    """
    num_exits = evidence.confidence.shape[1]
    final = float(evidence.is_correct[:, -1].mean())
    thresholds = [1.1] * (num_exits - 1) + [0.0]  # above 1: nothing leaves there yet
    for number in range(num_exits - 1):
        least = final - tolerated_loss * (number + 1) / (num_exits - 1)
        candidates = np.unique(
            np.quantile(evidence.confidence[:, number], np.linspace(0, 1, _HIGHEST))
        )
        for candidate in candidates:
            tried = [*thresholds[:number], float(candidate), *thresholds[number + 1 :]]
            if accuracy_at(evidence, exits_at(evidence, tried)) >= least:
                thresholds = tried
                break
        else:
            thresholds[number] = 1.0
    return tuple(min(1.0, threshold) for threshold in thresholds)


def exits_at(evidence: Evidence, thresholds: Sequence[float]) -> np.ndarray:
    """Return the exit at which each sample leaves.

    Args:
        evidence: The results of each exit.
        thresholds: The probability from which a sample leaves, for each exit. All samples leave at
            the last exit.

    Returns:
        (samples,): numbers of exits from 0.
    """
    leaves = evidence.confidence >= np.asarray(thresholds)
    leaves[:, -1] = True
    return leaves.argmax(axis=1)


def accuracy_at(evidence: Evidence, exits: np.ndarray) -> float:
    """Return the share of correct answers if each sample leaves at the given exit."""
    return float(evidence.is_correct[np.arange(len(exits)), exits].mean())


def shares_at(exits: np.ndarray, num_exits: int) -> np.ndarray:
    """Return the share of the samples that leaves at each exit."""
    return np.bincount(exits, minlength=num_exits) / max(1, len(exits))


def mean_time_s(shares: Sequence[float], times_s: Sequence[float]) -> float:
    """Return the mean time of a cascade: the sum of share times the time until that exit.

    Args:
        shares: Share of the samples that leaves at each exit.
        times_s: Time of each stage, in seconds.

    Example:
        >>> mean_time_s([0.9, 0.1], [1.0, 10.0])
        2.0
    """
    return float(np.dot(shares, np.cumsum(times_s)))


def temperature_of(outputs: np.ndarray, targets: np.ndarray) -> float:
    """Return the temperature that makes the probabilities of a classifier most likely.

    Args:
        outputs: (samples, classes): the inputs of softmax.
        targets: (samples,): the correct classes.

    Source: Guo et al., On Calibration of Modern Neural Networks (2017).
    """

    def loss(log_temperature: float) -> float:
        return _negative_log_likelihood(outputs / np.exp(log_temperature), targets)

    low, high = np.log(_TEMPERATURES[0]), np.log(_TEMPERATURES[1])
    for _ in range(60):
        first, second = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        low, high = (low, second) if loss(first) < loss(second) else (first, high)
    return float(np.exp((low + high) / 2))


def softmax(outputs: np.ndarray) -> np.ndarray:
    """Return probabilities of (samples, classes) outputs."""
    raised = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def _negative_log_likelihood(outputs: np.ndarray, targets: np.ndarray) -> float:
    shifted = outputs - outputs.max(axis=1, keepdims=True)
    rows = np.arange(len(targets))
    return float(np.mean(np.log(np.exp(shifted).sum(axis=1)) - shifted[rows, targets]))


def smallest_dtype(num_tokens: int | None) -> str | None:
    """Return the smallest type for the numbers of tokens, or None if the vocabulary is unknown.

    Args:
        num_tokens: Size of the vocabulary.

    Example:
        >>> smallest_dtype(256), smallest_dtype(30_000), smallest_dtype(100_000)
        ('uint8', 'uint16', 'int32')
    """
    if not num_tokens:
        return None
    return next(name for name in _TOKEN_DTYPES if num_tokens - 1 <= np.iinfo(name).max)
