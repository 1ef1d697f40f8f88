"""One alert of a run, built from its events.

Its message, whether it was cleared, its deliveries.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from workbench.foundation.events import AlertCleared, AlertDelivered, AlertRaised


@dataclasses.dataclass
class Alert:
    """One alert, its clearing and its deliveries."""

    raised: AlertRaised
    cleared: AlertCleared | None = None
    deliveries: dict[str, AlertDelivered] = dataclasses.field(default_factory=dict)

    def describe(self) -> str:
        """Describe the alert in one line, with the sinks that received it."""
        text = self.raised.message
        if self.cleared is not None:
            text += f"; by now: {self.cleared.message}"
        sent = [name for name, delivery in self.deliveries.items() if delivery.sent]
        if sent:
            text += f" (sent to {', '.join(sent)})"
        failed = [
            f"{name}: {item.message}" for name, item in self.deliveries.items() if not item.sent
        ]
        return f"{text} (not sent to {'; '.join(failed)})" if failed else text

    def to_json(self) -> dict[str, Any]:
        """Return the alert as plain values."""
        raised = self.raised.model_dump(mode="json", exclude={"type", "rule", "cause"})
        answers = {
            name: {"sent": item.sent, "message": item.message}
            for name, item in self.deliveries.items()
        }
        return raised | {"cleared": self.cleared is not None, "deliveries": answers}
