"""Decide what follows if a trial runs out of memory: another way to compute its step, or its end.

If a model does not allow one way, the next one is tried. `planning.equivalent_plans` knows the
ways, and the coordinator starts the next attempt.
"""

from __future__ import annotations

from collections.abc import Collection

from workbench.experiment.plan import PartialPlan
from workbench.foundation.events import TrialEnded, TrialPlanned
from workbench.training.planning.equivalent_plans import WAYS, next_way

_MAX_REFUSAL = 200
_KEPT_WHOLE = (
    ". The micro batch stays the same, because the loss of a batch is not the mean of the losses of"
    " its parts"
)


class OtherWays:
    """The ways that one trial has tried and can still try.

    Attributes:
        plan: The plan of the last attempt that knew its plan.
    """

    def __init__(self, changeable: Collection[str], tried: Collection[PartialPlan]) -> None:
        """Start from what earlier coordinators tried.

        Args:
            changeable: The names in `WAYS` that may change.
            tried: The changes that were tried.
        """
        self.plan = PartialPlan()
        self._changeable, self._tried = changeable, list(tried)
        self._has_blocks, self._divides_batch = False, True
        self._undone, self._words = PartialPlan(), ""
        self._ran_out: TrialEnded | None = None
        """The last attempt that ran out of memory, until the change that followed it has worked."""

    def take(self, planned: TrialPlanned) -> None:
        """Learn from the plan of an attempt."""
        self.plan = PartialPlan.from_json(planned.plan)
        self._has_blocks = bool(planned.has_blocks)
        self._divides_batch = planned.divides_batch is not False

    def report(self) -> None:
        """Note that the attempt trains, so a later error is not caused by its changed plan."""
        self._ran_out = None

    def after(self, ended: TrialEnded) -> tuple[TrialEnded, PartialPlan | None]:
        """Return how an attempt ended, and how the plan of the next one changes, if there is one.

        Args:
            ended: How the worker, or its loss, ended the attempt.
        """
        before, refusal = self._ran_out, ""
        if ended.reason == "oom":
            self._ran_out, self._undone = ended, PartialPlan()
        elif (
            ended.reason == "error" and before is not None and "micro_batch" not in self._tried[-1]
        ):
            refusal = f". An attempt with {self._words} failed: "
            refusal += str(ended.message)[:_MAX_REFUSAL]
            self.plan |= self._undone
        else:
            return ended, None
        way = self._next_way(self._changeable)
        out = self._ran_out
        assert out is not None
        message = f"{str(out.message).rstrip('.')}{refusal}"
        if way is None:
            return (
                out.model_copy(
                    update={
                        "attempt": ended.attempt,
                        "message": message + self._describe_unchanged(),
                    }
                ),
                None,
            )
        self._words = _words(way, self.plan)
        changes = self._undone | way if refusal else way
        self._undone = self.plan.only([name for name, _ in way.values])
        self._tried.append(way)
        self.plan |= way
        message += f". It continues with {self._words}"
        return ended.model_copy(update={"message": message}), changes

    def _describe_unchanged(self) -> str:
        """Return what could have been tried if the experiment had left it open."""
        kept = [name for name in WAYS if name not in self._changeable and name in self.plan]
        possible = [name for name in kept if self._next_way([name])]
        words = "" if self._divides_batch else _KEPT_WHOLE
        return words + "".join(
            f". plan.{name} stays {self.plan.get(name)} because it is not auto" for name in possible
        )

    def _next_way(self, changeable: Collection[str]) -> PartialPlan | None:
        return next_way(
            self.plan,
            changeable=changeable,
            has_blocks=self._has_blocks,
            tried=self._tried,
            divides_batch=self._divides_batch,
        )


def _words(way: PartialPlan, before: PartialPlan) -> str:
    if way.micro_batch is not None:
        return f"micro batches of {way.micro_batch} instead of {before.micro_batch}"
    if "recompute" in way:
        return "blocks that are recomputed in the backward pass, which gives the same result"
    return (
        f"the strategy {way.get('strategy')} instead of {before.get('strategy')}, which gives the"
        " same result"
    )
