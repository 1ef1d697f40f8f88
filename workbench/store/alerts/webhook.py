"""The sink `webhook`: posts each alert as JSON to a web address."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from workbench.foundation.errors import ExperimentError
from workbench.store.alerts.sinks import Alert, Secret, Sink, SinkError, reveal

_MAX_RESPONSE_BYTES = 64 * 1024
_BUSY = (408, 425, 429)


def check_url(url: str) -> str:
    """Return a web address.

    Raises:
        ExperimentError: If it is not a web address. It may contain a secret, so it is not repeated.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ExperimentError("not a web address", allowed="http://... or https://...")
    return url


class Webhook(Sink):
    """A web address that each alert is posted to, as JSON."""

    url: Annotated[str, AfterValidator(check_url)] | Secret
    headers: dict[str, str | Secret] = Field(default_factory=dict)

    def send(self, alert: Alert) -> None:
        """Post the alert."""
        url = check_url(reveal(self.url))
        headers = {"Content-Type": "application/json", "User-Agent": "workbench"}
        headers |= {name: reveal(value) for name, value in self.headers.items()}
        request = urllib.request.Request(url, json.dumps(alert).encode(), headers, method="POST")
        # Without the handlers that follow redirects, open files or use FTP: a redirect could send
        # the alert and its headers to another host.
        opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.ProxyHandler,
            urllib.request.HTTPHandler,
            urllib.request.HTTPSHandler,
            urllib.request.HTTPErrorProcessor,
            urllib.request.HTTPDefaultErrorHandler,
        ):
            opener.add_handler(handler())
        host = urlsplit(url).hostname
        try:
            with opener.open(request, timeout=self.timeout_s) as response:
                response.read(_MAX_RESPONSE_BYTES)
        except urllib.error.HTTPError as error:
            problem = f"{host} answered with status {error.code}"
            if 300 <= error.code < 400:
                problem += ", a redirect, which is not followed"
            raise SinkError(problem, may_pass=error.code >= 500 or error.code in _BUSY) from None

    def describe(self, error: Exception) -> str:
        """Describe a failure without repeating the message, which may be secret."""
        return super().describe(_reason(error))

    def may_pass(self, error: Exception) -> bool:
        """Return whether another attempt may succeed after this failure."""
        return isinstance(error, HTTPException) or super().may_pass(_reason(error))


def _reason(error: Exception) -> Exception:
    if isinstance(error, urllib.error.URLError) and isinstance(error.reason, Exception):
        return error.reason
    return error
