"""Where a fit in rounds is, so that another process can continue it after a kill."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Growth:
    """The completed rounds of a fit.

    Attributes:
        num_done: Rounds that an earlier attempt has completed.
        state: What it stored after the last one of them: tensors and plain values. None if it
            stored nothing.
    """

    num_done: int = 0
    state: Mapping[str, Any] | None = None
    _take: Callable[[], dict[str, Any]] | None = field(default=None, repr=False)

    def keep(self, take: Callable[[], dict[str, Any]]) -> None:
        """Say how the state after the newest round is taken. A fit calls this once.

        Args:
            take: Returns tensors and plain values. They may change later, so they must be stored at
                once.
        """
        self._take = take

    def taken(self) -> dict[str, Any] | None:
        """Return the state after the newest round, or None if the fit cannot be continued."""
        return None if self._take is None else self._take()
