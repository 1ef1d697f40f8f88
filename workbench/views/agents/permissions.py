"""What an agent may do: permissions and limits that a person gave when the server was started."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, get_args

from workbench.experiment import Experiment
from workbench.foundation.errors import ArgumentError
from workbench.foundation.formatting import format_count, format_duration

Permission = Literal["propose", "control", "code"]
PERMISSIONS: tuple[Permission, ...] = get_args(Permission)
MEANINGS: dict[Permission, str] = {
    "propose": "enqueue and clone trials, and spend the error of a session on decisions",
    "control": "start, stop and extend runs of the experiments that the server was started with",
    "code": "train code that the agent has written",
}
_MAX_AGENT_CHARS = 40


@dataclass(frozen=True)
class Limits:
    """What an agent may spend in total, as a person set it.

    Attributes:
        trials: Trainings that it may start, or None for any number.
        time_s: Seconds in which it may act, or None.
        money: Money that its runs may spend, in the unit of their prices, or None.
    """

    trials: int | None = None
    time_s: float | None = None
    money: float | None = None


class Gate:
    """Decides whether an agent may act, and counts what it has spent.

    Calls come in parallel. What a call will spend is reserved before it acts, so that two calls
    cannot both use what is left.
    """

    def __init__(
        self, permissions: Collection[Permission] = (), limits: Limits | None = None
    ) -> None:
        """Allow nothing but reading, unless more is given.

        Args:
            permissions: What the agent may do besides reading.
            limits: What it may spend.
        """
        self.permissions = frozenset(permissions)
        self.limits = limits or Limits()
        self._lock = threading.Lock()
        self._num_trials = 0
        self._money = 0.0
        self._until_s = None
        if self.limits.time_s is not None:
            self._until_s = time.monotonic() + self.limits.time_s

    def need(self, permission: Permission) -> None:
        """Check that the agent has a permission, and that its time is not over.

        Args:
            permission: What it is about to do.

        Raises:
            ArgumentError: If it may not.
        """
        if permission not in self.permissions:
            raise ArgumentError(
                f"this server does not allow an agent to {MEANINGS[permission]}",
                field=permission,
                allowed=", ".join(("read", *sorted(self.permissions))),
                next_step=(
                    "Ask the person who runs the server to start it with --allow"
                    f" {','.join(sorted({*self.permissions, permission}))}."
                ),
            )
        if self.left_s() == 0:
            raise ArgumentError(
                f"the time of {format_duration(self.limits.time_s or 0)} that the agent may act is"
                " over",
                field="time",
                next_step="Read the results, and tell the person what you found.",
            )

    def reserve_trials(self, count: int) -> None:
        """Count trainings that are about to start.

        Args:
            count: Their number. A negative number gives trainings back that did not start.

        Raises:
            ArgumentError: If that would exceed the limit. Nothing is counted then.
        """
        with self._lock:
            most = self.limits.trials
            if most is not None and self._num_trials + count > most:
                left = most - self._num_trials
                raise ArgumentError(
                    f"this needs {format_count(count, 'trial')}, and"
                    f" {format_count(left, 'trial')} of {most} are left",
                    field="trials",
                    allowed=f"at most {left}",
                    next_step="Ask for fewer trials, or decide with the results so far.",
                )
            self._num_trials += count

    def reserve(self, experiment: Experiment) -> Experiment:
        """Count the trainings and the money of a run, and limit its budget to what is left.

        Args:
            experiment: The experiment of the run.

        Returns:
            The experiment with a budget within the limits.

        Raises:
            ArgumentError: If it could exceed a limit. Nothing is counted then.
        """
        count = experiment.max_trainings()
        if self.limits.trials is not None and count is None:
            raise ArgumentError(
                "the agent's trials are limited, and this experiment has no limit on them",
                field="budget.trials",
                next_step="Set budget.trials.",
            )
        changed = experiment
        left_s = self.left_s()
        if left_s is not None:
            budget_s = min(left_s, experiment.budget.time or left_s)
            changed = changed.replace(budget={"time": budget_s})
        if self.limits.money is not None:
            changed = self._with_money(changed, self.limits.money)
        try:
            self.reserve_trials(count or 0)
        except ArgumentError:
            self._give_back(changed)
            raise
        return changed

    def check_money(self, experiment: Experiment) -> None:
        """Check that trials that are added to a run cannot spend money without a limit.

        Args:
            experiment: The experiment of the run.

        Raises:
            ArgumentError: If the agent's money is limited, and that of the run is not.
        """
        if self.limits.money is not None and experiment.budget.money is None:
            raise ArgumentError(
                "the agent's money is limited, and the money of this run is not",
                field="budget.money",
                next_step="Start a run of your own, or ask the person to limit the run.",
            )

    def release(self, experiment: Experiment) -> None:
        """Give back what was reserved for a run that could not start.

        Args:
            experiment: What `reserve` returned.
        """
        self.reserve_trials(-(experiment.max_trainings() or 0))
        self._give_back(experiment)

    def left_s(self) -> float | None:
        """Return how many seconds the agent may still act, or None without a limit."""
        if self._until_s is None:
            return None
        return max(0.0, self._until_s - time.monotonic())

    def left_trials(self) -> int | None:
        """Return how many trainings the agent may still start, or None without a limit."""
        with self._lock:
            return None if self.limits.trials is None else self.limits.trials - self._num_trials

    def _with_money(self, experiment: Experiment, most: float) -> Experiment:
        if experiment.budget.price is None:
            raise ArgumentError(
                "the agent's money is limited, and this experiment has no price",
                field="budget.price",
                next_step="A person has to add a price to the experiment.",
            )
        with self._lock:
            left = most - self._money
            wanted = min(left, experiment.budget.money or left)
            if wanted <= 0:
                raise ArgumentError("the agent's money is spent", field="money")
            self._money += wanted
        return experiment.replace(budget={"money": wanted})

    def _give_back(self, experiment: Experiment) -> None:
        if self.limits.money is not None:
            with self._lock:
                self._money -= experiment.budget.money or 0.0


def check_agent(name: str) -> str:
    """Return the name of an agent if it can be shown in events.

    Args:
        name: The name.

    Raises:
        ArgumentError: If it is empty, long, or contains characters that cannot be shown.
    """
    if not name.strip() or not name.isprintable() or len(name) > _MAX_AGENT_CHARS:
        raise ArgumentError(
            f"{name!a} cannot be the name of an agent",
            field="agent",
            allowed=f"up to {_MAX_AGENT_CHARS} printable characters",
        )
    return name
