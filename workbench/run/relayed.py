"""A command of ours that runs as a job of a cluster, seen from here as if it ran here.

The cluster keeps one log for all that a job writes, and Ray writes into it, too. So what a command says
travels in marked lines, each with the stream that it is for, and a result as the pieces of an archive;
`cli.relay` writes them there, and they are read here. Which command that is, is left to others.
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

from workbench.artifacts import Artifacts
from workbench.errors import RunError
from workbench.store.urls import hide_password, resolve_url, without_password
from workbench.workers.jobs import Job, Jobs, jobs_address, read_token

SHOWN_ADDRESS_VARIABLE = "WORKBENCH_SHOWN_ADDRESS"
PLACE = "brought/result"
"""Where a command writes what is to be brought here, in the folder in which it is run."""
STUDY_PLACE = "brought/study.db"
"""Where it writes a study of Optuna that is to be brought here."""
STOPPED = 130
_MARK = "@workbench "
_PIECE_BYTES = 48 * 2**10
SURELY_SEEN_S = 5.0
"""Ray looks after a job once a second, and enters one that it forgot before it saw the end as failed."""
_QUESTION = re.compile(r"workbench-[a-z]+-[0-9a-f]{12}")
_NOT_INSTALLED = re.compile(r"No module named '?workbench|python.: No such file")

Stream = Literal["stdout", "stderr", "piece", "place"]
Tell = Callable[[Stream, str], None]


@dataclass(frozen=True)
class Answer:
    """What a command came to elsewhere."""

    exit_code: int
    stdout: str
    stderr: str
    brought: bytes | None = None
    """The archive of what it was to bring."""

    def raise_for_failure(self) -> None:
        """Say what the command said was wrong.

        Raises:
            RunError: If it failed.
        """
        if self.exit_code == 0:
            return
        lines = [line for line in self.stderr.splitlines() if line.strip()] or ["it said nothing"]
        told = next((line for line in lines if line.startswith("error: ")), lines[-1])
        raise RunError(told.removeprefix("error: "))


def write_line(stream: Stream, text: str) -> str:
    """Return the marked line that says that a command wrote `text` to a stream; it is ASCII."""
    return f"{_MARK}{json.dumps([stream, text])}"


def write_pieces(content: bytes) -> Iterator[str]:
    """Yield the marked lines that hold bytes."""
    for start in range(0, max(len(content), 1), _PIECE_BYTES):
        yield write_line("piece", base64.b64encode(content[start : start + _PIECE_BYTES]).decode())


def read_line(line: str) -> tuple[Stream, str] | None:
    """Return what a marked line says; None if it is another's."""
    if not line.startswith(_MARK):
        return None
    try:
        stream, text = json.loads(line.removeprefix(_MARK))
    except ValueError:
        return None
    return (stream, text) if stream in ("stdout", "stderr", "piece", "place") else None


def join_pieces(pieces: Iterable[str]) -> bytes:
    """Return the bytes whose pieces were read.

    Raises:
        RunError: If one of them is damaged.
    """
    try:
        return b"".join(base64.b64decode(piece, validate=True) for piece in pieces)
    except (binascii.Error, ValueError) as error:
        raise RunError("what the cluster sent is damaged", next_step="Ask again.") from error


class Elsewhere:
    """A cluster that carries commands out."""

    def __init__(
        self, address: str | None = None, *, token_file: str | Path | None = None, store: str | None = None
    ) -> None:
        """Name the cluster; nothing is asked yet.

        Args:
            address: Where Ray serves its dashboard; None for RAY_API_SERVER_ADDRESS.
            token_file: A file that holds its token; None for where Ray looks.
            store: The store that commands are to use there; None for the cluster's own, or a database
                server that WORKBENCH_STORE names here.

        Raises:
            RunError: If the address takes no jobs, or the token cannot be read.
        """
        self.address = jobs_address(address)
        token = read_token(token_file)
        self.jobs = Jobs(self.address, token)
        self.environment, self.notes = _environment(store)
        """What commands there are told, and what a person should know about going there."""
        self.words = ["--address", self.address]
        """What the next command is to be given that means the same cluster and store."""
        if store is not None:
            self.words += ["--store", self.environment["WORKBENCH_STORE"]]
        if token_file is not None:
            self.words += ["--token-file", str(token_file)]
        if token is not None and self.address.lower().startswith("http:") and not _is_loopback(self.address):
            self.notes.append(
                f"the token travels to {self.address} unencrypted; "
                "a tunnel (ssh -L 8265:localhost:8265 HEAD) or https:// hides it"
            )

    def submit(
        self, words: Sequence[str], *, submission_id: str, working_dir: str | None = None,
        metadata: Mapping[str, str] | None = None, brings: bool = False,
    ) -> bool:  # fmt: skip
        """Submit a command as a job; arguments and answer as in `Jobs.submit`.

        Args:
            words: The command, without the name of the program.
            submission_id: The name of the job.
            working_dir: The folder that it is run in.
            metadata: What is kept beside it.
            brings: Whether it writes something to `PLACE` that is to be brought here.

        Raises:
            RunError: If it would show a password, or the cluster cannot be reached or refuses.
        """
        if any(hide_password(word) != word for word in words):
            raise RunError(
                "a command with a password is not sent: everybody with the cluster's token could read it",
                next_step="Leave the password out, and give it to the cluster's nodes, as in ~/.pgpass.",
            )
        settings = {SHOWN_ADDRESS_VARIABLE: self.address, **self.environment}
        line = shlex.join([
            "env", *(f"{name}={value}" for name, value in settings.items()),
            "python", "-m", "workbench.cli.relay", *(["--bring"] if brings else []), "--", *words,
        ])  # fmt: skip
        return self.jobs.submit(line, submission_id=submission_id, working_dir=working_dir, metadata=metadata)

    def answer(self, submission_id: str, tell: Tell | None = None) -> Answer:
        """Follow a command to its end.

        Args:
            submission_id: The name of its job.
            tell: Called with every line that the command writes, and the stream that it is for; before those,
                with what `PLACE` is there.

        Raises:
            RunError: If the cluster could not run it, or does not answer any more.
        """
        told: dict[str, list[str]] = {"stdout": [], "stderr": [], "piece": [], "place": []}
        others: list[str] = []
        job: Job | None = None
        for item in self.jobs.follow(submission_id):
            if isinstance(item, Job):
                job = item
            elif (found := read_line(item)) is None:
                others.append(item)
            else:
                stream, text = found
                if stream != "piece":  # over there it is not known how this process comes there
                    text = text.replace(shlex.join(self.words[:2]), shlex.join(self.words))
                told[stream].append(text)
                if tell is not None and stream != "piece":
                    tell(stream, text)
        assert job is not None
        if job.status != "STOPPED" and not told["place"]:
            raise _could_not_run(job, others, self.address)
        if job.status == "FAILED" and job.exit_code is None:
            raise RunError(f"the job {submission_id} at {self.address} was lost: {job.message[:500]}")
        return Answer(
            STOPPED if job.status == "STOPPED" else job.exit_code or 0,
            "".join(f"{line}\n" for line in told["stdout"]), "".join(f"{line}\n" for line in told["stderr"]),
            join_pieces(told["piece"]) if told["piece"] else None,
        )  # fmt: skip

    def ask(self, words: Sequence[str], *, tell: Tell | None = None, brings: bool = False) -> Answer:
        """Carry out a command that belongs to nobody afterwards, and return what it came to.

        Args:
            words: The command, without the name of the program.
            tell: As in `answer`.
            brings: As in `submit`.

        Raises:
            RunError: As in `answer`.
        """
        submission_id = f"workbench-{words[0]}-{uuid.uuid4().hex[:12]}"
        self.submit(words, submission_id=submission_id, brings=brings)
        try:
            answer = self.answer(submission_id, tell)
        except KeyboardInterrupt:
            self.jobs.stop(submission_id)
            raise
        self._clear_away()
        return answer

    def _clear_away(self) -> None:
        """Remove earlier questions from the cluster's list; a later one will remove this one."""
        with contextlib.suppress(RunError):
            ended = [job for job in self.jobs.jobs() if job.ended and _QUESTION.fullmatch(job.submission_id)]
            newest_unix_s = max((job.ended_unix_s or 0.0 for job in ended), default=0.0)
            for job in ended:
                if (job.ended_unix_s or 0.0) < newest_unix_s - SURELY_SEEN_S:
                    self.jobs.forget(job.submission_id)


def _is_loopback(address: str) -> bool:
    """Say whether an address leads to this machine itself, where nobody listens in."""
    host = urlsplit(address).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def _could_not_run(job: Job, lines: list[str], address: str) -> RunError:
    """Say why a job never came to our command."""
    said = [line.strip() for line in [*job.message.splitlines(), *lines] if line.strip()]
    if any(_NOT_INSTALLED.search(line) for line in said):
        return RunError(
            f"the Python that runs jobs at {address} has no workbench that could take this",
            next_step="Install this version on all nodes of the cluster: pip install 'workbench[cluster]'",
        )
    why = said[-1][:500] if said else "it wrote nothing"
    return RunError(f"the cluster at {address} could not run the command: {why}")


def _environment(store: str | None) -> tuple[dict[str, str], list[str]]:
    """Return what commands elsewhere are told about the store, all of it fit to be read, and what to note."""
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
                "the password of the store is not sent, as everybody with the cluster's token could read it; "
                "the cluster's nodes need it in PGPASSWORD or ~/.pgpass"
            )
    environment = {"WORKBENCH_STORE": shown}
    if place := os.environ.get("WORKBENCH_ARTIFACTS"):
        artifacts = Artifacts.at(place)
        if str(artifacts) == artifacts.url:
            environment["WORKBENCH_ARTIFACTS"] = artifacts.url
        else:
            notes.append(
                "WORKBENCH_ARTIFACTS is not sent, as it holds keys or options; set it on the cluster's nodes"
            )
    return environment, notes
