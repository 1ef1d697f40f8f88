"""One alert of a run as its events tell it: what it says, whether it has passed, who was told."""

from __future__ import annotations

import dataclasses
from typing import Any

from workbench.events import AlertCleared, AlertDelivered, AlertRaised


@dataclasses.dataclass
class Alert:
    """One alert, and what became of it."""

    raised: AlertRaised
    cleared: AlertCleared | None = None
    deliveries: dict[str, AlertDelivered] = dataclasses.field(default_factory=dict)

    def describe(self) -> str:
        """Say it in a line, with who was told."""
        said = self.raised.message
        if self.cleared is not None:
            said += f"; by now: {self.cleared.message}"
        sent = [name for name, delivery in self.deliveries.items() if delivery.sent]
        if sent:
            said += f" (sent to {', '.join(sent)})"
        failed = [f"{name}: {item.message}" for name, item in self.deliveries.items() if not item.sent]
        return f"{said} (not sent to {'; '.join(failed)})" if failed else said

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        told = self.raised.model_dump(mode="json", exclude={"type", "rule", "cause"})
        answers = {
            name: {"sent": item.sent, "message": item.message} for name, item in self.deliveries.items()
        }
        return told | {"cleared": self.cleared is not None, "deliveries": answers}
