"""Facts about the trainings of an experiment: their number, their length, their weights."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from workbench.experiment.experiment import Experiment
from workbench.experiment.populations import ends_of_parts, num_parts, options_of
from workbench.experiment.search_methods import ends_of_turns
from workbench.experiment.space import Choice, Fixed, Float, Int, possible_values
from workbench.foundation.errors import ExperimentError


def longest_training(experiment: Experiment) -> int | None:
    """Return the most epochs of a trial, or None if only a function or a program knows them."""
    if not experiment.trains_model:
        return None
    domain = experiment.search.root.get("epochs")
    if domain is None:
        return experiment.training.epochs
    if isinstance(domain, Choice | Fixed):
        return max(int(value) for value in domain.values() if isinstance(value, int | float))
    return int(domain.high)


EPOCHS = "epochs"
"""The parameter that says how long a function or a program trains, unless another one does."""


def turn_ends(experiment: Experiment, params: Mapping[str, Any]) -> list[int]:
    """Return where the turns of a training end: epochs of a model, steps of anything else.

    Args:
        experiment: The experiment.
        params: The configuration of the training.

    Returns:
        The ends in order, the last of them the end of the training. Empty without turns.

    Raises:
        ExperimentError: If it is not known how long the training is, or it is too short.
    """
    if experiment.early_stop.turns is None:
        return []
    every = 1
    if experiment.trains_model:
        length = params.get(EPOCHS, experiment.training.epochs)
        every = int(params.get("evaluate_every", experiment.training.evaluate_every))
    else:
        length = experiment.early_stop.length or EPOCHS
        if isinstance(length, str):
            given = {} if experiment.train is None else experiment.train.options
            length = {**given, **params}.get(length)
    if isinstance(length, bool) or not isinstance(length, int | float) or length < 1:
        raise ExperimentError(
            f"{length!r} is not a number of steps",
            field="early_stop.length",
            allowed="a whole number of steps, or the name of a parameter with one",
        )
    return ends_of_turns(int(length), experiment.early_stop.turns, every)


def shortest_training(experiment: Experiment) -> dict[str, Any]:
    """Return the values that decide the length of a training, for the shortest one."""
    names = [EPOCHS, "evaluate_every"]
    if isinstance(experiment.early_stop.length, str):
        names.append(experiment.early_stop.length)
    shortest: dict[str, Any] = {}
    for name in names:
        domain = experiment.search.root.get(name)
        if domain is None:
            continue
        values = [domain.low, domain.high] if isinstance(domain, Float | Int) else domain.values()
        choose = max if name == "evaluate_every" else min
        numbers = [value for value in values or () if isinstance(value, int | float)]
        if numbers:
            shortest[name] = choose(numbers)
    return shortest


def describe_turns(experiment: Experiment) -> str | None:
    """Return a note about turns that are not equally long, or None if there is nothing to note."""
    if experiment.early_stop.turns is None or EPOCHS in experiment.search.root:
        return None
    ends = turn_ends(experiment, shortest_training(experiment))
    lengths = {end - start for start, end in itertools.pairwise([0, *ends])}
    if len(lengths) == 1:
        return None
    unit = "epoch" if experiment.trains_model else "step"
    *first, last = map(str, ends)
    return (
        f"{last} {unit}s cannot be divided into {len(ends)} equal turns. They end after {unit}"
        f" {', '.join(first)} and {last}"
    )


def is_private(experiment: Experiment) -> bool:
    """Return whether trials of an experiment train with differential privacy."""
    return experiment.training.private is not None


def weights_of(experiment: Experiment) -> list[str]:
    """Return the paths of all weights with which a training may start, including searched ones."""
    paths: list[str] = []
    if experiment.training.weights is not None:
        paths.append(experiment.training.weights.path)
    searched = experiment.search.root.get("weights")
    # For a function, `weights` is a parameter like any other.
    if searched is None or not experiment.trains_model:
        return paths
    for value in searched.values() or []:
        path = value
        if isinstance(value, Mapping):
            path = value.get("path")
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
    values = possible_values(experiment.search, "adapter", None)
    return any(value is not None for value in values)


def longest_part(experiment: Experiment) -> int | None:
    """Return the most epochs or steps of a trial of a population, or None without a population."""
    options = options_of(experiment.sampler)
    if options is None:
        return None
    ends = [0, *ends_of_parts(options, experiment.training.epochs)]
    return max(end - start for start, end in itertools.pairwise(ends))


def tries_one_configuration(experiment: Experiment) -> bool:
    """Return whether all trials would be the same: nothing is searched, and there is no population.

    Args:
        experiment: The experiment.
    """
    return not experiment.search.has_choice and experiment.max_configurations() == 1


def describe_same_trials(experiment: Experiment) -> str | None:
    """Return a warning if a limit on trials has no effect because all trials would be the same.

    Args:
        experiment: The experiment.

    Returns:
        The warning, or None if there is nothing to warn about.
    """
    wanted = experiment.budget.trials
    if wanted is None or wanted == 1 or not tries_one_configuration(experiment):
        return None
    return (
        f"nothing is searched, so only one of the {wanted} trials runs. Add parameters to search,"
        f" or set repeats: {wanted} to train with {wanted} seeds"
    )


def describe_short_budget(experiment: Experiment) -> str | None:
    """Return a warning if a limit on trials ends a population before its members are trained.

    Args:
        experiment: The experiment.

    Returns:
        The warning, or None if there is no population, or its trials are enough.
    """
    wanted = experiment.budget.trials
    needed = num_parts(experiment.sampler, experiment.training.epochs)
    if wanted is None or needed is None or wanted >= needed:
        return None
    return (
        f"the population needs {needed} trials, one for each part of a member's training, but"
        f" budget.trials is {wanted}. Set budget.trials to {needed}, or remove it"
    )
