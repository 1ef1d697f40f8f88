"""The note that a run waits for something.

Written by drivers and workers, read by views of a run.
"""

from __future__ import annotations

from workbench.foundation.formatting import format_duration

_PREFIX = "waits for "
_OVER_PREFIX = "waited for "


def write_waiting_note(what: str, reason: str) -> str:
    """Return the message of the note.

    Args:
        what: What the run waits for, such as workers.
        reason: Why it has to wait.
    """
    return f"{_PREFIX}{what}: {reason}"


def write_waited_note(what: str, waited_s: float) -> str:
    """Return the message of the note that a wait is over, which was reported before.

    Args:
        what: What the run waited for, such as workers.
        waited_s: For how long, in seconds.
    """
    return f"{_OVER_PREFIX}{what} for {format_duration(round(waited_s))}"


def ends_waiting(message: str) -> bool:
    """Return whether the message of a note is that a wait is over."""
    return message.startswith(_OVER_PREFIX)


def read_waiting_note(message: str) -> str | None:
    """Return what a run waits for and why, in words, or None if a message is not such a note.

    Args:
        message: The message of any note.
    """
    if not message.startswith(_PREFIX):
        return None
    return message.removeprefix(_PREFIX)
