"""A dry run: problems, machines, trials and expected time of a run that is not started.

No user code is run. The checks are the same as in `start`, but `start` raises the first problem,
and here all problems are returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from workbench.experiment import Experiment
from workbench.foundation.errors import WorkbenchError
from workbench.hardware.resources import likely_cluster
from workbench.runs.launch import SIMILAR_RUNS
from workbench.store.database import Store

if TYPE_CHECKING:
    from workbench.sweeps.forecast import Forecast
    from workbench.sweeps.trial_resources import Share


def forecast_run(
    experiment: Experiment,
    *,
    store: Store,
    launcher: str = "ray",
    address: str | None = None,
    warm_start: Iterable[str] = (),
) -> dict[str, Any]:
    """Return what a run of an experiment would look like.

    Args:
        experiment: The experiment.
        store: The store that would hold the run, and that holds earlier measurements.
        launcher: As in `sweep`.
        address: As in `sweep`. A remote cluster is not contacted.
        warm_start: As in `sweep`.

    Returns:
        Plain values: problems (everything that would prevent the start), num_trainings (None if
        only time limits it), workers (per trial), at_once (concurrent trials, or None if unknown),
        machine (None for a remote cluster), lines (these as sentences), notes (what is notable),
        forecast (the expected time, as sentences), duration (that in a few words, "" with
        problems), and expected (the same as numbers, or None
        without measurements to predict from).
    """
    from workbench.sweeps.run_notes import notes_of_run

    problems = list(_problems(experiment, store, launcher, address, warm_start))
    share = forecast = machine = None
    if address is None:
        cluster = likely_cluster()
        machine = {
            "num_cpus": cluster.num_cpus,
            "num_gpus": cluster.num_gpus,
            "hosts": [node.host for node in cluster.nodes],
        }
        if not problems:
            from workbench.sweeps.forecast import expected
            from workbench.sweeps.trial_resources import share_of

            try:
                share = share_of("", experiment, cluster)
                forecast = expected(store, experiment, cluster)
            except WorkbenchError as error:
                problems.append(error)
    lines: list[str] = []
    notes: list[str] = []
    forecast_lines: list[str] = []
    duration = ""
    if not problems:
        lines = list(_lines(experiment, address, machine, share))
        notes = notes_of_run(experiment, machine["num_gpus"] if machine else None)
        forecast_lines = list(_forecast_lines(experiment, forecast))
        duration = _duration(experiment, forecast)
    return {
        "problems": [problem.to_json() for problem in problems],
        "num_trainings": experiment.max_trainings(),
        "workers": share and share.request.num_workers,
        "at_once": share and share.at_once,
        "machine": machine,
        "lines": lines,
        "notes": notes,
        "forecast": forecast_lines,
        "duration": duration,
        "expected": forecast and forecast.to_json(),
    }


def _problems(
    experiment: Experiment,
    store: Store,
    launcher: str,
    address: str | None,
    warm_start: Iterable[str],
) -> Iterator[WorkbenchError]:
    """Yield the errors that `create` would raise."""
    from workbench.search import check as check_sampler
    from workbench.sweeps.launchers import LAUNCHERS
    from workbench.sweeps.preflight import find_problems

    problems = list(find_problems(experiment, on_this_machine=address is None))
    yield from problems
    checks: list[Callable[[], object]] = [partial(LAUNCHERS.load, launcher, field="launcher")]
    if not problems:  # for an invalid space the sampler would only repeat the problem
        checks.append(partial(check_sampler, experiment))
    named = [item for item in warm_start if item != SIMILAR_RUNS]
    checks += [partial(_check_earlier_run, store, run_id, experiment) for run_id in named]
    for check in checks:
        try:
            check()
        except WorkbenchError as error:
            yield error


def _check_earlier_run(store: Store, run_id: str, experiment: Experiment) -> None:
    from workbench.sweeps.warm_start import prior_trials

    prior_trials(store, store.run(run_id).run_id, experiment)


def _lines(
    experiment: Experiment, address: str | None, machine: dict[str, Any] | None, share: Share | None
) -> Iterator[str]:
    """Yield what would happen, in sentences."""
    from workbench.foundation.formatting import format_count

    limits = _limits(experiment)
    end = "ends when every configuration of the grid has been tried"
    if limits:
        end = f"ends after {', or '.join(limits)}"
    if len(limits) > 1:
        end += ", whichever comes first"
    if experiment.repeats > 1:
        end += f", each trained {experiment.repeats} times"
    confirm = experiment.confirm
    if confirm.best is not None:
        of_version = " of each version of the code" if experiment.search.code_versions else ""
        end += (
            f", then trains the best {confirm.best}{of_version} again, up to"
            f" {confirm.trainings} times in all"
        )
    yield end
    if machine is None or share is None:
        yield f"on the cluster at {address}, whose size is not known before the run starts"
        return
    hardware = f"{machine['num_cpus']:g} CPUs"
    if machine["num_gpus"]:
        hardware += f" and {machine['num_gpus']:g} GPUs"
    workers = format_count(share.request.num_workers, "worker")
    yield (
        f"{format_count(share.at_once, 'trial')} at once, {workers} each,"
        f" on {', '.join(machine['hosts'])} with {hardware}"
    )


def _limits(experiment: Experiment) -> list[str]:
    """Return the limits of a run, such as `20 configurations`."""
    from workbench.experiment.budget_units import describe_money, format_energy
    from workbench.foundation.formatting import format_count, format_duration

    configurations = experiment.max_configurations()
    budget = experiment.budget
    limits = []
    if configurations is not None:
        limits.append(format_count(configurations, "configuration"))
    if budget.time is not None:
        limits.append(format_duration(budget.time))
    if budget.gpu_time is not None:
        limits.append(f"{format_duration(budget.gpu_time)} of GPU time")
    if budget.energy is not None:
        limits.append(format_energy(budget.energy))
    if budget.money is not None and budget.price is not None:
        limits.append(f"{describe_money(budget.money, budget.price)} at {budget.price}")
    if budget.plateau is not None:
        limits.append(f"{budget.plateau} configurations without a better one")
    if budget.gain is not None:
        limits.append(f"{budget.gain.per} that buys less than {budget.gain.at_least:g}")
    return limits


def _duration(experiment: Experiment, forecast: Forecast | None) -> str:
    """Return how long a run takes, for a place with little room."""
    from workbench.foundation.formatting import format_duration

    limit_s = experiment.budget.time
    run_s = forecast.run_s if forecast is not None else None
    if run_s is not None and (limit_s is None or run_s.high < limit_s):
        return f"about {format_duration(run_s.value)}"
    if limit_s is not None:
        return f"at most {format_duration(limit_s)}"
    return "duration unknown"


def _forecast_lines(experiment: Experiment, forecast: Forecast | None) -> Iterator[str]:
    """Yield the expected time, in sentences."""
    from workbench.sweeps.sweep_advisor import is_wanted

    if forecast is not None:
        yield str(forecast)
    elif experiment.trains_model:
        yield (
            "the duration is unknown, because nothing comparable was measured here. To measure it:"
            " workbench advise"
        )
    else:
        subject = "program"
        if experiment.command is None:
            subject = "train function"
        yield f"the duration is unknown until a trial of this {subject} has ended"
    if is_wanted(experiment):
        yield "plans are measured before the first trial, which may change that"
