"""What follows from a whole experiment for its trainings: their number, length and weights."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from workbench.experiment.experiment import Experiment
from workbench.experiment.populations import ends_of_parts, num_parts, options_of
from workbench.experiment.space import Choice, Fixed
from workbench.foundation.formatting import format_count


def longest_training(experiment: Experiment) -> int | None:
    """Return the most epochs of a trial; None where only a function or a program knows them."""
    if not experiment.trains_model:
        return None
    domain = experiment.search.root.get("epochs")
    if domain is None:
        return experiment.training.epochs
    if isinstance(domain, Choice | Fixed):
        return max(int(value) for value in domain.values() if isinstance(value, int | float))
    return int(domain.high)


def is_private(experiment: Experiment) -> bool:
    """Return whether trials of an experiment train with differential privacy."""
    return experiment.training.private is not None


def weights_of(experiment: Experiment) -> list[str]:
    """Return the paths of all weights that a training of an experiment may begin with, searched
    ones too.
    """
    fixed = experiment.training.weights
    searched = experiment.search.root.get("weights")
    paths = [] if fixed is None else [fixed.path]
    if searched is None or not experiment.trains_model:
        return paths
    for value in searched.values() or []:
        path = value.get("path") if isinstance(value, Mapping) else value
        if isinstance(path, str):
            paths.append(path)
    return paths


def uses_adapter(experiment: Experiment) -> bool:
    """Return whether a training of an experiment may train an adapter."""
    if experiment.training.adapter is not None:
        return True
    if not experiment.trains_model:
        return False
    searched = experiment.search.root
    if any(name.startswith("adapter.") for name in searched):
        return True
    values = searched["adapter"].values() or [] if "adapter" in searched else []
    return any(value is not None for value in values)


def longest_part(experiment: Experiment) -> int | None:
    """Return the epochs, or steps, that a trial of a population trains at most.

    None if there is none.
    """
    options = options_of(experiment.sampler)
    if options is None:
        return None
    ends = [0, *ends_of_parts(options, experiment.training.epochs)]
    return max(end - begin for begin, end in itertools.pairwise(ends))


def tries_one_configuration(experiment: Experiment) -> bool:
    """Return whether all trials would be the same one, as nothing is searched and no population
    trains.

    Args:
        experiment: The experiment.
    """
    return not experiment.search.has_choice and experiment.max_configurations() == 1


def describe_same_trials(experiment: Experiment) -> str | None:
    """Return a sentence about a limit on trials that has no effect, as all would be the same.

    Else None.

    Args:
        experiment: The experiment.
    """
    wanted = experiment.budget.trials
    if wanted is None or wanted == 1 or not tries_one_configuration(experiment):
        return None
    return (
        f"nothing is searched, so {wanted} trials would be the same one: only one runs; name"
        f" parameters in search, or set repeats: {wanted} to train it with that many seeds"
    )


def describe_short_budget(experiment: Experiment) -> str | None:
    """Return a sentence about a limit on trials that ends a population before its members are
    trained.

    Args:
        experiment: The experiment.

    Returns:
        None if it trains no population, or has enough trials for it.
    """
    wanted = experiment.budget.trials
    needed = num_parts(experiment.sampler, experiment.training.epochs)
    if wanted is None or needed is None or wanted >= needed:
        return None
    return (
        f"{format_count(wanted, 'trial')} cannot train the population to its end, which takes"
        f" {needed}: each trial is a part of a member's training; set budget.trials to that, or"
        " remove it"
    )
