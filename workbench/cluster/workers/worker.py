"""The worker: one warm process that trains trial after trial, and answers calls meanwhile.

Training runs in a separate thread, so that the process can return events and be stopped at any
time. The output of the trial goes to its own log file. A worker only knows its trial. The pool
leases it, and the coordinator handles its events.

Reports are thinned where they are made, before they cross processes and reach the store. The first
reports of a trial all pass. Later ones that arrive quickly wait for a moment, and only some of them
pass: the last one, those with the lowest and the highest value of each objective, and those that
determine the value of the trial or a decision of its pruner. So both are the same as with all
reports.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import importlib
import json
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
import threadpoolctl

from workbench.cluster.remote.code_origin import Origin
from workbench.cluster.workers.caller_environment import CallerEnvironment
from workbench.cluster.workers.left_running import end_child_processes
from workbench.cluster.workers.trial_cleanup import TrialCleanup
from workbench.cluster.workers.trial_log import LogWatch, TrialLog, log_name
from workbench.foundation.artifacts import is_url
from workbench.foundation.errors import RunError, WorkbenchError
from workbench.foundation.events import Event, LogMatched, Reason, TrialEnded, TrialReported
from workbench.foundation.formatting import format_bytes
from workbench.foundation.freed_memory import keep_freed_memory
from workbench.hardware.resources.inventory import stay_near
from workbench.hardware.resources.nvml import Gpu, gpus_named, occupation_of

if TYPE_CHECKING:
    from workbench.training.worker_task import TrialTask
from workbench.experiment import Experiment
from workbench.experiment.goals import MeanLast
from workbench.experiment.trial_value import find_divergence

NUM_FREE = 1000
"""How many reports are never held back. A curve with 1,000 points looks complete."""
SHORTEST_S, LONGEST_S = 0.5, 10.0
ELAPSED_FRACTION = 1e-3
"""Reports wait for this fraction of the time that the attempt has taken, between the two limits
above.
"""
NUM_WAITING = 256
NOTICE = (
    "workbench: reports arrive faster than twice a second, so not all of them are stored: the last"
    " of each interval is, and those with the lowest and the highest value of each objective. The"
    " value of the trial and pruning are the same as with all of them.\n"
)
_Waiting = list[tuple[TrialReported, int]]  # each with the number of reports dropped before it
LINGER_S = 0.005
"""How long to wait for more events after the first, so that many events cost few calls."""
TIDY_S = 0.5
"""How long to wait for the end of a trial whose training has ended, instead of in another call."""
SHOW_LOG_S = 1.0
COLLECT_EVERY_S = 5.0
COLLECT_ALL_SHARE = 0.005
"""The share of the time for looking for garbage among everything that was ever imported."""
DEVICE_POLL_S = 1.0
QUARANTINE_S = 10.0
"""How long others may hold memory of a GPU until it is put into quarantine."""
MEETING_TIMEOUT_S = 300.0
"""How long the others wait while rank 0 loads. If it is lost, the trial ends at once."""


class ReportThinning:
    """Decides which reports of one attempt pass.

    Attributes:
        num_left_out: How many reports have been dropped.
    """

    def __init__(
        self,
        experiment: Experiment,
        clock: Callable[[], float] = time.monotonic,
        num_free: int = NUM_FREE,
    ) -> None:
        """Start before the first report.

        Args:
            experiment: The experiment, with its objectives and its pruner.
            clock: Returns the time in seconds.
            num_free: Reports that pass whatever their rate.
        """
        self._num_free = num_free
        self.num_left_out = 0
        self._early_stop = experiment.early_stop
        self._experiment = experiment
        self._objectives = [item.metric for item in experiment.objectives]
        self._tails = {
            item.metric: item.value.mean_last
            for item in experiment.objectives
            if isinstance(item.value, MeanLast)
        }
        self._has_pruner = experiment.early_stop.pruner != "none"
        self._rung: int | None = None
        self._clock = clock
        self._began_s = self._passed_s = self._taken_s = clock()
        self._num_taken = 0
        self._waiting: _Waiting = []
        self._num_until_selection = NUM_WAITING

    def take(self, event: Event) -> list[Event]:
        """Return the events that pass now, in the order in which they were made.

        Args:
            event: The next event of the attempt. What is not a report, was returned or is not
                finite passes at once, after all that wait.
        """
        if not isinstance(event, TrialReported) or event.returned or not self._is_finite(event):
            return [*self.flush(), event]
        self._num_taken += 1
        self._taken_s = self._clock()
        self._waiting.append((event, 0))
        if self._is_judged(event) or self._num_taken <= self._num_free or self._has_waited():
            return self.flush()
        if len(self._waiting) >= self._num_until_selection:
            self._waiting = self._selected()
            self._num_until_selection = len(self._waiting) + NUM_WAITING
        return []

    def overdue(self) -> list[Event]:
        """Return the reports that have waited long enough, or that no others follow."""
        if self._waiting and (self._has_waited() or self._clock() - self._taken_s >= SHORTEST_S):
            return self.flush()
        return []

    def flush(self) -> list[Event]:
        """Return the waiting reports that pass."""
        if not self._waiting:
            return []
        selected, self._waiting = self._selected(), []
        self._num_until_selection = NUM_WAITING
        self._passed_s = self._clock()
        self.num_left_out += sum(left_out for _, left_out in selected)
        return [
            report.model_copy(update={"left_out": left_out}) if left_out else report
            for report, left_out in selected
        ]

    def _has_waited(self) -> bool:
        interval_s = ELAPSED_FRACTION * (self._clock() - self._began_s)
        return self._clock() - self._passed_s >= min(max(interval_s, SHORTEST_S), LONGEST_S)

    def _is_finite(self, report: TrialReported) -> bool:
        return find_divergence(self._experiment, report.values) is None

    def _is_judged(self, report: TrialReported) -> bool:
        """Return whether a pruner will judge the report."""
        if not self._has_pruner or self._objectives[0] not in report.values:
            return False
        rung = self._early_stop.rung_of(report)
        is_new = rung is not None and rung != self._rung
        self._rung = rung if is_new else self._rung
        return is_new

    def _selected(self) -> _Waiting:
        """Return what is kept of the waiting reports."""
        reports = [report for report, _ in self._waiting]
        kept_indices = {len(reports) - 1, *_last_places(reports, range(len(reports)))}
        for metric in self._objectives:
            indices = [index for index, report in enumerate(reports) if metric in report.values]
            kept_indices.update(indices[-self._tails.get(metric, 1) :])
            for extreme in (min, max) if indices else ():
                kept_indices.update(
                    _beside(reports, extreme(indices, key=lambda at: reports[at].values[metric]))
                )
        selected: _Waiting = []
        left_out = 0
        for index, (report, left_out_before) in enumerate(self._waiting):
            left_out += left_out_before
            if index in kept_indices:
                selected.append((report, left_out))
                left_out = 0
            else:
                left_out += 1
        return selected


def _beside(reports: list[TrialReported], index: int) -> set[int]:
    """Return the places of the reports that tell all metrics as they were at one of them.

    A best report represents all metrics: those before it and those that follow at its step.
    """
    step = reports[index].step
    following = range(index + 1, len(reports))
    same_step = [later for later in following if reports[later].step == step]
    return {index, *_last_places(reports, range(index + 1)), *_last_places(reports, same_step)}


def _last_places(reports: list[TrialReported], indices: range | list[int]) -> set[int]:
    """Return where each metric was reported last, of some places."""
    return set({name: index for index in indices for name in reports[index].values}.values())


@dataclass(frozen=True)
class WorkerInfo:
    """Which process a worker is."""

    pid: int
    host: str
    process_id: str
    """Ray's id of the process."""
    node: str = ""
    """Ray's id of its node."""
    gpus: tuple[str, ...] = ()
    """The GPUs that it holds, by index or UUID."""
    placed: tuple[Gpu, ...] = ()
    """The same GPUs with their links and near CPUs, as far as the driver tells."""


@dataclass
class Progress:
    """What happened in a trial since the last call."""

    events: list[Event] = field(default_factory=list)
    ended: TrialEnded | None = None
    lost: Reason | None = None
    """Why a worker died: "oom" if memory ran out, else "lost". The trial is then over as well."""
    message: str | None = None
    unfit: str | None = None
    """Why the worker must not be used again after the trial, although it is alive."""
    occupied: str | None = None
    """Who holds memory of its GPU, so that the trial did not start. Others may not get it."""


def _own_gpus() -> tuple[str, ...]:
    """Return the GPUs that Ray has reserved for this process, by index or UUID."""
    return tuple(ray.get_runtime_context().get_accelerator_ids().get("GPU", ()))


class Worker:
    """One process that trains. The pool runs it as a Ray actor with a few threads for calls."""

    def __init__(
        self, cpus: int, gpus: float, preload: tuple[str, ...], environment: CallerEnvironment
    ) -> None:
        """Set the process up.

        Args:
            cpus: Threads that numeric libraries may use.
            gpus: GPUs that were reserved for it. With 0 it sees none.
            preload: Modules to import in the background, because its trials will need them.
            environment: The environment of the process that started the run.
        """
        if ray.is_initialized() and ray.get_runtime_context().was_current_actor_reconstructed:
            # Restartable only so that Ray kills it before others when memory runs out: see `pool`.
            raise RunError("a worker that died is not used again")
        self._cpus, self._gpus = cpus, gpus
        environment.enter()
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ[name] = str(cpus)
        # In a process that was started ahead, it has read the variables already.
        if "numpy" in sys.modules:
            threadpoolctl.threadpool_limits(cpus, user_api="blas")
        if gpus == 0:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        keep_freed_memory()
        self._placed = gpus_named(_own_gpus()) if gpus else ()
        if gpus >= 1:  # workers that share a GPU may need all CPUs
            stay_near(self._placed, cpus)
        self._condition = threading.Condition()
        self._pending: list[Event] = []
        self._ended: TrialEnded | None = None
        self._objectives: frozenset[str] = frozenset()
        self._thinning: ReportThinning | None = None
        self._sends_events = True
        self._is_training = False
        self._is_tidying = False
        self._stop = False
        self._is_held = False
        self._was_delivered = False
        self._collected_s = self._collected_all_s = time.monotonic()
        self._collecting_all_s = 0.0
        self._unfit: str | None = None
        self._occupied: str | None = None
        self._meeting_point: str | None = None
        self._cleanup: TrialCleanup | None = None
        self._log = TrialLog()
        self._shown_s = 0.0
        self._scan_log: Callable[..., list[Event]] = _scan_nothing
        self._preloading = threading.Thread(target=_import_all, args=(preload,), daemon=True)
        self._preloading.start()

    def info(self) -> WorkerInfo:
        """Return which process this is."""
        context = ray.get_runtime_context()
        return WorkerInfo(
            pid=os.getpid(),
            host=socket.gethostname(),
            process_id=context.get_worker_id(),
            node=context.get_node_id(),
            gpus=_own_gpus(),
            placed=self._placed,
        )

    def meeting_point(self) -> str:
        """Return `host:port` where the workers of a trial rendezvous, once this one is rank 0."""
        with self._condition:
            is_open = self._condition.wait_for(
                lambda: self._meeting_point is not None, MEETING_TIMEOUT_S
            )
            if not is_open:
                raise RunError(f"rank 0 opened no rendezvous within {MEETING_TIMEOUT_S:g} s")
            assert self._meeting_point is not None
            return self._meeting_point

    def start(
        self, task: TrialTask, blocking: bool, origin: Origin | None, first: Any = None
    ) -> Progress:
        """Start a trial and return its first events.

        Args:
            task: The trial.
            blocking: Whether training waits, after each report of an objective, until the next
                `next`.
            origin: Where the run was started, or None if the trial imports none of the user's code.
            first: Actor handle of the trial's rank 0, or None for rank 0 itself.
        """
        with self._condition:
            self._condition.wait_for(lambda: not self._is_training)
            self._pending, self._ended, self._unfit, self._thinning = [], None, None, None
            self._occupied = None
            self._stop = self._is_held = self._was_delivered = self._is_tidying = False
            self._objectives = _objectives(task) if blocking else frozenset()
            self._sends_events = task.rank == 0
            self._is_training = True
        arguments = (task, origin, first)
        threading.Thread(target=self._train, args=arguments, name="training", daemon=True).start()
        return self._wait_for_events()

    def call(self, target: str, arguments: tuple[Any, ...]) -> Any:
        """Call a function here, where the modules of trials are loaded, and return its result.

        Args:
            target: The function as `module:name`.
            arguments: Its arguments.
        """
        with self._condition:
            self._condition.wait_for(lambda: not self._is_training)
        self._preloading.join()
        module, _, name = target.partition(":")
        return getattr(importlib.import_module(module), name)(*arguments)

    def next(self, stop: bool) -> Progress:
        """Let a training that waits continue, and return what happens next.

        Args:
            stop: Whether training should stop at this point.
        """
        with self._condition:
            self._stop = self._stop or stop
            if self._was_delivered or self._stop:
                self._is_held = self._was_delivered = False
            self._condition.notify_all()
        return self._wait_for_events()

    def stop(self) -> None:
        """Stop the training at its next report, while another call waits for events."""
        with self._condition:
            self._stop, self._is_held = True, False
            self._condition.notify_all()

    def end(self, grace_s: float) -> bool:
        """Stop the training and return whether it ended in time.

        Args:
            grace_s: How long to wait for it, in seconds.
        """
        self.stop()
        with self._condition:
            ended = self._condition.wait_for(lambda: not self._is_training, grace_s)
        if not ended:
            end_child_processes()  # the pool kills this process next, but not what it started
        return ended

    def _wait_for_events(self) -> Progress:
        with self._condition:
            while not self._condition.wait_for(
                lambda: bool(self._pending) or bool(self._ended), SHOW_LOG_S
            ):
                self._show_log()
                self._pending += self._scan_log()
                self._pending += [] if self._thinning is None else self._thinning.overdue()
            self._show_log()
            if self._ended is None and not self._is_held:
                self._condition.wait_for(lambda: self._ended is not None or self._is_held, LINGER_S)
            if self._is_tidying:
                self._condition.wait_for(lambda: self._ended is not None, TIDY_S)
            events, self._pending = [*self._pending, *self._scan_log()], []
            self._was_delivered = self._is_held
            return Progress(events, self._ended, unfit=self._unfit, occupied=self._occupied)

    def _show_log(self) -> None:
        """Let users follow the log, even if the trial reports all the time."""
        now_s = time.monotonic()
        if now_s - self._shown_s >= SHOW_LOG_S:
            self._shown_s = now_s
            self._log.show()

    def _report(self, event: Event) -> bool:
        with self._condition:
            if not self._sends_events:
                return self._stop
            passing = [event] if self._thinning is None else self._take(self._thinning, event)
            if not passing:
                return self._stop
            self._pending += passing
            if isinstance(event, TrialReported) and not self._objectives.isdisjoint(event.values):
                self._is_held = not self._stop
            self._condition.notify_all()
            self._condition.wait_for(lambda: not self._is_held)
            return self._stop

    def _take(self, thinning: ReportThinning, event: Event) -> list[Event]:
        was_thinned = bool(thinning.num_left_out)
        passing = thinning.take(event)
        if thinning.num_left_out and not was_thinned:
            self._log.write(NOTICE)
        return passing

    def _train(self, task: TrialTask, origin: Origin | None, first: Any) -> None:
        try:
            self._preloading.join()
            _fetch_log(task)
            self._log.begin(_log_path(task))
            self._watch_log(task)
            if self._cleanup is None:
                self._cleanup = TrialCleanup()
            self._limit_threads()
            self._cleanup.begin(task, origin)
            self._wait_for_device()
            _find_shards(task)
            from workbench.training.trial import run_trial

            if task.num_workers > 1:
                task = dataclasses.replace(task, meeting=f"{self._meet(first)}/{task.meeting}")
            self._thinning = ReportThinning(task.experiment)
            ended = run_trial(task, self._report, lambda: self._stop)
        except BaseException as error:
            from workbench.training.trial import reason_of

            reason, message = reason_of(error, task)
            if self._occupied is not None:
                reason = "lost"
            ended = TrialEnded(
                trial=task.trial,
                attempt=task.attempt,
                state="failed",
                reason=reason,
                message=message,
                traceback=traceback.format_exc(),
                step=0,
            )
        self._is_tidying = True
        if ended.traceback and task.experiment.command is None:  # a program has printed it already
            self._log.write(ended.traceback)
        unfit = None if self._cleanup is None else self._cleanup.end(task)
        with self._condition:
            self._pending += [] if self._thinning is None else self._thinning.flush()
            self._pending += self._scan_log(at_end=True)
            self._scan_log = _scan_nothing
            self._log.end()
            self._ended, self._unfit = ended, unfit
            self._condition.notify_all()
        try:
            _store_log(task)
            self._collect()
        finally:
            with self._condition:
                self._is_training = False
                self._condition.notify_all()

    def _watch_log(self, task: TrialTask) -> None:
        """Search what the trial prints from here on for the patterns of alert rules."""
        watch = LogWatch(task.patterns, self._log.size, self._log.read)
        host, node = socket.gethostname(), ray.get_runtime_context().get_node_id()

        def scan(at_end: bool = False) -> list[Event]:
            return [
                LogMatched(
                    trial=task.trial,
                    attempt=task.attempt,
                    rank=task.rank,
                    host=host,
                    node=node,
                    pattern=pattern,
                    line=line,
                )
                for pattern, line in watch.scan(at_end=at_end)
            ]

        with self._condition:
            self._scan_log = scan if task.patterns else _scan_nothing

    def _meet(self, first: Any) -> str:
        """Return `host:port` of the rendezvous of a trial's workers, which rank 0 opens."""
        if first is not None:
            return ray.get(first.meeting_point.remote())
        from workbench.training.strategies.worker_group import open_meeting_point

        address = open_meeting_point(ray.util.get_node_ip_address())
        with self._condition:
            self._meeting_point = address
            self._condition.notify_all()
        return address

    def occupied(self) -> str | None:
        """Return who else holds memory of this worker's GPU, or None if it is free."""
        if self._gpus < 1:
            return None
        # It loads torch, which trials of functions do without.
        from workbench.training.device import foreign_bytes

        gpus = self.info().gpus
        held_bytes = foreign_bytes(gpus)
        if not held_bytes:
            return None
        occupations = [
            str(occupation) for gpu in gpus if (occupation := occupation_of(gpu, [os.getpid()]))
        ]
        fallback = f"others hold {format_bytes(held_bytes)} of its memory"
        return f"a GPU of {socket.gethostname()}: {'; '.join(occupations) or fallback}"

    def _wait_for_device(self) -> None:
        """Wait a moment for a GPU whose memory others hold.

        Raises:
            RunError: If they keep it. The pool puts the GPU into quarantine.
        """
        until_s = time.monotonic() + QUARANTINE_S
        while not self._stop and (occupied := self.occupied()):
            if time.monotonic() > until_s:
                self._occupied = occupied
                raise RunError(f"the trial did not start on {occupied}")
            time.sleep(DEVICE_POLL_S)

    def _limit_threads(self) -> None:
        torch = sys.modules.get("torch")
        if torch is not None and torch.get_num_threads() != self._cpus:
            torch.set_num_threads(self._cpus)

    def _collect(self) -> None:
        """Free memory now and then, after the end of a trial was reported."""
        now_s = time.monotonic()
        if now_s - self._collected_s > COLLECT_EVERY_S:
            self._collected_s = now_s
            # With torch loaded, traversing everything takes as long as ten small trials.
            is_all = (now_s - self._collected_all_s) * COLLECT_ALL_SHARE > self._collecting_all_s
            if is_all:
                gc.unfreeze()
            gc.collect()
            # Imports and data stay. The next collections need not traverse them again.
            gc.freeze()
            if is_all:
                self._collected_all_s = time.monotonic()
                self._collecting_all_s = self._collected_all_s - now_s
            if (torch := sys.modules.get("torch")) and torch.cuda.is_initialized():
                torch.cuda.empty_cache()


def _scan_nothing(at_end: bool = False) -> list[Event]:
    return []


def _objectives(task: TrialTask) -> frozenset[str]:
    return frozenset(
        objective["metric"] for objective in json.loads(task.experiment_json)["objectives"]
    )


def _log_path(task: TrialTask) -> Path:
    return task.artifacts.working_folder / log_name(task.rank)


def _fetch_log(task: TrialTask) -> None:
    """Copy the log of earlier attempts here if the artifacts are not on this machine."""
    path = _log_path(task)
    if not task.artifacts.is_local and task.attempt and task.artifacts.exists(path.name):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(task.artifacts.read(path.name))


def _store_log(task: TrialTask) -> None:
    path = _log_path(task)
    if not task.artifacts.is_local and path.exists():
        with contextlib.suppress(WorkbenchError, OSError):  # the log is lost, not the trial
            task.artifacts.put(path, path.name)
            path.parent.rmdir()


def _find_shards(task: TrialTask) -> None:
    """Let data behind a URL come by the server of this node."""
    if is_url(getattr(task.experiment.data, "options", {}).get("path")):
        from workbench.cluster.workers.shard_servers import use_own

        use_own()


def _import_all(names: tuple[str, ...]) -> None:
    gc.disable()  # looking for garbage among what stays takes a tenth of the time
    try:
        for name in names:
            importlib.import_module(name)
    finally:
        gc.freeze()  # nor need the collections of trials traverse it
        gc.enable()
