"""Measures plans and learning rates on warm workers, and trains candidates for a while.

Each measurement leases its workers, stores its results as events, and gives the workers back.
`recommend` decides what to measure, and draws the conclusions.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast

from pydantic import JsonValue

from workbench.cluster.remote.code_origin import Origin
from workbench.cluster.workers import caller_environment
from workbench.cluster.workers.admission import Capacity, Placement, Request
from workbench.cluster.workers.gang import Gang
from workbench.cluster.workers.pool_client import obstacle
from workbench.experiment import Experiment
from workbench.experiment.plan import SIZES, Hardware, PartialPlan, Plan
from workbench.foundation.artifacts import Artifacts
from workbench.foundation.errors import ExperimentError, ResourcesError, RunError
from workbench.foundation.events import (
    Event,
    Noted,
    PlanMeasured,
    RatesTested,
    Sink,
    TrialEnded,
    TrialPlanned,
    TrialReported,
)
from workbench.foundation.events.runs import write_waited_note, write_waiting_note
from workbench.training.planning.own_code import own_values
from workbench.training.planning.settings import resolve
from workbench.training.probes.measurements import NeighbourProbe, PlanProbe, PowerProbe, RateTest
from workbench.training.worker_task import TrialTask

NOTE_AFTER_S = 10.0
"""A wait for workers that takes longer is reported, and so is each new reason for it."""
_POLL_S = 1.0
_WORKERS = "workers"
_PRELOAD = ("torch", "workbench.training.loop")


@dataclasses.dataclass(frozen=True)
class Report:
    """A report of a training in progress.

    Attributes:
        elapsed_s: Seconds since data and model were ready. For functions and programs, seconds
            since they started.
        event: The report.
        plan: The complete plan of the training.
    """

    elapsed_s: float
    event: TrialReported
    plan: PartialPlan


class Bench:
    """Measures one experiment on the workers of a cluster."""

    def __init__(
        self,
        run_id: str,
        experiment: Experiment,
        artifacts: Artifacts,
        *,
        capacity: Capacity,
        origin: Origin,
        sink: Sink,
        poll: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare to measure.

        Args:
            run_id: The run to which the measurements belong.
            experiment: The experiment to measure.
            artifacts: The folder of the run's files.
            capacity: The resources of one worker, and the placement of gangs.
            origin: Where workers find the user's code.
            sink: Receives each measurement.
            poll: Called about every second during a measurement. An exception from it ends the
                measurement.
        """
        self._experiment = experiment
        self._artifacts = artifacts
        self._request = Request(
            run_id,
            shape=capacity.shape,
            placement=capacity.placement,
            preload=_PRELOAD,
            environment=caller_environment.publish(),
        )
        self._origin = origin
        self._sink, self._poll = sink, poll
        self._waited_s = 0.0
        self._waits_since_s: float | None = None
        self._impossible: set[PartialPlan] = set()
        objects = None
        if experiment.payload_hashes():
            objects = artifacts.below("objects").url
        self._task = TrialTask(
            run_id=run_id,
            trial=0,
            attempt=0,
            experiment_json=experiment.model_dump_json(),
            objects=objects,
            seed=experiment.seed,
            folder=artifacts.below("candidates/probes").url,
        )

    def put(self, placement: Placement) -> None:
        """Place all further gangs on few nodes or on many."""
        self._request = dataclasses.replace(self._request, placement=placement)

    def start_workers(self, num_workers: int) -> None:
        """Start workers, all at once, and wait until they are ready.

        They stay warm for the next measurement.
        """
        self._lease(dataclasses.replace(self._request, num_workers=num_workers)).release()

    def probe(
        self,
        num_workers: int,
        plans: Sequence[PartialPlan],
        order: PlanProbe,
        params: Mapping[str, JsonValue],
    ) -> list[PlanMeasured]:
        """Measure plans that use the same number of workers, in this order.

        Args:
            num_workers: Workers of every plan.
            plans: The plans. Dimensions that a plan does not contain are decided as in a trial.
            order: How to measure. Its own plans are ignored.
            params: The configuration.

        Returns:
            One measurement per plan.

        Raises:
            ExperimentError: If a function or program reports no speed.
            RunError: If the experiment fails, except for lack of memory.
        """
        left, all_measured = list(plans), []
        while left:
            # A model is built once, and all plans are measured with it. A function or program only
            # takes its plan when it starts, so each plan is a start.
            now = left
            if not self._experiment.trains_model:
                now = left[:1]
            task = dataclasses.replace(
                self._task,
                params=dict(params),
                plan=PartialPlan.of(workers=num_workers),
                measurement=dataclasses.replace(order, plans=tuple(now)),
            )
            measured: list[PlanMeasured] = []
            ended, workers_per_node = None, ()
            for event, workers_per_node in self._events(task, num_workers):
                if isinstance(event, PlanMeasured):
                    place = {"setting": order.setting, "workers_per_node": list(workers_per_node)}
                    measured.append(event.model_copy(update=place))
                ended = event if isinstance(event, TrialEnded) else ended
            if ended is not None and ended.state == "failed":
                if ended.is_unreported:
                    raise ExperimentError(
                        str(ended.message),
                        field="advise.speed",
                        next_step=(
                            "Print it or call wb.report(samples_per_s=...). If your metric has"
                            " another name, set advise.speed to it and advise.unit to its unit."
                        ),
                    )
                if ended.reason != "oom" or len(measured) >= len(now):
                    raise RunError(
                        f"a plan could not be measured: {ended.message}",
                        next_step="Run a sweep of one trial and read its log.",
                    )
                # One rank ran out of memory while the others waited for it, so that no worker could
                # report the misfit. The plan after the last measured one is the one that failed.
                failed = left[len(measured)] | PartialPlan.of(workers=num_workers)
                measured.append(
                    PlanMeasured(
                        setting=order.setting,
                        plan=self._in_full(failed, params),
                        workers_per_node=list(workers_per_node),
                        fits=False,
                        message=ended.message,
                    )
                )
            for event in filter(self._is_news, measured):
                self._sink(event)
            all_measured += measured
            if len(measured) < len(now) and (ended is None or ended.state != "failed"):
                raise RunError("the workers measured fewer plans than requested")
            left = left[len(measured) :]
        return all_measured

    def _in_full(
        self, decided: PartialPlan, params: Mapping[str, JsonValue]
    ) -> dict[str, JsonValue]:
        """Return the plan of a failed measurement, without what only the data could decide."""
        on_gpu = self._request.shape.gpus > 0
        hardware = Hardware(on_gpu, has_bf16=on_gpu)
        return resolve(self._experiment, params, hardware=hardware, decided=decided).plan.to_json()

    def _is_news(self, event: PlanMeasured) -> bool:
        """Return whether to store a measurement.

        A variant that is impossible at every size is stored only once.
        """
        if event.is_possible:
            return True
        variant = PartialPlan.from_json(event.plan).without(*SIZES)
        is_first = variant not in self._impossible
        self._impossible.add(variant)
        return is_first

    def probe_neighbours(
        self, num_copies: int, order: NeighbourProbe, params: Mapping[str, JsonValue]
    ) -> PlanMeasured:
        """Measure copies of a training that run at the same time. Nothing is stored.

        Args:
            num_copies: The number of copies.
            order: How to measure.
            params: The configuration.

        Raises:
            RunError: If the experiment fails, except for lack of memory.
        """
        task = dataclasses.replace(self._task, params=dict(params), measurement=order)
        measured, ended = PlanMeasured(setting=order.setting, plan={}, fits=False), None
        for event, _ in self._events(task, num_copies):
            if isinstance(event, PlanMeasured):
                measured = event
            elif isinstance(event, TrialEnded):
                ended = event
        if ended is not None and ended.state == "failed":
            if ended.reason != "oom":
                raise RunError(
                    f"{num_copies} trainings at once could not be measured: {ended.message}",
                    next_step="Set resources.per_gpu to a number.",
                )
            return measured.model_copy(update={"fits": False, "message": ended.message})
        return measured

    def probe_power(
        self, num_workers: int, order: PowerProbe, params: Mapping[str, JsonValue]
    ) -> list[PlanMeasured]:
        """Measure one plan under several power limits. Nothing is stored.

        Args:
            num_workers: Workers of the plan.
            order: How to measure.
            params: The configuration.

        Returns:
            One measurement per limit, the present limit first.

        Raises:
            ResourcesError: If power limits may not be changed.
        """
        task = dataclasses.replace(self._task, params=dict(params), measurement=order)
        measured, ended = [], None
        for event, _ in self._events(task, num_workers):
            if isinstance(event, PlanMeasured):
                measured.append(event)
            elif isinstance(event, TrialEnded):
                ended = event
        if ended is not None and ended.state == "failed":
            raise ResourcesError(f"power limits could not be measured: {ended.message}")
        return measured

    def test_rates(
        self,
        plan: Plan,
        params: Mapping[str, JsonValue],
        order: RateTest,
        *,
        until_s: float = math.inf,
    ) -> RatesTested | None:
        """Test a range of learning rates with one plan.

        Args:
            plan: The plan.
            params: The configuration.
            order: The range and the number of steps.
            until_s: The time on `clock_s` at which the test is cut short.

        Returns:
            The result, or None if the test ended without one.
        """
        task = dataclasses.replace(
            self._task, params=dict(params), plan=PartialPlan.of_plan(plan), measurement=order
        )
        tested = None
        for event, _ in self._events(task, plan.workers, until_s=until_s):
            if isinstance(event, RatesTested):
                tested = event.model_copy(update={"setting": order.setting})
                self._sink(tested)
        return tested

    def train(
        self,
        number: int,
        plan: Plan,
        params: Mapping[str, JsonValue],
        seed: int,
        continues: Callable[[Report], bool],
        *,
        until_s: float = math.inf,
    ) -> bool:
        """Train a candidate until it is done or `continues` returns False.

        Args:
            number: Number of the training, from 0. It has its own folder of files, which is deleted
                afterwards.
            plan: The plan.
            params: The configuration, with rate and global batch.
            seed: The seed of all random numbers in the training.
            continues: Receives each report, and returns whether to continue.
            until_s: The time on `clock_s` at which the training is cut short, even between reports.

        Returns:
            Whether the training completed without being stopped.
        """
        folder = self._artifacts.below(f"candidates/{number:04d}")
        decided = PartialPlan.of_plan(plan)
        if self._experiment.advise is not None:
            params = own_values(
                self._experiment, params, plan.micro_batch, cast(float, params["lr"])
            )
            decided = decided.only(["workers"])
        task = dataclasses.replace(
            self._task,
            trial=number,
            params=dict(params),
            plan=decided,
            seed=seed,
            folder=folder.url,
        )
        begun_unix_s, planned, ended = None, PartialPlan(), None
        stop = threading.Event()
        try:
            for event, _ in self._events(task, plan.workers, stop, until_s=until_s):
                if isinstance(event, TrialPlanned):
                    begun_unix_s, planned = event.time_unix_s, PartialPlan.from_json(event.plan)
                elif isinstance(event, TrialReported) and not stop.is_set():
                    elapsed_s = event.elapsed_s
                    if begun_unix_s is not None:
                        elapsed_s = max(0.0, event.time_unix_s - begun_unix_s)
                    if not continues(Report(elapsed_s, event, planned)):
                        stop.set()
                if isinstance(event, TrialEnded):
                    ended = event
        finally:
            self._artifacts.delete(f"candidates/{number:04d}")
        return ended is not None and ended.state == "complete" and not stop.is_set()

    def _events(
        self,
        task: TrialTask,
        num_workers: int,
        stop: threading.Event | None = None,
        *,
        until_s: float = math.inf,
    ) -> Iterator[tuple[Event, tuple[int, ...]]]:
        """Execute a task. Yield each event together with the number of workers on each node.

        The last event is the end of the trial, unless the time is up before.
        """
        request = dataclasses.replace(self._request, num_workers=num_workers)
        gang = self._lease(request)
        try:
            on_nodes = tuple(sorted(Counter(worker.node for worker in gang.workers).values()))
            gang.start(task, origin=self._origin)
            while True:
                progress = gang.next(stop=stop is not None and stop.is_set(), timeout_s=_POLL_S)
                self._poll()
                for event in progress.events:
                    yield event, on_nodes
                if progress.lost is not None:
                    yield (
                        TrialEnded(
                            trial=task.trial,
                            attempt=0,
                            state="failed",
                            reason=progress.lost,
                            message=progress.message,
                        ),
                        on_nodes,
                    )
                    return
                if progress.ended is not None:
                    yield progress.ended, on_nodes
                    return
                if self.clock_s() > until_s:
                    return
        finally:
            gang.release()

    def clock_s(self) -> float:
        """Return seconds on a clock that stops while a measurement waits for workers."""
        now_s = time.monotonic() if self._waits_since_s is None else self._waits_since_s
        return now_s - self._waited_s

    def _lease(self, request: Request) -> Gang:
        """Wait for workers without a limit. A long wait is reported with its reason."""
        gang = Gang(request)
        try:
            with self._clock_stopped():
                waited_s = self._await(gang)
            if waited_s is not None:
                self._sink(Noted(level="info", message=write_waited_note(_WORKERS, waited_s)))
        except BaseException:
            gang.release()
            raise
        return gang

    def _await(self, gang: Gang) -> float | None:
        """Wait for workers. Return the seconds of the wait if it was reported, otherwise None."""
        began_s = time.monotonic()
        report_s, is_reported, reported = began_s + NOTE_AFTER_S, False, None
        while not gang.ready(_POLL_S):
            self._poll()
            if time.monotonic() < report_s:
                continue
            report_s = time.monotonic() + NOTE_AFTER_S
            reason = obstacle(self._request.run_id)
            is_news = not is_reported if reason is None else not reason.is_like(reported)
            if is_news:
                is_reported, reported = True, reason
                why = "none is free yet" if reason is None else str(reason)
                self._sink(Noted(level="info", message=write_waiting_note(_WORKERS, why)))
        if not is_reported:
            return None
        return time.monotonic() - began_s

    @contextlib.contextmanager
    def _clock_stopped(self) -> Iterator[None]:
        self._waits_since_s = time.monotonic()
        try:
            yield
        finally:
            self._waited_s += time.monotonic() - self._waits_since_s
            self._waits_since_s = None
