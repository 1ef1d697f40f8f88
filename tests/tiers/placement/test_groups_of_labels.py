from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.tiers.placement.systems import system
from workbench.deploy.stages import Evidence
from workbench.foundation.errors import ExperimentError
from workbench.tiers.placement.class_groups import (
    choose_group_threshold,
    early_at,
    group_numbers,
    group_probabilities,
    groups_of,
)
from workbench.tiers.placement.scheduler_plans import expected_plans, played_plans, verdict

CLASSES = ("siamese", "beagle", "persian", "car")


def test_classes_that_no_group_names_are_groups_by_themselves() -> None:
    groups = groups_of({"cat": ["siamese", "persian"]}, CLASSES)
    assert groups == [[0, 2], [1], [3]]
    assert group_numbers(groups).tolist() == [0, 1, 0, 2]
    probabilities = np.array([[0.4, 0.1, 0.3, 0.2]])
    assert group_probabilities(probabilities, groups)[0] == pytest.approx([0.7, 0.1, 0.2])


@pytest.mark.parametrize(
    ("labels", "field", "words"),
    [
        ({"cat": ["tiger"]}, "place.labels.cat", "has no class 'tiger'"),
        (
            {"cat": ["siamese"], "pet": ["siamese"]},
            "place.labels.pet",
            "'siamese' is in two groups",
        ),
    ],
)
def test_groups_are_of_known_classes_once(
    labels: dict[str, list[str]], field: str, words: str
) -> None:
    with pytest.raises(ExperimentError, match=words) as caught:
        groups_of(labels, CLASSES)
    assert caught.value.field == field


def grouped() -> Evidence:
    """Answers whose group is right, and sure, more often than their class."""
    evidence = system().evidence
    confidence = evidence.confidence.copy()
    confidence[:, 0] = 0.5 + confidence[:, 0] / 2
    is_correct = evidence.is_correct | (np.arange(len(confidence)) % 2 == 0)[:, None]
    return Evidence(evidence.confidence, evidence.is_correct, confidence, is_correct)


def test_groups_are_answered_early_where_the_class_is_not_sure() -> None:
    evidence = grouped()
    early = early_at(evidence, (0.5, 0.0), 0.6)
    assert early.mean() == pytest.approx(
        0.3, abs=0.03
    )  # of 0.2 to 0.5, the rest is sure of the class
    assert not early[evidence.confidence[:, 0] >= 0.5].any()


def test_the_threshold_of_groups_loses_half_a_percent_at_most() -> None:
    evidence = grouped()
    threshold = choose_group_threshold(evidence)
    assert evidence.group_confidence is not None
    assert evidence.group_is_correct is not None
    first = evidence.group_confidence[:, 0] >= threshold
    answers = np.where(first, evidence.group_is_correct[:, 0], evidence.group_is_correct[:, 1])
    assert answers.mean() >= evidence.group_is_correct[:, 1].mean() - 0.005


@pytest.mark.slow
def test_plans_state_the_accuracy_of_classes_and_of_groups() -> None:
    given = replace(system().with_load(0.3), evidence=grouped(), group_threshold=0.6)
    for plans in (expected_plans(given, 0.0), played_plans(given, 5000)):
        for plan in plans:
            assert plan.group_accuracy is not None
            assert plan.group_accuracy > plan.outcome.accuracy
            assert plan.to_json()["group_accuracy"] == plan.group_accuracy
    words = verdict(given, expected_plans(given, 0.0), None)
    assert any("answered by their group before they are sent on" in line for line in words)
    assert all("group_accuracy" not in plan.to_json() for plan in expected_plans(system(), 0.0))
