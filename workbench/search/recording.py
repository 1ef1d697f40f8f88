"""The proposals of another run, in their order.

What a replay proposes instead of asking a sampler.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable

from workbench.foundation.events import TrialProposed


class Recording:
    """What is left of the proposals of a run."""

    def __init__(self, proposals: Iterable[TrialProposed]) -> None:
        """Begin before the first of `proposals`, which are in the order of their trials."""
        self._left = deque(proposals)
        self.num_trainings = Counter(
            proposal.configuration for proposal in self._left if proposal.resumes is None
        )
        """How many trainings each configuration has in all."""

    @property
    def is_over(self) -> bool:
        """Whether nothing is left."""
        return not self._left

    @property
    def repeats(self) -> bool:
        """Whether the next proposal trains a configuration again."""
        return bool(self._left) and (self._left[0].repeat > 0 or self._left[0].resumes is not None)

    def next(self, running: Collection[int], *, repeats_only: bool) -> TrialProposed | None:
        """Return the next proposal, or None if it must wait.

        Args:
            running: Trials that have not ended: a part of a training waits for the one that it
                continues.
            repeats_only: Whether the budget has no room for a new configuration.
        """
        if not self._left or (repeats_only and not self.repeats):
            return None
        if _source(self._left[0]) in running:
            return None
        return self._left.popleft()

    def needed(self) -> set[int]:
        """Return the trials from whose checkpoints others will continue."""
        found = map(_source, self._left)
        return {trial for trial in found if trial is not None}


def _source(proposal: TrialProposed) -> int | None:
    """Return the trial from whose checkpoint a trial continues."""
    return proposal.resumes if proposal.segment is None else proposal.segment.continues
