"""How a sink is told of one alert: by a web request, a mail, or a command.

Whatever goes wrong is told without secrets: no address, header or password is repeated. When to try
again is left to the delivery.
"""

from __future__ import annotations

import json
import os
import signal
import smtplib
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from email.message import EmailMessage
from http.client import HTTPException
from typing import Any, cast
from urllib.parse import urlsplit

from workbench.alerts.settings import Command, Email, Secret, Sink, Webhook, check_url
from workbench.errors import ExperimentError, WorkbenchError

TIMEOUT_S = 10.0
COMMAND_TIMEOUT_S = 30.0
_ANSWER_BYTES = 64 * 1024
_BUSY = (408, 425, 429)

Told = Mapping[str, Any]


class SinkError(WorkbenchError):
    """A sink could not be told."""

    def __init__(self, problem: str, *, may_pass: bool) -> None:
        """Say what went wrong, and whether it may go well another time."""
        super().__init__(problem)
        self.may_pass = may_pass


def tell(sink: Sink, alert: Told) -> None:
    """Tell a sink of an alert.

    Args:
        sink: The sink.
        alert: What is told, as plain values; `text` says it in a line.

    Raises:
        SinkError: If it cannot be told.
    """
    try:
        match sink:
            case Webhook():
                _post(sink, alert)
            case Email():
                _mail(sink, alert)
            case Command():
                _run(sink, alert)
    except ExperimentError as error:
        raise SinkError(str(error), may_pass=False) from None
    except (OSError, HTTPException, smtplib.SMTPException, ValueError, UnicodeError) as error:
        raise SinkError(_describe(error), may_pass=_may_pass(error)) from None


def _post(sink: Webhook, alert: Told) -> None:
    url = check_url(_open(sink.url))
    headers = {"Content-Type": "application/json", "User-Agent": "workbench"}
    headers |= {name: _open(value) for name, value in sink.headers.items()}
    request = urllib.request.Request(url, json.dumps(alert).encode(), headers, method="POST")
    # None that follows to another address, opens files or speaks FTP.
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler, urllib.request.HTTPHandler, urllib.request.HTTPSHandler,
        urllib.request.HTTPErrorProcessor, urllib.request.HTTPDefaultErrorHandler,
    ):  # fmt: skip
        opener.add_handler(handler())
    host = urlsplit(url).hostname
    try:
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            answer.read(_ANSWER_BYTES)
    except urllib.error.HTTPError as error:
        said = f"{host} answers {error.code}"
        if 300 <= error.code < 400:
            said += ", which leads elsewhere and is not followed"
        raise SinkError(said, may_pass=error.code >= 500 or error.code in _BUSY) from None


def _mail(sink: Email, alert: Told) -> None:
    message = EmailMessage()
    message["From"], message["To"] = sink.sender, ", ".join(sink.recipients)
    message["Subject"] = " ".join(str(alert["text"]).split())[:200]
    lines = [f"{name}: {value}" for name, value in alert.items() if name != "text" and value is not None]
    message.set_content("\n".join([str(alert["text"]), "", *lines]) + "\n")
    with _connect(sink) as server:
        if sink.security == "starttls":
            server.starttls(context=ssl.create_default_context())
        if sink.user is not None and sink.password is not None:
            server.login(sink.user, sink.password.read())
        server.send_message(message)


def _connect(sink: Email) -> smtplib.SMTP:
    if sink.security == "tls":
        context = ssl.create_default_context()
        return smtplib.SMTP_SSL(sink.host, sink.port, timeout=TIMEOUT_S, context=context)
    return smtplib.SMTP(sink.host, sink.port, timeout=TIMEOUT_S)


def _run(sink: Command, alert: Told) -> None:
    told = {
        f"WORKBENCH_ALERT_{name.upper()}": str(value).replace("\0", "")
        for name, value in alert.items()
        if value is not None
    }
    process = subprocess.Popen(
        list(sink.command), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, **told}, start_new_session=True,
    )  # fmt: skip
    try:
        process.communicate(json.dumps(alert).encode(), timeout=COMMAND_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise SinkError(f"it had not ended after {COMMAND_TIMEOUT_S:g} s", may_pass=False) from None
    if process.returncode:
        raise SinkError(f"it ended with exit code {process.returncode}", may_pass=False)


def _open(value: str | Secret) -> str:
    return value.read() if isinstance(value, Secret) else value


def _describe(error: Exception) -> str:
    """Say what went wrong without what was sent: servers like to repeat it."""
    if isinstance(error, urllib.error.URLError) and isinstance(error.reason, Exception):
        error = error.reason
    if isinstance(error, smtplib.SMTPResponseException):
        return f"the server refuses with code {error.smtp_code}"
    if isinstance(error, OSError) and error.strerror:
        return f"{type(error).__name__}: {error.strerror}"
    return type(error).__name__


def _may_pass(error: Exception) -> bool:
    if isinstance(error, smtplib.SMTPResponseException):
        return 400 <= cast("int", error.smtp_code) < 500
    if isinstance(error, FileNotFoundError | PermissionError | ssl.SSLCertVerificationError):
        return False
    return not isinstance(error, ValueError | UnicodeError | smtplib.SMTPRecipientsRefused)
