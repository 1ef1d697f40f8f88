"""The jobs of a Ray cluster, asked over HTTP: Ray's own protocol, without Ray on this side.

A client needs one address and one token, which it keeps to itself: nothing of this process's Ray, of its
environment or of another cluster is touched, and no answer is waited for without end. What a job does is
left to whoever submits it.
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

from workbench.errors import RunError
from workbench.workers.surroundings import given_environment

ADDRESS_VARIABLE = "RAY_API_SERVER_ADDRESS"
ANSWER_TIMEOUT_S = 30.0
UPLOAD_TIMEOUT_S = 600.0
PATIENCE_S = 60.0
POLL_S = 0.25
RETRY_S = 2.0
_REST_FACTOR = 10.0
"""A log is asked for whole each time: after an answer, this many times as long as it took is waited."""
_ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
_DASHBOARD_PORT = "8265"
_ALLOWED = f"such as http://HOST:{_DASHBOARD_PORT}, where Ray serves its dashboard"
_ALL_ALLOWED = (
    f"http://HOST:{_DASHBOARD_PORT}, which takes jobs, or HOST:6379 of a cluster that this machine is in"
)


class UnreachableError(RunError):
    """The cluster does not answer just now; may pass."""


@dataclass(frozen=True)
class Job:
    """What a cluster tells of one job."""

    submission_id: str
    status: str
    """PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED."""
    exit_code: int | None
    message: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    ended_unix_s: float | None = None
    """When, by the clock of the cluster."""

    @property
    def ended(self) -> bool:
        """Whether nothing of it is running any more."""
        return self.status in _ENDED


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows nobody: the token is for the address that was given."""

    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: Any) -> None:
        return None


class Jobs:
    """The jobs of one cluster."""

    def __init__(self, address: str, token: str | None = None) -> None:
        """Name the cluster; nothing is asked yet.

        Args:
            address: Where Ray serves its dashboard, as `jobs_address` returns it.
            token: Ray's token; None where the cluster asks for none.
        """
        self.address = address
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._opener = urllib.request.build_opener(_NoRedirect)

    def check(self) -> str:
        """Return the version of Ray there, or say why nothing can be submitted.

        Raises:
            RunError: If nothing answers, it is no Ray, or it does not take the token.
        """
        return str(self._ask("GET", "/api/version").get("ray_version", "unknown"))

    def upload(self, content: bytes, sha256: str) -> str:
        """Bring an archive to the cluster, unless it is there.

        Args:
            content: The archive.
            sha256: Its name.

        Returns:
            The URI by which a job has it as its working folder.
        """
        name = f"_ray_pkg_{sha256[:16]}.zip"
        path = f"/api/packages/gcs/{name}"
        if self._ask("GET", path, missing={"missing": True}).get("missing"):
            self._ask("PUT", path, content, timeout_s=UPLOAD_TIMEOUT_S)
        return f"gcs://{name}"

    def submit(
        self, entrypoint: str, *, submission_id: str, working_dir: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> bool:  # fmt: skip
        """Submit a job.

        Args:
            entrypoint: Its command line, for a shell; whoever may ask for jobs can read it.
            submission_id: Its name; each is taken once.
            working_dir: What `upload` returned.
            metadata: What is kept beside it.

        Returns:
            Whether it was taken; not so if there is a job of that name.
        """
        body = {
            "entrypoint": entrypoint, "submission_id": submission_id, "metadata": dict(metadata or {}),
            "runtime_env": {"working_dir": working_dir} if working_dir else {},
        }  # fmt: skip
        try:
            self._ask("POST", "/api/jobs/", json.dumps(body).encode())
        except UnreachableError:
            raise
        except RunError:
            if self.job(submission_id) is not None:
                return False
            raise
        return True

    def job(self, submission_id: str) -> Job | None:
        """Return what is known about a job; None where there is none of that name."""
        found = self._ask("GET", f"/api/jobs/{quote(submission_id)}", missing={})
        return _read_job(found) if found else None

    def jobs(self) -> list[Job]:
        """Return all submitted jobs that the cluster remembers."""
        found: Any = self._ask("GET", "/api/jobs/")
        return [_read_job(item) for item in found if item.get("submission_id")]

    def log(self, submission_id: str) -> str:
        """Return all that a job has written; nothing before it has begun."""
        path = f"/api/jobs/{quote(submission_id)}/logs"
        return str(self._ask("GET", path, missing={}).get("logs") or "")

    def stop(self, submission_id: str) -> None:
        """Ask a job to end, as by SIGTERM."""
        self._ask("POST", f"/api/jobs/{quote(submission_id)}/stop", b"", missing={})

    def forget(self, submission_id: str) -> None:
        """Remove a job that has ended from the cluster's list."""
        self._ask("DELETE", f"/api/jobs/{quote(submission_id)}", missing={})

    def follow(self, submission_id: str) -> Iterator[str | Job]:
        """Yield the lines that a job writes, each once and whole, and at last the job itself.

        Raises:
            RunError: If the cluster has not answered for a minute, or no longer knows the job.
        """
        told, heard_s = 0, time.monotonic()
        while True:
            began_s = time.monotonic()
            try:
                # The job first: what has ended before its log is read writes nothing after that.
                job = self.job(submission_id)
                text = self.log(submission_id) if job is not None and job.status != "PENDING" else ""
            except UnreachableError:
                if time.monotonic() - heard_s > PATIENCE_S:
                    raise
                time.sleep(RETRY_S)
                continue
            if job is None:
                raise RunError(f"{self.address} knows no job {submission_id}")
            heard_s = time.monotonic()
            end = len(text) if job.ended else text.rfind("\n") + 1
            yield from text[told:end].splitlines()
            told = max(told, end)
            if job.ended:
                yield job
                return
            time.sleep(max(POLL_S, _REST_FACTOR * (time.monotonic() - began_s)))

    def _ask(
        self, method: str, path: str, body: bytes | None = None, *, timeout_s: float = ANSWER_TIMEOUT_S,
        missing: dict[str, Any] | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Ask the cluster; `missing` is the answer where it says that there is no such thing."""
        request = urllib.request.Request(self.address + path, data=body, method=method, headers=self._headers)
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
                f"nothing answers at {self.address}: {reason}", field="address", allowed=_ALLOWED,
                next_step="Check the address, or lead the port here: ssh -L 8265:localhost:8265 HEAD.",
            ) from error  # fmt: skip
        if not text:
            return {}
        try:
            return json.loads(text)
        except ValueError as error:
            raise self._is_no_ray() from error

    def _is_no_ray(self) -> RunError:
        return RunError(
            f"{self.address} takes no jobs: it is no dashboard of Ray", field="address", allowed=_ALLOWED,
            next_step="The head node needs: pip install 'workbench[cluster]', before Ray is started there.",
        )  # fmt: skip

    def _refused(self, status: int, text: str) -> RunError:
        given = "Authorization" in self._headers
        if status in (401, 403) and not given:
            return RunError(
                f"{self.address} asks for a token, and none was given", field="token",
                next_step="Name its file with --token-file or RAY_AUTH_TOKEN_PATH.",
            )  # fmt: skip
        if status in (401, 403):
            return RunError(
                f"{self.address} does not take the token ({status})", field="token",
                next_step="Compare it with the one that the cluster was started with.",
            )  # fmt: skip
        if status in (301, 302, 307, 308, 404, 405):
            return self._is_no_ray()
        lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no reason given"]
        return RunError(f"{self.address} refused ({status}): {lines[-1][:500]}", field="address")


def is_jobs_address(address: str | None) -> bool:
    """Say whether an address is one that takes jobs, rather than a cluster to attach to."""
    return address is not None and address.lower().startswith(("http://", "https://"))


def jobs_address(given: str | None) -> str:
    """Return where jobs are submitted: what was given, or what RAY_API_SERVER_ADDRESS names.

    Raises:
        RunError: If neither is an address that takes jobs.
    """
    text = (given or os.environ.get(ADDRESS_VARIABLE) or "").strip().rstrip("/")
    if not text:
        raise RunError(
            "no cluster is named", field="address", allowed=_ALLOWED,
            next_step=f"Give --address URL, or set {ADDRESS_VARIABLE}.",
        )  # fmt: skip
    if "@" in text:
        raise _holds_a_password()
    if not is_jobs_address(text) or not _is_of_a_server(text):
        raise RunError(f"{text!r} takes no jobs", field="address", allowed=_ALLOWED)
    return text


def _is_of_a_server(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return bool(parts.hostname) and parts.port != 0 and not (parts.query or parts.fragment)
    except ValueError:  # of a port or brackets that are none
        return False


def _holds_a_password() -> RunError:
    return RunError(
        "an address that is shown and logged must not hold a name or a password", field="address",
        allowed=_ALLOWED, next_step="Name the file of Ray's token in RAY_AUTH_TOKEN_PATH.",
    )  # fmt: skip


def check_address(given: str) -> None:
    """Refuse what is neither an address that takes jobs nor that of a cluster to attach to.

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
        raise RunError(f"{given!r} is no address of a cluster", field="address", allowed=_ALL_ALLOWED)
    if port == _DASHBOARD_PORT:
        raise RunError(
            f"{given!r} is where Ray takes jobs, and nobody can attach there", field="address",
            allowed=_ALL_ALLOWED, next_step=f"Write http://{given} to submit the run.",
        )  # fmt: skip


def read_token(file: str | Path | None = None) -> str | None:
    """Return the token for a cluster elsewhere, where one is given.

    It is looked for where Ray looks: RAY_AUTH_TOKEN, the file that RAY_AUTH_TOKEN_PATH names, and
    ~/.ray/auth_token. The token of the local head is not among them.

    Args:
        file: A file to take it from instead.

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
    path = Path(named).expanduser() if named else Path.home() / ".ray" / "auth_token"
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        if named is None:
            return None
        reason = getattr(error, "strerror", None) or "it is no text"
        raise RunError(f"cannot read the token in {path}: {reason}", field="token") from error
    if not token or not token.isascii() or not token.isprintable():
        raise RunError(f"{path} holds no token", field="token")
    return token


def _read_job(found: Mapping[str, Any]) -> Job:
    return Job(
        submission_id=str(found.get("submission_id")), status=str(found.get("status")),
        exit_code=found.get("driver_exit_code"), message=str(found.get("message") or ""),
        metadata=found.get("metadata") or {},
        ended_unix_s=found["end_time"] / 1000 if found.get("end_time") else None,
    )  # fmt: skip
