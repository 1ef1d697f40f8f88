"""Figures and reports, built in a separate process: the server never imports plotly or optuna."""

from __future__ import annotations

import json
import multiprocessing
import tempfile
import threading
from collections.abc import Callable, Collection
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError  # another class in Python 3.10
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from workbench.foundation.errors import RunError
from workbench.views.live_feed.feed import Feed

_IDLE_S = 120.0
_TIMEOUT_S = 120.0
_KEPT = 32


class FigureRenderer:
    """Builds one figure or report at a time, in a process that ends when idle."""

    def __init__(self, feed: Feed) -> None:
        """Draw runs from the store that the feed follows."""
        self._feed = feed
        self._lock = threading.Lock()
        self._pool: ProcessPoolExecutor | None = None
        self._timer: threading.Timer | None = None
        self._num_waiting = 0
        self._drawn: dict[tuple[str, str, str, int, int | None], str] = {}

    def figure(
        self, run_id: str, name: str, *, trials: Collection[int] | None = None, colour: str = ""
    ) -> str:
        """Return a figure as plotly's JSON.

        Args:
            run_id: The run, in full.
            name: The figure.
            trials: The trials to show, or None for all.
            colour: The parameter to colour them by, or empty for none.

        Raises:
            UnknownNameError: If there is no such figure.
            RunError: If it cannot be drawn.
        """
        options: dict[str, object] = {}
        if trials is not None:
            options["trials"] = sorted(trials)
        if colour:
            options["colour"] = colour
        return self._draw(draw_figure, run_id, name, json.dumps(options))

    def report(self, run_id: str) -> str:
        """Return the report of a run as HTML. Errors: as in `figure`."""
        return self._draw(draw_report, run_id, "report", "{}")

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end(self._pool)

    def _draw(self, draw: Callable[..., str], run_id: str, name: str, options: str) -> str:
        store = self._feed.store
        row = store.run(run_id)
        key = (run_id, name, options, row.last_seq, row.chosen_trial)
        with self._lock:
            if key in self._drawn:
                return self._drawn[key]
            pool, future = self._submit(
                draw, store.url, str(store.artifacts), run_id, name, options
            )
        try:
            text = future.result(timeout=_TIMEOUT_S)
        except (BrokenProcessPool, CancelledError) as error:
            with self._lock:
                self._end(pool)
            raise RunError(f"the process that drew {name} of {run_id} ended: try again") from error
        except FutureTimeoutError as error:
            with self._lock:
                self._end(pool)
            raise RunError(f"{name} of {run_id} was not drawn within {_TIMEOUT_S:g} s") from error
        finally:
            self._idle_from_now()
        with self._lock:
            while len(self._drawn) >= _KEPT:
                del self._drawn[next(iter(self._drawn))]
            self._drawn[key] = text
        return text

    def _submit(
        self, draw: Callable[..., str], *arguments: str
    ) -> tuple[ProcessPoolExecutor, Future[str]]:
        if self._timer is not None:
            self._timer.cancel()
        try:
            pool = self._pool or _one_process()
            future = pool.submit(draw, *arguments)
        except BrokenProcessPool:  # it died while it was idle
            self._end(self._pool)
            pool = _one_process()
            future = pool.submit(draw, *arguments)
        self._pool = pool
        self._num_waiting += 1
        return pool, future

    def _idle_from_now(self) -> None:
        with self._lock:
            self._num_waiting -= 1
            if self._num_waiting == 0 and self._pool is not None:
                self._timer = threading.Timer(_IDLE_S, self.close)
                self._timer.daemon = True
                self._timer.start()

    def _end(self, pool: ProcessPoolExecutor | None) -> None:
        """End a process, unless another waiting request has already done so."""
        if pool is None or pool is not self._pool:
            return
        if self._timer is not None:
            self._timer.cancel()
        for process in list((pool._processes or {}).values()):
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        self._pool = None


def _one_process() -> ProcessPoolExecutor:
    # Spawned, because the server has threads.
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))


def draw_figure(url: str, artifacts: str, run_id: str, name: str, options: str) -> str:
    """Draw a figure in this process.

    Args:
        url: The store.
        artifacts: Its folder of files.
        run_id: The run.
        name: The figure.
        options: `trials` and `colour` as JSON, as `Run.figure` takes them.
    """
    from workbench.runs import attach
    from workbench.store.database import Store

    with Store.open(url, artifacts) as store:
        return str(attach(run_id, store=store).figure(name, **json.loads(options)).to_json())


def draw_report(url: str, artifacts: str, run_id: str, _name: str, _options: str) -> str:
    """Write a report in this process. Arguments as in `draw_figure`."""
    from workbench.runs import attach
    from workbench.store.database import Store

    with Store.open(url, artifacts) as store, tempfile.TemporaryDirectory() as folder:
        return (
            attach(run_id, store=store)
            .report(Path(folder) / "report.html")
            .read_text(encoding="utf-8")
        )
