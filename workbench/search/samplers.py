"""Checks the sampler of an experiment, and creates Optuna's sampler for a configuration.

Any space with few configurations is a grid, whatever the sampler is. Its configurations are tried
in an order that the experiment's seed shuffles, and the run ends when all of them were tried.

`workbench.experiment.samplers` defines the options of samplers.

A new sampler is created for every configuration. Its seed follows from the experiment's seed and
the number of the configuration, so a proposal only depends on the history.

No proposal is made ahead of time. The next proposal should learn from the trial whose end frees a
worker, and a proposal that was made before would treat that trial as still running. Which results
are missing would then depend on the speed of the machine, and the same seed would no longer lead to
the same trials.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import math
import random
import threading
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import (
    BaseSampler,
    CmaEsSampler,
    GPSampler,
    NSGAIIISampler,
    NSGAIISampler,
    QMCSampler,
    RandomSampler,
    TPESampler,
)
from optuna.trial import FrozenTrial, TrialState, create_trial
from pydantic import ValidationError

from workbench.experiment import Experiment
from workbench.experiment.samplers import Auto, samplers_for
from workbench.experiment.space import Choice, Fixed, Params, Space
from workbench.experiment.validation_errors import refusal
from workbench.foundation.errors import ExperimentError
from workbench.foundation.formatting import format_count
from workbench.foundation.registry import load_object
from workbench.search.first_configurations import DesignSampler
from workbench.search.optuna_space import Parameters
from workbench.search.optuna_versions import limit_options, quiet
from workbench.search.partial_results import Reading, is_cut
from workbench.search.study_records import MIN_PROCESS_RESULTS, CostLimit, Expected, Knowledge

if TYPE_CHECKING:
    from workbench.search.gaussian_process_sampler import ProcessSampler

LARGEST_GRID = 100_000
_SMALL_GRID = 4096
"""A space with at most so many configurations is a grid. No run is expected to try all of more."""
_MIN_SOURCE_TRIALS = 10
"""CMA-ES starts from the best tenth of earlier trials, which must contain at least one."""


def stable_seed(*parts: int | str) -> int:
    """Return a seed in [0, 2**32) that only depends on `parts` and is the same in all processes."""
    digest = hashlib.sha256("/".join(str(part) for part in parts).encode()).digest()
    return int.from_bytes(digest[:4], "big")


def training_seed(seed: int, repeat: int) -> int:
    """Return the seed of a training. It differs between repeats, but not between configurations.

    Args:
        seed: Seed of the experiment.
        repeat: The number of the training among those of its configuration, from 0.
    """
    return stable_seed("training", seed, repeat)


def check(experiment: Experiment) -> None:
    """Check that the sampler of an experiment knows its options and can handle the space.

    Args:
        experiment: The experiment, before it starts.

    Raises:
        ExperimentError: If an option is wrong, or the sampler cannot handle the space.
    """
    _check_options(experiment)
    _check_space(experiment)
    _check_priors(experiment)
    if experiment.sampler.kind.enumerates_grid:
        _check_grid(experiment)
    try:
        with quiet():
            make_sampler(experiment, 0, Parameters(experiment.search))
    except ValueError as error:
        raise ExperimentError(
            f"these options cannot be combined: {error}",
            field="sampler.options",
            next_step="Remove one of them.",
        ) from error


def _check_options(experiment: Experiment) -> None:
    kind = experiment.sampler.kind
    for option in experiment.sampler.options:
        if option not in kind.model_fields:
            raise ExperimentError(
                f"the sampler {experiment.sampler.name} has no such option",
                field=f"sampler.options.{option}",
                allowed=list(kind.model_fields) or "no options",
            )
    try:
        kind.model_validate(experiment.sampler.options)
    except ValidationError as error:
        raise refusal(error, at="sampler.options") from error


def _check_space(experiment: Experiment) -> None:
    name, kind = experiment.sampler.name, experiment.sampler.kind
    searched = [
        domain
        for domain in experiment.search.root.values()
        if not isinstance(domain, Fixed) and not domain.when and len(domain.values() or (0, 1)) > 1
    ]
    num_ranges = sum(not isinstance(domain, Choice) for domain in searched)
    allowed = ", ".join(samplers_for(len(searched), num_ranges)) + " for this space"
    if num_ranges < kind.min_ranges:
        raise ExperimentError(
            f"{name} needs at least {format_count(kind.min_ranges, 'range')} in every"
            " configuration",
            field="sampler.name",
            allowed=allowed,
        )
    if len(searched) < kind.min_parameters:
        raise ExperimentError(
            f"{name} needs at least {format_count(kind.min_parameters, 'parameter')} with several"
            " values in every configuration",
            field="sampler.name",
            allowed=allowed,
        )


def _check_priors(experiment: Experiment) -> None:
    if experiment.sampler.kind.reads_priors and len(experiment.objectives) == 1:
        return
    for name, domain in experiment.search.root.items():
        if not isinstance(domain, Fixed) and domain.prior is not None:
            raise ExperimentError(
                "priors only work with the samplers auto, pbt and pb2, and with one objective",
                field=f"search.{name}.prior",
                next_step=(
                    "Remove the prior. To try a good configuration first, add it with"
                    " `workbench enqueue`."
                ),
            )


def _check_grid(experiment: Experiment) -> None:
    try:
        size = sum(1 for _ in itertools.islice(experiment.search.grid(), LARGEST_GRID + 1))
    except ExperimentError as error:
        raise error.at("search") from error
    if size > LARGEST_GRID:
        raise ExperimentError(
            f"the grid has more than {LARGEST_GRID} configurations",
            field="sampler.name",
            next_step="Search fewer values, or choose the sampler random.",
        )


class _GP(GPSampler):
    """Optuna's sampler on one thread.

    For small matrices, threads take longer than they save, and trials need the cores.
    """

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        from threadpoolctl import threadpool_limits

        # Only libraries that are already loaded are limited, so the first proposal is not.
        with threadpool_limits(limits=1):
            return super().sample_relative(study, trial, search_space)


@dataclass(frozen=True)
class SamplerRequest:
    """Everything that a sampler needs to propose one configuration."""

    seed: int
    """The seed for this configuration."""
    configuration: int
    """Number of this configuration, from 0."""
    experiment_seed: int
    """The seed of the experiment, the same for all configurations."""
    parameters: Parameters
    """The searched parameters."""
    knowledge: Knowledge
    """The results so far."""
    readings: Sequence[Reading]
    """How to read the curves of each objective."""
    cost_limit: CostLimit | None = None
    """The budget's limit on the cost of all trainings."""
    learns_limits: bool = False
    """Whether every trial has the limits that the sampler reads."""
    is_first: bool = False
    """Whether it is the first configuration of the run, not counting those that users enqueued."""

    @property
    def searched(self) -> dict[str, BaseDistribution] | None:
        """The parameters of the space, or None if there are conditions."""
        return self.parameters.always()


def make_sampler(
    experiment: Experiment,
    configuration: int,
    parameters: Parameters,
    knowledge: Knowledge | None = None,
    *,
    is_first: bool = False,
) -> BaseSampler:
    """Create the sampler that proposes one configuration.

    Args:
        experiment: The experiment.
        configuration: Number of the configuration, from 0.
        parameters: The searched parameters of its space.
        knowledge: The results so far, or None before the first trial.
        is_first: Whether it is the first configuration that a sampler chooses.

    Returns:
        An Optuna sampler that has not seen any trial.
    """
    make = load_object(experiment.sampler.kind.factory, field="sampler.name")
    seed = stable_seed("sampler", experiment.seed, configuration)
    written_options = experiment.sampler.options.items()
    options: dict[str, Any] = {name: value for name, value in written_options if value is not None}
    learns_limits = bool(experiment.constraints) or not experiment.sampler.kind.needs_every_limit
    return make(
        options,
        SamplerRequest(
            seed=seed,
            configuration=configuration,
            experiment_seed=experiment.seed,
            parameters=parameters,
            knowledge=knowledge or Knowledge(),
            readings=Reading.of(experiment),
            cost_limit=CostLimit.of(experiment),
            learns_limits=learns_limits,
            is_first=is_first,
        ),
    )


def make_auto(options: dict[str, Any], request: SamplerRequest) -> BaseSampler:
    """Create the sampler that suits the request, as `Auto.describe` documents."""
    match _suited(request):
        case "random":
            return make_random(options, request)
        case "tpe":
            return make_tpe(options, request)
        case "design":
            if request.knowledge.earlier:
                informed = _make_process(request)
                # The first configuration is the best of earlier runs. After that, the results of
                # this run must show that they are related.
                if informed.has_related_run:
                    return informed
            return make_design(options, request)
        case "process":
            return _make_process(request)


def expect(
    experiment: Experiment,
    parameters: Parameters,
    knowledge: Knowledge,
    configurations: Sequence[Params],
) -> list[Expected]:
    """Return what the results so far let expect of configurations, whatever the sampler is.

    Args:
        experiment: The experiment.
        parameters: The searched parameters of its space.
        knowledge: The results so far.
        configurations: Configurations of the space.

    Returns:
        One for each configuration. Empty with several objectives, without anything to search, and
        with fewer results or more than a Gaussian process takes.
    """
    num_complete = sum(result.trial.state == TrialState.COMPLETE for result in knowledge.results)
    is_searched = any(not domain.single() for domain in parameters.searched.values())
    if (
        len(experiment.objectives) > 1
        or not is_searched
        or num_complete < MIN_PROCESS_RESULTS
        or len(knowledge.results) > Auto.max_process_results
    ):
        return []
    request = SamplerRequest(
        seed=0,
        configuration=len(knowledge.results),
        experiment_seed=experiment.seed,
        parameters=parameters,
        knowledge=knowledge,
        readings=Reading.of(experiment),
    )
    return _make_process(request).expect(
        [parameters.to_optuna(configuration) for configuration in configurations]
    )


def _make_process(request: SamplerRequest) -> ProcessSampler:
    from workbench.search.gaussian_process_sampler import (
        ProcessSampler,  # imports SciPy's optimizers
    )

    return ProcessSampler(
        request.parameters,
        request.seed,
        request.knowledge,
        request.readings,
        request.cost_limit,
        is_first=request.is_first,
    )


def _suited(request: SamplerRequest) -> Literal["random", "tpe", "design", "process"]:
    searched = request.parameters.searched.values()
    num_parameters = sum(not distribution.single() for distribution in searched)
    if num_parameters == 0:
        return "random"
    if len(request.knowledge.results) > Auto.max_process_results:
        return "tpe"
    has_one_objective = len(request.readings) == 1
    num_valued = sum(
        result.trial.state == TrialState.COMPLETE or (has_one_objective and is_cut(result.trial))
        for result in request.knowledge.results
    )
    num_first = 2 + math.ceil(num_parameters / 2)
    if num_valued < MIN_PROCESS_RESULTS or request.configuration < num_first:
        return "design"
    return "process"


def make_design(options: dict[str, Any], request: SamplerRequest) -> BaseSampler:
    """Create the sampler that covers the space evenly."""
    return DesignSampler(
        request.parameters,
        stable_seed("design", request.experiment_seed),
        request.knowledge,
        is_first=request.is_first,
    )


def make_random(options: dict[str, Any], request: SamplerRequest) -> BaseSampler:
    """Create Optuna's random sampler."""
    return RandomSampler(request.seed)


def make_qmc(options: dict[str, Any], request: SamplerRequest) -> BaseSampler:
    """Create Optuna's quasi-Monte Carlo sampler. All configurations share one sequence."""
    return QMCSampler(
        seed=stable_seed("qmc", request.experiment_seed),
        independent_sampler=RandomSampler(request.seed),
        warn_independent_sampling=False,
        **{"scramble": True, **options},
    )


def make_tpe(options: dict[str, Any], request: SamplerRequest) -> BaseSampler:
    """Create Optuna's TPE sampler. It is multivariate, and grouped if there are conditions."""
    multivariate = options.setdefault("multivariate", True)
    grouped = options.setdefault("group", request.searched is None and multivariate)
    searched = request.searched if multivariate and not grouped else None
    return _known(TPESampler, request, searched, options)


def make_gp(options: dict[str, Any], request: SamplerRequest) -> BaseSampler:
    """Create Optuna's Gaussian process sampler."""
    options["warn_independent_sampling"] = False
    return _known(_GP, request, request.searched, options)


def make_cmaes(options: dict[str, Any], request: SamplerRequest) -> BaseSampler:
    """Create Optuna's CMA-ES sampler, which samples ranges and starts from earlier trials."""
    searched = request.searched and {
        name: distribution
        for name, distribution in request.searched.items()
        if not isinstance(distribution, CategoricalDistribution)
    }
    if searched and not options.get("use_separable_cma"):
        ranges = [
            trial for prior in request.knowledge.priors for trial in _in_ranges(prior, searched)
        ]
        if len(ranges) >= _MIN_SOURCE_TRIALS:
            options["source_trials"] = ranges
    options["warn_independent_sampling"] = False
    return _known(CmaEsSampler, request, searched, options)


def _in_ranges(
    prior: FrozenTrial, searched: Mapping[str, BaseDistribution]
) -> Iterator[FrozenTrial]:
    """Yield an earlier trial with only the searched ranges. CMA-ES accepts no other parameters."""
    if all(name in prior.params for name in searched):
        yield create_trial(
            state=prior.state,
            values=prior.values,
            params={name: prior.params[name] for name in searched},
            distributions=dict(searched),
        )


def make_nsga2(options: dict[str, Any], request: SamplerRequest) -> BaseSampler:
    """Create Optuna's NSGA-II sampler."""
    return _known(NSGAIISampler, request, request.searched, options)


def make_nsga3(options: dict[str, Any], request: SamplerRequest) -> BaseSampler:
    """Create Optuna's NSGA-III sampler."""
    return _known(NSGAIIISampler, request, request.searched, options)


def _known(
    kind: Callable[..., BaseSampler],
    request: SamplerRequest,
    searched: dict[str, BaseDistribution] | None,
    options: dict[str, Any],
) -> BaseSampler:
    """Create a sampler that knows the searched parameters, unless there are conditions."""
    if request.learns_limits:
        options |= limit_options(kind)
    sampler = kind(seed=request.seed, **options)
    if searched is not None:
        # Optuna collects the parameters from all earlier trials. For a new sampler, this takes
        # longer than everything else.
        sampler.infer_relative_search_space = lambda study, trial: dict(searched)
    return sampler


def prepare_proposals(experiment: Experiment) -> threading.Thread:
    """Import the modules of later proposals and pruning decisions in the background.

    Otherwise workers would wait for the imports. Proposals do not depend on it.

    Args:
        experiment: The experiment.

    Returns:
        The started thread.
    """
    modules = (*experiment.sampler.kind.needs_later, *experiment.early_stop.kind.needs_later)
    thread = threading.Thread(target=_import_all, args=(modules,), name="proposals", daemon=True)
    thread.start()
    return thread


def _import_all(modules: tuple[str, ...]) -> None:
    for module in modules:
        with contextlib.suppress(ImportError):  # the proposal that needs the module reports it
            import_module(module)


def is_small_space(space: Space) -> bool:
    """Return whether a space has so few combinations that a run can try all of them."""
    sizes: list[int] = []
    for domain in space.root.values():
        values = domain.values()
        if values is None or len(values) > _SMALL_GRID:
            return False
        sizes.append(len(values))
    # Nothing is searched. A user who requests several trials wants to repeat the same one.
    if math.prod(sizes) == 1:
        return False
    # With conditions, there are fewer combinations than the product of the values.
    return math.prod(sizes) <= _SMALL_GRID or (
        sum(1 for _ in itertools.islice(space.grid(), _SMALL_GRID + 1)) <= _SMALL_GRID
    )


class Grid:
    """The configurations of a grid that have not been tried."""

    def __init__(self, experiment: Experiment) -> None:
        """Start before the first point of the grid of `experiment`."""
        self._space = experiment.search
        self._points = list(experiment.search.grid())
        random.Random(stable_seed("grid", experiment.seed)).shuffle(self._points)
        self._next = 0

    def point(self, tried: Container[str]) -> Params | None:
        """Return the next point, or None if there is none left.

        Args:
            tried: The keys of all configurations so far.
        """
        while (
            self._next < len(self._points) and self._space.key_of(self._points[self._next]) in tried
        ):
            self._next += 1
        if self._next == len(self._points):
            return None
        return self._points[self._next]
