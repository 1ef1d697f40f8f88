"""How an experiment searches.

The sampler that proposes configurations, the pruner that stops trials early.

Which samplers and pruners there are is left to `samplers` and `pruners`; running them is left to
the study.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field, JsonValue, ValidationError, model_validator
from typing_extensions import Self

from workbench.experiment.pruners import PRUNERS, SHARED_SETTINGS, PrunerOptions, readers_of
from workbench.experiment.refusals import refusal
from workbench.experiment.samplers import SAMPLERS, SamplerOptions
from workbench.experiment.setting_types import Epochs, ExactInt, PositiveInt, Section
from workbench.foundation.errors import ExperimentError, WorkbenchError
from workbench.foundation.formatting import format_count
from workbench.foundation.registry import Registry

if TYPE_CHECKING:
    from workbench.foundation.events import TrialReported


def _check_registered(registry: Registry) -> Callable[[str], str]:
    def check(name: str) -> str:
        if name not in registry:
            raise ExperimentError(f"unknown {registry.kind} {name!r}", allowed=registry.names())
        return name

    return check


def _list_names(registry: Registry) -> Callable[[dict[str, Any]], None]:
    """Return a function that lists the names of a registry in a schema.

    Forms and editors offer them.
    """
    return lambda schema: schema.update(enum=registry.names())


SamplerName = Annotated[
    str, AfterValidator(_check_registered(SAMPLERS)), Field(json_schema_extra=_list_names(SAMPLERS))
]
PrunerName = Annotated[
    str, AfterValidator(_check_registered(PRUNERS)), Field(json_schema_extra=_list_names(PRUNERS))
]


class EarlyStop(Section):
    """Which trials are stopped early, in units of epochs, or of steps for a `train` function."""

    pruner: PrunerName = "none"
    unit: str | None = Field(
        default=None,
        min_length=1,
        description=(
            "What grace and patience count for a train function: steps, or a metric that it reports"
            " with each objective, such as samples or epochs. Models count epochs."
        ),
    )
    grace: Epochs = Field(
        default=1, description="Epochs that every trial completes before it may be stopped."
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
        description="median, percentile: number of first trials that are never stopped.",
    )
    patience: Epochs = Field(
        default=5, description="patience: epochs without improvement before a trial is stopped."
    )
    p_threshold: float = Field(
        default=0.1, gt=0, lt=1, description="wilcoxon: stop if p is below this value."
    )

    options: dict[str, JsonValue] = Field(
        default_factory=dict, description="Options of a pruner that another package registers."
    )

    @property
    def kind(self) -> type[PrunerOptions]:
        """The type of the pruner: its options, what it reads and can handle."""
        return PRUNERS.load(self.pruner, field="early_stop.pruner")

    @property
    def counted_metric(self) -> str | None:
        """The metric by which a function states its progress; None where steps or epochs do."""
        return None if self.unit in (None, "steps") else self.unit

    def rung_of(self, report: TrialReported) -> int | None:
        """Return how far a trial was at a report, in the unit of `grace`.

        None if the report does not say.

        Trials with different batch sizes report at different numbers of samples. To be comparable,
        a report counts for the last multiple of `grace` that it has reached.
        """
        if self.counted_metric is None or report.epoch is not None:
            return report.rung
        count = report.values.get(self.counted_metric, math.nan)
        return int(count // self.grace) * self.grace if math.isfinite(count) else None

    def describe_rung(self, report: TrialReported, rung: int) -> str:
        """Write a rung in the unit in which a report is counted, such as `epoch 5`."""
        if self.counted_metric is not None and report.epoch is None:
            return f"{format_count(rung)} {self.counted_metric}"
        return f"{'step' if report.epoch is None else 'epoch'} {rung}"

    @model_validator(mode="before")
    @classmethod
    def _accept_name(cls, given: Any) -> Any:
        return {"pruner": given} if isinstance(given, str) else given

    @model_validator(mode="after")
    def _check_that_the_pruner_reads_it(self) -> Self:
        given = self.model_dump()
        for name in SHARED_SETTINGS:
            if name in given and name not in self.kind.reads:
                readers = readers_of(name) or ()
                raise ExperimentError(
                    f"the pruner {self.pruner} does not read it",
                    field=name,
                    next_step=f"Remove it, or choose {' or '.join(readers)}.",
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


class Confirm(Section):
    """The best configurations are trained again with other seeds, when no new one is proposed any
    more.

    They race: those that are clearly worse than the leader leave, and the race ends when one is
    left.
    """

    best: PositiveInt | None = Field(
        default=None,
        description="How many of the best configurations are trained again; null for none.",
    )
    trainings: ExactInt = Field(
        default=5, ge=2, description="Trainings of each of them at most, the first ones included."
    )
    certainty: float = Field(
        default=0.95,
        gt=0.5,
        lt=1,
        description="Probability with which the race finds the best of them.",
    )

    def max_trainings(self, repeats: int) -> int:
        """Return how many trainings the race adds at most, where each configuration had
        `repeats`.
        """
        return 0 if self.best is None else self.best * (self.trainings - repeats)

    def check(self, *, repeats: int, num_objectives: int, is_endless: bool) -> None:
        """Check that the race can take place.

        Args:
            repeats: Trainings of each configuration during the search.
            num_objectives: Number of objectives.
            is_endless: Whether the search ends only by a limit that ends the run.

        Raises:
            ExperimentError: If it never would, or could not rank.
        """
        if self.best is None:
            if self.model_dump():
                raise ExperimentError(
                    "is missing, so nothing is trained again",
                    field="confirm.best",
                    next_step="Set confirm.best, such as 3, or remove confirm.",
                )
            return
        if num_objectives > 1:
            raise ExperimentError(
                "with several objectives there is no best configuration to confirm",
                field="confirm.best",
                next_step="Remove confirm, or turn all objectives but one into constraints.",
            )
        if self.trainings <= repeats:
            raise ExperimentError(
                f"every configuration is trained {repeats} times anyway",
                field="confirm.trainings",
                allowed=f"more than repeats = {repeats}",
            )
        if is_endless:
            raise ExperimentError(
                "the search never ends before the run does, so nothing would be trained again",
                field="confirm.best",
                next_step="Set budget.trials as well.",
            )


class Sampler(Section):
    """The algorithm that proposes configurations."""

    name: SamplerName = "auto"
    options: dict[str, JsonValue] = Field(
        default_factory=dict, description="More arguments of the sampler, by their Optuna names."
    )

    @property
    def kind(self) -> type[SamplerOptions]:
        """The type of the sampler: its options, and what it can handle."""
        return SAMPLERS.load(self.name, field="sampler.name")

    def describe(self, num_objectives: int) -> str:
        """Describe in a sentence how configurations are proposed, also where the sampler is not
        installed.
        """
        try:
            choice = self.kind.describe(num_objectives)
        except WorkbenchError:
            choice = None
        return f"Proposed by the sampler {self.name}" + (f": {choice}." if choice else ".")

    @model_validator(mode="before")
    @classmethod
    def _accept_name(cls, given: Any) -> Any:
        return {"name": given} if isinstance(given, str) else given
