"""Decide before the first trial how many trials share a GPU if `resources.per_gpu` is auto.

The decision is stored as an event of the run, so a driver that takes over and a resumed run keep
it. The speed of several copies on one GPU is measured on the run's own workers.
`advisor.gpu_sharing` contains the rule.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable

from workbench.advisor.choices import drawn_params
from workbench.advisor.gpu_sharing import MAX_PER_GPU, Copies, Sharing, find_sharing
from workbench.advisor.measuring import Bench
from workbench.advisor.recommend import bench_for, measurement_context_of
from workbench.cluster.workers.admission import capacity_of
from workbench.experiment import Experiment
from workbench.foundation.errors import WorkbenchError
from workbench.foundation.events import Noted, SharingMeasured
from workbench.foundation.formatting import format_count
from workbench.hardware.resources import ClusterInventory, cluster_inventory
from workbench.hardware.resources.inventory import allowed_bytes
from workbench.store.database import Store
from workbench.sweeps.cluster import workers_wanted
from workbench.sweeps.ledger import Ledger
from workbench.sweeps.trial_plans import TrialPlans
from workbench.training.planning.settings import fitted_of
from workbench.training.planning.typical_configurations import configurations_to_try
from workbench.training.probes.measurements import NeighbourProbe

_MEMORY_PROBE_S = 0.5
_PART_OF_TIME = 0.2
"""Share of the run's time after which no other number of trials is measured."""


def decide_sharing(
    store: Store, ledger: Ledger, plans: TrialPlans, poll: Callable[[], None]
) -> bool:
    """Decide how many trials share a GPU, and return whether that was still open.

    Args:
        store: The store that holds the run.
        ledger: The events of the run. The decision is added to them.
        plans: The parts of the trials' plans that the advisor decided.
        poll: Called about once a second while something is measured. Its errors end the
            measurement.
    """
    experiment = ledger.history.in_force
    if experiment.resources.per_gpu != "auto":
        return False
    cluster = cluster_inventory()
    most, why_most = _most(experiment, cluster, plans)
    if most == 1:
        sharing, peak_bytes = Sharing(1, {}, why_most), None
    else:
        ledger.record(Noted(level="info", message="measuring how many trials share a GPU"))
        try:
            sharing, peak_bytes = _measure(
                store, ledger, plans, most=most, why_most=why_most, poll=poll
            )
        except WorkbenchError as error:
            ledger.record(
                Noted(level="warning", message=f"no trials share a GPU: measuring failed: {error}")
            )
            sharing, peak_bytes = Sharing(1, {}, "measuring failed"), None
    ledger.record(
        SharingMeasured(
            per_gpu=sharing.per_gpu,
            samples_per_s={str(number): rate for number, rate in sharing.samples_per_s.items()},
            peak_bytes=peak_bytes,
            message=sharing.describe(),
        )
    )
    return True


def _most(experiment: Experiment, cluster: ClusterInventory, plans: TrialPlans) -> tuple[int, str]:
    """Return how many trials may share a GPU before anything is measured, and why no more."""
    if cluster.num_gpus < 1:
        return 1, "the cluster has no GPUs"
    if (plans.plan_for({}).workers or workers_wanted(experiment)[1]) > 1:
        return 1, "a trial has several workers"
    per_node = [
        int(node.num_cpus // experiment.resources.cpus_per_worker // node.num_gpus)
        for node in cluster.nodes
        if node.num_gpus >= 1
    ]
    by_cores = max(1, min(per_node))
    at_once = experiment.resources.concurrency
    limits = [
        (by_cores, f"the cores for each GPU are enough for {format_count(by_cores, 'worker')}")
    ]
    trials = experiment.max_configurations()
    if trials is not None:
        trials *= experiment.repeats
    for number in (None if at_once == "auto" else at_once, trials):
        if number is not None:
            needed = -(-number // int(cluster.num_gpus))
            limits.append(
                (needed, f"no more than {format_count(number, 'trial')} would run at once")
            )
    return min(limits, key=lambda limit: limit[0])


def _measure(
    store: Store,
    ledger: Ledger,
    plans: TrialPlans,
    *,
    most: int,
    why_most: str,
    poll: Callable[[], None],
) -> tuple[Sharing, int | None]:
    """Measure copies in parallel, and return the peak memory of the largest training as well."""
    experiment = ledger.history.in_force
    around = measurement_context_of(store, ledger.run_id, experiment)
    setting, longest_s = around.setting, experiment.budget.time
    highest = min(most, MAX_PER_GPU)
    # Workers with the smallest part of a GPU can measure every number, so no others are started.
    smallest = capacity_of(experiment.replace(resources={"per_gpu": highest}), cluster_inventory())

    def bench_of(number: int) -> Bench:
        shared = experiment.replace(resources={"per_gpu": number})
        context = dataclasses.replace(around, capacity=smallest)
        return bench_for(store, ledger.run_id, shared, context, sink=ledger.record, poll=poll)

    def has_time() -> bool:
        return longest_s is None or time.monotonic() - began_s < _PART_OF_TIME * longest_s

    def measure(number: int) -> Copies:
        params = drawn_params(experiment)
        order = NeighbourProbe(plans.plan_for(params), setting=setting)
        copies = bench_of(number).probe_neighbours(number, order, params)
        return Copies(copies.samples_per_s, copies.message)

    bench_of(highest).start_workers(highest)
    began_s = time.monotonic()  # other runs may have held all workers until now
    peak_bytes = None
    total_bytes = around.limit_bytes
    if around.on_gpu and total_bytes is not None:
        peak_bytes = _largest_peak_bytes(experiment, bench_of(1), plans, total_bytes)
    sharing = find_sharing(
        measure,
        most=most,
        why_most=why_most,
        peak_bytes=peak_bytes,
        allowed_bytes=lambda number: allowed_bytes(total_bytes or math.inf, 1.0 / number),
        has_time=has_time,
    )
    return sharing, peak_bytes


def _largest_peak_bytes(
    experiment: Experiment, bench: Bench, plans: TrialPlans, total_bytes: float
) -> int | None:
    """Return the largest memory that sampled configurations use, or all if one does not fit."""
    peaks = []
    for _, params in configurations_to_try(experiment):
        if fitted_of(experiment, params) is not None:
            continue
        order = NeighbourProbe(plans.plan_for(params), longest_s=_MEMORY_PROBE_S)
        probe = bench.probe_neighbours(1, order, params)
        peaks.append(probe.peak_bytes if probe.fits and probe.peak_bytes else int(total_bytes))
    return max(peaks, default=None)
