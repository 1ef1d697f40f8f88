"""Populations: trainings in parts. Each part is a trial that continues from another's checkpoint.

After each part, weak members of the population continue from the weights of strong ones, with other
values of the parameters that may change during a training. This module declares how long a part is
and what may change. The study decides who continues from whom.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, PositiveInt, ValidationError

from workbench.experiment.samplers import SamplerOptions
from workbench.experiment.search_methods import Sampler
from workbench.experiment.searched_fields import is_setting, option_of
from workbench.experiment.space import Fixed, Space
from workbench.experiment.validation_errors import refusal
from workbench.foundation.errors import ExperimentError, WorkbenchError

CHANGING_SETTINGS = ("lr", "momentum", "weight_decay", "clip_norm", "global_batch")
"""The settings of a model's training that may change between two of its parts."""
_NUM_PARTS = 10
_FIELD = "sampler.options"


class _Population(SamplerOptions):
    factory = "workbench.search.samplers:make_design"
    handles_several_objectives = False
    min_parameters = 1
    reads_priors = True
    is_population = True
    explores: ClassVar[Literal["perturb", "bandit"]]

    population: Annotated[int, Field(ge=2)] = Field(8, description="Number of members.")
    every: PositiveInt | None = Field(
        None,
        description=(
            "Epochs, or steps of a function, between comparisons. By default a tenth of "
            "the training."
        ),
    )
    length: PositiveInt | None = Field(
        None, description="Steps that a function trains. A model trains training.epochs."
    )
    quantile: Annotated[float, Field(gt=0, le=0.5)] = Field(
        0.25,
        description=(
            "Share of the members that are weak, and share that are strong. At least one each."
        ),
    )
    changes: list[str] | None = Field(
        None,
        description=(
            "Parameters that may change during a training. The others stay with the weights. By "
            "default all parameters of a function. For a model, "
        )
        + ", ".join(CHANGING_SETTINGS)
        + ", options of the optimizer, and dropout.",
    )
    resample: Annotated[float, Field(ge=0, le=1)] = Field(
        0.25, description="Probability that a changing parameter gets a random value."
    )


class PBT(_Population):
    """Population-based training.

    Weak members continue from the weights of strong ones, with slightly changed parameters. Each
    part of a training is a separate trial.

    Source: Jaderberg et al., Population Based Training of Neural Networks, 2017. Li et al., A
    Generalized Framework for Population Based Training, 2019.
    """

    explores = "perturb"


class PB2(_Population):
    """Population-based training in which a Gaussian process proposes the new values.

    Source: Parker-Holder et al., Provably Efficient Online Hyperparameter Optimization with
    Population-Based Bandits, 2020.
    """

    explores = "bandit"
    needs_later = ("workbench.search.bandit",)


class Part(BaseModel):
    """One part of a training, in which no parameter changes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    until: PositiveInt = Field(
        description="The epoch, or the step of a function, at which the part ends."
    )
    params: dict[str, JsonValue] = Field(description="The configuration.")


class Schedule(SamplerOptions):
    """One training whose parameters change at given epochs, to reproduce a population's member."""

    factory = "workbench.search.samplers:make_random"
    is_population = True

    parts: list[Part] = Field(min_length=1, description="The parts, one after another.")


def options_of(sampler: Sampler) -> PBT | PB2 | Schedule | None:
    """Return the options of a population, or None if trials do not continue from each other.

    Raises:
        ExperimentError: If an option is wrong.
    """
    try:
        kind = sampler.kind
    except WorkbenchError:  # registered by a package that is not installed here
        return None
    if not kind.is_population:
        return None
    try:
        return kind.model_validate(sampler.options)  # type: ignore[return-value]
    except ValidationError as error:
        raise refusal(error, at=_FIELD) from error


def ends_of_parts(options: PBT | PB2 | Schedule, epochs: int) -> list[int]:
    """Return the epochs, or the steps of a function, at which the parts of a training end.

    Args:
        options: The options of the population.
        epochs: The epochs that a model is trained.
    """
    if isinstance(options, Schedule):
        return [part.until for part in options.parts]
    length = options.length or epochs
    every = options.every or max(1, length // _NUM_PARTS)
    return [*range(every, length, every), length]


def num_parts(sampler: Sampler, epochs: int) -> int | None:
    """Return the number of trials of a population, or None if the sampler has no population.

    Args:
        sampler: The section of an experiment.
        epochs: The epochs that a model is trained.
    """
    options = options_of(sampler)
    if options is None:
        return None
    num_parts_each = len(ends_of_parts(options, epochs))
    if isinstance(options, Schedule):
        return num_parts_each
    return options.population * num_parts_each


def changing(options: PBT | PB2, search: Space, *, trains_model: bool) -> frozenset[str]:
    """Return the searched parameters that may change during a training.

    Args:
        options: The options of the population.
        search: What is searched.
        trains_model: Whether a model is trained, not a function.
    """
    searched = [name for name, domain in search.root.items() if not isinstance(domain, Fixed)]
    if options.changes is not None:
        return frozenset(options.changes)
    if not trains_model:
        return frozenset(searched)
    return frozenset(name for name in searched if may_change(name))


def may_change(name: str) -> bool:
    """Return whether a searched parameter of a model may change while its weights stay.

    Args:
        name: The parameter.
    """
    option = option_of(name)
    if option is not None:
        return option[0] == "optimizer_options"
    if is_setting(name):
        return name in CHANGING_SETTINGS
    # A parameter of the model, which usually changes the shapes of weights. Dropout does not.
    return name.split(".")[-1].startswith("dropout")


def check_options(
    options: PBT | PB2 | Schedule, search: Space, *, epochs: int, trains_model: bool
) -> None:
    """Check the options of a population against what is trained and searched.

    Args:
        options: The options.
        search: What is searched.
        epochs: The epochs that a model is trained.
        trains_model: Whether a model is trained, not a function.

    Raises:
        ExperimentError: If an option does not fit.
    """
    if not isinstance(options, Schedule):
        _check_lengths(options, epochs=epochs, trains_model=trains_model)
        _check_changes(options, search, trains_model=trains_model)
        return
    _check_parts(options, search)
    if trains_model and options.parts[-1].until > epochs:
        raise ExperimentError(
            f"{options.parts[-1].until} is after the last epoch",
            field=f"{_FIELD}.parts.{len(options.parts) - 1}.until",
            allowed=f"at most training.epochs = {epochs}",
        )


def _check_lengths(options: PBT | PB2, *, epochs: int, trains_model: bool) -> None:
    if trains_model and options.length is not None:
        raise ExperimentError(
            "only a train function needs it",
            field=f"{_FIELD}.length",
            next_step="Remove it, and set training.epochs.",
        )
    if not trains_model and options.length is None:
        raise ExperimentError(
            "missing: the number of steps that the function trains",
            field=f"{_FIELD}.length",
            next_step="Set it to the last step that the function reports.",
        )
    length = options.length or epochs
    if (options.every or 1) >= length:
        raise ExperimentError(
            f"members would never be compared, because a training ends at {length}",
            field=f"{_FIELD}.every",
            allowed=f"less than {length}",
        )


def _check_changes(options: PBT | PB2, search: Space, *, trains_model: bool) -> None:
    root = search.root
    for name in options.changes or ():
        if name not in root or isinstance(root[name], Fixed):
            raise ExperimentError(
                f"{name!r} is not a searched parameter",
                field=f"{_FIELD}.changes",
                allowed=[
                    searched for searched, domain in root.items() if not isinstance(domain, Fixed)
                ],
            )
        if trains_model and is_setting(name) and not may_change(name):
            raise ExperimentError(
                f"{name} cannot change during a training",
                field=f"{_FIELD}.changes",
                allowed=[searched for searched in root if may_change(searched)],
            )
    if not changing(options, search, trains_model=trains_model):
        raise ExperimentError(
            "no searched parameter may change during a training",
            field="search",
            next_step=(
                f"Search one of {', '.join(CHANGING_SETTINGS)}, or list one in {_FIELD}.changes."
            ),
        )


def _check_parts(options: Schedule, search: Space) -> None:
    before = 0
    for number, part in enumerate(options.parts):
        if part.until <= before:
            raise ExperimentError(
                f"{part.until} is not after {before}",
                field=f"{_FIELD}.parts.{number}.until",
                allowed=f"more than {before}",
            )
        try:
            search.check(part.params)
        except ExperimentError as error:
            raise error.at(f"{_FIELD}.parts.{number}.params") from error
        before = part.until
