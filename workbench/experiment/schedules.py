"""How an experiment names the course of the learning rate and the mean of weights at its end.

Computing rates is left to planning and training; a schedule of another package checks its options
itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, JsonValue, NonNegativeFloat, ValidationError

from workbench.experiment.refusals import refusal
from workbench.experiment.schedule_names import PLATEAU, is_own_schedule
from workbench.experiment.setting_types import ExactInt, Section
from workbench.foundation.errors import ExperimentError

if TYPE_CHECKING:
    from workbench.experiment.training_section import Training


class PlateauOptions(Section):
    """Options of the schedule plateau, by the names of
    torch.optim.lr_scheduler.ReduceLROnPlateau.
    """

    metric: str | None = Field(
        default=None,
        min_length=1,
        description="The metric that has to improve; the default is that of the first objective.",
    )
    mode: Literal["min", "max"] | None = Field(
        default=None,
        description=(
            "Whether the metric should fall or rise; by default, what is usual for the metric."
        ),
    )
    factor: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.1, description="What the rate is multiplied by."
    )
    patience: Annotated[ExactInt, Field(ge=0)] | None = Field(
        default=None,
        description=(
            "Evaluations without improvement that are tolerated; the default is a tenth of all, "
            "from 1 to 10."
        ),
    )
    threshold: NonNegativeFloat = Field(
        default=1e-4, description="How much counts as an improvement."
    )
    threshold_mode: Literal["rel", "abs"] = Field(
        default="rel",
        description="Whether the threshold is a part of the best value, or a difference.",
    )
    cooldown: Annotated[ExactInt, Field(ge=0)] = Field(
        default=0, description="Evaluations after a reduction that do not count."
    )
    min_lr: NonNegativeFloat = Field(default=0.0, description="The lowest rate.")


class OwnScheduleOptions(Section):
    """What the workbench itself has to know about a schedule of another package."""

    interval: Literal["epoch", "step"] = Field(
        default="epoch",
        description="Whether the schedule goes on at the end of an epoch or of each step.",
    )
    metric: str | None = Field(
        default=None,
        min_length=1,
        description="The metric that the schedule receives, if it takes one.",
    )


def plateau_options(training: Training) -> PlateauOptions:
    """Return the options of plateau.

    Args:
        training: The training section; its schedule is plateau.

    Raises:
        ExperimentError: If an option is unknown or refused.
    """
    try:
        return PlateauOptions.model_validate(training.schedule_options)
    except ValidationError as error:
        raise refusal(error, at="training.schedule_options") from error


def own_options(training: Training) -> tuple[OwnScheduleOptions, dict[str, JsonValue]]:
    """Return what the workbench reads of the options of a custom schedule, and what the schedule
    receives.

    Args:
        training: The training section; its schedule is of another package.

    Raises:
        ExperimentError: If what the workbench reads is refused.
    """
    ours = OwnScheduleOptions.model_fields
    read = {name: value for name, value in training.schedule_options.items() if name in ours}
    passed = {name: value for name, value in training.schedule_options.items() if name not in ours}
    try:
        return OwnScheduleOptions.model_validate(read), passed
    except ValidationError as error:
        raise refusal(error, at="training.schedule_options") from error


def followed_metric(training: Training) -> str | None:
    """Return the metric that the schedule is stated to follow.

    None for none, or that of the objective.
    """
    if training.schedule == PLATEAU:
        return plateau_options(training).metric
    return own_options(training)[0].metric if is_own_schedule(training.schedule) else None


def check_schedule(training: Training) -> None:
    """Refuse options that the schedule does not have.

    Raises:
        ExperimentError: If there are any.
    """
    if training.schedule == PLATEAU:
        plateau_options(training)
    elif is_own_schedule(training.schedule):
        own_options(training)
    elif training.schedule_options:
        raise ExperimentError(
            f"the schedule {training.schedule} has no options",
            field="training.schedule_options",
            allowed="options of plateau, or of package.module:Class",
            next_step=(
                "Remove them; warmup_epochs sets the rise. Where the schedule is searched, search "
                "schedule_options, too, with when: {schedule: ...}."
            ),
        )


def averaged_from(training: Training) -> int:
    """Return the number of epochs before those at whose ends the weights are averaged.

    Args:
        training: The training section, with `average_start`.
    """
    assert training.average_start is not None
    return min(int(training.average_start * training.epochs), training.epochs - 1)


def check_averaging(training: Training) -> None:
    """Refuse two means of the weights, and a rate for epochs that are not averaged.

    Raises:
        ExperimentError: If there are any.
    """
    if training.average_start is not None and training.average_decay is not None:
        raise ExperimentError(
            "weights are averaged over steps by average_decay or over epochs by average_start, not"
            " both",
            field="training.average_start",
            next_step="Remove one of the two.",
        )
    if training.average_lr is not None and training.average_start is None:
        raise ExperimentError(
            "it is the rate of epochs that are averaged, and none are",
            field="training.average_lr",
            next_step="Set average_start, or remove it.",
        )
