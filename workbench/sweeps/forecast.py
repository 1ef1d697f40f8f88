"""How long a run should take, what its checkpoints grow to, and which limit ends it, from measured steps."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal

from workbench.advisor.advice import Estimate
from workbench.advisor.choices import base_params, drawn_params
from workbench.advisor.measurements import read_measurements, setting_of
from workbench.advisor.plans import Knowledge, PlanChoice, plan_of
from workbench.advisor.quantities import format_bytes, format_duration, format_short_time
from workbench.experiment import Experiment
from workbench.resources import ClusterInventory
from workbench.store import Store
from workbench.training.settings import resolve
from workbench.workers.capacity import capacity_of


@dataclass(frozen=True)
class Forecast:
    """What a run should take, early stopping apart.

    Attributes:
        plan: How a trial trains: global batch = micro batch x accumulation x workers.
        at_once: Trials beside each other.
        trial_s: Seconds of the steps of one training.
        num_trainings: Trainings of the run, repeats counted; None where only time ends it.
        run_s: Seconds of all of them; None where only time ends it.
        worker_hours: What they use; None where only time ends it.
        checkpoints_bytes: What checkpoints grow to, at most; None where nobody knows.
        checkpoints_of: Whether that is meant of the run, or of each of any number of trials.
        ends_by: Which limit is met first; None where there is none.
        on_gpu: Whether workers compute on GPUs.
    """

    plan: str
    at_once: int
    trial_s: Estimate
    num_trainings: int | None
    run_s: Estimate | None
    worker_hours: float | None
    checkpoints_bytes: int | None
    checkpoints_of: Literal["run", "trial"]
    ends_by: Literal["trials", "time"] | None
    on_gpu: bool

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values, and in words."""
        return dataclasses.asdict(self) | {"words": str(self)}

    def __str__(self) -> str:
        said = (
            f"trials train as {self.plan}, {self.at_once} at once; "
            f"one takes about {format_short_time(self.trial_s.value)} "
            f"({format_short_time(self.trial_s.low)} to {format_short_time(self.trial_s.high)}) of steps"
        )
        disk = "" if self.checkpoints_bytes is None else f"; checkpoints take {self._disk()}"
        if self.run_s is None or self.worker_hours is None:
            return f"{said}{disk}" + ("; the run ends by its time" if self.ends_by == "time" else "")
        return (
            f"{said}; {self.num_trainings} of them without early stopping take about "
            f"{format_duration(self.run_s.value)} "
            f"({format_duration(self.run_s.low)} to {format_duration(self.run_s.high)}) and "
            f"{self.worker_hours:.2g} {'GPU' if self.on_gpu else 'worker'} hours{disk}; "
            f"the run ends by its {self.ends_by}"
        )

    def _disk(self) -> str:
        assert self.checkpoints_bytes is not None
        written = format_bytes(self.checkpoints_bytes)
        return f"{written} a trial" if self.checkpoints_of == "trial" else f"up to {written}"


def forecast_of(
    experiment: Experiment, plan: PlanChoice, step_s: Estimate, *, num_train_samples: int, num_places: int,
    on_gpu: bool, state_bytes: int | None,
) -> Forecast:  # fmt: skip
    """Say what a run should take whose trials train by one plan.

    Args:
        experiment: What is tuned.
        plan: How its trials train.
        step_s: Seconds of a step of that plan.
        num_train_samples: Samples of the training data.
        num_places: Workers that there can be at once.
        on_gpu: Whether they compute on GPUs.
        state_bytes: What a checkpoint takes; None where nobody knows.
    """
    epochs = resolve(experiment, drawn_params(experiment)).training.epochs
    trial_s = step_s.times(math.ceil(num_train_samples / plan.global_batch) * epochs)
    most, trials = experiment.resources.concurrency, experiment.max_configurations()
    at_once = max(1, num_places // plan.workers)
    at_once = at_once if most == "auto" else min(most, at_once)
    trainings = None if trials is None else trials * experiment.repeats
    run_s = None if trainings is None else trial_s.times(math.ceil(trainings / at_once))
    budget_s = experiment.budget.time
    if run_s is None:
        ends_by = None if budget_s is None else "time"
    else:
        ends_by = "trials" if budget_s is None or run_s.value < budget_s else "time"
    is_endless = trainings is None and experiment.resources.keep_best == "all"
    return Forecast(
        plan=plan.text,
        at_once=at_once,
        trial_s=trial_s,
        num_trainings=trainings,
        run_s=run_s,
        worker_hours=None if trainings is None else trainings * plan.workers * trial_s.value / 3600.0,
        checkpoints_bytes=None if state_bytes is None else _disk(experiment, trainings, at_once, state_bytes),
        checkpoints_of="trial" if is_endless else "run",
        ends_by=ends_by,
        on_gpu=on_gpu,
    )


def _disk(experiment: Experiment, trainings: int | None, at_once: int, state_bytes: int) -> int:
    """Return what checkpoints grow to: the last and the best one of each trial that keeps them."""
    kept, limit = experiment.resources.keep_best, experiment.resources.max_checkpoints_size
    if kept == "all":
        num_kept = 1 if trainings is None else trainings
    else:
        num_kept = kept + at_once if trainings is None else min(kept + at_once, trainings)
    most = 2 * state_bytes * num_kept
    return most if limit is None else min(most, limit)


def expected(store: Store, experiment: Experiment, cluster: ClusterInventory) -> Forecast | None:
    """Say what a run should take, from what was measured on like hardware before; nothing is measured now.

    Args:
        store: The store with earlier measurements.
        experiment: What is to be tuned, as it stands.
        cluster: Where.

    Returns:
        The forecast; None where nothing was measured that tells of it.

    Raises:
        ExperimentError: If settings of the experiment exclude each other.
    """
    if experiment.model is None:
        return None
    capacity = capacity_of(experiment, cluster)
    setting = setting_of(experiment, base_params(experiment), capacity.shape, cluster)
    measured = read_measurements(store, setting)
    samples = next((each.num_train_samples for each in measured if each.num_train_samples), None)
    if samples is None:
        return None
    on_gpu = capacity.shape.gpus > 0
    has_bf16 = any(each.plan.get("precision") == "bf16" for each in measured)
    plan = plan_of(
        resolve(
            experiment, drawn_params(experiment), num_train_samples=samples,
            device="cuda" if on_gpu else "cpu", has_bf16=has_bf16,
        ).plan()
    )  # fmt: skip
    knowledge = Knowledge(measured, capacity.workers_per_node, placement=capacity.placement, limit_bytes=None)
    if plan.variant not in knowledge.variants:
        return None
    return forecast_of(
        experiment, plan, knowledge.step_times([plan])[0], num_train_samples=samples,
        num_places=capacity.num_workers, on_gpu=on_gpu,
        state_bytes=next((each.state_bytes for each in measured if each.state_bytes), None),
    )  # fmt: skip
