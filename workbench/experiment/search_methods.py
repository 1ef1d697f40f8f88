"""The sections `sampler`, `early_stop` and `confirm`: how an experiment searches.

The samplers and pruners are declared in `samplers` and `pruners`. The study runs them.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field, JsonValue, ValidationError, model_validator
from typing_extensions import Self

from workbench.experiment.pruners import PRUNERS, SHARED_SETTINGS, PrunerOptions, readers_of
from workbench.experiment.samplers import SAMPLERS, SamplerOptions
from workbench.experiment.setting_types import Epochs, ExactInt, PositiveInt, Section
from workbench.experiment.validation_errors import refusal
from workbench.foundation.errors import ExperimentError, WorkbenchError
from workbench.foundation.formatting import format_count
from workbench.foundation.registry import Registry

if TYPE_CHECKING:
    from workbench.foundation.events import TrialReported


def _check_registered(registry: Registry) -> Callable[[str], str]:
    def check(name: str) -> str:
        if name not in registry:
            raise registry.unknown(name)
        return name

    return check


def _list_names(registry: Registry) -> Callable[[dict[str, Any]], None]:
    """Return a function that adds the names of a registry to a schema, for forms and editors."""
    return lambda schema: schema.update(enum=registry.names())


SamplerName = Annotated[
    str, AfterValidator(_check_registered(SAMPLERS)), Field(json_schema_extra=_list_names(SAMPLERS))
]
PrunerName = Annotated[
    str, AfterValidator(_check_registered(PRUNERS)), Field(json_schema_extra=_list_names(PRUNERS))
]


class EarlyStop(Section):
    """Which trials are stopped early. Units are epochs, or steps for a `train` function."""

    pruner: PrunerName = "none"
    unit: str | None = Field(
        default=None,
        min_length=1,
        description=(
            "For a train function: what grace and patience count, either steps or a metric that "
            "it reports with each objective, such as samples. Models count epochs."
        ),
    )
    grace: Epochs = Field(
        default=1, description="Epochs that every trial completes before it can be stopped."
    )
    reduction_factor: ExactInt = Field(
        default=3,
        ge=2,
        description="asha, hyperband: one in this many trials continues at each rung.",
    )
    percentile: float = Field(
        default=25.0, gt=0, le=100, description="percentile: percentage of trials that continue."
    )
    startup_trials: ExactInt = Field(
        default=5,
        ge=0,
        description="median, percentile: never stop this many first trials.",
    )
    patience: Epochs = Field(
        default=5, description="patience: epochs without improvement before a trial is stopped."
    )
    p_threshold: float = Field(
        default=0.1, gt=0, lt=1, description="wilcoxon: stop if p is below this value."
    )

    turns: ExactInt | None = Field(
        default=None,
        ge=2,
        description=(
            "Train in this many turns: every configuration is trained for its first part before "
            "any is trained for its second."
        ),
    )
    length: PositiveInt | Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description=(
            "With turns, for a train function or a command: the steps of a whole training, or the "
            "name of the parameter that sets them. By default epochs."
        ),
    )
    options: dict[str, JsonValue] = Field(
        default_factory=dict, description="Options of a pruner that another package registers."
    )

    @property
    def kind(self) -> type[PrunerOptions]:
        """The type of the pruner: its options, the settings that it reads, and what it supports."""
        return PRUNERS.load(self.pruner, field="early_stop.pruner")

    @property
    def counted_metric(self) -> str | None:
        """The metric that counts a function's progress, or None if steps or epochs do."""
        if self.unit == "steps":
            return None
        return self.unit

    def rung_of(self, report: TrialReported) -> int | None:
        """Return how far a trial was at a report, in the unit of `grace`.

        Trials with different batch sizes report at different numbers of samples. To be comparable,
        a report counts for the last multiple of `grace` that it has reached.

        Args:
            report: A report of the trial.

        Returns:
            The rung, or None if the report does not say how far the trial was.
        """
        if self.counted_metric is None or report.epoch is not None:
            return report.rung
        count = report.values.get(self.counted_metric, math.nan)
        if not math.isfinite(count):
            return None
        return int(count // self.grace) * self.grace

    def values_at_rungs(
        self, before: tuple[float, float] | None, report: TrialReported, value: float
    ) -> dict[int, float]:
        """Return the values at the rungs that a trial reaches with a report.

        A report within an epoch is compared with those of other trials at whole epochs, where its
        value is interpolated.

        Args:
            before: The epoch and the value of the trial's last report, if it had both.
            report: A report of the trial.
            value: Its value.
        """
        rung = self.rung_of(report)
        if rung is None:
            return {}
        if before is None or report.epoch is None:
            return {rung: value}
        return values_at_epochs(*before, report.epoch, value) or {rung: value}

    def describe_rung(self, report: TrialReported, rung: int) -> str:
        """Write a rung with the unit of a report, such as `epoch 5`."""
        if report.epoch is not None:
            return f"epoch {rung}"
        if self.counted_metric is not None:
            return f"{format_count(rung)} {self.counted_metric}"
        return f"step {rung}"

    @model_validator(mode="before")
    @classmethod
    def _accept_name(cls, given: Any) -> Any:
        if isinstance(given, str):
            return {"pruner": given}
        return given

    @model_validator(mode="after")
    def _check_that_the_pruner_reads_it(self) -> Self:
        given = self.model_dump()
        for name in SHARED_SETTINGS:
            if name in given and name not in self.kind.reads:
                readers = readers_of(name) or ()
                raise ExperimentError(
                    f"the pruner {self.pruner} does not use it",
                    field=name,
                    next_step=f"Remove it, or set early_stop.pruner to {' or '.join(readers)}.",
                )
        for name in self.options:
            if name not in self.kind.model_fields:
                raise ExperimentError(
                    f"the pruner {self.pruner} has no such option",
                    field=f"options.{name}",
                    allowed=list(self.kind.model_fields) or "no options",
                )
        try:
            self.kind.model_validate(self.options)
        except ValidationError as error:
            raise refusal(error, at="options") from error
        return self


def ends_of_turns(length: int, num_turns: int, every: int = 1) -> list[int]:
    """Return where the turns of a training end, as equal as possible.

    Args:
        length: Epochs or steps of the whole training.
        num_turns: The number of turns.
        every: Turns end at a multiple of this, or at the end of the training.

    Raises:
        ExperimentError: If the training is too short for so many turns.
    """
    num_parts = math.ceil(length / every)
    if num_parts < num_turns:
        evaluated = f", evaluated every {every}," if every > 1 else ""
        raise ExperimentError(
            f"a training of {length}{evaluated} cannot be divided into {num_turns} turns",
            field="early_stop.turns",
            allowed=f"at most {num_parts}" if num_parts > 1 else "no turns",
            next_step="Set fewer turns, or train longer.",
        )
    ends = (math.floor(num_parts * turn / num_turns + 0.5) for turn in range(1, num_turns + 1))
    return [min(end * every, length) for end in ends]


class Confirm(Section):
    """After the search, train the best configurations again with other seeds.

    They race: a configuration that is clearly worse than the leader drops out, and the race ends
    when one is left.
    """

    best: PositiveInt | None = Field(
        default=None,
        description="Number of configurations to train again. null for none.",
    )
    trainings: ExactInt = Field(
        default=5,
        ge=2,
        description="Train each one at most this often, trainings of the search included.",
    )
    certainty: float = Field(
        default=0.95,
        gt=0.5,
        lt=1,
        description="Probability that the race finds the best one.",
    )

    def max_trainings(self, repeats: int) -> int:
        """Return how many trainings the race adds at most.

        Args:
            repeats: Trainings of each configuration during the search.
        """
        if self.best is None:
            return 0
        return self.best * (self.trainings - repeats)

    def check(
        self, *, repeats: int, num_objectives: int, num_trials: int | None, is_endless: bool
    ) -> None:
        """Check that the race can take place.

        Args:
            repeats: Trainings of each configuration during the search.
            num_objectives: Number of objectives.
            num_trials: The limit on configurations, or None if there is none.
            is_endless: Whether the search ends only by a limit that also ends the run.

        Raises:
            ExperimentError: If the race would never start, or could not rank configurations.
        """
        if self.best is None:
            if self.model_dump():
                raise ExperimentError(
                    "it is missing, so nothing is trained again",
                    field="confirm.best",
                    next_step="Set confirm.best, such as 3, or remove confirm.",
                )
            return
        if num_objectives > 1:
            raise ExperimentError(
                "with several objectives there is no single best configuration to confirm",
                field="confirm.best",
                next_step="Remove confirm, or turn all objectives but one into constraints.",
            )
        if self.trainings <= repeats:
            raise ExperimentError(
                f"the search already trains every configuration {repeats} times",
                field="confirm.trainings",
                allowed=f"more than repeats = {repeats}",
            )
        if is_endless:
            raise ExperimentError(
                "only the end of the run ends the search, so nothing would be trained again",
                field="confirm.best",
                next_step="Set budget.trials as well.",
            )
        if num_trials is not None and self.best > num_trials:
            raise ExperimentError(
                f"{self.best} is more than the search tries",
                field="confirm.best",
                allowed=f"from 1 to budget.trials = {num_trials}",
                next_step="Set a smaller number, or a larger budget.trials.",
            )


class Sampler(Section):
    """The algorithm that proposes configurations."""

    name: SamplerName = "auto"
    options: dict[str, JsonValue] = Field(
        default_factory=dict, description="More arguments of the sampler, by their Optuna names."
    )

    @property
    def kind(self) -> type[SamplerOptions]:
        """The type of the sampler: its options, and what it supports."""
        return SAMPLERS.load(self.name, field="sampler.name")

    def describe(self, num_objectives: int) -> str:
        """Describe in a sentence how configurations are proposed.

        Args:
            num_objectives: Number of objectives of the experiment.
        """
        words = f"Proposed by the sampler {self.name}"
        # A run can be shown on a machine where its sampler is not installed.
        with contextlib.suppress(WorkbenchError):
            if choice := self.kind.describe(num_objectives):
                words += f": {choice}"
        return f"{words}."

    @model_validator(mode="before")
    @classmethod
    def _accept_name(cls, given: Any) -> Any:
        if isinstance(given, str):
            return {"name": given}
        return given


def values_at_epochs(start: float, first: float, end: float, last: float) -> dict[int, float]:
    """Return the values at the whole epochs between two reports, of which one is within an epoch.

    Args:
        start: The epoch of the first report.
        first: Its value.
        end: The epoch of the second report.
        last: Its value.

    Returns:
        The value at each epoch after `start`, up to `end`. Nothing if both epochs are whole.

    Example:
        >>> values_at_epochs(0.5, 3.0, 2.5, 1.0)
        {1: 2.5, 2: 1.5}
        >>> values_at_epochs(1.0, 3.0, 3.0, 1.0)
        {}
    """
    if start >= end or (start.is_integer() and end.is_integer()):
        return {}
    return {
        epoch: first + (last - first) * (epoch - start) / (end - start)
        for epoch in range(math.floor(start) + 1, math.floor(end) + 1)
    }
