"""Alerts: evaluate the rules of a run, raise one alert per cause, and send alerts to sinks.

`Alerts` is a projection of a run's events, like its history. An alert is an event, so a reader of
the events knows which alerts have been raised. `Delivery` sends them to sinks in the background, so
the run never waits for a sink. Rules are defined in `workbench.experiment`. The driver feeds events
and the readings of nodes, and acts on alerts. Model servers report drift.
"""

from __future__ import annotations

from workbench.store.alerts.delivery import Delivery, payload_of
from workbench.store.alerts.evaluation import Alerts, GpuReading, NodeReading, ServedReading
from workbench.store.alerts.settings import JUPYTER, Settings, read_settings, settings_path

__all__ = [
    "JUPYTER",
    "Alerts",
    "Delivery",
    "GpuReading",
    "NodeReading",
    "ServedReading",
    "Settings",
    "payload_of",
    "read_settings",
    "settings_path",
]
