"""The jobs of a Ray cluster over HTTP: Ray's own protocol, without Ray on the client.

A client needs one address and one token. It does not touch this process's Ray or environment, and
every request has a timeout.
"""

from __future__ import annotations

import json
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from workbench.cluster.head.ray_environment import given_environment
from workbench.experiment.actions import is_jobs_address
from workbench.foundation.errors import RunError

ADDRESS_VARIABLE = "RAY_API_SERVER_ADDRESS"
ANSWER_TIMEOUT_S = 30.0
UPLOAD_TIMEOUT_S = 600.0
PATIENCE_S = 60.0
POLL_S = 0.25
RETRY_S = 2.0
_REST_FACTOR = 10.0
"""A log is requested whole each time. The pause after an answer is this many times its duration."""
_ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
_DASHBOARD_PORT = "8265"
_ALLOWED = f"such as http://HOST:{_DASHBOARD_PORT}, the address of Ray's dashboard"
_ALL_ALLOWED = (
    f"http://HOST:{_DASHBOARD_PORT}, which takes jobs, or HOST:6379 of a cluster that this machine"
    " is in"
)


class UnreachableError(RunError):
    """The cluster does not answer at the moment."""


@dataclass(frozen=True)
class Job:
    """A job, as its cluster reports it."""

    submission_id: str
    status: str
    """PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED."""
    exit_code: int | None
    message: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    ended_unix_s: float | None = None
    """When it ended, by the clock of the cluster."""

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.status in _ENDED


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the token is only for the given address."""

    def redirect_request(self, *_arguments: Any, **_options: Any) -> None:
        return None


class Jobs:
    """The jobs of one cluster."""

    def __init__(self, address: str, token: str | None = None) -> None:
        """Remember the cluster. Nothing is sent yet.

        Args:
            address: Where Ray serves its dashboard, as `jobs_address` returns it.
            token: Ray's token, or None if the cluster requires none.
        """
        self.address = address
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._opener = urllib.request.build_opener(_NoRedirect)

    def check(self) -> str:
        """Return the version of Ray on the cluster.

        Raises:
            RunError: If nothing answers, it is not Ray, or it rejects the token.
        """
        return str(self._request("GET", "/api/version").get("ray_version", "unknown"))

    def upload(self, content: bytes, sha256: str) -> str:
        """Upload an archive to the cluster, unless it is already there.

        Args:
            content: The archive.
            sha256: Its name.

        Returns:
            The URI that makes it the working folder of a job.
        """
        name = f"_ray_pkg_{sha256[:16]}.zip"
        path = f"/api/packages/gcs/{name}"
        if self._request("GET", path, missing={"missing": True}).get("missing"):
            self._request("PUT", path, content, timeout_s=UPLOAD_TIMEOUT_S)
        return f"gcs://{name}"

    def submit(
        self,
        entrypoint: str,
        *,
        submission_id: str,
        working_dir: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> bool:
        """Submit a job.

        Args:
            entrypoint: Its command line, for a shell. Everyone who may list jobs can read it.
            submission_id: Its unique name.
            working_dir: What `upload` returned.
            metadata: Stored with the job.

        Returns:
            Whether it was submitted, or False if there is already a job of that name.
        """
        body = {
            "entrypoint": entrypoint,
            "submission_id": submission_id,
            "metadata": dict(metadata or {}),
            "runtime_env": {"working_dir": working_dir} if working_dir else {},
        }
        try:
            self._request("POST", "/api/jobs/", json.dumps(body).encode())
        except UnreachableError:
            raise
        except RunError:
            if self.job(submission_id) is not None:
                return False
            raise
        return True

    def job(self, submission_id: str) -> Job | None:
        """Return a job, or None if there is none of that name."""
        job = self._request("GET", f"/api/jobs/{quote(submission_id)}", missing={})
        return _read_job(job) if job else None

    def jobs(self) -> list[Job]:
        """Return all submitted jobs that the cluster remembers."""
        listed: Any = self._request("GET", "/api/jobs/")
        return [_read_job(item) for item in listed if item.get("submission_id")]

    def log(self, submission_id: str) -> str:
        """Return the output of a job, or "" before it has started."""
        path = f"/api/jobs/{quote(submission_id)}/logs"
        return str(self._request("GET", path, missing={}).get("logs") or "")

    def stop(self, submission_id: str) -> None:
        """Stop a job, as by SIGTERM."""
        self._request("POST", f"/api/jobs/{quote(submission_id)}/stop", b"", missing={})

    def forget(self, submission_id: str) -> None:
        """Remove a job that has ended from the cluster's list."""
        self._request("DELETE", f"/api/jobs/{quote(submission_id)}", missing={})

    def follow(self, submission_id: str) -> Iterator[str | Job]:
        """Yield the complete lines that a job writes, each once, and finally the job itself.

        Raises:
            RunError: If the cluster has not answered for a minute, or no longer knows the job.
        """
        num_yielded, answered_s = 0, time.monotonic()
        while True:
            began_s = time.monotonic()
            try:
                # Read the job first: a job that has ended by then writes nothing afterwards.
                job = self.job(submission_id)
                has_begun = job is not None and job.status != "PENDING"
                text = self.log(submission_id) if has_begun else ""
            except UnreachableError:
                if time.monotonic() - answered_s > PATIENCE_S:
                    raise
                time.sleep(RETRY_S)
                continue
            if job is None:
                raise RunError(f"{self.address} has no job {submission_id}")
            answered_s = time.monotonic()
            end = len(text) if job.ended else text.rfind("\n") + 1
            yield from text[num_yielded:end].splitlines()
            num_yielded = max(num_yielded, end)
            if job.ended:
                yield job
                return
            time.sleep(max(POLL_S, _REST_FACTOR * (time.monotonic() - began_s)))

    def _request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        timeout_s: float = ANSWER_TIMEOUT_S,
        missing: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Send a request. `missing` is returned if the cluster answers 404."""
        request = urllib.request.Request(
            self.address + path, data=body, method=method, headers=self._headers
        )
        try:
            with self._opener.open(request, timeout=timeout_s) as response:
                text = response.read()
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404 and missing is not None:
                    return missing
                raise self._refused(error.code, error.read().decode(errors="replace")) from error
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise UnreachableError(
                f"nothing answers at {self.address}: {reason}",
                field="address",
                allowed=_ALLOWED,
                next_step=(
                    "Check the address, or forward the port: ssh -L 8265:localhost:8265 HEAD."
                ),
            ) from error
        if not text:
            return {}
        try:
            return json.loads(text)
        except ValueError as error:
            raise self._not_ray() from error

    def _not_ray(self) -> RunError:
        return RunError(
            f"{self.address} does not take jobs: it is not a Ray dashboard",
            field="address",
            allowed=_ALLOWED,
            next_step=(
                "Before Ray starts, the head needs: pip install '.[cluster]' in a copy of the code."
            ),
        )

    def _refused(self, status: int, text: str) -> RunError:
        has_token = "Authorization" in self._headers
        if status in (401, 403) and not has_token:
            return RunError(
                f"{self.address} requires a token, and none was given",
                field="token",
                next_step="Set --token-file or RAY_AUTH_TOKEN_PATH to the file with the token.",
            )
        if status in (401, 403):
            return RunError(
                f"{self.address} rejects the token ({status})",
                field="token",
                next_step="Compare it with the token of the cluster.",
            )
        if status in (301, 302, 307, 308, 404, 405):
            return self._not_ray()
        lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no reason given"]
        return RunError(
            f"{self.address} refused the request ({status}): {lines[-1][:500]}", field="address"
        )


def jobs_address(given: str | None) -> str:
    """Return where jobs are submitted: what was given, or what RAY_API_SERVER_ADDRESS names.

    Raises:
        RunError: If neither is an address that takes jobs.
    """
    text = (given or os.environ.get(ADDRESS_VARIABLE) or "").strip().rstrip("/")
    if not text:
        raise RunError(
            "no cluster was given",
            field="address",
            allowed=_ALLOWED,
            next_step=f"Give --address URL, or set {ADDRESS_VARIABLE}.",
        )
    if "@" in text:
        raise _holds_a_password()
    if not is_jobs_address(text) or not _is_of_a_server(text):
        raise RunError(
            f"{text!r} is not an address that takes jobs", field="address", allowed=_ALLOWED
        )
    return text


def _is_of_a_server(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return bool(parts.hostname) and parts.port != 0 and not (parts.query or parts.fragment)
    except ValueError:  # of a port or brackets that are none
        return False


def _holds_a_password() -> RunError:
    return RunError(
        "an address must not contain a user name or a password, because it is shown and logged",
        field="address",
        allowed=_ALLOWED,
        next_step="Give the file of Ray's token in RAY_AUTH_TOKEN_PATH.",
    )


def check_address(given: str) -> None:
    """Check that an address takes jobs, or is one of a cluster to attach to.

    Raises:
        RunError: If it is neither.
    """
    if is_jobs_address(given):
        jobs_address(given)
        return
    if "@" in given:
        raise _holds_a_password()
    host, _, port = given.rpartition(":")
    if not re.fullmatch(r"[\w.-]+|\[[0-9A-Fa-f:.]+\]", host) or not port.isdecimal():
        raise RunError(
            f"{given!r} is not an address of a cluster", field="address", allowed=_ALL_ALLOWED
        )
    if port == _DASHBOARD_PORT:
        raise RunError(
            f"{given!r} is the port for jobs, to which a driver cannot attach",
            field="address",
            allowed=_ALL_ALLOWED,
            next_step=f"Write http://{given} to submit the run.",
        )


def read_token(file: str | Path | None = None) -> str | None:
    """Return the token for a remote cluster, or None if there is none.

    It is looked up as Ray does: RAY_AUTH_TOKEN, the file that RAY_AUTH_TOKEN_PATH names, and
    ~/.ray/auth_token. The token of the local head is not used.

    Args:
        file: A file to read it from instead.

    Raises:
        RunError: If a file that was named cannot be read, or is empty.
    """
    environment = given_environment()
    if file is None:
        if environment.get("RAY_AUTH_MODE", "token").lower() == "disabled":
            return None
        if token := environment.get("RAY_AUTH_TOKEN", "").strip():
            return token
    named = file or environment.get("RAY_AUTH_TOKEN_PATH")
    path = Path.home() / ".ray" / "auth_token"
    if named:
        path = Path(named).expanduser()
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        if named is None:
            return None
        reason = getattr(error, "strerror", None) or "it is not text"
        raise RunError(f"cannot read the token in {path}: {reason}", field="token") from error
    if not token or not token.isascii() or not token.isprintable():
        raise RunError(f"{path} does not contain a token", field="token")
    return token


def _read_job(job: Mapping[str, Any]) -> Job:
    return Job(
        submission_id=str(job.get("submission_id")),
        status=str(job.get("status")),
        exit_code=job.get("driver_exit_code"),
        message=str(job.get("message") or ""),
        metadata=job.get("metadata") or {},
        ended_unix_s=job["end_time"] / 1000 if job.get("end_time") else None,
    )
