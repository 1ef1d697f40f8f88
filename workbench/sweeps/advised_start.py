"""Start a sweep at the configuration that earlier advice on the same training recommends.

Advice covers some of what a sweep searches: the learning rate, the batch size and other parts of
the plan. `advisor` gives the advice. The parts of a plan that trials leave open are decided in
`sweep_advisor`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import JsonValue

from workbench.advisor.choices import base_params, drawn_params
from workbench.advisor.speed_history import earlier_runs, setting_of
from workbench.cluster.workers.capacity import capacity_of
from workbench.experiment import Experiment, Space
from workbench.experiment.domain import Choice, Domain, Fixed
from workbench.experiment.space import Params
from workbench.foundation.errors import WorkbenchError
from workbench.foundation.events import AdviceGiven, PlanMeasured, TrialEnqueued
from workbench.hardware.resources import ClusterInventory
from workbench.store.database import Store
from workbench.sweeps.ledger import Ledger
from workbench.training.planning.own_code import in_words_of_plans


def begin_with_advice(
    store: Store, ledger: Ledger, cluster: Callable[[], ClusterInventory]
) -> None:
    """Enqueue the configuration that the latest advice recommends, unless the run has trials.

    Only the sampler `auto` starts with it, and only if `resources.advice` is not `never`.

    Args:
        store: The store that holds earlier runs.
        ledger: The events of the run, to which the configuration is added.
        cluster: Returns the hardware. It is called only if there is advice.
    """
    experiment, history, study = ledger.experiment, ledger.history, ledger.study
    if history.trials or history.replay_of is not None or study.num_enqueued:
        return
    if experiment.sampler.name != "auto" or experiment.resources.advice == "never":
        return
    enqueued = advised_configuration(store, experiment, cluster, except_run=ledger.run_id)
    if enqueued is not None:
        study.enqueue(enqueued.params)
        ledger.record(enqueued)


def advised_configuration(
    store: Store,
    experiment: Experiment,
    cluster: Callable[[], ClusterInventory],
    *,
    except_run: str,
) -> TrialEnqueued | None:
    """Return the configuration that the latest advice on the same training and hardware recommends.

    Parameters that the advice does not cover keep the value of the trainings that it measured, or
    the value of the user's prior. Values outside the space are replaced by the nearest ones inside.

    Args:
        store: The store that holds earlier runs.
        experiment: What is to be tuned.
        cluster: Returns the hardware.
        except_run: A run to ignore.

    Returns:
        The configuration, or None if no advice decides anything that is searched.
    """
    if experiment.trained is None:
        return None
    search = experiment.search.root
    searched = {name for name, domain in search.items() if not isinstance(domain, Fixed)}
    for run_id, given in earlier_runs(store, ["advice_given"], except_run=except_run):
        values = _values(given[-1]) if given else {}
        advised = {name: value for name, value in values.items() if name in searched}
        if not advised:
            continue
        try:
            earlier = store.experiment(run_id)
        except WorkbenchError:  # of another version, or damaged
            continue
        if not _is_measured_here(store, run_id, earlier, experiment, cluster()):
            continue
        believed = {
            name: domain.prior.near
            for name, domain in search.items()
            if not isinstance(domain, Fixed) and domain.prior is not None
        }
        rng = random.Random(experiment.seed)
        wanted = drawn_params(experiment) | drawn_params(earlier) | believed | advised
        params = _placed(experiment.search, wanted, rng)
        chosen = {name: value for name, value in advised.items() if name in params}
        return TrialEnqueued(params=params, advice_run_id=run_id, advised=chosen)
    return None


def _values(given: Any) -> dict[str, JsonValue]:
    """Return what advice recommends, by the names of parameters."""
    assert isinstance(given, AdviceGiven)
    settings: Any = given.advice.get("settings") or {}
    return {path.partition(".")[2]: value for path, value in settings.items()}


def _is_measured_here(
    store: Store,
    run_id: str,
    earlier: Experiment,
    experiment: Experiment,
    cluster: ClusterInventory,
) -> bool:
    """Return whether a run measured steps of the model, data and hardware of an experiment."""
    params, shape = base_params(in_words_of_plans(earlier)), capacity_of(experiment, cluster).shape
    setting = setting_of(experiment, params, shape, cluster)
    measured = (stored.event for stored in store.events(run_id, types=["plan_measured"]))
    return any(isinstance(event, PlanMeasured) and event.setting == setting for event in measured)


def _placed(space: Space, wanted: Mapping[str, JsonValue], rng: random.Random) -> Params:
    """Return the configuration that is nearest to some values, drawing those that are missing."""
    placed: Params = {}
    for name in space.order():
        if space.exists(name, placed):
            domain = space.root[name]
            placed[name] = _nearest(domain, wanted.get(name), rng)
    return placed


def _nearest(domain: Domain, value: Any, rng: random.Random) -> JsonValue:
    """Return the value of a domain that is nearest to a number, or draw one."""
    if domain.contains(value):
        return value
    if isinstance(domain, Fixed) or isinstance(value, bool) or not isinstance(value, int | float):
        return domain.sample(rng)
    if isinstance(domain, Choice):
        numbers = [choice for choice in domain.choices if isinstance(choice, int | float)]
        return min(numbers, key=lambda number: abs(number - value), default=domain.sample(rng))
    if (values := domain.values()) is None:
        return min(max(float(value), domain.low), domain.high)
    place = round((value - domain.low) / (domain.step or 1))
    return values[min(max(place, 0), len(values) - 1)]
