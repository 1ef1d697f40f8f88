"""The state of a process between trials: taken before a trial, compared and restored after it.

`state_parts` lists its parts. The worker decides whether it can be used again if a part cannot be
restored.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from typing import Any

from workbench.cluster.workers import state_parts
from workbench.cluster.workers.state_parts import ENVIRONMENT, UNKNOWN, Part

_PARTS: tuple[Part, ...] = (*state_parts.PYTHON, *state_parts.TORCH, *state_parts.OTHERS)
_PASSES = 3
"""How often to write what differs: settings of torch change each other."""


@dataclass(frozen=True)
class Difference:
    """How a process differed from an earlier state.

    Attributes:
        changed: The names of the parts that had changed.
        lost: A sentence on each part that could not be restored.
    """

    changed: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)


class ProcessState:
    """The state of this process at one moment.

    Example:
        >>> import os
        >>> before = ProcessState()
        >>> os.environ["LEFT_BEHIND"] = "1"
        >>> before.restore().changed
        ['environment variables']
        >>> "LEFT_BEHIND" in os.environ
        False
    """

    def __init__(self) -> None:
        """Read the state as it is now."""
        self._values = {part.name: _read(part) for part in _PARTS if part.is_there}

    def changed_variables(self) -> set[str]:
        """Return the names of the environment variables that have another value now, or none."""
        before, now = self._values[ENVIRONMENT.name].items(), os.environ.items()
        return {name for name, _ in before ^ now}

    def restore(self) -> Difference:
        """Restore this state, and return what had changed.

        A part whose library was loaded meanwhile gets the value that it has after an import.
        """
        differing = self._differing()
        changed = [part.name for part, _ in differing]
        for _ in range(_PASSES if differing else 0):
            for part, before in differing:
                with contextlib.suppress(
                    Exception
                ):  # whatever a library raises: the worker is replaced
                    part.write(before)
            differing = self._differing()
            if not differing:
                break
        return Difference(changed, [f"{part.name} cannot be restored" for part, _ in differing])

    def _differing(self) -> list[tuple[Part, Any]]:
        return [(part, before) for part, before in self._pairs() if _read(part) != before]

    def _pairs(self) -> list[tuple[Part, Any]]:
        """Return the parts that can be compared, with their values in this state."""
        pairs = [
            (part, self._values.get(part.name, part.default)) for part in _PARTS if part.is_there
        ]
        return [(part, before) for part, before in pairs if before is not UNKNOWN]


def _read(part: Part) -> Any:
    try:
        return part.read()
    except Exception:  # torch refuses to return settings that contradict each other
        return UNKNOWN
