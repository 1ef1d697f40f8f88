"""Deliver alerts to sinks in the background, with one thread per sink.

A slow sink therefore delays neither the run nor another sink. The outcome of each delivery is kept
until the driver fetches it. If a process ends before an outcome is known, the next process sends
the alert again: delivery is at least once, not exactly once.

The driver of a lost run is gone, so `notify_of_lost` sends its alert. The run may stay lost,
because nobody has to resume it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.foundation.errors import LeaseError
from workbench.foundation.events import AlertDelivered, AlertRaised
from workbench.store.alerts.evaluation import Alerts
from workbench.store.alerts.settings import Settings, read_settings
from workbench.store.alerts.sinks import Sink, SinkError, send
from workbench.store.database import RunRow, Store

logger = logging.getLogger(__name__)

WAITS_S: tuple[float, ...] = (1.0, 5.0, 20.0)
"""Seconds to wait before each retry."""
MAX_WAITING = 100
"""Maximum number of alerts that wait for one sink. More are dropped."""
PATIENCE_S = 60.0
"""How long sinks may take for one run."""
LEASE_TIMEOUT_S = 2.0
"""The sending process holds the run's lease for this long, so that no other process sends."""
_EVENTS = (
    "alerts_armed",
    "alert_raised",
    "alert_cleared",
    "alert_delivered",
    "driver_started",
    "run_state_changed",
)


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
        self._queues: dict[str, queue.Queue[tuple[int, Mapping[str, Any]] | None]] = {}
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
        for waiting in self._queues.values():
            with contextlib.suppress(queue.Full):  # its thread ends after the alert that it sends
                waiting.put_nowait(None)
        return self.outcomes()

    def _serve(self, name: str) -> None:
        while not self._closing.is_set() and (item := self._queues[name].get()) is not None:
            number, alert = item
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


def notify_of_lost(store: Store) -> dict[str, list[AlertDelivered]]:
    """Raise the alerts of lost runs that have a rule for it, once, and notify their sinks.

    Args:
        store: The store of the runs. The sinks come from the calling user's settings.

    Returns:
        The outcomes by run, without runs whose sinks were notified earlier.

    Raises:
        ExperimentError: If the settings cannot be read.
        StoreUnavailableError: If the store cannot be written.
    """
    settings = read_settings()
    notified: dict[str, list[AlertDelivered]] = {}
    for row in store.runs():
        if row.state != "lost":
            continue
        # A LeaseError means that another process is resuming the run. It notifies the sinks.
        with contextlib.suppress(LeaseError):
            answers = _notify(store, row, settings)
            if answers is not None:
                notified[row.run_id] = answers
    return notified


def _notify(store: Store, row: RunRow, settings: Settings) -> list[AlertDelivered] | None:
    if not _read(store, row.run_id).lose(time.time()):
        return None
    with store.writer(
        row.run_id,
        owner_pid=os.getpid(),
        owner_host=socket.gethostname(),
        lease_timeout_s=LEASE_TIMEOUT_S,
    ) as writer:
        alerts = _read(store, row.run_id)  # read again: under the lease, nobody else writes
        raised = alerts.lose(time.time())
        writer.append(*raised)
        delivery = Delivery(settings.sinks)
        for (number, sink), alert in alerts.undelivered.items():
            delivery.put(sink, number, payload_of(row.run_id, row.name, alert))
        answers = delivery.close(PATIENCE_S)
        writer.append(*answers)
    return answers


def _read(store: Store, run_id: str) -> Alerts:
    alerts = Alerts()
    for stored in store.events(run_id, types=_EVENTS):
        alerts.apply(stored.event)
    return alerts
