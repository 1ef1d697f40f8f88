"""The sink `email`: sends each alert as a mail."""

from __future__ import annotations

import smtplib
import ssl
from email.message import EmailMessage
from typing import Literal, cast

from pydantic import Field, model_validator
from typing_extensions import Self

from workbench.foundation.errors import ExperimentError
from workbench.store.alerts.sinks import Alert, Secret, Sink

_MAX_SUBJECT = 200


class Email(Sink):
    """Addresses that each alert is mailed to."""

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
            raise ExperimentError(
                "user and password belong together", next_step="Give both, or neither."
            )
        if self.user is not None and self.security == "none":
            raise ExperimentError(
                "a password would travel unencrypted", field="security", allowed="starttls, tls"
            )
        return self

    def send(self, alert: Alert) -> None:
        """Mail the alert."""
        message = EmailMessage()
        message["From"], message["To"] = self.sender, ", ".join(self.recipients)
        message["Subject"] = " ".join(str(alert["text"]).split())[:_MAX_SUBJECT]
        lines = [
            f"{name}: {value}"
            for name, value in alert.items()
            if name != "text" and value is not None
        ]
        message.set_content("\n".join([str(alert["text"]), "", *lines]) + "\n")
        with self._connect() as server:
            if self.security == "starttls":
                server.starttls(context=ssl.create_default_context())
            if self.user is not None and self.password is not None:
                server.login(self.user, self.password.read())
            server.send_message(message)

    def describe(self, error: Exception) -> str:
        """Describe a failure without the server's words, which often repeat the message."""
        if isinstance(error, smtplib.SMTPResponseException):
            return f"the server rejected it with code {error.smtp_code}"
        return super().describe(error)

    def may_pass(self, error: Exception) -> bool:
        """Return whether another attempt may succeed after this failure."""
        if isinstance(error, smtplib.SMTPResponseException):
            return 400 <= cast("int", error.smtp_code) < 500
        return not isinstance(error, smtplib.SMTPRecipientsRefused) and super().may_pass(error)

    def _connect(self) -> smtplib.SMTP:
        if self.security == "tls":
            context = ssl.create_default_context()
            return smtplib.SMTP_SSL(self.host, self.port, timeout=self.timeout_s, context=context)
        return smtplib.SMTP(self.host, self.port, timeout=self.timeout_s)
