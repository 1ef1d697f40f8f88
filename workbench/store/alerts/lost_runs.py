"""Notify the sinks of lost runs, because a driver that is gone cannot do it.

A run may also stay lost, because nobody has to resume it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time

from workbench.foundation.errors import LeaseError
from workbench.foundation.events import AlertDelivered
from workbench.store.alerts.delivery import Delivery, payload_of
from workbench.store.alerts.evaluation import Alerts
from workbench.store.alerts.settings import Settings, read_settings
from workbench.store.database import RunRow, Store

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
