"""The samplers by name: the options of each one, and what it supports.

To add a sampler, write a subclass of `SamplerOptions` with a factory, and add a line to `SAMPLERS`.
In another package, use an entry point of the group `workbench.samplers`. This module does not load
Optuna: the study imports the factory, which makes Optuna's object.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt

from workbench.foundation.registry import Registry

_BAYESIAN = "For Bayesian optimization use auto, gp or tpe."
SAMPLERS = Registry(
    "sampler",
    {
        "auto": "workbench.experiment.samplers:Auto",
        "tpe": "workbench.experiment.samplers:TPE",
        "random": "workbench.experiment.samplers:RandomSearch",
        "grid": "workbench.experiment.samplers:Grid",
        "qmc": "workbench.experiment.samplers:QMC",
        "gp": "workbench.experiment.samplers:GP",
        "cmaes": "workbench.experiment.samplers:CMAES",
        "nsga2": "workbench.experiment.samplers:NSGA2",
        "nsga3": "workbench.experiment.samplers:NSGA3",
        "pbt": "workbench.experiment.populations:PBT",
        "pb2": "workbench.experiment.populations:PB2",
        "schedule": "workbench.experiment.populations:Schedule",
    },
    group="workbench.samplers",
    needs=("factory", "is_population", "model_fields"),
    hints=dict.fromkeys(("bayes", "bayesian", "bo", "hyperopt", "optuna", "skopt"), _BAYESIAN),
)

_Probability = Annotated[float, Field(ge=0, le=1)]
_AtLeastTwo = Annotated[int, Field(ge=2)]


class SamplerOptions(BaseModel):
    """The options of a sampler, by their Optuna names, and what it supports.

    The sampler chooses the value of an option that is None.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @classmethod
    def describe(cls, num_objectives: int) -> str | None:
        """Describe which algorithm the sampler uses and why. None if it has only one."""
        return None

    factory: ClassVar[str]
    """`package.module:function` that takes the given options and a `SamplerRequest`, and returns
    Optuna's sampler.
    """
    handles_several_objectives: ClassVar[bool] = True
    enumerates_grid: ClassVar[bool] = False
    """Whether configurations are the points of a grid, in an order that the study shuffles."""
    min_parameters: ClassVar[int] = 0
    """Parameters with several values that must exist in every configuration."""
    min_ranges: ClassVar[int] = 0
    """How many of those must be ranges."""
    keeps_notes: ClassVar[bool] = False
    """Whether a replay has to ask the sampler for every trial again.

    This is needed if it stores what it knows in attributes of trials or of the study, or ends the
    run with the study's `stop`.
    """
    learns_from_complete_only: ClassVar[bool] = False
    needs_every_limit: ClassVar[bool] = False
    """Whether each trial must report the same limits."""
    is_population: ClassVar[bool] = False
    """Whether trials continue from checkpoints of others: `workbench.experiment.populations`."""
    needs_later: ClassVar[tuple[str, ...]] = ()
    """Modules that later proposals need, imported while the first trial runs."""
    avoids_too_large: ClassVar[bool] = False
    """Whether it uses predictions of memory to avoid configurations that will not fit."""
    reads_priors: ClassVar[bool] = False
    """Whether it starts at the `prior` of a parameter, if there is one objective."""


class Auto(SamplerOptions):
    """The default: a Gaussian process for each objective, and TPE once there are many results.

    A proposal of the Gaussian process takes a few milliseconds, and longer the more results there
    are.
    """

    factory = "workbench.search.samplers:make_auto"
    needs_later = ("workbench.search.gaussian_process_sampler",)
    avoids_too_large = True
    reads_priors = True
    max_process_results: ClassVar[int] = 200
    """With more results than this, TPE proposes.

    In benchmarks of up to 320 trials it was then as good, and took half the time. With fewer
    results it was worse and saved only a few milliseconds, so the duration of a trial does not
    matter.
    """

    @classmethod
    def describe(cls, num_objectives: int) -> str | None:
        """Describe which algorithm it uses and why."""
        process = "a Gaussian process"
        if num_objectives > 1:
            process += " for each objective"
        return (
            f"first configurations that cover the space evenly, then {process}, which needs few"
            f" trials, and TPE after {cls.max_process_results} results, which is then as good and"
            " twice as fast"
        )


class TPE(SamplerOptions):
    """Tree-structured Parzen estimator: cheap, and handles conditions."""

    factory = "workbench.search.samplers:make_tpe"

    n_startup_trials: NonNegativeInt | None = None
    n_ei_candidates: PositiveInt | None = None
    multivariate: bool | None = None
    group: bool | None = None
    constant_liar: bool | None = None


class RandomSearch(SamplerOptions):
    """Independent random configurations."""

    factory = "workbench.search.samplers:make_random"


class Grid(SamplerOptions):
    """Every configuration of the grid, in random order."""

    factory = "workbench.search.samplers:make_random"
    enumerates_grid = True


class QMC(SamplerOptions):
    """Quasi-Monte Carlo: configurations that cover the space evenly."""

    factory = "workbench.search.samplers:make_qmc"
    min_parameters = 1
    keeps_notes = True

    qmc_type: Literal["sobol", "halton"] | None = None
    scramble: bool | None = None


class GP(SamplerOptions):
    """Gaussian process: needs few trials, and more time for each proposal."""

    factory = "workbench.search.samplers:make_gp"
    min_parameters = 1
    learns_from_complete_only = True
    needs_every_limit = True

    n_startup_trials: PositiveInt | None = None
    deterministic_objective: bool | None = None


class CMAES(SamplerOptions):
    """Evolution strategy for ranges."""

    factory = "workbench.search.samplers:make_cmaes"
    handles_several_objectives = False
    min_parameters = 1
    min_ranges = 2
    keeps_notes = True
    learns_from_complete_only = True

    n_startup_trials: NonNegativeInt | None = None
    popsize: _AtLeastTwo | None = None
    consider_pruned_trials: bool | None = None
    use_separable_cma: bool | None = None
    with_margin: bool | None = None
    lr_adapt: bool | None = None


class _Genetic(SamplerOptions):
    keeps_notes = True
    learns_from_complete_only = True

    population_size: _AtLeastTwo | None = None
    mutation_prob: _Probability | None = None
    crossover_prob: _Probability | None = None
    swapping_prob: _Probability | None = None


class NSGA2(_Genetic):
    """Genetic algorithm for several objectives."""

    factory = "workbench.search.samplers:make_nsga2"


class NSGA3(_Genetic):
    """Genetic algorithm for many objectives."""

    factory = "workbench.search.samplers:make_nsga3"

    dividing_parameter: PositiveInt | None = None


def samplers_for(num_parameters: int, num_ranges: int) -> list[str]:
    """Return the names of the samplers that support a space, without those that need a grid.

    Args:
        num_parameters: Parameters with several values that exist in every configuration.
        num_ranges: How many of those are ranges.
    """
    return [
        name
        for name, kind in SAMPLERS.loadable().items()
        if kind.min_parameters <= num_parameters
        and kind.min_ranges <= num_ranges
        and not kind.enumerates_grid
    ]


def samplers_for_several_objectives() -> list[str]:
    """Return the names of the samplers that handle several objectives."""
    return [name for name, kind in SAMPLERS.loadable().items() if kind.handles_several_objectives]


def samplers_for_fidelities() -> list[str]:
    """Return the names of the samplers that learn from trainings at a low fidelity."""
    return [
        name
        for name, kind in SAMPLERS.loadable().items()
        if not (kind.learns_from_complete_only or kind.enumerates_grid or kind.is_population)
    ]
