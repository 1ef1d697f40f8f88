"""Decide before the first trial how many trials share a GPU if `resources.per_gpu` is auto.

Copies of one training are measured at the same time, on the run's own workers. More copies are
tried as long as the total throughput rises and the memory holds as many copies of the largest
training in the search. The decision is stored as an event of the run, so a driver that takes over
and a resumed run keep it.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from workbench.advisor.measuring import Bench
from workbench.advisor.open_settings import drawn_params
from workbench.advisor.recommend import bench_for, measurement_context_of
from workbench.cluster.workers.admission import capacity_of
from workbench.experiment import Experiment
from workbench.foundation.errors import WorkbenchError
from workbench.foundation.events import Noted, SharingMeasured
from workbench.foundation.formatting import format_bytes, format_count, format_rate
from workbench.hardware.resources import ClusterInventory, cluster_inventory
from workbench.hardware.resources.inventory import allowed_bytes
from workbench.store.database import Store
from workbench.sweeps.ledger import Ledger
from workbench.sweeps.trial_plans import TrialPlans
from workbench.sweeps.trial_resources import workers_wanted
from workbench.training.planning.settings import fitted_of
from workbench.training.planning.typical_configurations import configurations_to_try
from workbench.training.probes.measurements import NeighbourProbe

MAX_PER_GPU = 8
WORTHWHILE = 1.05
"""The factor by which one more trial must raise the total throughput.

Every trial also takes CPU cores and a process, so a smaller gain is not worth it.
"""
_PART_USED = 0.9
"""The part of a trial's memory that can be used, because allocators leave gaps."""
_MEMORY_PROBE_S = 0.5
_PART_OF_TIME = 0.2
"""Share of the run's time after which no other number of trials is measured."""


@dataclass(frozen=True)
class Copies:
    """The measured throughput of copies of a training that ran at the same time.

    Attributes:
        samples_per_s: The throughput of all copies together, or None if they did not fit.
        misfit: Why they did not fit.
    """

    samples_per_s: float | None
    misfit: str | None = None


@dataclass(frozen=True)
class Sharing:
    """How many trials share a GPU, and why.

    Attributes:
        per_gpu: The number of trials per GPU, at least 1.
        samples_per_s: The throughput of all copies together, by the number of copies.
        reason: Why not one more.
    """

    per_gpu: int
    samples_per_s: dict[int, float]
    reason: str

    def describe(self) -> str:
        """Return a sentence about the decision and what was measured."""
        subject = f"{self.per_gpu} trials share each GPU"
        if self.per_gpu == 1:
            subject = "each trial has a GPU to itself"
        measured = ", ".join(
            f"{format_rate(rate)} samples/s with {number}"
            for number, rate in self.samples_per_s.items()
        )
        return f"{subject}: {self.reason}" + (f" (measured: {measured})" if measured else "")


def find_sharing(
    measure: Callable[[int], Copies],
    *,
    most: int,
    why_most: str,
    peak_bytes: int | None = None,
    allowed_bytes: Callable[[int], float] | None = None,
    has_time: Callable[[], bool] = lambda: True,
) -> Sharing:
    """Double the number of copies while that pays, then bisect down to the last number that paid.

    Args:
        measure: Measures a number of copies at once.
        most: The largest number of copies, at least 1.
        why_most: Why there may be no more, as the end of a sentence.
        peak_bytes: The memory of the largest training in the search, or None if unknown.
        allowed_bytes: Takes a number of copies and returns the memory that each may use. None if
            there is no limit.
        has_time: Returns whether there is time for another measurement.
    """
    alone = measure(1)
    if alone.samples_per_s is None:
        return Sharing(1, {}, f"even one does not fit: {alone.misfit}")
    rates, paying = {1: alone.samples_per_s}, 1
    highest, why_no_more = _highest(most, why_most, peak_bytes, allowed_bytes)
    has_failed = False
    while paying < highest:
        if not has_time():
            why_no_more = "the run's time is too short to measure more"
            break
        number = (paying + highest + 1) // 2 if has_failed else min(2 * paying, highest)
        copies = measure(number)
        if copies.samples_per_s is None:
            reason = f"{number} do not fit: {copies.misfit}"
        else:
            rates[number] = copies.samples_per_s
            gain = copies.samples_per_s / rates[paying]
            if gain >= WORTHWHILE ** (number - paying):
                paying = number
                continue
            reason = f"{number} make {gain:.2f} times the samples per second of {paying}"
        has_failed, highest, why_no_more = True, number - 1, reason
    return Sharing(paying, dict(sorted(rates.items())), why_no_more)


def _highest(
    most: int, why_most: str, peak_bytes: int | None, allowed_bytes: Callable[[int], float] | None
) -> tuple[int, str]:
    """Return how many copies of the largest training fit, and why no more."""
    highest = min(most, MAX_PER_GPU)
    if most > MAX_PER_GPU:
        why_most = f"more than {format_count(MAX_PER_GPU, 'trial')} are never tried"
    if peak_bytes is None or allowed_bytes is None:
        return highest, why_most
    while highest > 1 and peak_bytes > _PART_USED * allowed_bytes(highest):
        held, limit = format_bytes(peak_bytes), format_bytes(allowed_bytes(highest))
        why_most = f"the largest training holds {held}, and each of {highest} may hold {limit}"
        highest -= 1
    return highest, why_most


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
    around = measurement_context_of(store, experiment)
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
