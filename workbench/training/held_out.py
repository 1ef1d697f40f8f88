"""One look at the test samples, by which nothing is trained, chosen or pruned, at the end of a
training.

The weights that the trial keeps are measured, once. A test that fails costs no finished training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from workbench.foundation.artifacts import Artifacts
from workbench.foundation.errors import RunError, first_line_of
from workbench.foundation.events import Event, Noted, TrialTested
from workbench.training import checkpoint
from workbench.training.assembly import Parts
from workbench.training.evaluation import evaluate, evaluate_at_once
from workbench.training.source import Source
from workbench.training.task import BEST, TrialTask

Report = Callable[[Event], bool]

_OF_TRAINED = ("trained", "averaged")
"""What a checkpoint holds of weights that are trained on but not kept, where their mean is kept."""


def measure_kept(task: TrialTask, parts: Parts, report: Report, *, has_kept_weights: bool) -> None:
    """Measure the weights that a trial keeps on the test samples, if the data has some.

    All workers must call it, after the last step: the weights of the strategy may be replaced.

    Args:
        task: The order.
        parts: The training, which is complete.
        report: Takes events; called on rank 0 only.
        has_kept_weights: Whether the strategy holds the weights that are kept, so that no
            checkpoint is read.
    """
    split = parts.datasets.test
    if split is None or not len(split):
        return
    try:
        if not has_kept_weights:
            parts.strategy.load(_kept(task.checkpoints))
        source = Source(split, parts.worker.device, part="test")
        values = measure_split(parts, source)
    except Exception as error:
        if parts.worker.rank == 0:
            report(failed_test(task, error))
        return
    if parts.worker.rank == 0:
        report(tested(task, values))


def tested(task: TrialTask, values: Mapping[str, float]) -> TrialTested:
    """Return the event of what was measured on the test samples.

    Args:
        task: The order.
        values: What was measured, by metric.
    """
    named = {f"test_{name}": value for name, value in values.items()}
    return TrialTested(trial=task.trial, attempt=task.attempt, values=named)


def failed_test(task: TrialTask, error: Exception) -> Noted:
    """Return the note that the test samples could not be used.

    Args:
        task: The order.
        error: Why.
    """
    message = f"the test samples could not be measured: {first_line_of(error)}"
    return Noted(level="warning", message=message, trial=task.trial)


def _kept(folder: Artifacts) -> dict[str, Any]:
    if not folder.exists(BEST):
        raise RunError("the trial has left no weights")
    with checkpoint.fetched(folder, BEST) as path:
        state = checkpoint.read(path)["strategy"]
    return {name: value for name, value in state.items() if name not in _OF_TRAINED}


def measure_split(parts: Parts, source: Source) -> dict[str, float]:
    """Measure the metrics of a training on some samples; all workers must call it.

    Args:
        parts: The training.
        source: The samples.
    """
    strategy, worker, metrics = parts.strategy, parts.worker, parts.metrics
    needs_all = any(getattr(item, "adds_up", True) is False for item in metrics.values())
    if parts.makes_own_steps and needs_all:
        return evaluate_at_once(strategy, source, metrics, device=worker.device)
    return evaluate(strategy, source, metrics, batch=parts.settings.plan.micro_batch, worker=worker)
