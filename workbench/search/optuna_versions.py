"""What Optuna needs around it: limits in the form of its version, and silence.

Optuna 5 stores limits by name. Optuna 4 stores a list that must have the same length in all trials
of a study. Its samplers only read the list if they are created with a function that returns it.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import optuna
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial

from workbench.experiment import Experiment
from workbench.search.study_records import describe_limit

_ARE_NAMED = hasattr(optuna.Trial, "set_constraint")
_LIST = "constraints"
_OPTION = "constraints_func"


def record_limits(
    experiment: Experiment,
    violations: Mapping[str, float],
    trial: optuna.Trial,
    storage: BaseStorage,
    trial_id: int,
) -> None:
    """Store by how much a running trial breaks each limit.

    Args:
        experiment: The experiment.
        violations: The violations by limit, as `Outcome.violations` returns them.
        trial: The trial.
        storage: The storage of the trial.
        trial_id: The id of the trial in the storage.
    """
    if not _ARE_NAMED:
        storage.set_trial_system_attr(trial_id, _LIST, _as_list(experiment, violations))
        return
    for limit, violation in violations.items():
        trial.set_constraint(limit, violation)


def limits_of_new_trial(
    experiment: Experiment, violations: Mapping[str, float] | None
) -> dict[str, Any]:
    """Return the arguments of `create_trial` for a trial that breaks these limits.

    Args:
        experiment: The experiment.
        violations: The violations by limit, or None for a trial that has not ended.
    """
    if violations is None:
        return {}
    if _ARE_NAMED:
        return {"constraints": violations}
    return {"system_attrs": {_LIST: _as_list(experiment, violations)}}


def keeps_limits(trial: FrozenTrial) -> bool:
    """Return whether an ended trial keeps all limits."""
    violations = trial.constraints.values() if _ARE_NAMED else _stored_limits(trial)
    return all(violation <= 0 for violation in violations)


def limit_options(sampler: Callable[..., BaseSampler]) -> dict[str, Any]:
    """Return the options that a sampler of Optuna needs to read limits, or an empty mapping.

    Args:
        sampler: The class of the sampler.
    """
    takes_option = _OPTION in inspect.signature(sampler).parameters
    return {_OPTION: _stored_limits} if takes_option and not _ARE_NAMED else {}


def _as_list(experiment: Experiment, violations: Mapping[str, float]) -> list[float]:
    # Failures such as out of memory break limits that are not in the experiment. To keep the length
    # of the list the same for all trials, they share one last number.
    named = [describe_limit(constraint) for constraint in experiment.constraints]
    others = [value for limit, value in violations.items() if limit not in named]
    listed = [violations.get(limit, 0.0) for limit in named]
    if experiment.sampler.kind.needs_every_limit:
        return listed
    return [*listed, sum(others)]


def _stored_limits(trial: FrozenTrial) -> list[float]:
    return list(trial.system_attrs.get(_LIST, ()))


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress Optuna's output to the user."""
    with quiet_log(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def quiet_log() -> Iterator[None]:
    """Suppress Optuna's log lines.

    Code that calls a study often should use this once around all calls. Each change of a log level
    clears the caches of all loggers in the process.
    """
    before = optuna.logging.get_verbosity()
    is_quiet = before >= optuna.logging.ERROR
    if not is_quiet:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        if not is_quiet:
            optuna.logging.set_verbosity(before)
