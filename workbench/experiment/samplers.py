"""The samplers by name: the options of each, and what each can handle.

A new sampler is a subclass of `SamplerOptions` with a factory, and a line in `SAMPLERS`, or an
entry point of the group `workbench.samplers` in another package. Nothing here loads Optuna: the
factory, which makes Optuna's object, is named by reference and imported by the study.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt

from workbench.foundation.errors import WorkbenchError
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
    """The options of a sampler, by their Optuna names, and what it can handle.

    Options without a value are left to the sampler.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @classmethod
    def describe(cls, num_objectives: int) -> str | None:
        """Describe which algorithm the sampler chose and why; None if it has no choice."""
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
    """Whether a replay must show it everything again, because it keeps what it knows in attributes
    of trials and of the study, or ends the run with the study's `stop`.
    """
    learns_from_complete_only: ClassVar[bool] = False
    needs_every_limit: ClassVar[bool] = False
    """Whether each trial must report the same limits."""
    is_population: ClassVar[bool] = False
    """Whether trials continue from checkpoints of others: `workbench.experiment.populations`."""
    needs_later: ClassVar[tuple[str, ...]] = ()
    """Modules that later proposals need, imported while the first trial runs."""
    avoids_too_large: ClassVar[bool] = False
    """Whether it reads predictions of memory, so that nothing is tried which will not fit."""
    reads_priors: ClassVar[bool] = False
    """Whether it begins where a parameter's `prior` expects good values, if there is one
    objective.
    """


class Auto(SamplerOptions):
    """The sampler that suits the space, the number of results and the objectives: the default.

    A Gaussian process for each objective, which costs some milliseconds a proposal, and TPE once
    there are too many results for it.
    """

    factory = "workbench.search.samplers:make_auto"
    needs_later = ("workbench.search.proposals",)
    avoids_too_large = True
    reads_priors = True
    max_process_results: ClassVar[int] = 200
    """With more results TPE takes half of the time for a proposal, and found as good ones up to 320
    trials.

    With fewer it saves some milliseconds, and finds worse ones: how long a trial takes does not
    decide.
    """

    @classmethod
    def describe(cls, num_objectives: int) -> str | None:
        """Describe which algorithm it chose and why."""
        process = (
            "a Gaussian process for each objective" if num_objectives > 1 else "a Gaussian process"
        )
        return (
            f"configurations that cover the space evenly, then {process}, which finds good ones in"
            f" few trials; TPE after {cls.max_process_results} results, as good then and twice as"
            " fast"
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
    """Gaussian process: few trials, each chosen with care."""

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
    """Return the names of the samplers that can handle a space, without those that enumerate a
    grid.

    Args:
        num_parameters: Parameters with several values that exist in every configuration.
        num_ranges: How many of those are ranges.
    """
    return [
        name
        for name, kind in _loaded()
        if kind.min_parameters <= num_parameters
        and kind.min_ranges <= num_ranges
        and not kind.enumerates_grid
    ]


def samplers_for_several_objectives() -> list[str]:
    """Return the names of the samplers that handle several objectives."""
    return [name for name, kind in _loaded() if kind.handles_several_objectives]


def samplers_for_fidelities() -> list[str]:
    """Return the names of the samplers that learn from trainings at a low fidelity."""
    return [
        name
        for name, kind in _loaded()
        if not (kind.learns_from_complete_only or kind.enumerates_grid or kind.is_population)
    ]


def _loaded() -> list[tuple[str, type[SamplerOptions]]]:
    found = []
    for name in SAMPLERS.names():
        try:
            found.append((name, SAMPLERS.load(name)))
        except WorkbenchError:  # registered by a package that cannot be imported here
            continue
    return found
