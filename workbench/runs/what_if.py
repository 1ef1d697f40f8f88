"""The measurements and models behind the advice of a run, to predict other plans."""

from __future__ import annotations

import socket
from collections.abc import Callable

from workbench.advisor.what_if import WhatIf
from workbench.experiment.actions import suggest
from workbench.experiment.plan import Plan
from workbench.foundation.errors import RunError
from workbench.foundation.events import AdviceRequested, PlanMeasured
from workbench.runs.run import Run
from workbench.store.database import Store


def newest_with_advice(store: Store) -> str:
    """Return the id of the newest run that has advice. "last" if none of the newest has any.

    Args:
        store: The runs.
    """
    from workbench.advisor.speed_history import earlier_runs

    return next(
        (run_id for run_id, given in earlier_runs(store, ["advice_given"]) if given), "last"
    )


def newest_measured(store: Store, is_usable: Callable[[list[PlanMeasured]], bool]) -> str:
    """Return the id of the newest run with usable measurements, advice or not.

    Else of the newest advice.

    Args:
        store: The runs.
        is_usable: Returns whether what a run measured itself answers the question.
    """
    from workbench.advisor.speed_history import earlier_runs

    for run_id, events in earlier_runs(store, ["plan_measured"]):
        if is_usable([event for event in events if isinstance(event, PlanMeasured)]):
            return run_id
    return newest_with_advice(store)


def models_of(run: Run) -> WhatIf:
    """Return the fitted models of a run's advice. Asking them runs nothing.

    Args:
        run: A run that was advised on.

    Raises:
        RunError: If there is no advice in it, or nothing was measured.
    """
    advice = run.advice
    if advice is None:
        raise RunError(
            f"run {run.run_id} has no advice",
            next_step=suggest("advise", "FILE", lead="To get one"),
        )
    return WhatIf(run.experiment, advice, measurements_of(run))


def chosen_plan_of(run: Run) -> Plan | None:
    """Return the plan that the advice of a run chose, or None without advice."""
    from workbench.advisor.stored_advice import mapping
    from workbench.advisor.variants import read_plan

    return read_plan(mapping(mapping(run.advice).get("choice")).get("plan") or {})


def room_of(run: Run) -> int | None:
    """Return for how many workers the cluster of a run had room, or None if that is unknown."""
    from workbench.hardware.resources import inventory

    resources = run.experiment.resources
    if run.history.drivers:
        driver = run.history.drivers[-1]
        num_cpus, num_gpus = driver.num_cpus, driver.num_gpus
    elif any(
        isinstance(item.event, AdviceRequested) and item.event.host == socket.gethostname()
        for item in run.store.events(run.run_id, types=["advice_requested"])
    ):
        here = inventory()
        num_cpus, num_gpus = here.num_cpus, len(here.gpus)
    else:
        return None
    gpus = resources.gpus_of_worker
    if num_gpus and gpus:
        return int(num_gpus / (1.0 if gpus == "auto" else gpus))
    return int(num_cpus / resources.cpus_per_worker)


def measurements_of(run: Run) -> list[PlanMeasured]:
    """Return what was measured of the settings that a run measured itself, also before it."""
    from workbench.advisor.speed_history import read_measurements

    stored = [item.event for item in run.store.events(run.run_id, types=["plan_measured"])]
    own = [event for event in stored if isinstance(event, PlanMeasured)]
    settings = {event.setting for event in own if event.by_trial is None} or {
        event.setting for event in own
    }
    return [event for setting in settings for event in read_measurements(run.store, setting)]
