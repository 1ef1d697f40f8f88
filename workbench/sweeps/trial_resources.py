"""Decide what the cluster provides to a run, and what each of its trials uses."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from workbench.cluster.workers import caller_environment
from workbench.cluster.workers.admission import Placement, Request, Shape, capacity_of
from workbench.experiment import Experiment
from workbench.experiment.plan import PartialPlan
from workbench.foundation.errors import ResourcesError, WorkbenchError
from workbench.foundation.events import DriverStarted
from workbench.foundation.formatting import counted_noun, format_count
from workbench.hardware.resources import ClusterInventory, cluster_inventory
from workbench.training.planning.settings import resolve

TORCH = ("torch",)
STOP_GRACE_S = 5.0
"""How long a trial may take to stop before its workers are killed.

A program first has its own `resources.stop_grace`.
"""
VERSIONED_PACKAGES = ("torch", "ray", "optuna", "numpy")


@dataclass(frozen=True)
class Share:
    """How much of a cluster a run uses.

    Attributes:
        request: The workers of one trial. If their number is searched, those of the smallest trial.
        concurrency: Trials at once that the experiment allows.
        num_fitting: Trials that the cluster holds, or will grow to hold, at once when nobody else
            uses it.
    """

    request: Request
    concurrency: int
    num_fitting: int

    @property
    def at_once(self) -> int:
        """Trials that may be proposed before one of them ends.

        A configuration that only waits for workers would be chosen too early, without the results
        that arrive meanwhile.
        """
        return min(self.concurrency, max(1, self.num_fitting))

    def describe_concurrency(self, wanted: JsonValue, num_running: int) -> str:
        """Describe how many trials run at once.

        Args:
            wanted: How many should, or auto.
            num_running: How many do.
        """
        wanted = wanted if isinstance(wanted, int) else self.num_fitting
        text = f"{format_count(wanted, 'trial')} at once"
        if wanted < num_running:
            num_over = num_running - wanted
            have = "has" if num_over == 1 else "have"
            text += f" as soon as {num_over} of the {num_running} running trials {have} ended"
        if wanted > self.num_fitting:
            text += f", but the hardware has room for {self.describe_room()}, so the others wait"
        return text

    def describe_room(self) -> str:
        """Describe how many trials fit the cluster at once, such as "2 (1 CPU each)"."""
        workers, shape = self.request.num_workers, self.request.shape
        size = _describe(Shape(workers * shape.cpus, workers * shape.gpus))
        return f"{self.num_fitting} ({size} each)"


def share_of(
    run_id: str,
    experiment: Experiment,
    cluster: ClusterInventory | None = None,
    *,
    advised_workers: int = 1,
    advised_placement: Placement = "pack",
) -> Share:
    """Decide which workers each trial gets and how many trials run at once.

    Args:
        run_id: The run.
        experiment: Its experiment. `gpus_per_worker: auto` means one GPU if the cluster has GPUs,
            except for a function. `concurrency: auto` fills the cluster. With `autoscaling`, trials
            wait for more nodes.
        cluster: The cluster. None means the one that this process is attached to.
        advised_workers: Number of workers of a trial if the experiment leaves it open.
        advised_placement: How workers are placed if the experiment leaves it open.

    Raises:
        ResourcesError: If the cluster could not hold one trial even when empty.
    """
    cluster = cluster or cluster_inventory()
    resources = experiment.resources
    least, most = workers_wanted(experiment, advised_workers)
    capacity = capacity_of(experiment, cluster)
    shape, places = capacity.shape, capacity.num_workers
    if places == 0 and not resources.autoscaling:
        raise _too_large(shape, cluster)
    if places < most and not resources.autoscaling:
        raise ResourcesError(
            f"a trial needs {most} workers with {_describe(shape)} each, but the cluster"
            f" ({_describe(Shape(int(cluster.num_cpus), cluster.num_gpus))}) has room for {places}",
            field=workers_field(experiment),
            allowed=f"at most {places}",
            next_step="Request fewer or smaller workers, or attach to a larger cluster.",
        )
    if (field := experiment.budget.limit_on_gpus()) is not None and not shape.gpus:
        raise ResourcesError(
            "the workers of this run have no GPUs, so GPU time can never end it",
            field=field,
            next_step=(
                "Limit the run by budget.time or budget.trials, or attach to a cluster with GPUs."
            ),
        )
    fitting = places // least
    wanted = fitting if resources.concurrency == "auto" else resources.concurrency
    stop_grace_s = STOP_GRACE_S
    if experiment.command is not None:
        stop_grace_s += resources.stop_grace
    request = Request(
        run_id=run_id,
        num_workers=least,
        shape=shape,
        placement=advised_placement if resources.placement == "auto" else capacity.placement,
        priority=resources.priority,
        autoscaling=resources.autoscaling,
        preload=TORCH if experiment.trained is not None else (),
        environment=caller_environment.publish(),
        fresh=resources.worker == "fresh",
        stop_grace_s=stop_grace_s,
    )
    return Share(request, wanted, max(wanted, fitting) if resources.autoscaling else fitting)


def driver_started(cluster: ClusterInventory, before_unix_s: float | None = None) -> DriverStarted:
    """Return the event that this process became a driver.

    Args:
        cluster: What it has.
        before_unix_s: Until when the driver that was replaced counts as alive, if there was one.
    """
    versions = {package: importlib.metadata.version(package) for package in VERSIONED_PACKAGES}
    return DriverStarted(
        pid=os.getpid(),
        host=socket.gethostname(),
        num_cpus=cluster.num_cpus,
        num_gpus=cluster.num_gpus,
        versions={"python": platform.python_version()} | versions,
        before_unix_s=before_unix_s,
    )


def workers_wanted(experiment: Experiment, advised_workers: int = 1) -> tuple[int, int]:
    """Return the least and the most workers that a trial of an experiment has.

    Args:
        experiment: The experiment.
        advised_workers: The number that `workers: auto` means.
    """
    domain = experiment.search.root.get("workers") if experiment.trained is not None else None
    if domain is None:
        fixed = experiment.plan.decided.workers or advised_workers
        return fixed, fixed
    values = domain.values() or [getattr(domain, "low", 1), getattr(domain, "high", 1)]
    numbers = [value if isinstance(value, int) else 1 for value in values]
    return min(numbers), max(numbers)


def _too_large(shape: Shape, cluster: ClusterInventory) -> ResourcesError:
    """Return the error for a worker that no node can hold."""
    if not cluster.nodes:
        return ResourcesError(
            f"a worker needs {_describe(shape)}, but the cluster has no machine",
            field="resources.autoscaling",
            next_step="Start a machine, or set it to true if the cluster starts some itself.",
        )
    most_cpus = int(max(node.num_cpus for node in cluster.nodes))
    most_gpus = max(node.num_gpus for node in cluster.nodes)
    field, allowed = "resources.cpus_per_worker", f"at most {most_cpus}"
    if shape.cpus <= most_cpus and shape.gpus > most_gpus:
        field, allowed = "resources.gpus_per_worker", f"at most {most_gpus:g}"
    return ResourcesError(
        f"a worker needs {_describe(shape)}, but no machine has more than "
        f"{_describe(Shape(most_cpus, most_gpus))}",
        field=field,
        allowed=allowed,
        next_step="Ask for smaller workers, or attach to a cluster with larger machines.",
    )


def _describe(shape: Shape) -> str:
    """Describe what a worker or a machine has, such as "2 CPUs and 1 GPU"."""
    text = format_count(shape.cpus, "CPU")
    if shape.gpus:
        text += f" and {shape.gpus:g} {counted_noun(shape.gpus, 'GPU')}"
    return text


def workers_field(experiment: Experiment) -> str:
    """Return the dotted field that sets how many workers a trial has."""
    is_searched = experiment.trained is not None and "workers" in experiment.search.root
    return "search.workers" if is_searched else "plan.workers"


def known_plan(
    experiment: Experiment, params: Mapping[str, JsonValue], decided: PartialPlan
) -> PartialPlan:
    """Return what is certain about the plan of a trial before its data is loaded.

    Args:
        experiment: The experiment.
        params: The configuration of the trial.
        decided: The part of its plan that is decided so far.
    """
    least, _ = workers_wanted(experiment)
    if not experiment.trains_model:
        return PartialPlan.of(workers=least)
    try:
        settings = resolve(experiment, params, decided=decided)
    except WorkbenchError:  # the trial will fail with this error and report it
        return PartialPlan.of(workers=least)
    plan = PartialPlan.of_plan(settings.plan)
    is_given = "micro_batch" in experiment.plan.decided | decided or "micro_batch" in params
    if settings.training.global_batch == "auto" and not is_given:
        return plan.without("micro_batch")  # bounded by the size of the train set
    return plan
