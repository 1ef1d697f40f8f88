"""A command that runs as a job of a remote cluster, with its output relayed to the client.

The cluster has a single log for the output of a job, and Ray also writes into it. So the output of
a command is written as marked lines, each with its stream. Its result is written as pieces of an
archive. `relay` writes these lines on the cluster, and this module reads them.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import os
import re
import shlex
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from workbench.cluster.remote.jobs import Job, Jobs, jobs_address, read_token
from workbench.foundation.artifacts import open_artifacts
from workbench.foundation.errors import ArgumentError, RunError
from workbench.store.database.urls import hide_password, resolve_url, without_password

SHOWN_ADDRESS_VARIABLE = "WORKBENCH_SHOWN_ADDRESS"
PLACE = "brought/result"
"""The path to which a command writes a result for the client, relative to its working folder."""
STUDY_PLACE = "brought/study.db"
"""The path to which a command writes an Optuna study for the client."""
STOPPED = 130
_MARK = "@workbench "
_PIECE_BYTES = 48 * 2**10
SEEN_AFTER_S = 5.0
"""Ray polls a job once a second, and records one as failed that is deleted before that."""
_RELAYED_JOB = re.compile(r"workbench-[a-z]+-[0-9a-f]{12}")
_NOT_INSTALLED = re.compile(r"No module named '?workbench|python.: No such file")

Stream = Literal["stdout", "stderr", "piece", "place"]
OnLine = Callable[[Stream, str], None]


@dataclass(frozen=True)
class Answer:
    """The result of a remote command."""

    exit_code: int
    stdout: str
    stderr: str
    archive: bytes | None = None
    """The archive of its result, if one was requested."""

    def raise_for_failure(self) -> None:
        """Raise the error that the command reported.

        Raises:
            RunError: If it failed.
        """
        if self.exit_code == 0:
            return
        lines = [line for line in self.stderr.splitlines() if line.strip()] or ["it wrote nothing"]
        problem = next((line for line in lines if line.startswith("error: ")), lines[-1])
        raise RunError(problem.removeprefix("error: "))


def write_line(stream: Stream, text: str) -> str:
    """Return the marked line for text that a command wrote to a stream. It is ASCII."""
    return f"{_MARK}{json.dumps([stream, text])}"


def write_pieces(content: bytes) -> Iterator[str]:
    """Yield the marked lines that hold bytes."""
    for start in range(0, max(len(content), 1), _PIECE_BYTES):
        yield write_line("piece", base64.b64encode(content[start : start + _PIECE_BYTES]).decode())


def read_line(line: str) -> tuple[Stream, str] | None:
    """Return the stream and the text of a marked line, or None for any other line."""
    if not line.startswith(_MARK):
        return None
    try:
        stream, text = json.loads(line.removeprefix(_MARK))
    except ValueError:
        return None
    if stream not in ("stdout", "stderr", "piece", "place"):
        return None
    return stream, text


def join_pieces(pieces: Iterable[str]) -> bytes:
    """Return the bytes of an archive that was read in pieces.

    Raises:
        RunError: If a piece is damaged.
    """
    try:
        return b"".join(base64.b64decode(piece, validate=True) for piece in pieces)
    except (binascii.Error, ValueError) as error:
        raise RunError(
            "the result that the cluster sent is damaged", next_step="Repeat the command."
        ) from error


class RemoteCluster:
    """A remote cluster that runs commands."""

    def __init__(
        self,
        address: str | None = None,
        *,
        token_file: str | Path | None = None,
        store: str | None = None,
    ) -> None:
        """Remember the cluster. Nothing is sent yet.

        Args:
            address: Where Ray serves its dashboard, or None for RAY_API_SERVER_ADDRESS.
            token_file: A file that contains its token, or None for the places where Ray looks.
            store: The store that commands use there, or None for the cluster's own, or a database
                server that WORKBENCH_STORE names here.

        Raises:
            ArgumentError: If the address does not take jobs, or the token cannot be read.
        """
        self.address = jobs_address(address)
        token = read_token(token_file)
        self.jobs = Jobs(self.address, token)
        self.environment, self.notes = _environment(store)
        """The environment variables of commands there, and notes for the user."""
        self.words = ["--address", self.address]
        """The options that name this cluster and store in another command."""
        if store is not None:
            self.words += ["--store", self.environment["WORKBENCH_STORE"]]
        if token_file is not None:
            self.words += ["--token-file", str(token_file)]
        if (
            token is not None
            and self.address.lower().startswith("http:")
            and not _is_loopback(self.address)
        ):
            self.notes.append(
                f"the token is sent to {self.address} unencrypted. To protect it, use a tunnel"
                " (ssh -L 8265:localhost:8265 HEAD) or https://"
            )

    def submit(
        self,
        words: Sequence[str],
        *,
        submission_id: str,
        working_dir: str | None = None,
        metadata: Mapping[str, str] | None = None,
        brings: bool = False,
    ) -> bool:
        """Submit a command as a job, and return the result of `Jobs.submit`.

        Args:
            words: The command, without the name of the program.
            submission_id: The name of the job.
            working_dir: The folder in which it runs.
            metadata: Stored with the job.
            brings: Whether it writes a result to `PLACE` that is transferred here.

        Raises:
            ArgumentError: If the command would reveal a password.
            RunError: If the cluster cannot be reached, or refuses.
        """
        if any(hide_password(word) != word for word in words):
            raise ArgumentError(
                "a command with a password is not sent, because everyone with the cluster's token"
                " could read it",
                next_step=(
                    "Omit the password, and store it on the cluster's nodes, such as in ~/.pgpass."
                ),
            )
        settings = {SHOWN_ADDRESS_VARIABLE: self.address, **self.environment}
        line = shlex.join(
            [
                "env",
                *(f"{name}={value}" for name, value in settings.items()),
                "python",
                "-m",
                "workbench.cluster.remote.relay",
                *(["--bring"] if brings else []),
                "--",
                *words,
            ]
        )
        return self.jobs.submit(
            line, submission_id=submission_id, working_dir=working_dir, metadata=metadata
        )

    def answer(self, submission_id: str, on_line: OnLine | None = None) -> Answer:
        """Follow a command to its end, and return its result.

        Args:
            submission_id: The name of its job.
            on_line: Called with the stream and the text of every line that the command writes. The
                first call has the stream `place` and the path of `PLACE` on the cluster.

        Raises:
            RunError: If the cluster could not run it, or stops answering.
        """
        lines: dict[str, list[str]] = {"stdout": [], "stderr": [], "piece": [], "place": []}
        others: list[str] = []
        job: Job | None = None
        for item in self.jobs.follow(submission_id):
            if isinstance(item, Job):
                job = item
            elif (line := read_line(item)) is None:
                others.append(item)
            else:
                stream, text = line
                # The cluster knows neither the token file nor the store of this client.
                if stream != "piece":
                    text = text.replace(shlex.join(self.words[:2]), shlex.join(self.words))
                lines[stream].append(text)
                if on_line is not None and stream != "piece":
                    on_line(stream, text)
        assert job is not None
        if job.status != "STOPPED" and not lines["place"]:
            raise _could_not_run(job, others, self.address)
        if job.status == "FAILED" and job.exit_code is None:
            raise RunError(
                f"the job {submission_id} at {self.address} was lost: {job.message[:500]}"
            )
        return Answer(
            STOPPED if job.status == "STOPPED" else job.exit_code or 0,
            "".join(f"{line}\n" for line in lines["stdout"]),
            "".join(f"{line}\n" for line in lines["stderr"]),
            join_pieces(lines["piece"]) if lines["piece"] else None,
        )

    def run(
        self, words: Sequence[str], *, on_line: OnLine | None = None, brings: bool = False
    ) -> Answer:
        """Run a command whose job is deleted later, and return its result.

        Args:
            words: The command, without the name of the program.
            on_line: As in `answer`.
            brings: As in `submit`.

        Raises:
            RunError: As in `answer`.
        """
        submission_id = f"workbench-{words[0]}-{uuid.uuid4().hex[:12]}"
        self.submit(words, submission_id=submission_id, brings=brings)
        try:
            answer = self.answer(submission_id, on_line)
        except KeyboardInterrupt:
            self.jobs.stop(submission_id)
            raise
        self._delete_old_jobs()
        return answer

    def _delete_old_jobs(self) -> None:
        """Delete the jobs of earlier commands. The next command deletes this one."""
        with contextlib.suppress(RunError):
            ended = [
                job
                for job in self.jobs.jobs()
                if job.ended and _RELAYED_JOB.fullmatch(job.submission_id)
            ]
            newest_unix_s = max((job.ended_unix_s or 0.0 for job in ended), default=0.0)
            for job in ended:
                if (job.ended_unix_s or 0.0) < newest_unix_s - SEEN_AFTER_S:
                    self.jobs.forget(job.submission_id)


def _is_loopback(address: str) -> bool:
    """Return whether an address is this machine itself, so that nothing passes a network."""
    host = urlsplit(address).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def _could_not_run(job: Job, lines: list[str], address: str) -> RunError:
    """Return the error for a job that ended before the relay started."""
    written = [line.strip() for line in [*job.message.splitlines(), *lines] if line.strip()]
    if any(_NOT_INSTALLED.search(line) for line in written):
        return RunError(
            f"the Python that runs jobs at {address} has no workbench, or one too old for this",
            next_step=(
                "Install this version on every node, in a copy of the code: pip install"
                " '.[cluster]'"
            ),
        )
    why = written[-1][:500] if written else "it wrote nothing"
    return RunError(f"the cluster at {address} could not run the command: {why}")


def _environment(store: str | None) -> tuple[dict[str, str], list[str]]:
    """Return the variables that name the store there, without secrets, and notes for users."""
    if store is None and "WORKBENCH_STORE" not in os.environ:
        return {}, []
    url = resolve_url(store)
    if store is None and url.get_backend_name() == "sqlite":
        return {}, []  # a file of this machine
    notes = []
    if url.get_backend_name() == "sqlite":
        shown = str(url.database)
    else:
        shown, hides = without_password(url)
        if hides:
            notes.append(
                "the password of the store is not sent, because everyone with the cluster's token"
                " could read it. Set it on the cluster's nodes, in PGPASSWORD or ~/.pgpass"
            )
    environment = {"WORKBENCH_STORE": shown}
    if place := os.environ.get("WORKBENCH_ARTIFACTS"):
        artifacts = open_artifacts(place)
        if str(artifacts) == artifacts.url:
            environment["WORKBENCH_ARTIFACTS"] = artifacts.url
        else:
            notes.append(
                "WORKBENCH_ARTIFACTS is not sent, because it contains keys or options. Set it on"
                " the cluster's nodes"
            )
    return environment, notes
