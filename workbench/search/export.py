"""Results of a study: the best trials, and a copy for Optuna's tools."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import DuplicatedStudyError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, TrialState, create_trial

from workbench.experiment import Experiment
from workbench.foundation.errors import ExperimentError, StoreError
from workbench.search.optuna_space import Parameters
from workbench.search.optuna_versions import limits_of_new_trial, quiet
from workbench.search.study_records import ConfigurationRecord, Outcome, TrialRecord
from workbench.store.database.urls import hide_password, name_driver


def best_trials(
    experiment: Experiment, finished: Sequence[tuple[ConfigurationRecord, Outcome]]
) -> list[int]:
    """Return the best feasible trial, or with several objectives the Pareto front.

    Args:
        experiment: The experiment.
        finished: Finished configurations with their outcomes.
    """
    metrics = [objective.metric for objective in experiment.objectives]
    feasible = [
        (record, outcome) for record, outcome in finished if is_feasible(experiment, outcome)
    ]
    if len(metrics) > 1:
        costs = [_costs(experiment, outcome) for _, outcome in feasible]
        front = [cost for cost in costs if not any(_dominates(other, cost) for other in costs)]
        return [
            _complete_trials(record, metrics)[0].proposal.trial
            for (record, _), cost in zip(feasible, costs, strict=True)
            if cost in front
        ]
    if not feasible:
        return []
    sign = 1 if experiment.objectives[0].goal == "minimize" else -1
    # A configuration that was confirmed by further trainings is preferred to one that may have been
    # lucky once.
    confirmed = [
        (record, outcome)
        for record, outcome in feasible
        if len(_complete_trials(record, metrics)) > experiment.repeats
    ]
    best, _ = min(
        confirmed or feasible,
        key=lambda ended: (sign * ended[1].values[metrics[0]], ended[0].number),
    )
    repeats = _complete_trials(best, metrics)
    return [min(repeats, key=lambda trial: sign * trial.result()[metrics[0]]).proposal.trial]


def is_feasible(experiment: Experiment, outcome: Outcome) -> bool:
    """Return whether an outcome is complete and keeps all limits."""
    violations = outcome.violations(experiment.constraints)
    return outcome.state == "complete" and all(violation <= 0 for violation in violations.values())


def _costs(experiment: Experiment, outcome: Outcome) -> tuple[float, ...]:
    return tuple(
        outcome.values[objective.metric] * (1 if objective.goal == "minimize" else -1)
        for objective in experiment.objectives
    )


def _dominates(first: tuple[float, ...], second: tuple[float, ...]) -> bool:
    return first != second and all(a <= b for a, b in zip(first, second, strict=True))


def _complete_trials(record: ConfigurationRecord, metrics: Sequence[str]) -> list[TrialRecord]:
    return [
        trial
        for trial in record.trials
        if (outcome := trial.outcome(metrics)) is not None and outcome.state == "complete"
    ]


def copy_to_storage(
    experiment: Experiment,
    parameters: Parameters,
    trials: Sequence[TrialRecord],
    *,
    url: str,
    name: str,
) -> None:
    """Copy trials into a new study of an Optuna storage.

    Args:
        experiment: The experiment.
        parameters: Its search space in Optuna's terms.
        trials: All trials, in the order of their numbers.
        url: URL of a database as SQLAlchemy writes it, or the path of a journal file.
        name: Name of the new study.

    Raises:
        ExperimentError: If the storage has a study of that name.
        StoreError: If the storage cannot be opened or written, or `url` is not valid.
    """
    _check_storage(url)
    with quiet(), _writing(url, name):
        study = optuna.create_study(
            storage=_open(url),
            study_name=name,
            directions=[objective.goal for objective in experiment.objectives],
        )
        study.set_metric_names([objective.metric for objective in experiment.objectives])
        study.set_user_attr("experiment", experiment.to_yaml())
        study.set_user_attr("experiment_hash", experiment.hash())
        study.add_trials(_frozen(experiment, parameters, trial) for trial in trials)


def copy_study_file(path: Path, url: str) -> None:
    """Copy the only study of a SQLite file into another Optuna storage.

    Args:
        path: A file that `copy_to_storage` wrote.
        url: As in `copy_to_storage`.

    Raises:
        ExperimentError: If the storage has a study of that name.
        StoreError: If the storage cannot be opened or written.
    """
    _check_storage(url)
    with quiet():
        source = f"sqlite:///{path}"
        [name] = optuna.get_all_study_names(source)
        with _writing(url, name):
            optuna.copy_study(from_study_name=name, from_storage=source, to_storage=_open(url))


@contextlib.contextmanager
def _writing(url: str, name: str) -> Iterator[None]:
    """Translate errors that occur while a study is written to a storage."""
    try:
        yield
    except DuplicatedStudyError as error:
        raise ExperimentError(
            f"{hide_password(url)} already has a study {name!r}",
            field="name",
            next_step="Choose another name, or remove that study with `optuna delete-study`.",
        ) from error
    except Exception as error:
        # Optuna passes on errors of the database drivers, so any type is possible.
        raise StoreError(
            f"cannot write to {hide_password(url)}: {type(error).__name__}: {error}",
            next_step="Check that the URL is right, the database runs and its driver is installed.",
        ) from error


def _check_storage(url: str) -> None:
    """Reject a single word. It is more likely a mistyped URL than the path of a journal file."""
    if url == Path(url).stem:
        raise StoreError(
            f"{url} is neither the URL of a database nor a journal file",
            next_step="Write a URL such as sqlite:///study.db, or a file such as study.log.",
        )


def _open(url: str) -> BaseStorage:
    if "://" in url:
        return RDBStorage(name_driver(url))
    return JournalStorage(JournalFileBackend(url, lock_obj=JournalFileOpenLock(url)))


def _frozen(experiment: Experiment, parameters: Parameters, trial: TrialRecord) -> FrozenTrial:
    metrics = [objective.metric for objective in experiment.objectives]
    outcome = trial.outcome(metrics)
    state = _state(outcome)
    params = trial.proposal.params
    violations, values = None, None
    if outcome is not None:
        violations = outcome.violations(experiment.constraints)
        if state == TrialState.COMPLETE:
            values = [outcome.values[metric] for metric in metrics]
    frozen = create_trial(
        state=state,
        values=values,
        params=parameters.to_optuna(params),
        distributions=parameters.distributions(params),
        intermediate_values=dict(trial.reports),
        user_attrs=_user_attributes(trial),
        **limits_of_new_trial(experiment, violations),
    )
    ended_unix_s = trial.ended.time_unix_s if trial.ended else None
    started_unix_s = trial.proposed_unix_s or ended_unix_s
    if started_unix_s is not None:
        frozen.datetime_start = datetime.fromtimestamp(started_unix_s)
    if ended_unix_s is not None:
        frozen.datetime_complete = datetime.fromtimestamp(ended_unix_s)
    return frozen


def _state(outcome: Outcome | None) -> TrialState:
    if outcome is None:
        return TrialState.RUNNING
    if outcome.state == "complete":
        return TrialState.COMPLETE
    is_lesson = outcome.state == "pruned" or outcome.reason in ("oom", "diverged")
    return TrialState.PRUNED if is_lesson else TrialState.FAIL


def _user_attributes(trial: TrialRecord) -> dict[str, Any]:
    proposal = trial.proposal
    attributes: dict[str, Any] = {
        "configuration": proposal.configuration,
        "repeat": proposal.repeat,
        "seed": proposal.seed,
        "source": proposal.source,
    }
    if proposal.clone is not None and proposal.clone.inherits:
        attributes["weights_of_trial"] = proposal.clone.of
    if trial.ended is not None:
        attributes["state"] = trial.ended.state
        attributes |= {"reason": trial.ended.reason} if trial.ended.reason else {}
    # JSON has no inf and nan, and some databases reject Python's extension for them.
    attributes |= {
        f"metric {name}": value if math.isfinite(value) else str(value)
        for name, value in trial.result().items()
    }
    return attributes
