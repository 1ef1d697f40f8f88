"""Options of learning rate schedules, and the averaging of weights at the end of a training.

Planning and training compute the rates. A schedule of another package checks its own options.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, JsonValue, NonNegativeFloat, ValidationError

from workbench.experiment.setting_types import ExactInt, Section
from workbench.experiment.training_section import PLATEAU, is_own_schedule
from workbench.experiment.validation_errors import refusal
from workbench.foundation.errors import ExperimentError

if TYPE_CHECKING:
    from workbench.experiment.training_section import Training


WSD = "wsd"
"""The schedule that warms up, stays and decays."""
DECAY = "schedule_options.decay"
"""How long wsd decays, as a searched parameter. Until then, others train the same."""


class PlateauOptions(Section):
    """Options of the schedule plateau, named as in torch's ReduceLROnPlateau."""

    metric: str | None = Field(
        default=None,
        min_length=1,
        description="The metric that has to improve. By default that of the first objective.",
    )
    mode: Literal["min", "max"] | None = Field(
        default=None,
        description=(
            "Whether the metric should fall or rise. By default, what is usual for the metric."
        ),
    )
    factor: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.1, description="Factor by which the rate is multiplied."
    )
    patience: Annotated[ExactInt, Field(ge=0)] | None = Field(
        default=None,
        description=(
            "Evaluations without improvement before the rate falls. By default a tenth of all "
            "evaluations, from 1 to 10."
        ),
    )
    threshold: NonNegativeFloat = Field(
        default=1e-4, description="Smallest change that counts as an improvement."
    )
    threshold_mode: Literal["rel", "abs"] = Field(
        default="rel",
        description="Whether the threshold is a share of the best value, or a difference.",
    )
    cooldown: Annotated[ExactInt, Field(ge=0)] = Field(
        default=0, description="Evaluations after a reduction that do not count."
    )
    min_lr: NonNegativeFloat = Field(default=0.0, description="The lowest rate.")


class WsdOptions(Section):
    """Options of the schedule wsd. Source of the default: Hägele et al. (2024)."""

    decay: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.2, description="The last part of all steps, in which the rate falls to 0."
    )


class OwnScheduleOptions(Section):
    """The options of another package's schedule that the workbench itself reads."""

    interval: Literal["epoch", "step"] = Field(
        default="epoch",
        description="Whether the schedule advances after each epoch or after each step.",
    )
    metric: str | None = Field(
        default=None,
        min_length=1,
        description="The metric that the schedule receives, if it takes one.",
    )


def plateau_options(training: Training) -> PlateauOptions:
    """Return the options of plateau.

    Args:
        training: The training section, with the schedule plateau.

    Raises:
        ExperimentError: If an option is unknown or not allowed.
    """
    try:
        return PlateauOptions.model_validate(training.schedule_options)
    except ValidationError as error:
        raise refusal(error, at="training.schedule_options") from error


def wsd_options(training: Training) -> WsdOptions:
    """Return the options of wsd.

    Args:
        training: The training section, with the schedule wsd.

    Raises:
        ExperimentError: If an option is unknown or not allowed.
    """
    try:
        return WsdOptions.model_validate(training.schedule_options)
    except ValidationError as error:
        raise refusal(error, at="training.schedule_options") from error


def stable_epochs(training: Training, decay: float | None = None) -> int:
    """Return how many whole epochs a training with wsd ends before it decays.

    Args:
        training: The training section, with the schedule wsd.
        decay: The part of all steps that decays. By default, that of the training.
    """
    if decay is None:
        decay = wsd_options(training).decay
    return math.floor((1.0 - decay) * training.epochs + 1e-9)


def own_options(training: Training) -> tuple[OwnScheduleOptions, dict[str, JsonValue]]:
    """Return the options of a custom schedule: those for the workbench, and those for the schedule.

    Args:
        training: The training section, with a schedule of another package.

    Raises:
        ExperimentError: If an option for the workbench is not allowed.
    """
    ours = OwnScheduleOptions.model_fields
    read = {name: value for name, value in training.schedule_options.items() if name in ours}
    passed = {name: value for name, value in training.schedule_options.items() if name not in ours}
    try:
        return OwnScheduleOptions.model_validate(read), passed
    except ValidationError as error:
        raise refusal(error, at="training.schedule_options") from error


def followed_metric(training: Training) -> str | None:
    """Return the metric in the options of the schedule.

    None if the schedule follows no metric, or the metric of the first objective.
    """
    if training.schedule == PLATEAU:
        return plateau_options(training).metric
    if is_own_schedule(training.schedule):
        return own_options(training)[0].metric
    return None


def check_schedule(training: Training) -> None:
    """Check the options of the schedule.

    Args:
        training: The training section.

    Raises:
        ExperimentError: If the schedule does not have an option.
    """
    if training.schedule == PLATEAU:
        plateau_options(training)
    elif training.schedule == WSD:
        wsd_options(training)
    elif is_own_schedule(training.schedule):
        own_options(training)
    elif training.schedule_options:
        raise ExperimentError(
            f"the schedule {training.schedule} has no options",
            field="training.schedule_options",
            allowed="options of plateau, wsd or package.module:Class",
            next_step=(
                "Remove them. To warm up, set warmup_epochs. If you search the schedule, also "
                "search schedule_options, with when: {schedule: ...}."
            ),
        )


def averaged_from(training: Training) -> int:
    """Return the number of epochs before the first one that is averaged.

    Args:
        training: The training section, with `average_start`.
    """
    assert training.average_start is not None
    return min(int(training.average_start * training.epochs), training.epochs - 1)


def check_averaging(training: Training) -> None:
    """Check the settings that average weights.

    Args:
        training: The training section.

    Raises:
        ExperimentError: If there are two averages, or a rate for epochs that are not averaged.
    """
    if training.average_start is not None and training.average_decay is not None:
        raise ExperimentError(
            "you cannot combine it with average_decay",
            field="training.average_start",
            next_step="Remove average_start or average_decay.",
        )
    if training.average_lr is not None and training.average_start is None:
        raise ExperimentError(
            "it is the rate of averaged epochs, but no epochs are averaged",
            field="training.average_lr",
            next_step="Set average_start, or remove it.",
        )
