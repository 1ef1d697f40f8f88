"""A new run in the store, after everything that would prevent it has been checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from workbench.experiment import Experiment
from workbench.store.database import Store
from workbench.store.history.compression import is_compression


def create_run(
    experiment: Experiment,
    *,
    store: Store,
    run_id: str | None = None,
    launcher: str = "ray",
    address: str | None = None,
    warm_start: Iterable[str] = (),
    like: str | None = None,
) -> str:
    """Check an experiment and store a run of it, without starting its driver.

    Args:
        experiment: What to tune.
        store: The store that keeps the run.
        run_id: Its run id, or None to make one from the experiment's name and the time.
        launcher: The launcher that will start its driver.
        address: The Ray cluster. For the local one, the experiment is checked against this
            machine's hardware.
        warm_start: Earlier runs from which the sampler will learn.
        like: The run whose working folder it uses, and for a compression also its kept code. None
            for those of this process.

    Returns:
        The id of the run.

    Raises:
        ExperimentError: If the experiment is wrong, or the sampler cannot learn from an earlier
            run. Nothing was stored.
        RunNotFoundError: If an earlier run is not in the store.
        ResourcesError: If the available hardware can never satisfy it. Nothing was stored.
        StoreError: If the store already has a run of that id.
        RunError: If the address is one for jobs, not one to attach to.
    """
    from workbench.advisor.auto_priors import with_auto_priors
    from workbench.cluster.head.ray_environment import cluster_address
    from workbench.search import check as check_sampler
    from workbench.sweeps.code_versions import read_origin, write_origin
    from workbench.sweeps.launchers import LAUNCHERS
    from workbench.sweeps.preflight import check
    from workbench.sweeps.warm_start import prior_trials

    LAUNCHERS.load(launcher, field="launcher")
    experiment = with_auto_priors(experiment)
    check(experiment, on_this_machine=cluster_address(address) is None)
    check_sampler(experiment)
    for earlier in warm_start:
        prior_trials(store, store.run(earlier).run_id, experiment)
    created = store.create_run(experiment, run_id=run_id)
    if like is not None:
        origin = read_origin(store.artifacts_of(like))
        if not is_compression(experiment):
            # Another training is another program: of the code as it is now.
            origin = dataclasses.replace(origin, kept_sha256="")
        write_origin(store.artifacts_of(created), origin, experiment=experiment)
    return created
