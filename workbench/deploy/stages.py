"""The stages of a model with early exits: `stages.json` of a bundle, for programs.

Each stage is a graph of its own. It takes as `inputs` what the stage before it sent, and answers
twice: the calibrated `probabilities` of its exit and, except in the last, `features` for the next
stage. An answer leaves at a stage where the largest probability reaches the threshold. What was
seen on the validation split is kept, so that thresholds can be chosen again; the test split is
never read here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workbench.foundation.bundle_manifest import check_listed, complete_export
from workbench.foundation.errors import RunError
from workbench.foundation.files import sha256_of, write_atomically

STAGES = "stages.json"
EVIDENCE = "validation.npz"
INPUTS = "inputs"
FEATURES = "features"
PROBABILITIES = "probabilities"
_TOKEN_DTYPES = ("uint8", "uint16", "int32", "int64")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class Stage(_Part):
    """One part of the model, with its exit.

    Attributes:
        file: Its graph, in the bundle.
        input_shape: The shape of what it reads for one sample.
        input_dtype: The type of these numbers.
        sent_dtype: The smallest type that holds them, in which they are sent; None for that of
            `input_dtype`.
        temperature: What the outputs of the exit were divided by before softmax.
        accuracy: Share of correct answers if all samples left here, on the validation split.
        threshold: The probability from which an answer leaves here; 0 in the last stage.
        share: Share of the samples that leave here at the thresholds.
    """

    file: str
    input_shape: tuple[int, ...]
    input_dtype: str = "float32"
    sent_dtype: str | None = None
    temperature: float = Field(gt=0)
    accuracy: float = Field(ge=0, le=1)
    threshold: float = Field(ge=0, le=1)
    share: float = Field(ge=0, le=1)

    @property
    def wire_dtype(self) -> str:
        """The type in which what it reads is sent, where it is not quantised."""
        return self.sent_dtype or self.input_dtype


class Stages(_Part):
    """All stages in order.

    Attributes:
        version: The version of this format.
        stages: The stages.
        accuracy: Share of correct answers at the thresholds, on the validation split.
        num_samples: Number of validation samples.
        files: SHA-256 of each file by name.
    """

    version: int = 1
    stages: tuple[Stage, ...] = Field(min_length=1)
    accuracy: float = Field(ge=0, le=1)
    num_samples: int = Field(ge=0)
    files: dict[str, str] = {}

    def write(self, folder: Path) -> Stages:
        """Write them, with the SHA-256 of their files in the bundle, all or nothing.

        Return them so.
        """
        names = [*(stage.file for stage in self.stages), EVIDENCE]
        files = {name: sha256_of(folder / name) for name in names if (folder / name).exists()}
        listed = self.model_copy(update={"files": files})
        write_atomically(folder / STAGES, listed.model_dump_json(indent=2) + "\n")
        return listed


@dataclass(frozen=True)
class Evidence:
    """How each exit did on the validation split.

    Attributes:
        confidence: (samples, exits): the largest calibrated probability.
        is_correct: (samples, exits): whether that class is the right one.
        group_confidence: (samples, exits): the largest probability of a group of classes, if there
            are any.
        group_is_correct: (samples, exits): whether the group of the most likely class is the right
            one.
    """

    confidence: np.ndarray
    is_correct: np.ndarray
    group_confidence: np.ndarray | None = None
    group_is_correct: np.ndarray | None = None

    def of(self, samples: np.ndarray) -> Evidence:
        """Return that of samples, by their numbers; those that are named twice count twice."""
        arrays = (self.confidence, self.is_correct, self.group_confidence, self.group_is_correct)
        return Evidence(*(None if one is None else one[samples] for one in arrays))  # type: ignore[arg-type]

    def by_group(self) -> Evidence:
        """Return it with an answer as correct where its group is."""
        return (
            self
            if self.group_is_correct is None
            else replace(self, is_correct=self.group_is_correct)
        )

    def last(self, num_exits: int) -> Evidence:
        """Return that of the last exit alone, as the last of some exits at which nothing leaves
        before.
        """
        confidence = np.zeros((len(self.confidence), num_exits))
        is_correct = np.zeros(confidence.shape, dtype=bool)
        confidence[:, -1], is_correct[:, -1] = self.confidence[:, -1], self.is_correct[:, -1]
        found = Evidence(confidence, is_correct)
        if self.group_confidence is None or self.group_is_correct is None:
            return found
        groups = Evidence(self.group_confidence, self.group_is_correct).last(num_exits)
        return replace(
            found, group_confidence=groups.confidence, group_is_correct=groups.is_correct
        )

    def write(self, folder: Path) -> None:
        """Write them into a bundle."""
        np.savez(folder / EVIDENCE, confidence=self.confidence, is_correct=self.is_correct)


def smallest_dtype(num_tokens: int | None) -> str | None:
    """Return the smallest type that holds the numbers of tokens; None where these are not known.

    Args:
        num_tokens: Size of the vocabulary.

    Example:
        >>> smallest_dtype(256), smallest_dtype(30_000), smallest_dtype(100_000)
        ('uint8', 'uint16', 'int32')
    """
    if not num_tokens:
        return None
    return next(name for name in _TOKEN_DTYPES if num_tokens - 1 <= np.iinfo(name).max)


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


def read_evidence(folder: Path) -> Evidence:
    """Read how each exit did on the validation split; arguments and errors as in `read_stages`."""
    try:
        with np.load(folder / EVIDENCE, allow_pickle=False) as stored:
            return Evidence(stored["confidence"], stored["is_correct"])
    except (OSError, ValueError, KeyError) as error:
        raise RunError(
            f"{folder / EVIDENCE} cannot be read: {error}", next_step="Export the model again."
        ) from error
