"""A person's settings: which sinks there are, and the rules that watch every run of theirs.

One YAML file, in the user's configuration folder or where WORKBENCH_SETTINGS says; it is read where a run's
driver lives. No secret stands in an experiment or in the store: a password is named by the environment
variable or the file that holds it.

    sinks:
      team: {kind: webhook, url: {file: ~/.config/workbench/team.url}}
      mail: {kind: email, host: smtp.example.org, sender: me@example.org, recipients: [me@example.org],
             user: me, password: {env: SMTP_PASSWORD}}
      desk: {kind: command, command: [notify-send, Workbench]}
    alerts:
      - {on: run_ended, states: [failed, lost], to: [team]}
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from workbench.errors import ExperimentError
from workbench.experiment.alert_rules import AlertRule
from workbench.experiment.refusals import refusal
from workbench.experiment.yaml_file import read_yaml_file

JUPYTER = "jupyter"
"""The sink that is always there: JupyterLab shows what is stored."""
VARIABLE = "WORKBENCH_SETTINGS"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Secret(_Part):
    """Where a secret is, rather than the secret."""

    env: str | None = Field(default=None, description="The environment variable that holds it.")
    file: str | None = Field(default=None, description="The file that holds it, and nothing else.")

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.env is None) == (self.file is None):
            raise ExperimentError("needs exactly one place", allowed="env or file")
        return self

    def read(self) -> str:
        """Return the secret.

        Raises:
            ExperimentError: If it is not there.
        """
        if self.env is not None:
            if not (found := os.environ.get(self.env, "")):
                raise ExperimentError(f"the environment variable {self.env} is not set")
            return found
        assert self.file is not None
        try:
            return Path(self.file).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ExperimentError(f"{self.file} cannot be read") from error


def check_url(url: str) -> str:
    """Refuse what is no address on the web.

    Raises:
        ExperimentError: If it is none; the address, which may hold a secret, is not repeated.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ExperimentError("it is no web address", allowed="http://... or https://...")
    return url


class Webhook(_Part):
    """An address that each alert is posted to, as JSON."""

    kind: Literal["webhook"]
    url: Annotated[str, AfterValidator(check_url)] | Secret
    headers: dict[str, str | Secret] = Field(default_factory=dict)

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """The secrets that it names."""
        return tuple(value for value in (self.url, *self.headers.values()) if isinstance(value, Secret))


class Email(_Part):
    """An address that each alert is mailed to."""

    kind: Literal["email"]
    host: str = Field(min_length=1)
    port: int = Field(default=587, gt=0, lt=65536)
    security: Literal["starttls", "tls", "none"] = "starttls"
    sender: str = Field(min_length=1)
    recipients: tuple[str, ...] = Field(min_length=1)
    user: str | None = None
    password: Secret | None = None

    @model_validator(mode="after")
    def _check_login(self) -> Self:
        if (self.user is None) != (self.password is None):
            raise ExperimentError("user and password belong together", next_step="Give both, or neither.")
        if self.user is not None and self.security == "none":
            raise ExperimentError(
                "a password would travel unencrypted", field="security", allowed="starttls, tls"
            )
        return self

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """The secrets that it names."""
        return () if self.password is None else (self.password,)


class Command(_Part):
    """A command that is run for each alert, without a shell; it finds the alert as JSON on its input."""

    kind: Literal["command"]
    command: tuple[str, ...] = Field(min_length=1, description="The program and its arguments.")

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """The secrets that it names: none."""
        return ()


Sink = Annotated[Webhook | Email | Command, Field(discriminator="kind")]


class Settings(_Part):
    """Sinks, by name, and rules for every run."""

    sinks: dict[str, Sink] = Field(default_factory=dict)
    alerts: tuple[AlertRule, ...] = ()

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        for name in self.sinks:
            if name == JUPYTER or not _NAME.fullmatch(name):
                problem = "is always there" if name == JUPYTER else "is no name of a sink"
                raise ExperimentError(problem, field=f"sinks.{name}", allowed="letters, digits, _ and -")
        check_sinks(self.alerts, self.names)
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all sinks."""
        return (*self.sinks, JUPYTER)

    def problems(self) -> dict[str, str]:
        """Return, by name, what keeps sinks from being told: a secret is not where it should be."""
        found: dict[str, str] = {}
        for name, sink in self.sinks.items():
            try:
                for secret in sink.secrets:
                    secret.read()
            except ExperimentError as error:
                found[name] = str(error)
        return found


def check_sinks(rules: tuple[AlertRule, ...], names: tuple[str, ...]) -> None:
    """Refuse rules that tell a sink that there is not.

    Raises:
        ExperimentError: If one does.
    """
    for index, rule in enumerate(rules):
        for name in rule.to or ():
            if name not in names:
                raise ExperimentError(
                    f"there is no sink {name!r}", field=f"alerts.{index}.to", allowed=names,
                    next_step=f"Name it under sinks in {settings_path()}; a run that is submitted goes by "
                    "the settings of its cluster instead.",
                )  # fmt: skip


def settings_path() -> Path:
    """Return where the settings are, or would be."""
    if given := os.environ.get(VARIABLE):
        return Path(given).expanduser()
    import platformdirs

    return platformdirs.user_config_path("workbench", appauthor=False) / "settings.yaml"


def read_settings() -> Settings:
    """Read the settings of whoever runs this process; none are there where nobody made any.

    Raises:
        ExperimentError: If they cannot be read, or say what cannot be meant.
    """
    path = settings_path()
    if not path.exists() and not os.environ.get(VARIABLE):
        return Settings()
    document = read_yaml_file(path, holds="sinks and alerts; {} for neither")
    try:
        return Settings(**document)
    except ValidationError as error:
        found = refusal(error)
        # What stands there may be a secret: it is not repeated.
        problem = re.sub(r", got .*|^.*(?= is refused$)", "", found.problem, flags=re.DOTALL).strip()
        raise ExperimentError(
            f"{problem} (in {path})",
            field=found.field,
            allowed=found.allowed,
            next_step=found.next_step,
        ) from error
