"""Events of a run as a whole: its driver, state, settings, chosen model, and notes for users.

Drivers and workers note what a run waits for, in words that views of the run read again.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field, JsonValue

from workbench.foundation.events.header import EventHeader, OutsideText, RunState, TrialEventHeader
from workbench.foundation.formatting import format_duration

_PREFIX = "waits for "
_OVER_PREFIX = "waited for "

_MAX_NAMED = 3


class DriverStarted(EventHeader):
    """A process became the driver of the run. A second such event means a restart."""

    type: Literal["driver_started"] = "driver_started"
    pid: int
    host: str
    num_cpus: float = Field(description="CPUs that the cluster offers in total.")
    num_gpus: float = 0.0
    versions: dict[str, str] = Field(default_factory=dict, description="Package name to version.")
    before_unix_s: float | None = Field(
        default=None,
        description="Until when the previous driver counts as alive, if it did not end its run.",
    )


class RunStateChanged(EventHeader):
    """The run entered another state."""

    type: Literal["run_state_changed"] = "run_state_changed"
    state: RunState
    reason: str | None = Field(
        default=None,
        description=(
            "Why: trials, time, gpu_time, energy, money, target, plateau, gain, exhausted, "
            "person, failures, error."
        ),
    )
    message: OutsideText | None = None


class RunsImported(EventHeader):
    """Trials of another tool were added to the run."""

    type: Literal["runs_imported"] = "runs_imported"
    tool: str = Field(description="The tool that ran them.")
    place: OutsideText = Field(description="Where they were read.")
    source: OutsideText = Field(description="The name of the project or study in the tool.")


class SettingsChanged(EventHeader):
    """Settings of the experiment have new values in this run from here on."""

    type: Literal["settings_changed"] = "settings_changed"
    settings: dict[str, JsonValue] = Field(
        description="New values by dotted path, such as budget.trials."
    )
    waited_s: float = Field(
        default=0.0,
        description=(
            "Time that users waited for the first driver, to be counted as time of the run."
        ),
    )


class KeptVersion(BaseModel):
    """One of several versions of the code between which the trials choose."""

    name: str = Field(description="The value of the parameter code.")
    source: str = Field(description="Where it comes from, such as git main (1a2b3c4d5e).")
    code_sha256: str = Field(description="Hash of the kept code.")
    num_files: int = Field(ge=0, description="How many source files were kept.")
    changed: list[str] = Field(
        default_factory=list, description="The files that differ from the first version."
    )
    lines_added: int = Field(default=0, ge=0, description="Lines that the first version lacks.")
    lines_removed: int = Field(default=0, ge=0, description="Lines that only the first has.")

    def describe_difference(self) -> str:
        """Describe how it differs from the first version, such as `+3 -1 lines in train.py`."""
        if not self.changed:
            return "the others are compared with it"
        shown = ", ".join(self.changed[:_MAX_NAMED])
        num_more = len(self.changed) - _MAX_NAMED
        if num_more > 0:
            shown += f" and {num_more} more"
        return f"+{self.lines_added} -{self.lines_removed} lines in {shown}"


class ProgramKept(EventHeader):
    """Trials that start from now on run this version of the code."""

    type: Literal["program_kept"] = "program_kept"
    version: int = Field(ge=1, description="1 for the code with which the run started.")
    code_sha256: str = Field(
        default="", description="Hash of the kept code. Empty if no code is kept."
    )
    num_files: int = Field(default=0, ge=0, description="How many source files were kept.")
    why: Literal["start", "current", "changed"] = Field(
        description=(
            "start: the run started. current: a user requested the code as it is on the disk."
            " changed: data, the program or a package has changed, which cannot be kept."
        )
    )
    changed: list[str] = Field(
        default_factory=list, description="The files that differ from the version before."
    )
    continued: list[int] = Field(
        default_factory=list,
        description="Trials that had begun, and continue with the version with which they did.",
    )
    choices: list[KeptVersion] = Field(
        default_factory=list, description="The versions of the code that are searched."
    )


class EnergyMetered(EventHeader):
    """The trials of a run with a limit on energy have used this much of it."""

    type: Literal["energy_metered"] = "energy_metered"
    total_wh: float = Field(
        ge=0, description="Energy of all trials since the run began, in watt-hours."
    )


class CommandHandled(EventHeader):
    """The driver carried out, or refused, a command."""

    type: Literal["command_handled"] = "command_handled"
    command: int
    kind: str
    done: bool
    message: OutsideText
    by: OutsideText = Field(default="", description="The agent that sent it. Empty for a person.")


class Noted(EventHeader):
    """Something that the user should know."""

    type: Literal["noted"] = "noted"
    level: Literal["info", "warning", "error"]
    message: OutsideText
    trial: int | None = Field(default=None, description="The trial that it is about, if any.")
    is_unserved: bool = Field(
        default=False,
        description=(
            "Whether the program of the trial read its code from the disk, not as the run kept it."
        ),
    )
    is_held_up: bool = Field(
        default=False,
        description="Whether the run waits for workers that other runs or programs hold.",
    )
    clock_ahead_s: float | None = Field(
        default=None,
        description="How far the machine's clock is ahead of the run's, if it was set.",
    )


class ModelChosen(EventHeader):
    """An automatic run has chosen a model from its trials, and tested it."""

    type: Literal["model_chosen"] = "model_chosen"
    result: dict[str, JsonValue] = Field(description="As `wb.AutoML.to_json` returns it.")


class VersionDecided(EventHeader):
    """An agent asked whether its proposal is better than the baseline of its session."""

    type: Literal["version_decided"] = "version_decided"
    version: str = Field(description="The name of the proposal.")
    baseline: str
    decision: Literal["better", "not better", "more"]
    probability: float
    effect: float | None
    low: float | None
    high: float | None
    more_runs: int
    words: OutsideText = Field(description="The decision as a sentence.")
    by: OutsideText = Field(description="The name of the agent.")


class VersionJudged(EventHeader):
    """A person accepted a version of the code, or reverted it. The last verdict of each counts."""

    type: Literal["version_judged"] = "version_judged"
    version: str = Field(description="The name of the version.")
    verdict: Literal["accepted", "reverted"]
    by: OutsideText = Field(description="The name of the person.")


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


def write_waiting_note(subject: str, reason: str) -> str:
    """Return the message of the note.

    Args:
        subject: What the run waits for, such as workers.
        reason: Why it has to wait.
    """
    return f"{_PREFIX}{subject}: {reason}"


def write_waited_note(subject: str, waited_s: float) -> str:
    """Return the message of the note that a wait is over, which was reported before.

    Args:
        subject: What the run waited for, such as workers.
        waited_s: For how long, in seconds.
    """
    return f"{_OVER_PREFIX}{subject} for {format_duration(round(waited_s))}"


def ends_waiting(message: str) -> bool:
    """Return whether the message of a note is that a wait is over."""
    return message.startswith(_OVER_PREFIX)


def read_waiting_note(message: str) -> str | None:
    """Return what a run waits for and why, in words, or None if a message is not such a note.

    Args:
        message: The message of any note.
    """
    if not message.startswith(_PREFIX):
        return None
    return message.removeprefix(_PREFIX)
