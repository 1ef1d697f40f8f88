"""The events of one attempt at a training: its plan, its reports and its checkpoints.

Rank 0 reports them, and all workers learn whether to stop. What to measure, and when, is left to
the loops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import torch

from workbench.data import Datasets, Split
from workbench.experiment.plan import Plan
from workbench.foundation.events import CheckpointSaved, Event, TrialPlanned, TrialReported
from workbench.models.adapters import declared_goals
from workbench.models.metrics import AnyMetric
from workbench.training.loss_and_metrics import rates_of
from workbench.training.strategies.strategy import Worker
from workbench.training.worker_task import TrialTask

Report = Callable[[Event], bool]
"""Receives an event, and returns whether the trial should stop."""


class AttemptEvents:
    """Makes the events of one attempt, and sends them."""

    def __init__(
        self, task: TrialTask, report: Report, worker: Worker, *, started_s: float
    ) -> None:
        """Start before the first event.

        Args:
            task: The order.
            report: Called on rank 0 only.
            worker: Which worker this is.
            started_s: When the attempt started, by `perf_counter`.
        """
        self._task, self._report, self._worker = task, report, worker
        self._started_s = started_s

    def send(self, event: Event) -> bool:
        """Report from rank 0, and return on every worker whether to stop.

        All workers must call it.
        """
        stop = self._worker.rank == 0 and bool(self._report(event))
        if self._worker.num_workers > 1:
            flag = torch.tensor(float(stop), device=self._worker.device)
            stop = self._worker.group.total(flag).item() > 0
        return stop

    def planned(
        self, plan: Plan, datasets: Datasets, metrics: Mapping[str, AnyMetric], **more: Any
    ) -> TrialPlanned:
        """Return the event of the attempt's plan, with the data behind its metrics.

        Args:
            plan: The plan.
            datasets: The loaded data.
            metrics: The metrics of the validation data, by name.
            **more: Further fields of the event.
        """
        return TrialPlanned(
            trial=self._task.trial,
            attempt=self._task.attempt,
            plan=plan.to_json(),
            goals=declared_goals(metrics),
            num_validation=_num_samples(datasets.validation),
            num_test=0 if datasets.test is None else _num_samples(datasets.test),
            rates=rates_of(self._task.experiment, datasets, metrics),
            **more,
        )

    def reported(
        self, step: int, values: Mapping[str, float], *, epoch: float, **more: Any
    ) -> TrialReported:
        """Return the event of a report.

        Args:
            step: The last step.
            values: Numbers by metric.
            epoch: The progress of the training, in epochs.
            **more: Further fields of the event.
        """
        return TrialReported(
            trial=self._task.trial,
            attempt=self._task.attempt,
            step=step,
            epoch=epoch,
            elapsed_s=perf_counter() - self._started_s,
            values=dict(values),
            **more,
        )

    def saved(self, step: int, path: str, *, best: bool) -> CheckpointSaved:
        """Return the event of a saved checkpoint.

        Args:
            step: The step of the checkpoint.
            path: Its path, for messages. "" on workers that do not report.
            best: Whether it is the best so far.
        """
        task = self._task
        return CheckpointSaved(
            trial=task.trial, attempt=task.attempt, step=step, path=path, best=best
        )


def _num_samples(split: Split) -> int:
    """Return the number of samples of a split. A packed row has several conversations."""
    return getattr(split, "num_samples", len(split))
