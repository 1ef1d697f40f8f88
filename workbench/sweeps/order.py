"""What travels between driver and coordinator through Tune: an order there, events back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from workbench.training import TrialTask
from workbench.workers.admission import Request
from workbench.workers.origin import Origin

ORDER_KEY = "order"
EVENTS_KEY = "events"


@dataclass(frozen=True)
class Order:
    """What a coordinator is told about one trial.

    Attributes:
        task: The trial.
        request: The workers that it needs.
        blocking: Whether training waits for a decision after each report of an objective.
        origin: Where the run was started.
        plan: How the trial uses its workers, as it is shown and stored.
        max_retries: How often the trial is tried again when a worker was lost.
        may_shrink: Whether an attempt that runs out of memory is followed by one with a smaller micro batch.
        time_left_s: How long the attempts from here on may take; None for as long as it takes.
    """

    task: TrialTask
    request: Request
    blocking: bool
    origin: Origin
    plan: dict[str, Any]
    max_retries: int
    may_shrink: bool
    time_left_s: float | None

    def __str__(self) -> str:
        # Tune writes configurations into names and logs.
        return f"trial {self.task.trial}"

    __repr__ = __str__
