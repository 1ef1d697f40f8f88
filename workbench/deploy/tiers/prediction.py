"""What a measurement on this machine is expected to show: the plan of one machine of each tier.

Times of stages are those of many calls in a row. What each step between two processes adds is measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from workbench.deploy.placement.assembly import assemble
from workbench.deploy.placement.scheduler_plans import expected_plans
from workbench.deploy.placement.system import System
from workbench.deploy.placement.tiers_file import HERE, TiersFile


@dataclass(frozen=True)
class Expected:
    """What is expected of a measurement: response times, in seconds, and accuracy.

    Attributes:
        mean_s: Their mean.
        p50_s: Their median.
        p95_s: Their 95th percentile.
        accuracy: Share of correct answers.
    """

    mean_s: float
    p50_s: float
    p95_s: float
    accuracy: float


def system_here(file: TiersFile, folder: Path, rate_per_s: float) -> System:
    """Return the system that runs on this machine: one process for each tier, one request at a time.

    Args:
        file: The file of tiers.
        folder: The folder that its paths are relative to.
        rate_per_s: Requests per second, in all.

    Raises:
        WorkbenchError: If a file does not fit the bundle, or its stages cannot be measured.
    """
    changes = {"machine": HERE, "count": 1, "batch": 1}
    tiers = {name: tier.model_copy(update=changes) for name, tier in file.tiers.items()}
    system, _ = assemble(file.model_copy(update={"tiers": tiers}), folder)
    return replace(system, arrivals_per_s=rate_per_s)


def expected_of(system: System, hop_s: float) -> dict[str, Expected]:
    """Return what is expected of each scheduler.

    Args:
        system: What runs, as of `system_here`.
        hop_s: Time of an empty frame between two processes there and back, in seconds. A request makes one
            such step to the first tier, and to the tier after n links n + 1 more, since each link is a
            process.
    """
    hops = np.arange(len(system.names))
    steps_s = hop_s * np.where(hops > 0, hops + 1, 0)
    further = replace(system, send_s=system.send_s + steps_s, send_raw_s=system.send_raw_s + steps_s)
    return {
        plan.scheduler: Expected(
            float(plan.outcome.response_s.mean()) + hop_s, plan.p50_s + hop_s, plan.p95_s + hop_s,
            plan.outcome.accuracy,
        )
        for plan in expected_plans(further, 0.0)
    }  # fmt: skip
