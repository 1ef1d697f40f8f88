"""Figures and reports, made in a process of their own: plotly and optuna stay out of the server."""

from __future__ import annotations

import multiprocessing
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from workbench.errors import RunError
from workbench.watch.watch import Watch

_IDLE_S = 120.0
_TIMEOUT_S = 120.0
_KEPT = 32


class Drawer:
    """Draws one thing at a time, in a process that ends after idling."""

    def __init__(self, watch: Watch) -> None:
        """Draw runs of the store that `watch` follows."""
        self._watch = watch
        self._lock = threading.Lock()
        self._pool: ProcessPoolExecutor | None = None
        self._timer: threading.Timer | None = None
        self._drawn: dict[tuple[str, str, int], str] = {}

    def figure(self, run_id: str, name: str) -> str:
        """Return a figure as plotly's JSON.

        Args:
            run_id: The run, in full.
            name: The figure.

        Raises:
            UnknownNameError: If there is no such figure.
            RunError: If it cannot be drawn.
        """
        return self._draw(draw_figure, run_id, name)

    def report(self, run_id: str) -> str:
        """Return the report of a run as HTML; errors as in `figure`."""
        return self._draw(draw_report, run_id, "report")

    def close(self) -> None:
        """End the process."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._end()

    def _draw(self, draw: Callable[..., str], run_id: str, name: str) -> str:
        store = self._watch.store
        key = (run_id, name, store.run(run_id).last_seq)
        with self._lock:
            if key in self._drawn:
                return self._drawn[key]
            future = self._submit(draw, store.url, str(store.artifacts), run_id, name)
        try:
            text = future.result(timeout=_TIMEOUT_S)
        except BrokenProcessPool as error:
            self.close()
            raise RunError(f"the process that drew {name} of {run_id} died") from error
        except TimeoutError as error:
            self.close()
            raise RunError(f"{name} of {run_id} was not drawn within {_TIMEOUT_S:g} s") from error
        with self._lock:
            while len(self._drawn) >= _KEPT:
                del self._drawn[next(iter(self._drawn))]
            self._drawn[key] = text
        return text

    def _submit(self, draw: Callable[..., str], *arguments: Any) -> Future[str]:
        if self._pool is None:
            # Not forked: the server has threads.
            self._pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
        if self._timer is not None:
            self._timer.cancel()
        self._timer = threading.Timer(_IDLE_S, self.close)
        self._timer.daemon = True
        self._timer.start()
        return self._pool.submit(draw, *arguments)

    def _end(self) -> None:
        if self._pool is not None:
            for process in list((self._pool._processes or {}).values()):
                process.terminate()
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


def draw_figure(url: str, artifacts: str, run_id: str, name: str) -> str:
    """Draw a figure in this process; arguments name the store, the run and the figure."""
    from workbench.run import attach
    from workbench.store import Store

    with Store.open(url, artifacts) as store:
        return str(attach(run_id, store=store).figure(name).to_json())


def draw_report(url: str, artifacts: str, run_id: str, _name: str) -> str:
    """Write a report in this process; arguments as in `draw_figure`."""
    from workbench.run import attach
    from workbench.store import Store

    with Store.open(url, artifacts) as store, tempfile.TemporaryDirectory() as folder:
        return attach(run_id, store=store).report(Path(folder) / "report.html").read_text(encoding="utf-8")
