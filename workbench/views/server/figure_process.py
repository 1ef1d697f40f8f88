"""Figures and reports, built in a separate process: the server never imports plotly or optuna."""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Callable, Collection
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeoutError  # another class in Python 3.10
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from workbench.foundation.errors import RunError
from workbench.views.live_feed.analysis import OwnProcess
from workbench.views.live_feed.feed import Feed

_PATIENCE_S = 5.0
_REPORT_PATIENCE_S = 300.0
_KEPT = 32
_ATTEMPTS = 2
_Key = tuple[str, str, str, int, int | None]


class FigureRenderer:
    """Builds one figure or report at a time, in a process that ends when idle.

    What takes longer than a request may wait goes on, and the next request finds it.
    """

    def __init__(self, feed: Feed) -> None:
        """Draw runs from the store that the feed follows."""
        self._feed = feed
        self._lock = threading.Lock()
        self._process = OwnProcess()
        self._drawn: dict[_Key, Future[str]] = {}
        self._num_deaths: dict[_Key, int] = {}

    def figure(
        self, run_id: str, name: str, *, trials: Collection[int] | None = None, colour: str = ""
    ) -> str | None:
        """Return a figure as plotly's JSON, or None while it is still drawn.

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
        return self._draw(draw_figure, run_id, name, json.dumps(options), _PATIENCE_S)

    def report(self, run_id: str) -> str:
        """Return the report of a run as HTML.

        Raises:
            RunError: If it cannot be written, or is not yet.
        """
        for _ in range(_ATTEMPTS):
            page = self._draw(draw_report, run_id, "report", "{}", _REPORT_PATIENCE_S / _ATTEMPTS)
            if page is not None:
                return page
        raise RunError(
            f"the report of {run_id} is still being written",
            next_step="Reload this page to wait for it.",
        )

    def close(self) -> None:
        """End the process."""
        self._process.close()

    def _draw(
        self,
        draw: Callable[[str, str, str, str, str], str],
        run_id: str,
        name: str,
        options: str,
        patience_s: float,
    ) -> str | None:
        store = self._feed.store
        row = store.run(run_id)
        key = (run_id, name, options, row.last_seq, row.chosen_trial)
        with self._lock:
            future = self._drawn.get(key) or self._begun(
                key, draw, store.url, str(store.artifacts), run_id, name, options
            )
        try:
            return future.result(timeout=patience_s)
        except FutureTimeoutError:
            return None
        except (BrokenProcessPool, CancelledError) as error:
            # The first time, it may have been ended together with another figure: try again.
            if self._forget(key, future, is_death=True) < _ATTEMPTS:
                return None
            raise RunError(f"the process that drew {name} of {run_id} ended") from error
        except Exception:
            self._forget(key, future)
            raise

    def _begun(
        self, key: _Key, draw: Callable[[str, str, str, str, str], str], *arguments: str
    ) -> Future[str]:
        """Return the drawing, which starts unless it goes on already from an earlier event."""
        while len(self._drawn) >= _KEPT:
            del self._drawn[next(iter(self._drawn))]
        under_way = (
            future
            for (*same, _, _), future in self._drawn.items()
            if tuple(same) == key[:3] and not future.done()
        )
        future = next(under_way, None)
        if future is None:
            url, artifacts, run_id, name, options = arguments
            future = self._process.submit(draw, url, artifacts, run_id, name, options)
            self._drawn[key] = future
        return future

    def _forget(self, key: _Key, future: Future[str], *, is_death: bool = False) -> int:
        """Forget a drawing that has failed, and return how often its process has died in a row."""
        with self._lock:
            if self._drawn.get(key) is future:
                del self._drawn[key]
            num_deaths = self._num_deaths.pop(key, 0) + is_death
            if 0 < num_deaths < _ATTEMPTS:
                self._num_deaths[key] = num_deaths
            return num_deaths


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
