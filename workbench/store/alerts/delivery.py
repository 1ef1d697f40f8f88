"""Deliver alerts to sinks in the background, with one thread per sink.

A slow sink therefore delays neither the run nor another sink. The outcome of each delivery is kept
until the driver fetches it. If a process ends before an outcome is known, the next process sends
the alert again: delivery is at least once, not exactly once.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.foundation.events import AlertDelivered, AlertRaised
from workbench.store.alerts.sinks import Sink, SinkError, send

logger = logging.getLogger(__name__)

WAITS_S: tuple[float, ...] = (1.0, 5.0, 20.0)
"""Seconds to wait before each retry."""
MAX_WAITING = 100
"""Maximum number of alerts that wait for one sink. More are dropped."""


def payload_of(run_id: str, name: str, alert: AlertRaised) -> dict[str, Any]:
    """Return an alert of a run as the plain values that a sink receives.

    Args:
        run_id: The run.
        name: The name of the experiment.
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
    """Delivers the alerts of one run to sinks."""

    def __init__(
        self, sinks: Mapping[str, Sink], *, waits_s: Sequence[float] | None = None
    ) -> None:
        """Prepare to deliver to `sinks`. Threads start with the first alert.

        Args:
            sinks: The sinks by name.
            waits_s: Seconds to wait before each retry. None means `WAITS_S`.
        """
        self._sinks = dict(sinks)
        self._waits_s = WAITS_S if waits_s is None else tuple(waits_s)
        self._queues: dict[str, queue.Queue[tuple[int, Mapping[str, Any]]]] = {}
        self._outcomes: queue.SimpleQueue[AlertDelivered] = queue.SimpleQueue()
        self._num_open = 0
        self._closing = threading.Event()
        self._changed = threading.Condition()

    @property
    def timeout_s(self) -> float:
        """Seconds that the slowest of the sinks may take to send one alert."""
        return max((sink.timeout_s for sink in self._sinks.values()), default=0.0)

    def put(self, sink: str, number: int, alert: Mapping[str, Any]) -> None:
        """Queue an alert for a sink, without waiting.

        Args:
            sink: Name of the sink.
            number: The number of the alert.
            alert: Plain values, see `payload_of`.
        """
        if sink not in self._sinks:
            self._outcomes.put(
                self._answer(number, sink, "the settings on this machine have no such sink")
            )
            return
        if sink not in self._queues:
            self._queues[sink] = queue.Queue(MAX_WAITING)
            threading.Thread(
                target=self._serve, args=(sink,), name=f"alerts to {sink}", daemon=True
            ).start()
        try:
            with self._changed:
                self._queues[sink].put_nowait((number, alert))
                self._num_open += 1
        except queue.Full:
            self._outcomes.put(
                self._answer(number, sink, f"dropped because {MAX_WAITING} others are waiting")
            )

    def outcomes(self) -> list[AlertDelivered]:
        """Return the outcomes of deliveries since the last call."""
        outcomes: list[AlertDelivered] = []
        while not self._outcomes.empty():
            outcomes.append(self._outcomes.get())
        return outcomes

    def close(self, timeout_s: float) -> list[AlertDelivered]:
        """Wait for running deliveries, and return their outcomes.

        Args:
            timeout_s: Seconds to wait at most.
        """
        until_s = time.monotonic() + timeout_s
        with self._changed:
            self._changed.wait_for(
                lambda: self._num_open == 0, max(0.0, until_s - time.monotonic())
            )
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
        """Send an alert with retries, and return why it could not be sent, or None."""
        for wait_s in (*self._waits_s, None):
            try:
                send(sink, alert)
            except SinkError as error:
                if wait_s is None or not error.may_pass or self._closing.wait(wait_s):
                    return error.problem
            except Exception as error:
                # Its message may contain secrets, which must not be stored.
                return type(error).__name__
            else:
                return None
        return None

    @staticmethod
    def _answer(number: int, sink: str, problem: str | None) -> AlertDelivered:
        return AlertDelivered(alert=number, sink=sink, sent=problem is None, message=problem)
