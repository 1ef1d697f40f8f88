"""Predict before the first trial which configurations will not fit into memory.

The prediction is stored as an event of the run, so a driver that takes over and a resumed run use
the same one. The study decides what the sampler does with it.
"""

from __future__ import annotations

import random

from workbench.advisor.memory import memory_limit_bytes
from workbench.cluster.workers.admission import capacity_of
from workbench.experiment import Experiment
from workbench.experiment.searched_fields import is_setting
from workbench.experiment.trainings import is_private
from workbench.foundation.errors import WorkbenchError
from workbench.foundation.events import MemoryPredicted, Noted
from workbench.foundation.formatting import format_bytes
from workbench.hardware.performance.memory import MARGIN
from workbench.hardware.resources import cluster_inventory
from workbench.sweeps.ledger import Ledger
from workbench.sweeps.sweep_advisor import is_long
from workbench.sweeps.trial_plans import TrialPlans
from workbench.training.planning.settings import fitted_of
from workbench.training.planning.typical_configurations import configurations_to_try
from workbench.training.probes.memory_estimate import estimate_peaks

_NUM_DRAWN = 24
_DECIDING = frozenset(
    {"global_batch", "micro_batch", "accumulation", "optimizer", "precision", "recompute"}
)
"""Settings that change how much memory a training needs. The model's parameters may also do so."""


def predict_memory(ledger: Ledger, plans: TrialPlans) -> None:
    """Record how much memory configurations would need, if some of them may not fit.

    Args:
        ledger: The events of the run, to which the prediction is added.
        plans: The parts of the trials' plans that the advisor decided.
    """
    experiment, cluster = ledger.history.in_force, cluster_inventory()
    capacity = capacity_of(experiment, cluster)
    if ledger.history.trials or not _is_wanted(experiment, on_gpu=capacity.shape.gpus > 0):
        return
    total_bytes = memory_limit_bytes(experiment, capacity, cluster)
    if total_bytes is None:
        return
    limit_bytes = (1.0 - MARGIN) * total_bytes

    rng = random.Random(experiment.seed)
    extremes = [params for _, params in configurations_to_try(experiment)]
    drawn = (experiment.search.sample(rng) for _ in range(_NUM_DRAWN))
    trials = [
        (params, plans.plan_for(params))
        for params in (*extremes, *drawn)
        if fitted_of(experiment, params) is None
    ]
    try:
        peaks = estimate_peaks(experiment, trials, num_first=len(extremes), limit_bytes=limit_bytes)
    except WorkbenchError as error:
        ledger.record(Noted(level="info", message=f"memory could not be predicted: {error}"))
        return
    known = [
        (params, peak) for (params, _), peak in zip(trials, peaks, strict=False) if peak is not None
    ]
    if all(peak <= limit_bytes for _, peak in known):
        return
    least = min(peak for _, peak in known)
    predicted = MemoryPredicted(limit_bytes=int(limit_bytes), peaks=known)
    ledger.study.apply(predicted)
    ledger.record(
        predicted,
        Noted(
            level="info",
            message=(
                f"configurations need {format_bytes(least)} to"
                f" {format_bytes(max(peak for _, peak in known))} of memory, as predicted. Those"
                f" that do not fit into {format_bytes(int(limit_bytes))} are avoided"
            ),
        ),
    )


def _is_wanted(experiment: Experiment, *, on_gpu: bool) -> bool:
    if not experiment.sampler.kind.avoids_too_large or experiment.resources.advice == "never":
        return False
    if not experiment.trains_model or is_private(experiment) or experiment.federated is not None:
        return False
    return (on_gpu or is_long(experiment)) and any(
        name in _DECIDING or not is_setting(name) for name in experiment.search.root
    )
