"""Forecast how long a run takes, what it costs, how much disk it needs and what ends it.

The steps of models are measured. How long a function or a program takes is known once a trial of
it has ended.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from workbench.advisor.open_settings import base_params, drawn_params
from workbench.advisor.plan_variants import variant_of
from workbench.advisor.plans import Knowledge
from workbench.advisor.speed_history import hardware_of, read_measurements, setting_of
from workbench.advisor.stored_advice import Estimate
from workbench.cluster.workers.admission import capacity_of
from workbench.experiment import Experiment
from workbench.experiment.budget_units import describe_money, format_energy, parse_price
from workbench.experiment.plan import Plan
from workbench.experiment.trainings import longest_part
from workbench.foundation.errors import RunError, StoreError
from workbench.foundation.formatting import (
    format_bytes,
    format_count,
    format_duration,
    format_range,
)
from workbench.hardware.resources import ClusterInventory
from workbench.store.database import Store
from workbench.store.history import History
from workbench.sweeps.trial_resources import share_of
from workbench.sweeps.warm_start import readable_experiments
from workbench.training.planning.settings import resolve

# How far back a run of the same function or program is looked for, and what its times are read
# from.
_MAX_RUNS = 30
_TRIAL_EVENTS = frozenset(
    {"trial_proposed", "trial_started", "attempt_ended", "trial_ended", "energy_metered"}
)


@dataclass(frozen=True)
class Forecast:
    """What a run should take without early stopping, and without what turns cost.

    Attributes:
        plan: How a trial trains: global batch = micro batch x accumulation x workers. None for a
            function or a program.
        at_once: Number of concurrent trials.
        trial_s: Seconds of the steps of one training, or of a whole trial without a plan.
        num_trainings: Number of trainings, repeats included, or None if only time ends the run.
        run_s: Seconds of all of them, or None if only time ends the run.
        worker_hours: Hours of all workers, or None if only time ends the run.
        checkpoints_bytes: Upper bound on the size of checkpoints, or None if unknown.
        checkpoints_of: Whether that is the size for the entire run or for each trial.
        ends_by: Which limit is reached first, or None without limits.
        on_gpu: Whether workers compute on GPUs.
        price: The price of the hardware, or None if the experiment has none.
        money: What the run should cost, in the currency of the price, or None if unknown.
        energy_wh: The energy that it should use, or None if no measurement was metered.
        turns: Number of turns of a trial, each of which starts it again, or None without turns.
    """

    plan: str | None
    at_once: int
    trial_s: Estimate
    num_trainings: int | None
    run_s: Estimate | None
    worker_hours: float | None
    checkpoints_bytes: int | None
    checkpoints_of: Literal["run", "trial"]
    ends_by: Literal["trials", "time"] | None
    on_gpu: bool
    price: str | None = None
    money: Estimate | None = None
    energy_wh: Estimate | None = None
    turns: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the forecast as plain values and as text."""
        return dataclasses.asdict(self) | {"words": str(self)}

    def __str__(self) -> str:
        if self.plan is None:
            trials = format_count(self.at_once, "trial")
            runs = "runs" if self.at_once == 1 else "run"
            text = f"{trials} {runs} at once, and one takes about "
        else:
            text = (
                f"trials train as {self.plan}, {self.at_once} at once. The steps of one take about "
            )
        text += _with_range(self.trial_s, format_duration)
        disk = ""
        if self.checkpoints_bytes is not None:
            disk = f". Checkpoints take {self._disk()}"
        if self.run_s is None or self.worker_hours is None:
            if self.ends_by == "time":
                return f"{text}{disk}. budget.time ends the run{self._expenses()}"
            return text + disk
        without = "early stopping" if self.turns is None else "turns"
        return (
            f"{text}. Without {without}, {format_count(self.num_trainings or 0, 'trial')} take"
            f" about {format_duration(self.run_s.value)} "
            f"({format_range(self.run_s.low, self.run_s.high, format_duration)}) and "
            f"{self.worker_hours:.2g} {'GPU' if self.on_gpu else 'worker'} hours{disk}. "
            f"budget.{self.ends_by} ends the run{self._expenses()}"
        )

    def _expenses(self) -> str:
        """Return what the run should cost and use, as the end of a sentence."""
        parts = []
        if self.money is not None and self.price is not None:
            write = partial(describe_money, price=self.price)
            parts.append(f"costs about {_with_range(self.money, write)}")
        if self.energy_wh is not None:
            parts.append(f"uses about {_with_range(self.energy_wh, format_energy)}")
        return f", which {' and '.join(parts)}" if parts else ""

    def _disk(self) -> str:
        assert self.checkpoints_bytes is not None
        written = format_bytes(self.checkpoints_bytes)
        if self.checkpoints_of == "trial":
            return f"{written} per trial"
        return f"up to {written}"


def _with_range(estimate: Estimate, write: Callable[[float], str]) -> str:
    if write(estimate.low) == write(estimate.high):
        return write(estimate.value)
    return f"{write(estimate.value)} ({format_range(estimate.low, estimate.high, write)})"


def num_epochs_of(experiment: Experiment) -> int:
    """Return the epochs of a typical trial or, in a population, of the longest part."""
    return longest_part(experiment) or resolve(experiment, drawn_params(experiment)).training.epochs


def forecast_of(
    experiment: Experiment,
    plan: Plan,
    step_s: Estimate,
    *,
    num_epochs: int,
    num_train_samples: int,
    num_places: int,
    on_gpu: bool,
    state_bytes: int | None,
    power_w: float | None = None,
) -> Forecast:
    """Forecast a run whose trials all train by one plan.

    Args:
        experiment: The experiment.
        plan: How its trials train.
        step_s: Seconds of a step of that plan.
        num_epochs: Length of a training, as `num_epochs_of`.
        num_train_samples: Number of training samples.
        num_places: Number of workers that can run at once.
        on_gpu: Whether they compute on GPUs.
        state_bytes: Size of a checkpoint, or None if unknown.
        power_w: The power of all workers of one trial, or None if no measurement was metered.
    """
    trial_s = step_s.times(math.ceil(num_train_samples / plan.global_batch) * num_epochs)
    at_once = max(1, num_places // plan.workers)
    if (most := experiment.resources.concurrency) != "auto":
        at_once = min(most, at_once)
    return _forecast(
        experiment,
        trial_s,
        plan=plan.batch_text,
        workers=plan.workers,
        at_once=at_once,
        on_gpu=on_gpu,
        state_bytes=state_bytes,
        power_w=power_w,
    )


def _forecast(
    experiment: Experiment,
    trial_s: Estimate,
    *,
    plan: str | None,
    workers: int,
    at_once: int,
    on_gpu: bool,
    state_bytes: int | None,
    power_w: float | None,
) -> Forecast:
    """Forecast a run whose trials all take equally long. The arguments are as in `Forecast`."""
    budget_s = experiment.budget.time
    ends_by: Literal["trials", "time"] | None = None
    if budget_s is not None:
        ends_by = "time"
    run_s, worker_hours, checkpoints_bytes = None, None, None
    trainings = experiment.max_trainings()
    if trainings is not None:
        run_s = trial_s.times(math.ceil(trainings / at_once))
        worker_hours = trainings * workers * trial_s.value / 3600.0
        if budget_s is None or run_s.value < budget_s:
            ends_by = "trials"
    if state_bytes is not None:
        checkpoints_bytes = _disk(experiment, trainings, at_once, state_bytes)
    lasts_s = run_s
    if ends_by == "time" and budget_s is not None:
        lasts_s = Estimate(budget_s, budget_s, budget_s)
    trained_s = _trained_s(trial_s, trainings, at_once, lasts_s)
    is_endless = trainings is None and experiment.resources.keep_best == "all"
    return Forecast(
        plan=plan,
        at_once=at_once,
        trial_s=trial_s,
        num_trainings=trainings,
        run_s=run_s,
        worker_hours=worker_hours,
        checkpoints_bytes=checkpoints_bytes,
        checkpoints_of="trial" if is_endless else "run",
        ends_by=ends_by,
        on_gpu=on_gpu,
        turns=experiment.early_stop.turns,
        price=experiment.budget.price,
        money=_money(experiment, lasts_s, trained_s, workers * on_gpu),
        energy_wh=(
            None if power_w is None or trained_s is None else trained_s.times(power_w / 3600.0)
        ),
    )


def _trained_s(
    trial_s: Estimate, num_trainings: int | None, at_once: int, lasts_s: Estimate | None
) -> Estimate | None:
    """Return how long all trials train together, or None if nothing limits the run.

    Args:
        trial_s: How long one of them trains.
        num_trainings: Their number, or None if only time ends the run.
        at_once: How many train at once.
        lasts_s: How long the run lasts, or None if nothing limits it.
    """
    if lasts_s is None:
        return None
    limited = lasts_s.times(at_once)
    if num_trainings is None:
        return limited
    every = trial_s.times(num_trainings)
    return Estimate(
        min(every.value, limited.value), min(every.low, limited.low), min(every.high, limited.high)
    )


def _money(
    experiment: Experiment, lasts_s: Estimate | None, trained_s: Estimate | None, num_workers: int
) -> Estimate | None:
    """Return what a run should cost, or None without a price or a limit.

    Args:
        experiment: The experiment.
        lasts_s: How long the run lasts.
        trained_s: How long all of its trials train together.
        num_workers: The workers of one trial that compute on GPUs.
    """
    if experiment.budget.price is None or lasts_s is None or trained_s is None:
        return None
    price = parse_price(experiment.budget.price)
    if not price.is_per_gpu:
        return lasts_s.times(price.amount / 3600.0)
    of_worker = experiment.resources.gpus_of_worker
    gpus_per_worker = 1.0 if of_worker == "auto" else of_worker
    return trained_s.times(num_workers * gpus_per_worker * price.amount / 3600.0)


def _disk(experiment: Experiment, trainings: int | None, at_once: int, state_bytes: int) -> int:
    """Return an upper bound on the bytes of checkpoints: the last and the best of each trial."""
    kept, limit = experiment.resources.keep_best, experiment.resources.max_checkpoints_size
    if kept == "all":
        num_kept = trainings or 1
    else:
        num_kept = min(kept + at_once, trainings or kept + at_once)
    most = 2 * state_bytes * num_kept
    return most if limit is None else min(most, limit)


def expected(store: Store, experiment: Experiment, cluster: ClusterInventory) -> Forecast | None:
    """Forecast a run from earlier measurements on the same kind of hardware, without measuring.

    Args:
        store: The store with earlier measurements and runs.
        experiment: The experiment.
        cluster: The cluster that it would run on.

    Returns:
        The forecast, or None without a measurement that applies.

    Raises:
        ExperimentError: If settings of the experiment exclude each other.
    """
    if not experiment.trains_model:
        return _as_earlier_trials(store, experiment, cluster)
    if experiment.trained is None or experiment.federated is not None:  # rounds are not measured
        return None
    capacity = capacity_of(experiment, cluster)
    setting = setting_of(experiment, base_params(experiment), capacity.shape, cluster)
    measured = read_measurements(store, setting)
    samples = next((plan.num_train_samples for plan in measured if plan.num_train_samples), None)
    if samples is None:
        return None
    on_gpu = capacity.shape.gpus > 0
    plan = resolve(
        experiment,
        drawn_params(experiment),
        num_train_samples=samples,
        hardware=hardware_of(measured, has_gpu=on_gpu),
    ).plan
    knowledge = Knowledge(
        measured, capacity.workers_per_node, placement=capacity.placement, limit_bytes=None
    )
    if variant_of(plan) not in knowledge.variants:
        return None
    return forecast_of(
        experiment,
        plan,
        knowledge.step_times([plan])[0],
        num_epochs=num_epochs_of(experiment),
        num_train_samples=samples,
        num_places=capacity.num_workers,
        on_gpu=on_gpu,
        state_bytes=next((plan.state_bytes for plan in measured if plan.state_bytes), None),
        power_w=knowledge.power_w(plan),
    )


def _as_earlier_trials(
    store: Store, experiment: Experiment, cluster: ClusterInventory
) -> Forecast | None:
    """Forecast a run of a function or a program from the trials of its last run on this hardware.

    Returns:
        The forecast, or None if no trial has ended by itself.
    """
    hosts = {node.host for node in cluster.nodes}
    for row, earlier in readable_experiments(store, limit=_MAX_RUNS):
        is_here = row.owner is not None and row.owner.host in hosts
        if not is_here or _what_runs(earlier) != _what_runs(experiment):
            continue
        measured = None
        with contextlib.suppress(StoreError, RunError):  # written by another version, or damaged
            events = (stored.event for stored in store.events(row.run_id, types=_TRIAL_EVENTS))
            measured = _measured(History.of(earlier, events))
        if measured is None:
            continue
        trial_s, power_w = measured
        share = share_of("", experiment, cluster)
        return _forecast(
            experiment,
            trial_s,
            plan=None,
            workers=share.request.num_workers,
            at_once=share.at_once,
            on_gpu=share.request.shape.gpus > 0,
            state_bytes=None,
            power_w=power_w,
        )
    return None


def _what_runs(experiment: Experiment) -> tuple[Any, ...]:
    """Return what must be equal so that the trials of two experiments take equally long."""
    return (
        experiment.command,
        experiment.train,
        experiment.search,
        experiment.plan,
        experiment.resources.gpus_per_worker,
        experiment.resources.cpus_per_worker,
    )


def _measured(history: History) -> tuple[Estimate, float | None] | None:
    """Return how long the complete trials of a run took, and the power of a trial in watts.

    Trials that were interrupted, as by turns, say nothing about the time: to start them again takes
    time, too. The interval holds nine of ten trials. The power is None if nothing was metered.
    """
    trials = history.trials.values()
    whole = (trial for trial in trials if trial.state == "complete" and trial.attempts == 1)
    durations_s = [trial.duration_s for trial in whole]
    known_s = [duration_s for duration_s in durations_s if duration_s]
    if not known_s:
        return None
    low_s, high_s = np.quantile(known_s, [0.05, 0.95])
    trial_s = Estimate(float(np.mean(known_s)), float(low_s), float(high_s))
    if history.energy_wh is None:
        return trial_s, None
    return trial_s, 3600.0 * history.energy_wh / sum(trial.duration_s or 0.0 for trial in trials)
