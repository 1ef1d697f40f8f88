"""The note that a run waits for something: written by drivers and workers, read by views of a run."""

from __future__ import annotations

_PREFIX = "waits for "


def write_waiting_note(what: str, reason: str) -> str:
    """Return the message of the note.

    Args:
        what: What the run waits for, such as workers.
        reason: Why it has to wait.
    """
    return f"{_PREFIX}{what}: {reason}"


def read_waiting_note(message: str) -> str | None:
    """Return what a run waits for and why, in words; None where a message is not such a note.

    Args:
        message: The message of any note.
    """
    return message.removeprefix(_PREFIX) if message.startswith(_PREFIX) else None
