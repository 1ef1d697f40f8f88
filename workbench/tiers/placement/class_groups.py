"""Group classes, so that an exit can answer with a group before it is sure of the class.

The group is answered early. The class follows later, from the tier to which the request is sent.
How sure an exit must be is chosen on the validation split.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from workbench.deploy.stages import Evidence, choose_thresholds, exits_at
from workbench.foundation.errors import ExperimentError


@dataclass(frozen=True)
class Groups:
    """Groups of classes that tiers answer early.

    Attributes:
        classes: The numbers of the classes of each group.
        threshold: The probability from which the first exit is sure of a group.
    """

    classes: tuple[tuple[int, ...], ...]
    threshold: float


def groups_of(labels: Mapping[str, Sequence[str]], classes: Sequence[str]) -> list[list[int]]:
    """Return the classes of each group by number. A class without a group becomes its own group.

    Args:
        labels: The names of the classes of each group.
        classes: The names of all classes.

    Raises:
        ExperimentError: If there is no such class, or it is in two groups.

    Example:
        >>> groups_of({"pet": ["cat", "dog"]}, ["cat", "car", "dog"])
        [[0, 2], [1]]
    """
    groups, named = [], set[str]()
    for group, names in labels.items():
        for name in names:
            if name not in classes or name in named:
                problem = f"the model has no class {name!r}"
                if name in named:
                    problem = f"{name!r} is in two groups"
                raise ExperimentError(
                    problem,
                    field=f"place.labels.{group}",
                    allowed=list(classes),
                )
            named.add(name)
        groups.append([classes.index(name) for name in names])
    return groups + [[number] for number, name in enumerate(classes) if name not in named]


def group_probabilities(probabilities: np.ndarray, groups: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the probability of each group, (..., groups), from the probabilities of classes."""
    return np.stack([probabilities[..., list(group)].sum(axis=-1) for group in groups], axis=-1)


def group_numbers(groups: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the number of the group of each class."""
    numbers = np.empty(sum(map(len, groups)), dtype=np.int64)
    for number, group in enumerate(groups):
        numbers[list(group)] = number
    return numbers


def choose_group_threshold(evidence: Evidence) -> float:
    """Return the probability from which the first exit is sure of a group.

    As for classes, at most half a percent of the correct answers is lost, here for groups.

    Args:
        evidence: The results of each exit, including groups.
    """
    assert evidence.group_confidence is not None
    assert evidence.group_is_correct is not None
    pair = [0, -1]
    return choose_thresholds(
        Evidence(evidence.group_confidence[:, pair], evidence.group_is_correct[:, pair])
    )[0]


def early_at(evidence: Evidence, thresholds: Sequence[float], group_threshold: float) -> np.ndarray:
    """Return which samples get their group at the first exit, before their class, (samples,)."""
    assert evidence.group_confidence is not None
    return (exits_at(evidence, thresholds) > 0) & (
        evidence.group_confidence[:, 0] >= group_threshold
    )
