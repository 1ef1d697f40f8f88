"""What would happen if a run were started now, before it is: what is wrong, where, how much, how long.

Nothing is started and nobody's code is run. The checks are those that `start` makes; there the first refuses,
here all are told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from workbench.errors import WorkbenchError
from workbench.experiment import Experiment
from workbench.resources import likely_cluster
from workbench.store import Store

if TYPE_CHECKING:
    from workbench.sweeps.cluster import Share
    from workbench.sweeps.forecast import Forecast


def look_ahead(
    experiment: Experiment,
    *,
    store: Store,
    launcher: str = "ray",
    address: str | None = None,
    warm_start: Iterable[str] = (),
) -> dict[str, Any]:
    """Say what a run of an experiment would be.

    Args:
        experiment: What is to be tuned.
        store: Where the run would be kept, and where earlier measurements are.
        launcher: As in `sweep`.
        address: As in `sweep`; of another cluster, nothing is said that would need a connection.
        warm_start: As in `sweep`.

    Returns:
        Plain values: problems (what keeps it from starting, all of it), num_trainings (None where only time
        ends it), workers (of a trial), at_once (trials; None where that is not known), machine (None for
        another cluster), lines (that in sentences), forecast (how long it should take, in sentences), and
        expected (the same in numbers; None where nothing was measured that tells of it).
    """
    problems = list(_problems(experiment, store, launcher, address, warm_start))
    share = forecast = machine = None
    if address is None:
        cluster = likely_cluster()
        machine = {"num_cpus": cluster.num_cpus, "num_gpus": cluster.num_gpus,
                   "hosts": [node.host for node in cluster.nodes]}  # fmt: skip
        if not problems:
            from workbench.sweeps.cluster import share_of
            from workbench.sweeps.forecast import expected

            try:
                share = share_of("", experiment, cluster)
                forecast = expected(store, experiment, cluster)
            except WorkbenchError as error:
                problems.append(error)
    configurations = experiment.max_configurations()
    return {
        "problems": [problem.to_json() for problem in problems],
        "num_trainings": None if configurations is None else configurations * experiment.repeats,
        "workers": None if share is None else share.request.num_workers,
        "at_once": None if share is None else share.concurrency,
        "machine": machine,
        "lines": [] if problems else list(_lines(experiment, address, machine, share)),
        "forecast": [] if problems else list(_foretell(experiment, forecast)),
        "expected": None if forecast is None else forecast.to_json(),
    }


def _problems(
    experiment: Experiment, store: Store, launcher: str, address: str | None, warm_start: Iterable[str]
) -> Iterator[WorkbenchError]:
    """Yield what `create` would refuse."""
    from workbench.study import check as check_sampler
    from workbench.sweeps.launchers import LAUNCHERS
    from workbench.sweeps.preflight import find_problems

    told = list(find_problems(experiment, on_this_machine=address is None))
    yield from told
    looks: list[Callable[[], object]] = [partial(LAUNCHERS.load, launcher, field="launcher")]
    if not told:  # of a space that is wrong the sampler would only say the same again
        looks.append(partial(check_sampler, experiment))
    looks += [partial(_look_at_earlier, store, run_id, experiment) for run_id in warm_start]
    for look in looks:
        try:
            look()
        except WorkbenchError as error:
            yield error


def _look_at_earlier(store: Store, run_id: str, experiment: Experiment) -> None:
    from workbench.sweeps.prior import prior_trials

    prior_trials(store, store.run(run_id).run_id, experiment)


def _lines(
    experiment: Experiment, address: str | None, machine: dict[str, Any] | None, share: Share | None
) -> Iterator[str]:
    """Say what would happen, in sentences."""
    from workbench.advisor.quantities import format_duration

    configurations, budget = experiment.max_configurations(), experiment.budget
    limits = [] if configurations is None else [f"{configurations} configurations"]
    limits += [] if budget.time is None else [format_duration(budget.time)]
    limits += [] if budget.plateau is None else [f"{budget.plateau} configurations without a better one"]
    repeats = f", each trained {experiment.repeats} times" if experiment.repeats > 1 else ""
    if limits:
        yield (
            f"ends after {', or '.join(limits)}, whichever comes first{repeats}"
            if len(limits) > 1
            else (f"ends after {limits[0]}{repeats}")
        )
    else:
        yield f"ends when every configuration of the grid was tried{repeats}"
    if machine is not None and share is not None:
        gpus = f" and {machine['num_gpus']:g} GPUs" if machine["num_gpus"] else ""
        workers = share.request.num_workers
        yield (
            f"{share.concurrency} trials at once, {workers} worker{'s' * (workers > 1)} each, on "
            f"{', '.join(machine['hosts'])} with {machine['num_cpus']:g} CPUs{gpus}"
        )
    else:
        yield f"on the cluster at {address}, whose size is seen when the run starts"


def _foretell(experiment: Experiment, forecast: Forecast | None) -> Iterator[str]:
    """Say how long it should take, in sentences."""
    from workbench.sweeps.advising import is_wanted

    if forecast is not None:
        yield str(forecast)
    elif experiment.train is not None:
        yield "how long it takes is not known: a train function tells only when it runs"
    else:
        yield "how long it takes is not known: nothing like it was measured here; an advice would tell"
    if is_wanted(experiment):
        yield "plans are measured before the first trial, which may change that"
