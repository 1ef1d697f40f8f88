"""Starting runs of experiments."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from workbench.experiment import Experiment
from workbench.foundation.errors import ArgumentError, RunNotFoundError
from workbench.runs.creation import create_run
from workbench.runs.experiment_file import change_experiment, read_experiment
from workbench.runs.run import Run, open_store
from workbench.runs.waiting import starting, waiting_for
from workbench.store.database import Store

SIMILAR_RUNS = "auto"
"""The word for all similar runs of the store, as earlier runs to learn from."""


def sweep(
    experiment: Experiment | str | Path | Mapping[str, Any],
    *,
    store: Store | str | None = None,
    launcher: str = "ray",
    address: str | None = None,
    warm_start: Iterable[str | Run] = (),
    wait: bool = False,
) -> Run:
    """Start a run of an experiment. It continues when this process ends.

    Args:
        experiment: What to tune: an experiment, the path of its file, or a mapping of its fields.
        store: The store that keeps it. None for WORKBENCH_STORE, or else the user's own.
        launcher: `ray` starts a driver on the Ray cluster. `inline` drives the run in this process
            and returns when it has ended. Packages can register more.
        address: The Ray cluster, or None for the local one, which is started if it is not running.
        warm_start: Earlier runs from whose finished trials the sampler learns. `auto` means all
            similar runs of the store.
        wait: Wait for the end of the run.

    Returns:
        The run.

    Raises:
        ExperimentError: If the experiment is wrong. Nothing was started.
        ResourcesError: If the available hardware can never satisfy it. Nothing was started.
        RunError: If its driver cannot be started, or, with `wait` or the launcher `inline`, if the
            run failed or was lost.

    Example:
        >>> run = wb.sweep(experiment, wait=True)
        >>> run.state
        'complete'
    """
    if isinstance(experiment, str | Path):
        experiment = read_experiment(experiment)
    elif not isinstance(experiment, Experiment):
        experiment = Experiment(**experiment)
    opened = open_store(store)
    named = [item.run_id if isinstance(item, Run) else item for item in warm_start]
    earlier = find_earlier_runs(named, experiment, store=opened)
    run = create(experiment, store=opened, launcher=launcher, address=address, warm_start=earlier)
    shown: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
    if wait:
        shown = waiting_for(run.stored)
    elif launcher != "inline":
        shown = starting(run.stored)
    with shown:
        start(run, launcher=launcher, address=address, warm_start=earlier)
        if wait:
            return run.wait()
        return run.ended_by(launcher)


def create(
    experiment: Experiment,
    *,
    store: Store,
    run_id: str | None = None,
    launcher: str = "ray",
    address: str | None = None,
    warm_start: Iterable[str] = (),
    like: str | None = None,
) -> Run:
    """Check an experiment and store a run of it, without starting its driver.

    Arguments and errors as in `create_run`.
    """
    created = create_run(
        experiment,
        store=store,
        run_id=run_id,
        launcher=launcher,
        address=address,
        warm_start=warm_start,
        like=like,
    )
    return Run(store, created)


def find_experiment(
    warm_start: Iterable[str], settings: Mapping[str, Any], *, store: Store
) -> tuple[Experiment, str]:
    """Return the experiment and the id of the first of the earlier runs to learn from.

    Args:
        warm_start: As in `find_earlier_runs`.
        settings: Values by dotted path that replace values of the experiment.
        store: The store that holds the runs.

    Raises:
        ArgumentError: If no run is named.
        RunNotFoundError: If it is not in the store.
    """
    for item in warm_start:
        if item != SIMILAR_RUNS:
            run = Run(store, store.run(item).run_id)
            return change_experiment(run.experiment, settings), run.run_id
    raise ArgumentError(
        "no experiment is given",
        field="FILE",
        next_step="Pass a file, or use --warm-start to repeat the experiment of a run.",
    )


def find_same_run(experiment: Experiment, run_id: str, *, store: Store) -> Run | None:
    """Return the run of an experiment that was started earlier under a run id.

    None if there is none.

    Args:
        experiment: The experiment.
        run_id: The whole run id.
        store: The store to look in.

    Raises:
        ArgumentError: If that run is of another experiment.
    """
    from workbench.advisor.auto_priors import with_auto_priors

    try:
        row = store.run(run_id)
    except RunNotFoundError:
        return None
    if row.run_id != run_id:  # only a prefix
        return None
    if row.experiment_hash != with_auto_priors(experiment).hash():
        raise ArgumentError(
            f"run {run_id} is a run of another experiment",
            field="run_id",
            next_step=(
                f"Choose another run id. With --warm-start {run_id} the new run learns from it."
            ),
        )
    return Run(store, run_id)


def find_earlier_runs(
    warm_start: Iterable[str], experiment: Experiment, *, store: Store
) -> list[str]:
    """Return the run ids of the earlier runs that an experiment should learn from, each once.

    Args:
        warm_start: Run ids, their beginnings, or `auto` for the runs of the store that are similar.
        experiment: The experiment.
        store: The store that holds them.

    Raises:
        RunNotFoundError: If an earlier run is not in the store.
    """
    from workbench.sweeps.warm_start import similar_runs

    run_ids: list[str] = []
    for item in warm_start:
        if item == SIMILAR_RUNS:
            run_ids += similar_runs(store, experiment)
        else:
            run_ids.append(store.run(item).run_id)
    return list(dict.fromkeys(run_ids))


def missing_warm_starts(run: Run, warm_start: Iterable[str]) -> list[str]:
    """Return the earlier runs that a run was asked to learn from, but was started without.

    Runs that are similar by now, but were not at its start, do not count.

    Raises:
        RunNotFoundError: If an earlier run is not in the store.
    """
    known = {
        command.arguments["run_id"]
        for command in run.store.commands(run.run_id)
        if command.kind == "warm_start"
    }
    named = [item for item in warm_start if item != SIMILAR_RUNS]
    return [item for item in named if run.store.run(item).run_id not in {run.run_id, *known}]


def start(
    run: Run,
    *,
    launcher: str = "ray",
    address: str | None = None,
    warm_start: Iterable[str] = (),
    replay_of: str | None = None,
) -> None:
    """Start the driver of a stored run.

    Args:
        run: The run.
        launcher: As in `sweep`.
        address: As in `sweep`.
        warm_start: The ids of earlier runs to learn from.
        replay_of: The run whose configurations it repeats.

    Raises:
        RunNotFoundError: If an earlier run is not in the store.
        RunError: If the driver cannot be started.
    """
    from workbench.sweeps.launchers import launch

    launch(
        run.store,
        run.run_id,
        launcher=launcher,
        address=address,
        warm_start=tuple(warm_start),
        replay_of=replay_of,
    )
