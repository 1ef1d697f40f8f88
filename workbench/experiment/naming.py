"""Valid names of experiments: one line that displays everywhere as it was written."""

from __future__ import annotations

import unicodedata

from workbench.foundation.errors import ExperimentError

_ALLOWED = "one line of printable characters without / and \\"


def check_name(name: str) -> str:
    """Return the name of an experiment, or refuse it.

    Args:
        name: The requested name.

    Raises:
        ExperimentError: If it is blank, looks like a path, or contains an invisible character: a
            control character, or one that turns the direction of writing, so that it reads as
            something else.
    """
    if not name.strip(" ."):
        raise ExperimentError(f"{name!r} has no visible characters", allowed=_ALLOWED)
    for character in name:
        if character in "/\\":
            raise ExperimentError(
                f"{name!r} contains {character}, like a path",
                allowed=_ALLOWED,
                next_step="Use - instead.",
            )
        if not character.isprintable():
            title = unicodedata.name(character, "a character without a name").lower()
            raise ExperimentError(
                f"{name!a} contains U+{ord(character):04X} ({title}), which is invisible",
                allowed=_ALLOWED,
                next_step="Remove it.",
            )
    return name
