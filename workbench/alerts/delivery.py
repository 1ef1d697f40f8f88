"""Telling sinks beside a run: a thread for each sink, so that none waits for another, and the run for none.

What becomes of each delivery is kept until somebody asks; whose business it is to store it is left to the
driver. What was not answered for when a process ends is told again by the next: at least once, not exactly.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.alerts.settings import Sink
from workbench.alerts.sinks import SinkError, tell
from workbench.events import AlertDelivered, AlertRaised

logger = logging.getLogger(__name__)

WAITS_S: tuple[float, ...] = (1.0, 5.0, 20.0)
"""How long to wait before each further try."""
MAX_WAITING = 100
"""Alerts that wait for one sink; what comes on top is given up."""


def told_of(run_id: str, name: str, alert: AlertRaised) -> dict[str, Any]:
    """Return what a sink is told of an alert of a run.

    Args:
        run_id: The run.
        name: What people call it.
        alert: The alert.
    """
    return {
        "text": f"{name} ({run_id}): {alert.message}",
        "run_id": run_id,
        "name": name,
        **alert.model_dump(mode="json", exclude={"type", "to", "rule", "cause"}),
        "look": f"workbench show {run_id}",
    }


class Delivery:
    """Tells the sinks of one run."""

    def __init__(self, sinks: Mapping[str, Sink], *, waits_s: Sequence[float] | None = None) -> None:
        """Be ready to tell `sinks`; no thread is started before there is something to tell.

        Args:
            sinks: By name.
            waits_s: How long to wait before each further try; None for `WAITS_S`.
        """
        self._sinks = dict(sinks)
        self._waits_s = WAITS_S if waits_s is None else tuple(waits_s)
        self._queues: dict[str, queue.Queue[tuple[int, Mapping[str, Any]]]] = {}
        self._outcomes: queue.SimpleQueue[AlertDelivered] = queue.SimpleQueue()
        self._num_open = 0
        self._closing = threading.Event()
        self._changed = threading.Condition()

    def put(self, sink: str, number: int, alert: Mapping[str, Any]) -> None:
        """Have a sink told; never waits.

        Args:
            sink: Its name.
            number: The number of the alert.
            alert: What is told.
        """
        if sink not in self._sinks:
            self._outcomes.put(self._answer(number, sink, "the settings name no such sink here"))
            return
        if sink not in self._queues:
            self._queues[sink] = queue.Queue(MAX_WAITING)
            threading.Thread(target=self._serve, args=(sink,), name=f"alerts to {sink}", daemon=True).start()
        try:
            with self._changed:
                self._queues[sink].put_nowait((number, alert))
                self._num_open += 1
        except queue.Full:
            self._outcomes.put(self._answer(number, sink, f"{MAX_WAITING} other alerts wait for it"))

    def outcomes(self) -> list[AlertDelivered]:
        """Return what has become of deliveries since the last call."""
        found: list[AlertDelivered] = []
        while not self._outcomes.empty():
            found.append(self._outcomes.get())
        return found

    def close(self, timeout_s: float) -> list[AlertDelivered]:
        """Wait a while for what is under way, and return what has become of it.

        Args:
            timeout_s: How long to wait.
        """
        until_s = time.monotonic() + timeout_s
        with self._changed:
            self._changed.wait_for(lambda: self._num_open == 0, max(0.0, until_s - time.monotonic()))
        self._closing.set()
        return self.outcomes()

    def _serve(self, name: str) -> None:
        while not self._closing.is_set():
            number, alert = self._queues[name].get()
            problem = self._try(self._sinks[name], alert)
            if problem is not None:
                logger.warning("alert %d could not be sent to %s: %s", number, name, problem)
            self._outcomes.put(self._answer(number, name, problem))
            with self._changed:
                self._num_open -= 1
                self._changed.notify_all()

    def _try(self, sink: Sink, alert: Mapping[str, Any]) -> str | None:
        """Tell a sink, several times if need be; return what keeps it from being told, or None."""
        for wait_s in (*self._waits_s, None):
            try:
                tell(sink, alert)
            except SinkError as error:
                if wait_s is None or not error.may_pass or self._closing.wait(wait_s):
                    return error.problem
            except Exception as error:
                return type(error).__name__  # its words may hold what must not be stored
            else:
                return None
        return None

    @staticmethod
    def _answer(number: int, sink: str, problem: str | None) -> AlertDelivered:
        return AlertDelivered(alert=number, sink=sink, sent=problem is None, message=problem)
