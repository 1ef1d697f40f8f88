"""The labels of runs (names, tags, notes, pins, choices), and the selection of runs for lists.

Labels can change at any time, whichever process drives the run. Events and experiments never
change.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import sqlalchemy as sa

from workbench.experiment.experiment import check_name
from workbench.foundation.errors import ArgumentError
from workbench.store.database.rows import RunRow
from workbench.store.database.store import Store
from workbench.store.database.tables import runs

MAX_TAGS = 20
MAX_TAG = 40
MAX_NOTES = 10_000
_MAX_NAME = 80
_ALLOWED_TAG = f"1 to {MAX_TAG} visible characters without a comma"

Archive = Literal["without", "only", "with"]
"""Whether a list hides archived runs, shows only them, or shows all runs."""


def rename(store: Store, run_id: str, name: str) -> str:
    """Give a run another name. Its experiment keeps its name.

    Args:
        store: The store.
        run_id: The run.
        name: The new name. If it is empty, the run gets the name of its experiment.

    Returns:
        The current name.

    Raises:
        RunNotFoundError: If there is no such run.
        ExperimentError: If the name is not valid.
    """
    new_name = name.strip() or store.experiment(run_id).name
    if len(new_name) > _MAX_NAME:
        raise ArgumentError(
            f"{new_name[:20]!r}… is too long",
            field="name",
            allowed=f"at most {_MAX_NAME} characters",
        )
    check_name(new_name)
    _change(store, run_id, lambda _row: {"name": new_name})
    return new_name


def change_tags(
    store: Store, run_id: str, add: Iterable[str] = (), remove: Iterable[str] = ()
) -> list[str]:
    """Add tags to a run and remove others.

    Tags that another process adds meanwhile are kept.

    Args:
        store: The store.
        run_id: The run.
        add: Tags to add. Existing ones keep their place.
        remove: Tags to remove. Missing ones are ignored.

    Returns:
        The current tags.

    Raises:
        RunNotFoundError: If there is no such run.
        ArgumentError: If a text cannot be a tag, or there would be too many.
    """
    added = [_checked_tag(tag) for tag in add]
    removed = {tag.strip() for tag in remove}
    tags: list[str] = []

    def work(row: Any) -> Mapping[str, Any]:
        all_tags = dict.fromkeys([*json.loads(row.tags or "[]"), *added])
        tags[:] = [tag for tag in all_tags if tag not in removed]
        if len(tags) > MAX_TAGS:
            raise ArgumentError(
                f"{len(tags)} tags are too many", field="tags", allowed=f"at most {MAX_TAGS}"
            )
        return {"tags": json.dumps(tags, ensure_ascii=False) if tags else None}

    _change(store, run_id, work)
    return tags


def write_notes(store: Store, run_id: str, text: str) -> None:
    """Replace the notes of a run.

    Args:
        store: The store.
        run_id: The run.
        text: The notes. If the text is empty, they are removed.

    Raises:
        RunNotFoundError: If there is no such run.
        ArgumentError: If they are too long or contain control characters.
    """
    text = text.replace("\r\n", "\n").strip()
    if len(text) > MAX_NOTES:
        raise ArgumentError(
            f"{len(text):,} characters are too many", field="text", allowed=f"at most {MAX_NOTES:,}"
        )
    for character in text:
        if not character.isprintable() and character not in "\n\t":
            raise ArgumentError(
                f"U+{ord(character):04X} is a control character",
                field="text",
                allowed="visible text and lines",
            )
    _change(store, run_id, lambda _row: {"notes": text or None})


def set_pinned(store: Store, run_id: str, pinned: bool) -> None:
    """Pin a run to the top of lists, or unpin it.

    Raises:
        RunNotFoundError: If there is no such run.
    """
    _mark(store, run_id, "pinned_unix_s", pinned)


def set_archived(store: Store, run_id: str, archived: bool) -> None:
    """Hide a run from lists, or show it again.

    Raises:
        RunNotFoundError: If there is no such run.
    """
    _mark(store, run_id, "archived_unix_s", archived)


def set_chosen(store: Store, run_id: str, trial: int | None) -> None:
    """Store which trial of a run the user chose.

    Args:
        store: The store.
        run_id: The run.
        trial: The trial, which the caller has checked, or None for no choice.

    Raises:
        RunNotFoundError: If there is no such run.
    """
    _change(store, run_id, lambda _row: {"chosen_trial": trial})


def matching_runs(
    rows: Iterable[RunRow],
    *,
    text: str = "",
    states: Sequence[str] = (),
    tags: Sequence[str] = (),
    archive: Archive = "without",
    pinned: bool = False,
) -> list[RunRow]:
    """Return the matching runs in their order, pinned ones first.

    Args:
        rows: The runs.
        text: Words, each of which must occur in the run id, name, owner, tags or notes.
        states: Only runs in one of these states, or all if empty.
        tags: Only runs with all of these tags.
        archive: Whether archived runs are hidden, shown alone, or shown as well.
        pinned: Only pinned runs.
    """
    words = text.casefold().split()
    matching = [
        row
        for row in rows
        if (archive == "with" or row.archived == (archive == "only"))
        and (row.pinned or not pinned)
        and (not states or row.state in states)
        and set(tags) <= set(row.tags)
        and (not words or all(word in _searched(row) for word in words))
    ]
    return sorted(matching, key=lambda row: not row.pinned)


def versions_of(rows: Iterable[RunRow]) -> dict[str, int]:
    """Return the version of each run's experiment, if runs of the same name have several.

    Args:
        rows: All runs. Versions are numbered in the order in which they first ran.
    """
    rows = sorted(rows, key=lambda row: row.created_unix_s)
    versions: dict[str, dict[str, int]] = {}
    for row in rows:
        of_name = versions.setdefault(row.name, {})
        of_name.setdefault(row.experiment_hash, len(of_name) + 1)
    return {
        row.run_id: versions[row.name][row.experiment_hash]
        for row in rows
        if len(versions[row.name]) > 1
    }


def _searched(row: RunRow) -> str:
    owner = f"{row.owner.pid} on {row.owner.host}" if row.owner else ""
    return "\n".join([row.run_id, row.name, owner, *row.tags, row.notes]).casefold()


def _checked_tag(tag: str) -> str:
    spaced = " ".join(tag.split())
    if not 1 <= len(spaced) <= MAX_TAG or "," in spaced or not spaced.isprintable():
        raise ArgumentError(f"{tag!r} is not a tag", field="add", allowed=_ALLOWED_TAG)
    return spaced


def _mark(store: Store, run_id: str, column: str, on: bool) -> None:
    _change(
        store, run_id, lambda row: {column: (row._mapping[column] or time.time()) if on else None}
    )


def _change(store: Store, run_id: str, work: Callable[[Any], Mapping[str, Any]]) -> None:
    key = store.find(run_id).key
    with store.transaction() as connection:
        # A write that changes nothing takes the lock, so that no other process changes the row
        # between reading and writing.
        connection.execute(runs.update().where(runs.c.key == key).values(run_id=runs.c.run_id))
        row = connection.execute(sa.select(runs).where(runs.c.key == key)).one()
        connection.execute(runs.update().where(runs.c.key == key).values(**work(row)))
