"""What rules have seen in a run, and who was told of it.

Rules, and when they speak, are left to `workbench.alerts`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from workbench.events.header import EventHeader, TrialEventHeader

AlertLevel = Literal["info", "warning", "error"]
AlertAction = Literal["notify", "retry", "stop", "exclude_node"]


class AlertsArmed(EventHeader):
    """These rules, and no others, watch the run from here on."""

    type: Literal["alerts_armed"] = "alerts_armed"
    rules: list[dict[str, JsonValue]] = Field(description="As they are written in an experiment.")


class LogMatched(TrialEventHeader):
    """A worker printed a line that a rule looks for: the first of its attempt."""

    type: Literal["log_matched"] = "log_matched"
    attempt: int = 0
    rank: int = 0
    host: str
    node: str = Field(description="What Ray calls the node of the worker.")
    pattern: str
    line: str = Field(description="As it was printed, cut to a length that can be shown.")


class AlertRaised(EventHeader):
    """A rule speaks: once for each cause, until that has passed."""

    type: Literal["alert_raised"] = "alert_raised"
    alert: int = Field(description="Number of the alert in its run, from 0.")
    on: str = Field(description="What the rule looks for.")
    rule: str = Field(description="Which rule it is, as a hash of what it says.")
    cause: str = Field(description="What it speaks of; with `rule` it says whether that was told before.")
    level: AlertLevel
    message: str
    to: list[str] = Field(default_factory=list, description="Names of the sinks that are told.")
    action: AlertAction = "notify"
    trial: int | None = Field(default=None, description="The trial that it is about, if it is about one.")
    node: str | None = Field(default=None, description="The node that it is about, if it is about one.")


class AlertCleared(EventHeader):
    """What an alert spoke of has passed; its rule may speak of it again."""

    type: Literal["alert_cleared"] = "alert_cleared"
    alert: int
    message: str


class AlertDelivered(EventHeader):
    """A sink was told of an alert, or could not be."""

    type: Literal["alert_delivered"] = "alert_delivered"
    alert: int
    sink: str
    sent: bool
    message: str | None = Field(default=None, description="Why it was not sent.")
