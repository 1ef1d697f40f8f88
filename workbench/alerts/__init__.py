"""Alerts: which rules speak of a run, once for each cause, and how people are told.

`Alerts` is a projection of a run's events, like its history: what was said is an event, so whoever reads
the events knows what need not be said again. `Delivery` tells sinks beside the run, which never waits for
them. Rules are checked in `workbench.experiment`; who hears events, reads nodes and acts is the driver.
"""

from __future__ import annotations

from workbench.alerts.delivery import Delivery, told_of
from workbench.alerts.readings import GpuReading, NodeReading
from workbench.alerts.settings import JUPYTER, Settings, read_settings, settings_path
from workbench.alerts.speaking import Alerts

__all__ = [
    "JUPYTER",
    "Alerts",
    "Delivery",
    "GpuReading",
    "NodeReading",
    "Settings",
    "read_settings",
    "settings_path",
    "told_of",
]
