"""Alerts: evaluate the rules of a run, raise one alert per cause, and deliver alerts to sinks.

`Alerts` is a projection of a run's events, like its history: an alert is an event, so a reader of
the events knows which alerts have been raised. `Delivery` sends them to sinks beside the run, which
never waits for it. Rules are defined in `workbench.experiment`; receiving events, reading nodes and
acting on alerts is left to the driver, and reading what has drifted to servers of models.
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
