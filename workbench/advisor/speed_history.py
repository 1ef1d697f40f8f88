"""The speed history: measurements of a model with its data on some hardware.

Probes time the steps of a plan, and trials report their speeds. Both are stored as `plan_measured`
events. The key of `setting_of` decides which measurements belong together. `earlier_runs` reads
them from the newest runs of a store. `trial_speeds` collects the speeds of running trials, and
`plans` fits models to the history.
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

from workbench.advisor.open_settings import DECIDED
from workbench.advisor.plan_variants import read_plan
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
    """Return a key of everything that determines the step time of a given plan.

    Args:
        experiment: The experiment.
        params: The configuration. Only values that determine the work of a step count, see
            `work_params`.
        shape: The resources of one worker.
        cluster: The hardware.

    Returns:
        A hash that is equal on all machines of the same kind.
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
    """Return everything that determines the work of a step on any hardware.

    Arguments as in `setting_of`.
    """
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
    """Return a function or a command with the hashes of its files, as far as they exist here."""
    if experiment.trains_model:
        return {}
    paths = [Path(part) for part in arguments_of(experiment.command or "")]
    files = [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths if path.is_file()]
    return {"train": _written(experiment.train), "command": experiment.command, "files": [*files]}


def work_params(params: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the searched values that determine how much work a sample is.

    These are all values except for the plan, numbers with fractions such as a dropout, and settings
    of the training that do not change a step, such as the number of epochs.

    Args:
        params: A configuration.
    """
    return {
        name: value
        for name, value in params.items()
        if not isinstance(value, float)
        and name not in DECIDED
        and (name in _TRAINING or name not in Training.model_fields)
    }


def _written(component: Component | None) -> list[JsonValue]:
    """Return a component with a hash of its code, so that changed code is a different component."""
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
    """The measured speed of a plan.

    Attributes:
        run_id: The run in which it was measured.
        plan: The plan.
        source: Whether a probe or a trial measured it, and whether other trials ran at the same
            time. If an older run did not record that, they are assumed to have.
        event: The stored measurement.
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
    """Scan the newest runs of a store. Runs that this version cannot read are skipped.

    Args:
        store: The store.
        types: The types of events to read.
        of: Returns whether to include runs of an experiment. None for all runs.
        except_run: A run to skip.

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
        except WorkbenchError:  # a newer version wrote the run, or its code no longer exists
            continue
        yield row.run_id, events


def read_speeds(store: Store, setting: str, *, except_run: str | None = None) -> list[Speed]:
    """Return the newest speed of each plan and source for a setting.

    Args:
        store: The store.
        setting: A key of `setting_of`.
        except_run: A run to skip.
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
    """Return the measurements of `read_speeds` without their runs. Arguments as there."""
    return [speed.event for speed in read_speeds(store, setting)]


def read_restarts(
    store: Store, experiment: Experiment, *, except_run: str | None = None
) -> list[float]:
    """Return the seconds that restarts of trials took in earlier runs of the same model and data.

    Args:
        store: The store.
        experiment: The experiment.
        except_run: A run to skip.
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
    """Return the hardware of measurements, as far as their plans show it."""
    precisions = {
        PartialPlan.from_json(measurement.plan).get("precision") for measurement in measured
    }
    return Hardware(has_gpu, has_bf16="bf16" in precisions)


def read_noise_scale(store: Store, experiment: Experiment) -> float | None:
    """Return the gradient noise scale at the end of earlier trainings of the same model and data.

    Args:
        store: The store.
        experiment: The experiment.

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
    """Return the gradient noise scale of a report in samples, or None if it has no estimate."""
    signal, noise = report.gradient_signal_sqr, report.gradient_noise
    if signal is None or noise is None or signal <= 0 or noise <= 0:
        return None
    return noise / signal


def _same_task(experiment: Experiment) -> Callable[[Experiment], bool]:
    def named(experiment: Experiment) -> tuple[Any, ...]:
        return experiment.model, experiment.data, experiment.train, experiment.command

    return lambda other: named(other) == named(experiment)
