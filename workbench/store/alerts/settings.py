"""The settings of a user: sinks by name, and alert rules for all of their runs and served models.

The settings are a YAML file in the user's configuration folder, or the file in WORKBENCH_SETTINGS.
It is read on the machine of a run's driver or of a model server. Experiments and the store never
contain secrets: for a password, you give the environment variable or the file that contains it.

    sinks:
      team: {kind: webhook, url: {file: ~/.config/workbench/team.url}}
      mail:
        {kind: email, host: smtp.example.org, sender: me@example.org, recipients: [me@example.org],
        user: me, password: {env: SMTP_PASSWORD}}
      desk: {kind: command, command: [notify-send, Workbench]}

    alerts:
      - {on: run_ended, states: [failed, lost], to: [team]}
      - {on: drift}
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from typing_extensions import Self

from workbench.experiment.alert_rules import SETTINGS_KINDS, AlertRule, Drift, SettingsRule
from workbench.experiment.yaml_file import read_yaml_file
from workbench.foundation.errors import ExperimentError
from workbench.foundation.validation_errors import Dialect, refusal
from workbench.store.alerts.sinks import AnySink

JUPYTER = "jupyter"
"""The sink that always exists: JupyterLab shows the alerts in the store."""
VARIABLE = "WORKBENCH_SETTINGS"
_DIALECT = Dialect(kinds={"alerts": SETTINGS_KINDS})
_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")


class Settings(BaseModel):
    """Sinks, by name, and rules for every run and every served model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sinks: dict[str, AnySink] = Field(default_factory=dict)
    alerts: tuple[SettingsRule, ...] = ()

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        for name in self.sinks:
            if name == JUPYTER or not _NAME.fullmatch(name):
                problem = "already exists" if name == JUPYTER else "not a valid name for a sink"
                raise ExperimentError(
                    problem, field=f"sinks.{name}", allowed="letters, digits, _ and -"
                )
        check_sinks(self.alerts, self.names)
        for index, rule in enumerate(self.alerts):
            if isinstance(rule, Drift) and JUPYTER in (rule.to or ()):
                raise ExperimentError(
                    "JupyterLab shows alerts of runs, but not of served models",
                    field=f"alerts.{index}.to",
                    allowed=list(self.sinks) or "none: the settings define no sink",
                )
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all sinks."""
        return (*self.sinks, JUPYTER)

    @property
    def run_rules(self) -> tuple[AlertRule, ...]:
        """The rules for runs."""
        return tuple(rule for rule in self.alerts if not isinstance(rule, Drift))

    @property
    def drift_rules(self) -> tuple[Drift, ...]:
        """The rules for served models.

        Rules without sinks notify all sinks of the settings.
        """
        return tuple(
            rule.model_copy(update={"to": rule.to or tuple(self.sinks)})
            for rule in self.alerts
            if isinstance(rule, Drift)
        )

    def problems(self) -> dict[str, str]:
        """Return why alerts cannot be sent to a sink, by its name: a secret is missing."""
        problems: dict[str, str] = {}
        for name, sink in self.sinks.items():
            try:
                for secret in sink.secrets:
                    secret.read()
            except ExperimentError as error:
                problems[name] = str(error)
        return problems


def check_sinks(rules: tuple[SettingsRule, ...], names: tuple[str, ...]) -> None:
    """Check that the sinks of rules exist.

    Raises:
        ExperimentError: If one does not.
    """
    for index, rule in enumerate(rules):
        for name in rule.to or ():
            if name not in names:
                raise ExperimentError(
                    f"there is no sink {name!r}",
                    field=f"alerts.{index}.to",
                    allowed=names,
                    next_step=(
                        f"Define it under sinks in {settings_path()}. For a run on a cluster, use"
                        " the settings there."
                    ),
                )


def settings_path() -> Path:
    """Return the path of the settings, whether or not the file exists."""
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen).expanduser()
    import platformdirs

    return platformdirs.user_config_path("workbench", appauthor=False) / "settings.yaml"


def read_settings() -> Settings:
    """Return the settings of the user of this process. They are empty if there is no file.

    Raises:
        ExperimentError: If they cannot be read, or are invalid.
    """
    path = settings_path()
    if not path.exists() and not os.environ.get(VARIABLE):
        return Settings()
    document = read_yaml_file(path, holds="sinks and alerts, or {} for neither")
    try:
        return Settings(**document)
    except ValidationError as error:
        translated = refusal(error, dialect=_DIALECT)
        # The value may be a secret, so the message must not repeat it.
        problem = re.sub(
            r", got .*|^.*(?= is not valid$)", "", translated.problem, flags=re.DOTALL
        ).strip()
        raise ExperimentError(
            f"{problem} (in {path})",
            field=translated.field,
            allowed=translated.allowed,
            next_step=translated.next_step,
        ) from error
