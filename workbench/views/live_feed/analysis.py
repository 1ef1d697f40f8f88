"""The analysis of a run for a front end: columns of its trials, and the importance of parameters.

Importance takes seconds to minutes, and libraries that a server does not import. A process computes
it. Nothing limits how long that takes, the front end sees how far it is, and the result is kept
with the run. Drawing is left to `extensions/`.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

from workbench.foundation.errors import WorkbenchError
from workbench.foundation.events import FINISHED_RUN_STATES
from workbench.foundation.files import write_atomically
from workbench.foundation.formatting import format_count, format_duration
from workbench.runs.plots.prepare_search import AnalysisData, prepare_importance
from workbench.store.database import Store
from workbench.views.live_feed.chart import Numbers
from workbench.views.live_feed.protocol import (
    Analysis,
    AnalysisAxis,
    AnalysisGrid,
    AnalysisLimit,
    AnalysisObjective,
    Importance,
    ImportanceBar,
)
from workbench.views.live_feed.run_tail import RunTail

_IDLE_S = 120.0
_KEPT = 32
_ATTEMPTS = 2
_FILE = "importance.json"
_SHARE_OF_TIME = 0.1
"""At most this share of the time is spent on the importance of a run that is under way."""
_STANDINGS = ("complete", "no_result", "pruned")

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
Shares = dict[str, tuple[float, float, float]]


def encode_analysis(data: AnalysisData, numbers: Numbers) -> Analysis:
    """Return the message for prepared columns.

    Args:
        data: The columns.
        numbers: Receives them.
    """
    return Analysis(
        trials=numbers.add(data.trials),
        standings=numbers.add([_STANDINGS.index(standing) for standing in data.standings]),
        ranks=numbers.add(data.ranks),
        shares=numbers.add(data.shares),
        best=numbers.add(data.best, exact=True),
        axes=tuple(
            AnalysisAxis(
                name=axis.name,
                scale=axis.scale,
                ticks=axis.ticks,
                low=axis.low,
                high=axis.high,
                is_whole=axis.is_whole,
                is_conditional=axis.conditional,
                levels=axis.levels,
                places=numbers.add(places),
            )
            for axis, places in zip(data.axes, data.places, strict=True)
        ),
        objectives=tuple(
            AnalysisObjective(
                metric=item.metric,
                title=item.title,
                goal=item.goal,
                limits=tuple(AnalysisLimit(side=side, value=value) for side, value in item.limits),
                base=item.base,
                values=numbers.add(item.values, exact=True),
                y_range=item.y_range,
            )
            for item in data.objectives
        ),
        grids=tuple(
            AnalysisGrid(
                x=grid.x,
                y=grid.y,
                size=len(grid.rows),
                values=numbers.add([value for row in grid.rows for value in row]),
            )
            for grid in data.grids
        ),
        best_trial=data.best_trial,
        front=data.front,
        chosen=data.chosen,
        num_left_out=data.num_left_out,
    )


class OwnProcess:
    """A process that does one thing at a time and ends when idle."""

    def __init__(self) -> None:
        """Start without a process: the first work starts it."""
        self._lock = threading.Lock()
        self._pool: ProcessPoolExecutor | None = None
        self._timer: threading.Timer | None = None
        self._num_waiting = 0

    def submit(
        self,
        work: Callable[_Parameters, _Result],
        *arguments: _Parameters.args,
        **options: _Parameters.kwargs,
    ) -> Future[_Result]:
        """Start work in the process. Its result is a `BrokenProcessPool` if the process dies."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._num_waiting += 1
            pool = self._pool or _one_process()
            try:
                future = pool.submit(work, *arguments, **options)
            except BrokenProcessPool:  # it died while it was idle
                self._end(pool)
                pool = _one_process()
                future = pool.submit(work, *arguments, **options)
            self._pool = pool
        future.add_done_callback(lambda done: self._note_done(pool, done))
        return future

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end(self._pool)

    def _note_done(self, pool: ProcessPoolExecutor, done: Future[Any]) -> None:
        with self._lock:
            self._num_waiting -= 1
            if done.cancelled() or isinstance(done.exception(), BrokenProcessPool):
                self._end(pool)
            elif self._num_waiting == 0 and self._pool is not None:
                self._timer = threading.Timer(_IDLE_S, self._end_if_idle)
                self._timer.daemon = True
                self._timer.start()

    def _end_if_idle(self) -> None:
        with self._lock:
            if self._num_waiting == 0:
                self._end(self._pool)

    def _end(self, pool: ProcessPoolExecutor | None) -> None:
        """End a process, unless another one has already replaced it."""
        if pool is None or pool is not self._pool:
            return
        if self._timer is not None:
            self._timer.cancel()
        for process in list((pool._processes or {}).values()):
            process.terminate()
        self._pool = None
        # Its futures end in another thread, because their callbacks take the lock.
        threading.Thread(
            target=pool.shutdown, kwargs={"wait": False, "cancel_futures": True}, daemon=True
        ).start()


def _one_process() -> ProcessPoolExecutor:
    # Spawned, because the server has threads.
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))


class _Question(NamedTuple):
    """Which importance: of which run, at which state, from which trials."""

    run_id: str
    version: str
    trials: tuple[int, ...] | None
    attempt: int


class _Computed(NamedTuple):
    shares: Shares
    num_trials: int


class _Job(NamedTuple):
    question: _Question
    num_trials: int
    started_s: float


class ImportanceProcess:
    """Computes the importance of parameters, one run at a time."""

    def __init__(self, notify: Callable[[], None]) -> None:
        """Start without a process.

        Args:
            notify: Called from another thread when a result is there.
        """
        self._notify = notify
        self._lock = threading.RLock()  # a result may be there before anybody waits for it
        self._process = OwnProcess()
        self._job: _Job | None = None
        self._results: dict[_Question, _Computed | str] = {}
        self._latest: dict[str, _Computed] = {}
        self._again_s: dict[str, float] = {}
        self._num_deaths: dict[_Question, int] = {}

    def importance(
        self,
        store: Store,
        tail: RunTail,
        *,
        trials: Collection[int] | None = None,
        attempt: int = 0,
    ) -> Importance:
        """Return the importance of the parameters of a run, or how far it is computed.

        Args:
            store: Where the run is kept.
            tail: The run, locked by the caller.
            trials: The trials to compute it from, or None for all.
            attempt: Another number than before tries again what has failed.
        """
        history = tail.data.history
        if len(history.objectives) > 1:
            return Importance(state="ready", words="Importance needs a single objective.")
        if history.experiment.sampler.kind.is_population:
            words = "Members of a population continue each other, so parameters share the credit."
            return Importance(state="ready", words=words)
        ended = [trial.number for trial in history.in_state("complete", "pruned")]
        subset = None
        if trials is not None:
            ended = subset = tuple(sorted(set(ended) & set(trials)))
        question = _Question(tail.run_id, _version_of(tail), subset, attempt)
        with self._lock:
            if question not in self._results and subset is None:
                shares = _read(tail.folder / _FILE, question.version)
                if shares is not None:
                    self._keep(question, _Computed(shares, len(ended)))
            result = self._results.get(question)
            if result is None:
                return self._computing(store, question, len(ended))
        if isinstance(result, str):
            return Importance(state="failed", words=result)
        return _message(result)

    def close(self) -> None:
        """End the process."""
        self._process.close()

    def _computing(self, store: Store, question: _Question, num_trials: int) -> Importance:
        """Start to compute, unless something else is being computed. It starts after that."""
        # A run under way gets trials all the time. Its previous result is shown for a while.
        before = self._latest.get(question.run_id) if question.trials is None else None
        now_s = time.monotonic()
        if before is not None and now_s < self._again_s.get(question.run_id, 0.0):
            return _message(before)
        if self._job is None:
            self._job = _Job(question, num_trials, now_s)
            future = self._process.submit(
                compute_importance,
                store.url,
                str(store.artifacts),
                question.run_id,
                question.version,
                question.trials,
            )
            future.add_done_callback(self._take)
        if before is not None:
            return _message(before)
        job = self._job
        if job is None or job.question != question:
            return Importance(state="computing", words="waits for another analysis")
        passed_s = round(now_s - job.started_s)
        since = f", for {format_duration(passed_s)}" if passed_s > 1 else ""
        return Importance(
            state="computing", words=f"from {format_count(job.num_trials, 'trial')}{since}"
        )

    def _take(self, done: Future[Shares]) -> None:
        with self._lock:
            job, self._job = self._job, None
            assert job is not None
            question = job.question
            try:
                computed = _Computed(done.result(), job.num_trials)
            except (BrokenProcessPool, CancelledError):
                # The first time, it may have been ended together with another one: try again.
                deaths = self._num_deaths[question] = self._num_deaths.get(question, 0) + 1
                if deaths >= _ATTEMPTS:
                    words = "The process that computes importance ended. Is memory short?"
                    self._keep(question, words)
            except WorkbenchError as error:
                self._keep(question, str(error))
            except Exception as error:  # of a sampler of another package, or a missing library
                self._keep(question, f"{type(error).__name__}: {error}")
            else:
                self._keep(question, computed)
                now_s = time.monotonic()
                wait_s = (now_s - job.started_s) / _SHARE_OF_TIME
                self._again_s[question.run_id] = now_s + wait_s
        self._notify()

    def _keep(self, question: _Question, result: _Computed | str) -> None:
        self._num_deaths.pop(question, None)
        while len(self._results) >= _KEPT:
            del self._results[next(iter(self._results))]
        self._results[question] = result
        if isinstance(result, _Computed) and question.trials is None:
            while len(self._latest) >= _KEPT:
                del self._latest[next(iter(self._latest))]
            self._latest[question.run_id] = result


def _version_of(tail: RunTail) -> str:
    """Return what changes when importance may: all events of an ended run, else ended trials."""
    if tail.row.state in FINISHED_RUN_STATES:
        return f"event {tail.row.last_seq}"
    history = tail.data.history
    num_ended = len(history.in_state("complete", "pruned", "stopped", "failed"))
    return f"trials {num_ended}"


def _message(computed: _Computed) -> Importance:
    data = prepare_importance(computed.shares)
    words = f"from {format_count(computed.num_trials, 'trial')}"
    if not computed.shares:
        words = "Too few trials with different values."
    elif not data.names:
        words = "No parameter has an effect of 1 % or more."
    return Importance(
        state="ready",
        words=words,
        bars=tuple(
            ImportanceBar(name=name, share=share, low=low, high=high)
            for name, share, low, high in zip(
                data.names, data.shares, data.low, data.high, strict=True
            )
        ),
        notes=tuple(data.notes()),
    )


def _read(path: Path, version: str) -> Shares | None:
    """Return the importance that is kept with a run, or None if there is none of this version."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["version"] != version:
            return None
        return {name: (share, low, high) for name, (share, low, high) in stored["shares"].items()}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def compute_importance(
    url: str, artifacts: str, run_id: str, version: str, trials: Sequence[int] | None
) -> Shares:
    """Compute importance in this process, and keep it with the run.

    Args:
        url: The store.
        artifacts: Its folder of files.
        run_id: The run.
        version: What is kept with the result.
        trials: The trials to compute it from, or None for all. Only that of all is kept.

    Returns:
        As `Study.importance`.
    """
    from workbench.runs import attach
    from workbench.runs.run_figures import importance_of

    with Store.open(url, artifacts) as store:
        run = attach(run_id, store=store)
        shares = importance_of(run.stored, trials)
        if trials is None:
            # A store that is only read still shows it.
            with contextlib.suppress(OSError, WorkbenchError):
                stored = {"version": version, "shares": shares}
                write_atomically(store.folder(run.run_id) / _FILE, json.dumps(stored))
    return shares
