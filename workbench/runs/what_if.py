"""The measurements and models behind the advice of a run, to predict other plans."""

from __future__ import annotations

import json
import math
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from workbench.advisor.what_if import WhatIf
from workbench.experiment.actions import suggest
from workbench.experiment.plan import Plan
from workbench.foundation.errors import RunError
from workbench.foundation.events import AdviceRequested, PlanMeasured
from workbench.runs.run import Run
from workbench.store.database import Store

if TYPE_CHECKING:
    from workbench.advisor.ladder import Rung


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
    from workbench.advisor.plan_variants import read_plan
    from workbench.advisor.stored_advice import mapping

    return read_plan(mapping(mapping(run.advice).get("choice")).get("plan") or {})


def rungs_of(runs: Sequence[Run]) -> tuple[str, list[Rung]]:
    """Return the trainings of language models in some runs: the best of each size and length.

    Args:
        runs: Runs with the same objective and the same data.

    Returns:
        The metric of the objective, and the trainings.

    Raises:
        RunError: If the runs cannot be compared, or have no trainings of language models.
    """
    from workbench.advisor.ladder import Rung

    metrics = {run.experiment.objectives[0].metric: run.run_id for run in runs}
    metric = next(iter(metrics))
    if len(metrics) > 1 or not metric.endswith("loss"):
        raise RunError(
            f"the objectives {', '.join(metrics)} do not measure one loss in nats per token",
            next_step="Name runs whose first objective is val_loss.",
        )
    texts = {_text_of(run): run.run_id for run in runs}
    if len(texts) > 1:
        first, second, *_ = texts.values()
        raise RunError(
            f"runs {first} and {second} have different data, so their losses cannot be compared",
            next_step="Name runs with the same data and tokens.",
        )
    for run in runs:
        model = run.experiment.model
        is_folder = model is not None and model.name == "hf"
        if run.experiment.training.weights or (
            is_folder and not (model and model.options.get("from_scratch"))
        ):
            raise RunError(
                f"run {run.run_id} starts from pretrained weights, and the law does not know how"
                " those were trained",
                next_step="Give runs that train new weights. For adapters, see what-if adapter.",
            )
    best: dict[tuple[int, int], Rung] = {}
    for run in runs:
        for trial in run.history.in_state("complete"):
            tokens, seen, loss = trial.tokens, trial.num_tokens, trial.value_of(metric)
            if tokens is None or tokens.num_parameters is None or not seen or loss is None:
                continue
            key = tokens.num_parameters, round(seen)
            rung = Rung(float(key[0]), float(seen), loss, f"{run.run_id} trial {trial.number}")
            if 0.0 < loss < math.inf and (key not in best or loss < best[key].loss):
                best[key] = rung
    if not best:
        raise RunError(
            "no complete trial of these runs counted its tokens and its parameters",
            next_step="Train language models, such as model: transformer with data: text.",
        )
    return metric, sorted(best.values(), key=lambda rung: (rung.parameters, rung.tokens))


def _text_of(run: Run) -> str:
    """Return what decides what a token of a run's data is, and on what it is validated."""
    data = run.experiment.data
    if data is None:
        return ""
    options = {name: value for name, value in data.options.items() if name != "stride"}
    return json.dumps([data.name, options], sort_keys=True, default=str)


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
