"""What driver and coordinator exchange through Tune.

Orders in one direction, events in the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from workbench.cluster.remote.code_origin import Origin
from workbench.cluster.workers.admission import Request
from workbench.experiment.plan import PartialPlan
from workbench.foundation.events import Event
from workbench.training.task import TrialTask

ORDER_KEY = "order"
EVENTS_KEY = "events"


class Events(list[Event]):
    """What happened in a trial, oldest first; Tune writes results into debug lines, read or not."""

    def __repr__(self) -> str:
        return f"{len(self)} events"


@dataclass(frozen=True)
class Order:
    """What a coordinator must know to run one trial.

    Attributes:
        task: The trial.
        request: The workers that it needs.
        blocking: Whether training waits for a decision after each report of an objective.
        origin: Where the run was started.
        plan: What is known of the plan before the data is loaded.
        max_retries: How often the trial is tried again when a worker was lost.
        changeable: What of the plan may change, beside the division of its batch, where memory runs
            out.
        tried: The changes that earlier attempts tried where memory ran out.
        time_limit_s: How long all attempts may take together, in seconds; None for no limit.
        trained_s: How long earlier attempts took, in seconds.
        program: The version of the code that it runs.
    """

    task: TrialTask
    request: Request
    blocking: bool
    origin: Origin
    plan: PartialPlan
    max_retries: int
    changeable: frozenset[str]
    tried: tuple[PartialPlan, ...]
    time_limit_s: float | None
    trained_s: float = 0.0
    program: int = 1

    def __str__(self) -> str:
        # Tune writes configurations into names and logs.
        return f"trial {self.task.trial}"

    __repr__ = __str__
