"""What each threshold of the first exit gives.

Accuracy, response times, bytes and load under each scheduler.

Drawing it, with a slider, is left to the widgets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from workbench.tiers.placement.flows import Outcome
from workbench.tiers.placement.schedulers import policies_for
from workbench.tiers.placement.system import System

_NUM_THRESHOLDS = 41


@dataclass(frozen=True)
class ExitPoint:
    """One threshold of the first exit.

    Attributes:
        threshold: The probability from which an answer leaves there.
        share: Share of the samples that leave there, where all is computed on the first tier.
        outcomes: What closed forms expect of each scheduler.
        group_accuracy: By scheduler the share of the answers whose group of classes is right; empty
            without groups.
    """

    threshold: float
    share: float
    outcomes: dict[str, Outcome]
    group_accuracy: dict[str, float]


def exit_curve(system: System) -> list[ExitPoint]:
    """Return what comes of thresholds of the first exit, from 0, where every answer leaves there,
    to 1.

    They lie where equally many validation samples are between two of them; that of the system is
    among them.

    Args:
        system: The system; the thresholds of its other exits are kept.
    """
    first, *others = system.thresholds
    levels = np.quantile(system.evidence.confidence[:, 0], np.linspace(0, 1, _NUM_THRESHOLDS))
    schedulers = policies_for(system)
    found = []
    for threshold in sorted({0.0, *np.clip(levels, 0, 1).tolist(), first, 1.0}):
        changed = replace(system, thresholds=(threshold, *others))
        outcomes = {name: scheduler.expect(changed) for name, scheduler in schedulers.items()}
        by_group = {}
        if system.group_threshold is not None:
            grouped = changed.by_group()
            by_group = {
                name: scheduler.expect(grouped).accuracy for name, scheduler in schedulers.items()
            }
        found.append(ExitPoint(threshold, float((changed.exits == 0).mean()), outcomes, by_group))
    return found
