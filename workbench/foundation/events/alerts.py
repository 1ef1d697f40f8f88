"""The events of alert rules: alerts that were raised, cleared and delivered."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from workbench.foundation.events.header import EventHeader, OutsideText, TrialEventHeader

AlertLevel = Literal["info", "warning", "error"]
AlertAction = Literal["notify", "retry", "stop", "exclude_node"]


class AlertsArmed(EventHeader):
    """These alert rules, and no others, apply to the run from here on."""

    type: Literal["alerts_armed"] = "alerts_armed"
    rules: list[dict[str, JsonValue]] = Field(description="As written in an experiment.")


class LogMatched(TrialEventHeader):
    """A worker printed a line that matches a rule, for the first time in this attempt."""

    type: Literal["log_matched"] = "log_matched"
    attempt: int = 0
    rank: int = 0
    host: str
    node: str = Field(description="Ray's ID of the worker's node.")
    pattern: str
    line: OutsideText = Field(description="As printed, cut to a length that can be shown.")


class AlertRaised(EventHeader):
    """A rule raised an alert. It is raised once for each cause, until the cause has passed."""

    type: Literal["alert_raised"] = "alert_raised"
    alert: int = Field(description="Number of the alert in its run, from 0.")
    on: str = Field(description="What the rule looks for.")
    rule: str = Field(description="The rule, as a hash of its conditions.")
    cause: OutsideText = Field(
        description="Its cause. Together with `rule` it identifies repeated alerts."
    )
    level: AlertLevel
    message: OutsideText
    to: list[str] = Field(default_factory=list, description="Names of the sinks that receive it.")
    action: AlertAction = "notify"
    trial: int | None = Field(default=None, description="The trial that it is about, if any.")
    node: str | None = Field(default=None, description="The node that it is about, if any.")


class AlertCleared(EventHeader):
    """The cause of an alert has passed. Its rule may raise it again."""

    type: Literal["alert_cleared"] = "alert_cleared"
    alert: int
    message: OutsideText


class AlertDelivered(EventHeader):
    """An alert was delivered to a sink, or could not be."""

    type: Literal["alert_delivered"] = "alert_delivered"
    alert: int
    sink: str
    sent: bool
    message: OutsideText | None = Field(default=None, description="Why it was not sent.")
