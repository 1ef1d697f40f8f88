"""From an experiment to a run that is on its way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from workbench.errors import RunError, RunNotFoundError
from workbench.experiment import Experiment
from workbench.run.attached import Run, open_store
from workbench.run.experiment_file import read_experiment
from workbench.store import Store


def sweep(
    experiment: Experiment | str | Path | Mapping[str, Any],
    *,
    store: Store | str | None = None,
    launcher: str = "ray",
    address: str | None = None,
    warm_start: Iterable[str | Run] = (),
    wait: bool = False,
) -> Run:
    """Start a run of an experiment; it goes on without this process.

    Args:
        experiment: What to tune: an experiment, the path of its file, or a mapping of its fields.
        store: Where it is kept; None for what WORKBENCH_STORE names, or else the user's own store.
        launcher: `ray` hands it to a driver on the Ray cluster; `inline` drives it in this process and
            returns at its end; others come with packages that bring them.
        address: The Ray cluster; None for the one of this machine, which is started where there is none.
        warm_start: Earlier runs whose finished trials teach the sampler.
        wait: Return at the end of the run rather than at once.

    Returns:
        The run.

    Raises:
        ExperimentError: If the experiment is wrong; nothing was started.
        ResourcesError: If the hardware there is can never satisfy it; nothing was started.
        RunError: If its driver could not be started, or, with `wait`, if the run failed or was lost.
    """
    if isinstance(experiment, str | Path):
        experiment = read_experiment(experiment)
    elif not isinstance(experiment, Experiment):
        experiment = Experiment(**experiment)
    earlier = [item.run_id if isinstance(item, Run) else item for item in warm_start]
    run = create(experiment, store=open_store(store), launcher=launcher, address=address, warm_start=earlier)
    start(run, launcher=launcher, address=address, warm_start=earlier)
    return run.wait() if wait else run


def create(
    experiment: Experiment,
    *,
    store: Store,
    run_id: str | None = None,
    launcher: str = "ray",
    address: str | None = None,
    warm_start: Iterable[str] = (),
) -> Run:
    """Check an experiment and store a run of it, which waits for a driver.

    Args:
        experiment: What to tune.
        store: Where the run is kept.
        run_id: Its name there; None for one that is made of the experiment's name and the time.
        launcher: What will start its driver.
        address: The Ray cluster; where this machine's own is meant, what the experiment asks for is held
            against this machine.
        warm_start: Earlier runs that are to teach the sampler.

    Returns:
        The run.

    Raises:
        ExperimentError: If the experiment is wrong, or an earlier run can teach it nothing; nothing was
            stored.
        RunNotFoundError: If an earlier run is not in the store.
        ResourcesError: If the hardware there is can never satisfy it; nothing was stored.
        StoreError: If there is a run of that name.
        RunError: If the address takes jobs rather than drivers.
    """
    from workbench.study import check as check_sampler
    from workbench.sweeps.launchers import LAUNCHERS
    from workbench.sweeps.preflight import check
    from workbench.sweeps.prior import prior_trials
    from workbench.workers.surroundings import cluster_address

    LAUNCHERS.load(launcher, field="launcher")
    check(experiment, on_this_machine=cluster_address(address) is None)
    check_sampler(experiment)
    for earlier in warm_start:
        prior_trials(store, store.run(earlier).run_id, experiment)
    return Run(store, store.create_run(experiment, run_id=run_id))


def take_up(experiment: Experiment, run_id: str, *, store: Store) -> Run | None:
    """Return the run of a name, for somebody who asks for the same again; None where there is none.

    Args:
        experiment: What is asked for.
        run_id: The whole name.
        store: Where the run would be kept.

    Raises:
        RunError: If the run of that name is one of another experiment.
    """
    try:
        row = store.run(run_id)
    except RunNotFoundError:
        return None
    if row.run_id != run_id:  # it begins so
        return None
    if row.experiment_hash != experiment.hash():
        raise RunError(
            f"run {run_id} is one of another experiment", field="run_id", next_step="Name this one otherwise."
        )
    return Run(store, run_id)


def missing_lessons(run: Run, warm_start: Iterable[str]) -> list[str]:
    """Return the earlier runs that somebody now names for a run to learn from, and it was begun without.

    Raises:
        RunNotFoundError: If an earlier run is not in the store.
    """
    known = {
        command.arguments["run_id"] for command in run.store.commands(run.run_id)
        if command.kind == "warm_start"
    }  # fmt: skip
    return [item for item in warm_start if run.store.run(item).run_id not in {run.run_id, *known}]


def start(
    run: Run,
    *,
    launcher: str = "ray",
    address: str | None = None,
    warm_start: Iterable[str] = (),
) -> None:
    """Start the driver of a stored run; arguments as in `sweep`.

    Raises:
        RunNotFoundError: If an earlier run is not in the store.
        RunError: If the driver could not be started.
    """
    from workbench.sweeps import launch

    launch(run.store, run.run_id, launcher=launcher, address=address, warm_start=tuple(warm_start))
