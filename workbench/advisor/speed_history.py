"""The speed history: what has been measured of a model, some data and hardware.

Probes time the steps of a plan, trials report their speeds. Both are stored as `plan_measured`
events. One key, `setting_of`, decides which of them belong together, one scan, `earlier_runs`,
reads them from the newest runs of a store, and every user gets the same rows. Collecting the speeds
of running trials is left to `trial_speeds`, fitting models to them to `plans`.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import platform
import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import JsonValue

from workbench.advisor.choices import DECIDED
from workbench.advisor.variants import read_plan
from workbench.cluster.workers.admission import Shape
from workbench.experiment import Component, Experiment
from workbench.experiment.command import arguments_of
from workbench.experiment.plan import Hardware, PartialPlan, Plan
from workbench.experiment.training_section import Training
from workbench.foundation.errors import WorkbenchError
from workbench.foundation.events import Event, PlanMeasured, ResizeMeasured, TrialReported
from workbench.hardware.resources import ClusterInventory
from workbench.store.database import Store
from workbench.version import VERSION

NUM_EARLIER_RUNS = 50
"""How many of the newest runs of a store are scanned."""
Source = Literal["probe", "trial alone", "trial beside others"]
_TRAINING = (
    "optimizer",
    "optimizer_options",
    "momentum",
    "weight_decay",
    "clip_norm",
    "gradient_hook",
)


def setting_of(
    experiment: Experiment, params: Mapping[str, JsonValue], shape: Shape, cluster: ClusterInventory
) -> str:
    """Return the key of what decides how long a step of a given plan takes.

    Args:
        experiment: What is trained.
        params: The configuration. What does not decide the work of a step is omitted, as
            `work_params` does.
        shape: What one worker uses.
        cluster: The hardware.

    Returns:
        A hash, the same on every machine of the same kind.
    """
    named = {
        **work_of(experiment, params),
        "worker": [shape.cpus, shape.gpus],
        "devices": sorted({node.gpu_type or "" for node in cluster.nodes if shape.gpus}),
        "machine": [
            platform.machine(),
            platform.processor(),
            [node.num_cpus for node in cluster.nodes],
        ],
        "versions": [importlib.metadata.version("torch"), VERSION],
    }
    return hashlib.sha256(json.dumps(named, sort_keys=True, default=str).encode()).hexdigest()[:16]


def work_of(experiment: Experiment, params: Mapping[str, JsonValue]) -> dict[str, Any]:
    """Return what is computed in a step, wherever that is. Arguments as in `setting_of`."""
    params = work_params(params)
    training = {name: getattr(experiment.training, name) for name in _TRAINING}
    if experiment.training.parameter_groups:
        training["parameter_groups"] = experiment.training.model_dump(mode="json")[
            "parameter_groups"
        ]
    if experiment.training.private is not None:
        training["private"] = True
    return {
        "model": _written(experiment.trained),
        "data": _written(experiment.data),
        "loss": _written(experiment.loss),
        **_own_code(experiment),
        "training": training | {name: params[name] for name in _TRAINING if name in params},
        "params": dict(params),
    }


def _own_code(experiment: Experiment) -> dict[str, JsonValue]:
    """Return what a function or a program computes, its files included, as far as they are here."""
    if experiment.trains_model:
        return {}
    paths = [Path(part) for part in arguments_of(experiment.command or "")]
    files = [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths if path.is_file()]
    return {"train": _written(experiment.train), "command": experiment.command, "files": [*files]}


def work_params(params: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the searched values that decide how much work a sample is.

    Args:
        params: A configuration. Values of the plan are omitted, numbers with fractions, such as a
            dropout, and settings of the training that do not change a step, such as the number of
            epochs.
    """
    return {
        name: value
        for name, value in params.items()
        if not isinstance(value, float)
        and name not in DECIDED
        and (name in _TRAINING or name not in Training.model_fields)
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


@dataclass(frozen=True)
class Speed:
    """How fast a plan trained one setting.

    Attributes:
        run_id: The run in which it was measured.
        plan: The plan.
        source: Who measured it. Trials of runs that did not record it count as beside others.
        event: The measurement as it is stored.
    """

    run_id: str
    plan: Plan
    source: Source
    event: PlanMeasured

    @property
    def step_time_s(self) -> float | None:
        """Seconds of a step, or None if the plan does not fit into memory."""
        return self.event.step_time_s

    @property
    def samples_per_s(self) -> float | None:
        """Samples per second of all workers, or None if the plan does not fit into memory."""
        return self.event.samples_per_s

    @classmethod
    def of(cls, run_id: str, event: PlanMeasured) -> Speed | None:
        """Return a stored measurement as a row, or None if its plan is incomplete."""
        plan = read_plan(event.plan)
        if plan is None:
            return None
        if event.by_trial is None:
            return cls(run_id, plan, "probe", event)
        return cls(
            run_id,
            plan,
            "trial beside others" if event.beside_others is not False else "trial alone",
            event,
        )


def earlier_runs(
    store: Store,
    types: Collection[str],
    *,
    of: Callable[[Experiment], bool] | None = None,
    except_run: str | None = None,
) -> Iterator[tuple[str, list[Event]]]:
    """Scan the newest runs of a store. Runs that this version cannot read are omitted.

    Args:
        store: The store.
        types: The types of events to read.
        of: Returns whether runs of an experiment are wanted, or None for all runs.
        except_run: A run to leave out.

    Yields:
        The id and the events of each run, the newest run first, its events in order.
    """
    for row in store.runs(NUM_EARLIER_RUNS):
        try:
            if row.run_id == except_run or (
                of is not None and not of(store.experiment(row.run_id))
            ):
                continue
            events = [item.event for item in store.events(row.run_id, types=list(types))]
        except WorkbenchError:  # of a newer version, or its code is gone
            continue
        yield row.run_id, events


def read_speeds(store: Store, setting: str, *, except_run: str | None = None) -> list[Speed]:
    """Return what the newest runs of a store measured of a setting.

    The newest of each plan and source.

    Args:
        store: The store.
        setting: As `setting_of` returns it.
        except_run: A run to leave out.
    """
    speeds: dict[str, Speed] = {}
    for run_id, events in earlier_runs(store, ["plan_measured"], except_run=except_run):
        for event in reversed(events):
            if not isinstance(event, PlanMeasured) or event.setting != setting:
                continue
            speed = Speed.of(run_id, event)
            if speed is not None:
                key = json.dumps(
                    [event.plan, event.workers_per_node, event.by_trial is None], sort_keys=True
                )
                speeds.setdefault(key, speed)
    return list(speeds.values())


def read_measurements(store: Store, setting: str) -> list[PlanMeasured]:
    """Return the measurements behind `read_speeds`, to fit models to. Arguments as there."""
    return [speed.event for speed in read_speeds(store, setting)]


def read_restarts(
    store: Store, experiment: Experiment, *, except_run: str | None = None
) -> list[float]:
    """Return what restarts of trials cost in earlier runs of the same model and data, in seconds.

    Args:
        store: The store.
        experiment: What is to be trained.
        except_run: A run to leave out.
    """
    runs = earlier_runs(
        store, ["resize_measured"], of=_same_task(experiment), except_run=except_run
    )
    return [
        event.restart_s
        for _, events in runs
        for event in events
        if isinstance(event, ResizeMeasured) and event.restart_s is not None
    ]


def hardware_of(measured: Iterable[PlanMeasured], *, has_gpu: bool) -> Hardware:
    """Return the hardware of measurements, as far as the plans tell that were measured on it."""
    precisions = {
        PartialPlan.from_json(measurement.plan).get("precision") for measurement in measured
    }
    return Hardware(has_gpu, has_bf16="bf16" in precisions)


def read_noise_scale(store: Store, experiment: Experiment) -> float | None:
    """Return the gradient noise scale that trainings of the same model and data ended with.

    Args:
        store: The store.
        experiment: What is to be trained.

    Returns:
        The median over the trials of the newest runs, in samples, or None if none measured it.
    """
    scales: dict[tuple[str, int], float] = {}
    for run_id, events in earlier_runs(store, ["trial_reported"], of=_same_task(experiment)):
        for event in events:
            scale = noise_scale_of(event) if isinstance(event, TrialReported) else None
            if isinstance(event, TrialReported) and scale is not None:
                scales[run_id, event.trial] = scale
    return statistics.median(scales.values()) if scales else None


def noise_scale_of(report: TrialReported) -> float | None:
    """Return the gradient noise scale of a report, in samples.

    None if it cannot be estimated.
    """
    signal, noise = report.gradient_signal_sqr, report.gradient_noise
    if signal is None or noise is None or signal <= 0 or noise <= 0:
        return None
    return noise / signal


def _same_task(experiment: Experiment) -> Callable[[Experiment], bool]:
    def named(experiment: Experiment) -> tuple[Any, ...]:
        return experiment.model, experiment.data, experiment.train, experiment.command

    return lambda other: named(other) == named(experiment)
