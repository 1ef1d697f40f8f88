"""The alerts of a server: checks its models for drift, and notifies sinks.

`workbench.store.alerts` decides when a rule fires, and `drift` calculates the drift.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Iterable

from workbench.deploy.serving.served_models import ServedModel
from workbench.foundation.events import AlertDelivered, AlertRaised, AlertsArmed
from workbench.store.alerts import Alerts, Delivery, ServedReading, Settings, payload_of

CHECK_S = 10.0
"""Seconds between two checks."""
_CLOSE_PATIENCE_S = 2.0
"""How long a server that ends waits for sinks, in seconds."""


class DriftAlerts:
    """Applies the rules about drift of a user's settings to served models."""

    def __init__(self, settings: Settings, *, url: str, notify: Callable[[str], None]) -> None:
        """Prepare to notify the sinks of the settings.

        Args:
            settings: Those of the user who serves.
            url: The address of the server.
            notify: Receives each alert, and why one could not be sent, in one line.
        """
        self._rules = settings.drift_rules
        self._alerts = Alerts()
        self._alerts.apply(
            AlertsArmed(rules=[rule.model_dump(mode="json") for rule in self._rules])
        )
        self._delivery = Delivery(settings.sinks)
        self._look = shlex.join(["workbench", "drift", url])
        self._notify = notify

    async def watch(self, models: Iterable[ServedModel]) -> None:
        """Check models again and again, until this is cancelled. Without a rule, end at once."""
        while self._rules:
            await asyncio.sleep(CHECK_S)
            self.check(models)

    def check(self, models: Iterable[ServedModel]) -> None:
        """Raise an alert for each model that has started to drift.

        Sinks are notified in the background.
        """
        for model in models:
            if model.watch is None:
                continue
            drift = model.watch.monitor.describe()
            judged = [*drift["columns"], *([drift["answers"]] if drift["answers"] else [])]
            card = model.version.card
            reading = ServedReading(
                model=f"{model.name} {model.version.sha256}",
                drifted=tuple(column["name"] for column in judged if column["drifted"]),
                num_rows=drift["num_rows"],
            )
            for alert in self._alerts.read(reading):
                if isinstance(alert, AlertRaised):
                    self._notify(f"alert: {model.name}: {alert.message}")
                    for sink in alert.to:
                        alert_of_model = payload_of(card.run_id, model.name, alert) | {
                            "look": self._look
                        }
                        self._delivery.put(sink, alert.alert, alert_of_model)
        self._report(self._delivery.outcomes())

    def close(self, models: Iterable[ServedModel]) -> None:
        """Check models for the last time, and wait a moment for pending deliveries."""
        self.check(models)
        self._report(self._delivery.close(_CLOSE_PATIENCE_S))

    def _report(self, outcomes: Iterable[AlertDelivered]) -> None:
        for outcome in outcomes:
            if not outcome.sent:
                self._notify(f"an alert could not be sent to {outcome.sink}: {outcome.message}")
