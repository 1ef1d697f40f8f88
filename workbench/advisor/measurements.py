"""What was measured before: the key under which measurements belong together, and those in the store."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import platform
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from workbench.errors import WorkbenchError
from workbench.events import PlanMeasured, TrialReported
from workbench.experiment import Component, Experiment
from workbench.resources import ClusterInventory
from workbench.store import Store
from workbench.workers.admission import Shape

NUM_EARLIER_RUNS = 50
_VERSIONED = ("torch", "workbench")
_TRAINING = ("optimizer", "optimizer_options", "momentum", "weight_decay", "clip_norm")


def setting_of(
    experiment: Experiment, params: Mapping[str, JsonValue], shape: Shape, cluster: ClusterInventory
) -> str:
    """Return the key of what decides how long a step of a given plan takes.

    Args:
        experiment: What is trained.
        params: The values of its searched parameters that the plan does not decide. Numbers with fractions,
            such as a dropout, are left out: they change what is computed, but not how much.
        shape: What one worker uses.
        cluster: The hardware.

    Returns:
        A hash, the same on every machine of the same kind.
    """
    named = {
        **work_of(experiment, params),
        "worker": [shape.cpus, shape.gpus],
        "devices": sorted({node.gpu_type or "" for node in cluster.nodes if shape.gpus}),
        "machine": [platform.machine(), platform.processor(), [node.num_cpus for node in cluster.nodes]],
        "versions": [importlib.metadata.version(name) for name in _VERSIONED],
    }
    return hashlib.sha256(json.dumps(named, sort_keys=True, default=str).encode()).hexdigest()[:16]


def work_of(experiment: Experiment, params: Mapping[str, JsonValue]) -> dict[str, Any]:
    """Return what is computed in a step, wherever that is; arguments as in `setting_of`."""
    params = {name: value for name, value in params.items() if not isinstance(value, float)}
    training = {name: getattr(experiment.training, name) for name in _TRAINING}
    return {
        "model": _written(experiment.model),
        "data": _written(experiment.data),
        "loss": _written(experiment.loss),
        "training": training | {name: params[name] for name in _TRAINING if name in params},
        "params": dict(params),
    }


def _written(component: Component | None) -> list[JsonValue]:
    """Write a component so that another version of its code is another one."""
    if component is None:
        return []
    written: list[JsonValue] = [component.name, dict(component.options)]
    if component.is_reference and component.payload_hash is None:
        try:
            spec = importlib.util.find_spec(component.name.partition(":")[0])
            written.append(hashlib.sha256(Path(str(spec and spec.origin)).read_bytes()).hexdigest())
        except (ImportError, ValueError, OSError):
            written.append("unknown")
    return written


def read_measurements(store: Store, setting: str) -> list[PlanMeasured]:
    """Return what the newest runs of a store measured of a setting, the newest of each plan.

    Args:
        store: The store.
        setting: As `setting_of` returns it.
    """
    found: dict[str, PlanMeasured] = {}
    for row in store.runs(NUM_EARLIER_RUNS):
        try:
            stored = store.events(row.run_id, types=["plan_measured"])
        except WorkbenchError:  # of a newer version
            continue
        for item in reversed(stored):
            event = item.event
            if isinstance(event, PlanMeasured) and event.setting == setting:
                key = json.dumps([event.plan, event.workers_per_node, event.by_trial is None], sort_keys=True)
                found.setdefault(key, event)
    return list(found.values())


def read_noise_scale(store: Store, experiment: Experiment) -> float | None:
    """Return the gradient noise scale that trainings of the same model and data ended with.

    Args:
        store: The store.
        experiment: What is to be trained.

    Returns:
        The median over the trials of the newest runs, in samples; None where none measured it.
    """
    scales: dict[tuple[str, int], float] = {}
    for row in store.runs(NUM_EARLIER_RUNS):
        try:
            other = store.experiment(row.run_id)
            if (other.model, other.data) != (experiment.model, experiment.data):
                continue
            stored = store.events(row.run_id, types=["trial_reported"])
        except WorkbenchError:
            continue
        for item in stored:
            if not isinstance(item.event, TrialReported):
                continue
            scale = noise_scale_of(item.event)
            if scale is not None:
                scales[row.run_id, item.event.trial] = scale
    return statistics.median(scales.values()) if scales else None


def noise_scale_of(report: TrialReported) -> float | None:
    """Return the gradient noise scale that a report tells, in samples; None where it is not estimable."""
    signal, noise = report.gradient_signal_sqr, report.gradient_noise
    return noise / signal if signal is not None and noise is not None and signal > 0 and noise > 0 else None
