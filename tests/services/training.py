"""One attempt of a trial, trained in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench.experiment import Experiment
from workbench.foundation.events import TrialReported
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask


def losses_by_step(
    folder: Path, experiment: Experiment, *, stop_at: int | None = None, **task: Any
) -> dict[int, float]:
    """Train until the checkpoint of a step, or to the end.

    Return the validation losses of this attempt.
    """
    losses: dict[int, float] = {}

    def report(event: Any) -> bool:
        if isinstance(event, TrialReported) and "val_loss" in event.values and not event.told_again:
            losses[event.step] = event.values["val_loss"]
        return event.type == "checkpoint_saved" and event.step == stop_at

    order = TrialTask(
        "run", 0, 0, experiment.model_dump_json(), seed=3, folder=str(folder), resume=True, **task
    )
    ended = run_trial(order, report)
    assert ended.state != "failed", ended.traceback
    return losses
