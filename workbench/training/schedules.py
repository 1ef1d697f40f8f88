"""The learning rate over a training, from a formula or from a torch scheduler.

A torch scheduler changes the rate of a single optimizer that represents the whole trial. The rates
of groups, phases and shards follow it.
"""

from __future__ import annotations

import inspect
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from workbench.experiment import Objective, Training
from workbench.experiment.goals import Goal
from workbench.experiment.schedules import (
    PLATEAU,
    WSD,
    check_schedule,
    followed_metric,
    is_own_schedule,
    own_options,
    plateau_options,
    wsd_options,
)
from workbench.foundation.errors import ExperimentError
from workbench.foundation.registry import load_object
from workbench.training.checkpoint import UNREADABLE
from workbench.training.planning import learning_rate
from workbench.training.strategies.worker_group import Group

_FIELD, _OPTIONS = "training.schedule", "training.schedule_options"
_LENGTHS = ("total_steps", "num_training_steps", "T_max")
"""Arguments of schedulers that mean the length of the training. They are filled in if missing.
"""
_MAX_PATIENCE = 10


@dataclass(frozen=True)
class Length:
    """How long a training is.

    Attributes:
        total_steps: Optimizer steps.
        warmup_steps: Steps of the warm-up.
        epochs: Passes over the data.
        evaluations: Number of evaluations.
    """

    total_steps: int
    warmup_steps: int
    epochs: int
    evaluations: int


class Schedule:
    """The factor of the peak rate for each step. This base has no state."""

    def factor(self, step: int) -> float:
        """Return the factor of a step. Steps come in order."""
        raise NotImplementedError

    def after_step(self) -> None:
        """Advance after a step."""

    def after_epoch(self) -> None:
        """Advance after an epoch."""

    def after_evaluation(self, values: dict[str, float]) -> None:
        """Advance by the values of an evaluation. Every worker must call it."""

    def state_dict(self) -> dict[str, Any]:
        """Return the position, for a checkpoint."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a position."""


def schedule_of(
    training: Training,
    lr: float,
    length: Length,
    *,
    objectives: tuple[Objective, ...],
    measured: Mapping[str, Goal | None],
    group: Group,
) -> Schedule:
    """Return the schedule of a trial.

    Args:
        training: The training section, with searched values in place.
        lr: The peak rate.
        length: How long the training is.
        objectives: The objectives of the experiment. By default, `plateau` follows the first one.
        measured: The metrics of evaluations, each with its better direction, or None if it has
            declared no direction.
        group: The workers. They follow the same values.

    Raises:
        ExperimentError: If the schedule does not exist, rejects its options, or follows a metric
            that is not measured.
    """
    check_schedule(training)
    is_own = is_own_schedule(training.schedule)
    if training.schedule != PLATEAU and not is_own:
        options: dict[str, Any] = {}
        if training.schedule == WSD:
            options = {"decay": wsd_options(training).decay}
        return _Computed(training.schedule, length, options)
    holder = _RateHolder(lr)
    metric = followed_metric(training)
    default_metric = objectives[0].metric
    by_step = False
    if is_own:
        scheduler, by_step = _own(training, holder, length, default_metric, measured)
        takes_metric = isinstance(scheduler, ReduceLROnPlateau)
        if metric is not None and not takes_metric:
            raise ExperimentError(
                f"the schedule {training.schedule} does not follow a metric",
                field=f"{_OPTIONS}.metric",
                next_step="Remove it.",
            )
    else:
        scheduler = _plateau(training, holder, length, default_metric, measured)
        takes_metric = True
    followed = (metric or default_metric) if takes_metric else None
    if followed is not None and followed not in measured:
        raise ExperimentError(
            f"{followed!r} is not measured, so the schedule cannot follow it",
            field=f"{_OPTIONS}.metric",
            allowed=sorted(measured),
        )
    return _Driven(scheduler, holder, length, metric=followed, by_step=by_step, group=group)


class _Computed(Schedule):
    """A schedule that only depends on the number of the step."""

    def __init__(self, name: str, length: Length, options: Mapping[str, Any]) -> None:
        self._name: Any = name  # checked by the experiment
        self._length = length
        self._options = options

    def factor(self, step: int) -> float:
        length = self._length
        return learning_rate.factor(
            self._name,
            step,
            total_steps=length.total_steps,
            warmup_steps=length.warmup_steps,
            **self._options,
        )


class ConstantAtTheEnd(Schedule):
    """A schedule with a constant rate at the end, for example while weights are averaged."""

    def __init__(self, schedule: Schedule, first_step: int, part: float) -> None:
        """Continue another schedule.

        Args:
            schedule: The schedule before the constant rate.
            first_step: The first step with the constant rate.
            part: The constant rate, as a part of the peak rate.
        """
        self._schedule, self._first_step, self._part = schedule, first_step, part
        # The other schedule keeps advancing, and stores the position.
        self.after_step, self.after_epoch = schedule.after_step, schedule.after_epoch
        self.after_evaluation = schedule.after_evaluation
        self.state_dict, self.load_state_dict = schedule.state_dict, schedule.load_state_dict

    def factor(self, step: int) -> float:
        """Return the factor of a step. See Schedule.factor."""
        if step >= self._first_step:
            return self._part
        return self._schedule.factor(step)


class _RateHolder(Optimizer):
    """An optimizer with a rate and nothing to update."""

    def __init__(self, lr: float) -> None:
        super().__init__([torch.zeros(1)], {"lr": lr})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Do nothing. Schedulers warn if the optimizer has not made a step before them."""

    @property
    def rate(self) -> float:
        """The rate that the scheduler has set."""
        return float(self.param_groups[0]["lr"])


class _Driven(Schedule):
    """A scheduler of torch. A warm-up rises to the current rate of the scheduler."""

    def __init__(
        self,
        scheduler: Any,
        holder: _RateHolder,
        length: Length,
        *,
        metric: str | None,
        by_step: bool,
        group: Group,
    ) -> None:
        self._scheduler, self._holder, self._peak_lr = scheduler, holder, holder.defaults["lr"]
        self._warmup_steps = length.warmup_steps
        self._metric = metric
        self._by_step = by_step
        self._group = group
        self._check_state()

    def factor(self, step: int) -> float:
        rise = (step + 1) / self._warmup_steps if step < self._warmup_steps else 1.0
        return rise * (self._holder.rate / self._peak_lr)

    def after_step(self) -> None:
        if self._by_step and self._metric is None:
            self._advance()

    def after_epoch(self) -> None:
        if not self._by_step and self._metric is None:
            self._advance()

    def after_evaluation(self, values: dict[str, float]) -> None:
        if self._metric is not None:
            # One worker decides for all. If a model draws at random, its metric may differ between
            # workers, and then their rates would.
            self._advance(self._group.broadcast(values[self._metric]))

    def state_dict(self) -> dict[str, Any]:
        return {"rate": self._holder.rate, "scheduler": self._scheduler.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if not state:
            raise ExperimentError(
                "the checkpoint was made with another schedule",
                field=_FIELD,
                next_step="Continue with the schedule of the checkpoint.",
            )
        self._holder.param_groups[0]["lr"] = state["rate"]
        self._scheduler.load_state_dict(state["scheduler"])

    def _advance(self, *metrics: float) -> None:
        self._holder.step()
        try:
            self._scheduler.step(*metrics)
        except (TypeError, ValueError) as error:
            raise ExperimentError(
                f"{type(self._scheduler).__name__} fails: {error}", field=_OPTIONS
            ) from error

    def _check_state(self) -> None:
        """Check that the position of a scheduler can be read back from a checkpoint."""
        buffer = io.BytesIO()
        try:
            torch.save(self._scheduler.state_dict(), buffer)
            torch.load(io.BytesIO(buffer.getvalue()), weights_only=True)
        except UNREADABLE as error:
            raise ExperimentError(
                f"the state of {type(self._scheduler).__name__} is not only numbers and texts, so"
                " that a trial could not continue",
                field=_FIELD,
                next_step="Let state_dict return only numbers, texts, and lists or dicts of these.",
            ) from error


def _plateau(
    training: Training,
    holder: _RateHolder,
    length: Length,
    default_metric: str,
    measured: Mapping[str, Goal | None],
) -> ReduceLROnPlateau:
    options = plateau_options(training)
    patience = options.patience
    if patience is None:
        patience = min(_MAX_PATIENCE, max(1, length.evaluations // 10))
    return ReduceLROnPlateau(
        holder,
        mode=options.mode or _mode(options.metric or default_metric, measured),
        patience=patience,
        factor=options.factor,
        threshold=options.threshold,
        threshold_mode=options.threshold_mode,
        cooldown=options.cooldown,
        min_lr=options.min_lr,
    )


def _mode(metric: str, measured: Mapping[str, Goal | None]) -> Any:
    """Return whether a metric should fall or rise."""
    goal = measured.get(metric)
    if goal is None and metric in measured:
        raise ExperimentError(
            f"it is not known if {metric} should fall or rise",
            field=f"{_OPTIONS}.mode",
            allowed="min, max",
        )
    return "min" if goal == "minimize" else "max"


def _own(
    training: Training,
    holder: _RateHolder,
    length: Length,
    default_metric: str,
    measured: Mapping[str, Goal | None],
) -> tuple[Any, bool]:
    """Return a scheduler of another package, and whether it moves at each step."""
    ours, options = own_options(training)
    make: Any = load_object(training.schedule, field=_FIELD)
    if _is_plateau(make) and "mode" not in options:
        options["mode"] = _mode(ours.metric or default_metric, measured)
    by_step = ours.interval == "step"
    given = _with_length(make, options, length.total_steps if by_step else length.epochs)
    try:
        made = make(holder, **given)
    except (TypeError, ValueError) as error:
        raise ExperimentError(
            f"{training.schedule} does not accept its options: {error}", field=_OPTIONS
        ) from error
    if not isinstance(made, LRScheduler):
        raise ExperimentError(
            f"{training.schedule} made an object of type {type(made).__name__}",
            field=_FIELD,
            allowed=(
                "a subclass of torch.optim.lr_scheduler.LRScheduler, or a function that returns one"
            ),
        )
    if not math.isfinite(holder.rate):
        raise ExperimentError(
            f"{training.schedule} starts with the rate {holder.rate}", field=_OPTIONS
        )
    return made, by_step


def _is_plateau(make: Any) -> bool:
    return inspect.isclass(make) and issubclass(make, ReduceLROnPlateau)


def _with_length(make: Any, options: dict[str, Any], length: int) -> dict[str, Any]:
    """Return options with the length of the training, unless it is given or not a parameter."""
    try:
        known = inspect.signature(make).parameters
    except (TypeError, ValueError):
        return options
    if "epochs" in options:  # another way to give the length
        return options
    return {name: length for name in _LENGTHS if name in known} | options
