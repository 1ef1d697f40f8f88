"""What early exits do: calibration, thresholds, the share of answers that leaves at each, their
mean time.

Reads what was seen on the validation split only. Training exits is left to `workbench.models`,
running them to `workbench.tiers.processes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workbench.deploy.stages import Evidence, Stage, Stages, smallest_dtype

_HIGHEST = 64
_GOLDEN = (5**0.5 - 1) / 2
_TEMPERATURES = (0.05, 20.0)


def temperature_of(outputs: np.ndarray, targets: np.ndarray) -> float:
    """Return the temperature that makes the probabilities of a classifier most likely.

    Args:
        outputs: (samples, classes): what goes into softmax.
        targets: (samples,): the right classes.

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


def exits_at(evidence: Evidence, thresholds: Sequence[float]) -> np.ndarray:
    """Return the exit at which each sample leaves.

    Args:
        evidence: How each exit did.
        thresholds: The probability from which an answer leaves, for each exit; all leave at the
            last.

    Returns:
        (samples,): numbers of exits from 0.
    """
    leaves = evidence.confidence >= np.asarray(thresholds)
    leaves[:, -1] = True
    return leaves.argmax(axis=1)


def accuracy_at(evidence: Evidence, exits: np.ndarray) -> float:
    """Return the share of correct answers where each sample leaves at an exit."""
    return float(evidence.is_correct[np.arange(len(exits)), exits].mean())


def shares_at(exits: np.ndarray, num_exits: int) -> np.ndarray:
    """Return the share of the samples that leaves at each exit."""
    return np.bincount(exits, minlength=num_exits) / max(1, len(exits))


def choose_thresholds(evidence: Evidence, *, tolerated_loss: float = 0.005) -> tuple[float, ...]:
    """Return the lowest thresholds at which the answers stay about as accurate as those of the last
    exit.

    The exits are set one after another, the first one first; each is given a part of what may be
    lost.

    Args:
        evidence: How each exit did on the validation split.
        tolerated_loss: Share of correct answers that may be lost, in all.
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


@dataclass(frozen=True)
class Calibration:
    """Exits whose probabilities are calibrated, and the thresholds chosen for them.

    Attributes:
        temperatures: By which the outputs of each exit are divided.
        evidence: How each exit did.
        thresholds: The probability from which an answer leaves, for each exit.
        exits: (samples,): at which exit each sample leaves.
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
            outputs: For each exit (samples, classes): what goes into softmax.
            targets: (samples,): the right classes.
        """
        temperatures = [temperature_of(each, targets) for each in outputs]
        probabilities = [softmax(each / by) for each, by in zip(outputs, temperatures, strict=True)]
        evidence = Evidence(
            np.stack([each.max(axis=1) for each in probabilities], axis=1),
            np.stack([each.argmax(axis=1) == targets for each in probabilities], axis=1),
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
            input_shape: Shape of what it takes, without the batch.
            input_dtype: Type of what it takes.
            num_tokens: Size of the vocabulary whose numbers it takes; None where it takes others.
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

    def write(self, folder: Path, stages: Sequence[Stage]) -> Stages:
        """Write stages, whose graphs are in a bundle, and how they did into it; return them."""
        self.evidence.write(folder)
        found = Stages(
            stages=tuple(stages),
            accuracy=accuracy_at(self.evidence, self.exits),
            num_samples=len(self.exits),
        )
        return found.write(folder)
