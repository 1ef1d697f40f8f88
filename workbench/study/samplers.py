"""The samplers by their names: which options they take, which spaces they can handle, how they are made.

A sampler is made anew for every configuration and seeded from the experiment's seed and the number of
the configuration, so that what it proposes depends on the history alone.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

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
from optuna.trial import FrozenTrial
from pydantic import Field, NonNegativeInt, PositiveInt, TypeAdapter, ValidationError

from workbench.errors import ExperimentError
from workbench.experiment import Experiment
from workbench.experiment.refusals import refusal
from workbench.space import Choice, Fixed
from workbench.study.quiet import quiet

_Probability = Annotated[float, Field(ge=0, le=1)]
_GENETIC = {
    "population_size": Annotated[int, Field(ge=2)],
    "mutation_prob": _Probability,
    "crossover_prob": _Probability,
    "swapping_prob": _Probability,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "tpe": {
        "n_startup_trials": NonNegativeInt,
        "n_ei_candidates": PositiveInt,
        "multivariate": bool,
        "group": bool,
        "constant_liar": bool,
    },
    "random": {},
    "grid": {},
    "qmc": {"qmc_type": Literal["sobol", "halton"], "scramble": bool},
    "gp": {"n_startup_trials": PositiveInt, "deterministic_objective": bool},
    "cmaes": {
        "n_startup_trials": NonNegativeInt,
        "popsize": Annotated[int, Field(ge=2)],
        "consider_pruned_trials": bool,
        "use_separable_cma": bool,
        "with_margin": bool,
        "lr_adapt": bool,
    },
    "nsga2": _GENETIC,
    "nsga3": {**_GENETIC, "dividing_parameter": PositiveInt},
}
# These keep what they know in attributes of trials and of the study while they sample.
WITH_MEMORY = frozenset({"qmc", "cmaes", "nsga2", "nsga3"})
LEARN_FROM_COMPLETE_ONLY = frozenset({"gp", "cmaes", "nsga2", "nsga3"})
LARGEST_GRID = 100_000


def stable_seed(*parts: int | str) -> int:
    """Return a seed in [0, 2**32) that depends on `parts` alone, in every process."""
    digest = hashlib.sha256("/".join(str(part) for part in parts).encode()).digest()
    return int.from_bytes(digest[:4], "big")


def training_seed(seed: int, repeat: int) -> int:
    """Return the seed of a training: the same for all configurations, another for each repeat.

    Args:
        seed: Seed of the experiment.
        repeat: Which training of its configuration, from 0.
    """
    return stable_seed("training", seed, repeat)


def check(experiment: Experiment) -> None:
    """Refuse an experiment whose sampler cannot do what is asked.

    Args:
        experiment: The experiment, before anything of it starts.

    Raises:
        ExperimentError: If the sampler does not know an option, or cannot handle the space.
    """
    _check_options(experiment)
    _check_space(experiment)
    if experiment.sampler.name == "grid":
        _check_grid(experiment)
    try:
        with quiet():
            make_sampler(experiment, 0)
    except ValueError as error:
        raise ExperimentError(
            f"these options do not go together: {error}",
            field="sampler.options",
            next_step="Remove one of them.",
        ) from error


def _check_options(experiment: Experiment) -> None:
    name, known = experiment.sampler.name, OPTIONS[experiment.sampler.name]
    for option, value in experiment.sampler.options.items():
        field = f"sampler.options.{option}"
        if option not in known:
            raise ExperimentError(
                f"the sampler {name} has no such option", field=field, allowed=list(known) or "no options"
            )
        try:
            TypeAdapter(known[option]).validate_python(value, strict=True)
        except ValidationError as error:
            raise refusal(error, at=field) from error


def _check_space(experiment: Experiment) -> None:
    name = experiment.sampler.name
    if name not in ("cmaes", "qmc", "gp"):
        return
    searched = {
        key: domain
        for key, domain in experiment.search.root.items()
        if not isinstance(domain, Fixed) and not domain.when and len(domain.values() or (0, 1)) > 1
    }
    ranges = [key for key, domain in searched.items() if not isinstance(domain, Choice)]
    if name == "cmaes" and len(ranges) < 2:
        raise ExperimentError(
            "cmaes needs at least two ranges that always exist", field="sampler.name",
            allowed="tpe, random, qmc, gp, nsga2, nsga3 for this space",
        )  # fmt: skip
    if not searched:
        raise ExperimentError(
            f"{name} needs at least one parameter that always exists and has several values",
            field="sampler.name", allowed="tpe, random, nsga2, nsga3 for this space",
        )  # fmt: skip


def _check_grid(experiment: Experiment) -> None:
    try:
        size = sum(1 for _ in itertools.islice(experiment.search.grid(), LARGEST_GRID + 1))
    except ExperimentError as error:
        raise error.at("search") from error
    if size > LARGEST_GRID:
        raise ExperimentError(
            f"the grid has more than {LARGEST_GRID} configurations", field="sampler.name",
            next_step="Search fewer values, or choose the sampler random.",
        )  # fmt: skip


class _Knowing(BaseSampler):
    """A sampler that is told which parameters there are.

    Optuna's samplers look for them in every trial of the past, which costs a sampler made anew more than
    all else that it does.
    """

    searched: Mapping[str, BaseDistribution]

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return dict(self.searched)


class _KnowingTPE(_Knowing, TPESampler):
    pass


class _KnowingGP(_Knowing, GPSampler):
    pass


class _KnowingCmaEs(_Knowing, CmaEsSampler):
    pass


class _KnowingNSGA2(_Knowing, NSGAIISampler):
    pass


class _KnowingNSGA3(_Knowing, NSGAIIISampler):
    pass


_CLASSES: dict[str, tuple[Callable[..., BaseSampler], Callable[..., _Knowing]]] = {
    "tpe": (TPESampler, _KnowingTPE),
    "gp": (GPSampler, _KnowingGP),
    "cmaes": (CmaEsSampler, _KnowingCmaEs),
    "nsga2": (NSGAIISampler, _KnowingNSGA2),
    "nsga3": (NSGAIIISampler, _KnowingNSGA3),
}


def make_sampler(
    experiment: Experiment,
    configuration: int,
    searched: dict[str, BaseDistribution] | None = None,
    priors: tuple[FrozenTrial, ...] = (),
) -> BaseSampler:
    """Make the sampler that proposes one configuration.

    Args:
        experiment: The experiment.
        configuration: Number of the configuration, from 0.
        searched: The parameters of the space, None where conditions decide which exist.
        priors: Complete trials of earlier runs, from which cmaes takes its first distribution.

    Returns:
        An Optuna sampler that has seen nothing yet.
    """
    seed = stable_seed("sampler", experiment.seed, configuration)
    name, options = experiment.sampler.name, dict[str, Any](experiment.sampler.options)
    if name in ("random", "grid"):
        return RandomSampler(seed)
    if name == "qmc":
        return QMCSampler(
            seed=stable_seed("qmc", experiment.seed), independent_sampler=RandomSampler(seed),
            scramble=options.pop("scramble", True), warn_independent_sampling=False, **options,
        )  # fmt: skip
    if name == "tpe":
        options.setdefault("multivariate", True)
        options.setdefault("group", searched is None and options["multivariate"])
        searched = searched if options["multivariate"] and not options["group"] else None
    if name == "cmaes":
        searched = searched and {key: found for key, found in searched.items() if _is_range(found)}
        if priors and not options.get("use_separable_cma"):
            options["source_trials"] = list(priors)
    if name in ("gp", "cmaes"):
        options["warn_independent_sampling"] = False
    plain, knowing = _CLASSES[name]
    if searched is None:
        return plain(seed=seed, **options)
    sampler = knowing(seed=seed, **options)
    sampler.searched = searched
    return sampler


def _is_range(distribution: BaseDistribution) -> bool:
    return not isinstance(distribution, CategoricalDistribution)
