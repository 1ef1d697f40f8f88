"""What an experiment may be called: one line that reads in every place as it was written."""

from __future__ import annotations

import unicodedata

from workbench.errors import ExperimentError

_ALLOWED = "one line of printable characters without / and \\"


def check_name(name: str) -> str:
    """Return the name of an experiment, or refuse it.

    Args:
        name: What somebody wants it to be called.

    Raises:
        ExperimentError: If it says nothing, looks like a path, or holds what cannot be seen: a control
            character, or one that turns the direction of writing, so that it reads as something else.
    """
    if not name.strip(" ."):
        raise ExperimentError(f"{name!r} says nothing", allowed=_ALLOWED)
    for character in name:
        if character in "/\\":
            raise ExperimentError(
                f"{name!r} holds {character}, as a path does",
                allowed=_ALLOWED,
                next_step="Write - in its place.",
            )
        if not character.isprintable():
            told = unicodedata.name(character, "a character without a name").lower()
            raise ExperimentError(
                f"{name!a} holds U+{ord(character):04X} ({told}), which cannot be seen",
                allowed=_ALLOWED,
                next_step="Remove it.",
            )
    return name
