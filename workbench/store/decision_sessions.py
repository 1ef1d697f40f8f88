"""Sessions of proposals: the allowed error is spent over all of them.

An assistant that tries many changes will be lucky with one. In a session, the first proposal gets
half of the error, the next one a sixth, then a twelfth. Over any number of proposals, the
probability of a wrong claim stays below the error of the session. The results of the other
proposals belong to the noise floor.

A session is a small file next to the store.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import filelock

from workbench.foundation.errors import ArgumentError, StoreError
from workbench.foundation.files import write_atomically
from workbench.store.database.urls import resolve_url, usual_artifacts
from workbench.store.history.noise_floor import RepeatedTrainings

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LOCK_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Proposal:
    """A proposal of a session.

    Attributes:
        number: Its place in the session, counted from 1.
        error: The part of the error that it may spend.
        others: The results of the other proposals of the session, which show the noise.
    """

    number: int
    error: float
    others: tuple[RepeatedTrainings, ...]


def share_of_error(number: int) -> float:
    """Return the share of a session's error that a proposal may spend.

    Args:
        number: The place of the proposal, counted from 1. The shares of all numbers add up to 1.

    Example:
        >>> [round(1 / share_of_error(number)) for number in (1, 2, 3)]
        [2, 6, 12]
    """
    return 1 / (number * (number + 1))


def sessions_folder(address: str | None) -> Path:
    """Return the folder of the sessions that belong to a store.

    Args:
        address: The address of the store, or None for the default one.
    """
    return usual_artifacts(resolve_url(address)).parent / "sessions"


def check_session_name(name: str) -> None:
    """Check that a text can be the name of a session, and of its file.

    Args:
        name: The text.

    Raises:
        ArgumentError: If it cannot.
    """
    if not _NAME.fullmatch(name):
        raise ArgumentError(
            f"{name!r} is not valid",
            field="session",
            allowed="up to 64 letters, digits, dots, hyphens and underscores",
        )


def enter_proposal(
    name: str,
    results: Iterable[str],
    trainings: RepeatedTrainings,
    *,
    error: float,
    max_runs: int,
    folder: Path,
) -> Proposal:
    """Return the place of a proposal in a session. A new proposal is appended to it.

    A proposal is known by its results. If all results of an earlier look are still there, it is the
    same proposal. A proposal without results is not kept yet.

    Args:
        name: The name of the session.
        results: Texts that identify the results of both sides, such as hashes of their runs.
        trainings: The finite results of the candidate.
        error: The error of the whole session.
        max_runs: The limit for candidate runs, the same for the whole session.
        folder: The folder of sessions.

    Raises:
        ArgumentError: If the name is not allowed, or the settings differ from the session's.
        StoreError: If the session's file cannot be read or written.
    """
    check_session_name(name)
    path = folder / f"{name}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(folder / f"{name}.lock", timeout=_LOCK_TIMEOUT_S):
            session = _read(path) or _Session(error, max_runs, [])
            session.check(name, error, max_runs)
            number = session.enter(sorted(set(results)), trainings)
            write_atomically(path, json.dumps(asdict(session), indent=1))
    except (OSError, filelock.Timeout) as problem:
        raise StoreError(
            f"the session {name} cannot be kept: {problem}", next_step=f"Check the file {path}."
        ) from problem
    others = tuple(
        RepeatedTrainings(entry["values"], entry["budget"])
        for place, entry in enumerate(session.proposals, 1)
        if place != number
    )
    return Proposal(number, error * share_of_error(number), others)


@dataclass
class _Session:
    error: float
    max_runs: int
    proposals: list[dict[str, Any]]
    """What identifies the results of each proposal at its last look, their values and budget."""

    def check(self, name: str, error: float, max_runs: int) -> None:
        """Raise an error if the settings changed, because the error would not be kept."""
        for field, wanted, fixed in (
            ("error", error, self.error),
            ("max_runs", max_runs, self.max_runs),
        ):
            if wanted != fixed:
                raise ArgumentError(
                    f"the session {name} started with {fixed:g}",
                    field=field,
                    allowed=f"{fixed:g}",
                    next_step="To use another value, start a session with another name.",
                )

    def enter(self, results: list[str], trainings: RepeatedTrainings) -> int:
        """Return the number of a proposal, counted from 1, and keep its results."""
        if not results:
            return len(self.proposals) + 1
        values = list(trainings.values)
        entry = {"results": results, "values": values, "budget": trainings.budget}
        for index, earlier in enumerate(self.proposals):
            if set(earlier["results"]) <= set(results):
                self.proposals[index] = entry
                return index + 1
        self.proposals.append(entry)
        return len(self.proposals)


def _read(path: Path) -> _Session | None:
    if not path.exists():
        return None
    try:
        return _Session(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise StoreError(
            f"{path} is not a session", next_step="Use another name, or remove the file."
        ) from error
