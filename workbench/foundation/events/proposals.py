"""Events about the choice of configurations: proposals of the study, and what they depend on."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from workbench.foundation.events.header import EventHeader, TrialEventHeader


class Clone(BaseModel):
    """Where a trial comes from that a user has cloned from another one."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    of: int = Field(description="The trial that was cloned, its parent.")
    begins_from: Literal["weights", "start"] = Field(
        description=(
            "weights: it continues from a checkpoint of its parent, with the state of the"
            " optimizer. start: it trains from the beginning."
        )
    )
    step: int = Field(
        default=0, description="The step of its parent after which it continues. 0 from the start."
    )
    epoch: float | None = Field(
        default=None, description="The epochs that its parent had done then. None if unknown."
    )
    branch: int = Field(
        default=0,
        description=(
            "The step of its parent that the driver knew when it kept the checkpoint. It names the"
            " folder of the checkpoint."
        ),
    )
    turn: int = Field(default=0, description="The turns that its parent had finished then.")
    first_step: int | None = Field(
        default=None, description="The first step above 0 that its parent has reported."
    )

    @property
    def inherits(self) -> bool:
        """Whether it continues from a checkpoint of its parent."""
        return self.begins_from == "weights"


class TrialEnqueued(EventHeader):
    """A configuration will be tried next, because a user or earlier advice requested it."""

    type: Literal["trial_enqueued"] = "trial_enqueued"
    params: dict[str, JsonValue]
    clone: Clone | None = Field(
        default=None, description="The trial that a user has cloned. None for a new configuration."
    )
    advice_run_id: str | None = Field(
        default=None, description="The run with the advice. None if a user requested it."
    )
    advised: dict[str, JsonValue] = Field(
        default_factory=dict,
        description=(
            "The parameters that the advice chose, with its values. `params` has the nearest "
            "values of the space, and also the parameters that the advice did not choose."
        ),
    )


class PriorTrialAdded(EventHeader):
    """The sampler of this run learns from a finished trial of an earlier one."""

    type: Literal["prior_trial_added"] = "prior_trial_added"
    from_run_id: str
    from_trial: int
    params: dict[str, JsonValue]
    state: Literal["complete", "pruned"]
    values: dict[str, float]
    reports: list[tuple[int, float]] = Field(
        default_factory=list, description="(step, value) pairs."
    )


class RepeatedTraining(BaseModel):
    """Trainings of one configuration in an earlier run."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    values: list[float] = Field(description="The values of the objective.")
    seeds: list[int] = Field(description="The seed of each training.")
    num_steps: int | None = Field(
        default=None, description="How many steps they took. None if it is unknown."
    )

    def without(self, trainings: Collection[tuple[int, float]]) -> RepeatedTraining:
        """Return the trainings that are not among others, which are given as (seed, value)."""
        kept = [pair for pair in zip(self.seeds, self.values, strict=True) if pair not in trainings]
        return self.model_copy(
            update={"seeds": [seed for seed, _ in kept], "values": [value for _, value in kept]}
        )


class RepeatsInherited(EventHeader):
    """Earlier runs show how much the results of one configuration differ."""

    type: Literal["repeats_inherited"] = "repeats_inherited"
    from_run_ids: list[str]
    groups: list[RepeatedTraining] = Field(
        description="The configurations that were trained more than once."
    )

    def without(self, trainings: Collection[tuple[int, float]]) -> RepeatsInherited:
        """Return what is new beside other trainings, which are given as (seed, value).

        A run with the same settings makes the same trainings again. They show nothing new.
        """
        groups = [group.without(trainings) for group in self.groups]
        repeated = [group for group in groups if len(group.values) > 1]
        return self.model_copy(update={"groups": repeated})


class MemoryPredicted(EventHeader):
    """The memory of trainings was predicted before the first one, and some would not fit."""

    type: Literal["memory_predicted"] = "memory_predicted"
    limit_bytes: int = Field(gt=0, description="The memory of one worker.")
    peaks: list[tuple[dict[str, JsonValue], int]] = Field(
        description=(
            "(configuration, bytes) pairs: the least that one worker needs at the peak of a step."
        )
    )


class Segment(BaseModel):
    """The part of a training that a trial of a population trains."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    member: int = Field(description="The member of the population, from 0.")
    begin: int = Field(
        default=0, description="The epoch, or the step of a function, at which it starts."
    )
    end: int = Field(description="The epoch, or the step of a function, at which it ends.")
    continues: int | None = Field(
        default=None,
        description="The trial from whose checkpoint it continues. None for the first part.",
    )
    replaced: int | None = Field(
        default=None, description="The trial of the same member that was too weak to be continued."
    )


class LowFidelity(BaseModel):
    """The reason why a training is cheaper than a full one."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str = Field(description="The setting.")
    value: int | float = Field(description="Its value.")
    full: int | float = Field(description="Its value in full trainings.")


def continued_trial(
    clone: Clone | None, segment: Segment | None, resumes: int | None
) -> int | None:
    """Return the trial that a trial continues or whose configuration it trains further, or None.

    Args:
        clone: The trial from which a user has cloned it.
        segment: In a population: the part that it trains.
        resumes: An earlier trial of the same configuration. See `TrialProposed`.
    """
    if clone is not None and clone.inherits:
        return clone.of
    return resumes if segment is None else segment.continues


class TrialProposed(TrialEventHeader):
    """The study proposed a configuration. The trial now waits for workers."""

    type: Literal["trial_proposed"] = "trial_proposed"
    params: dict[str, JsonValue]
    configuration: int = Field(
        description="Number of the configuration, which all its repeats share."
    )
    repeat: int = Field(default=0, description="Which repeat of the configuration this is, from 0.")
    seed: int = Field(description="Seed of everything random in the training.")
    source: Literal["sampler", "enqueued"] = "sampler"
    choosing_s: float | None = Field(
        default=None,
        ge=0,
        description="How long workers waited for the choice. None in older runs.",
    )
    segment: Segment | None = Field(
        default=None, description="In a population: the part that it trains."
    )
    resumes: int | None = Field(
        default=None,
        description=(
            "An earlier trial of the same configuration: a stopped one from whose checkpoint it "
            "continues, or one at a lower fidelity."
        ),
    )
    fidelity: LowFidelity | None = Field(
        default=None,
        description="Why it is cheaper than a full training. None for a full training.",
    )
    clone: Clone | None = Field(
        default=None, description="The trial from which a user has cloned it."
    )

    @property
    def continued(self) -> int | None:
        """The trial that it continues or whose configuration it trains further, or None."""
        return continued_trial(self.clone, self.segment, self.resumes)


class ReplayPlanned(EventHeader):
    """The run repeats the proposals of another run in the same order, and makes no others."""

    type: Literal["replay_planned"] = "replay_planned"
    of_run_id: str
    proposals: list[TrialProposed]
