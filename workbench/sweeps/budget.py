"""Decide when a run ends and in which state, from its history and its current limits.

The limit on trials does not end a run at once: it only stops new configurations from being
proposed. An error that every trial meets ends the run at once. If every trial failed, or none
started, the run has failed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any, Literal

from workbench.experiment.automl import concluding_s, is_automl
from workbench.experiment.budget_units import (
    format_energy,
    parse_amount,
    parse_energy_wh,
    parse_money,
    parse_price,
)
from workbench.experiment.changes import (
    CONFIRM,
    DURATIONS,
    ENERGY,
    MONEY,
    describe_amount,
    values_of,
)
from workbench.experiment.goals import sign_of
from workbench.experiment.populations import num_parts
from workbench.experiment.trainings import tries_one_configuration
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import RunState, RunStateChanged
from workbench.foundation.formatting import (
    format_count,
    format_duration,
    format_number,
    parse_duration_s,
)
from workbench.store.history import History, cost_of, only_failures, systematic_failure
from workbench.store.history.failures import began_nothing
from workbench.store.history.history import Spent, money_of

LIMITS = ("budget.trials", "budget.time", "budget.gpu_time", ENERGY, MONEY, "budget.plateau")
NOTHING_TO_PROPOSE = "the sampler has nothing left to propose"
"""Why a run ends after its sampler has called Optuna's `Study.stop`."""
_BEGAN_NOTHING = "before any trial started"
_STATES: Mapping[str | None, RunState] = {
    "person": "stopped",
    "failures": "failed",
    "error": "failed",
}
"""The state of a run that ends, by the reason. Every other reason completes it."""


def ending_now(history: History, now_unix_s: float) -> RunStateChanged | None:
    """Return how the run ends now, or None if it continues.

    Args:
        history: The run so far.
        now_unix_s: The time now, in seconds since 1970.
    """
    if (message := systematic_failure(history)) is not None:
        return RunStateChanged(state="failed", reason="failures", message=message)
    limit = reason_to_end(history, now_unix_s)
    if limit is None:
        return None
    reason, message = limit
    return RunStateChanged(state="complete", reason=reason, message=message)


def begun_ending(history: History) -> RunStateChanged:
    """Return how a run ends if its last driver was killed while ending it."""
    state = _STATES.get(history.reason, "complete")
    return RunStateChanged(state=state, reason=history.reason, message=history.message)


def honest_ending(ending: RunStateChanged, history: History) -> RunStateChanged:
    """Return `ending`, or a failure if the run would be complete without any result."""
    if ending.state != "complete":
        return ending
    if (failed := only_failures(history)) is not None:
        return RunStateChanged(state="failed", reason="failures", message=failed)
    if not began_nothing(history, ending.reason) or is_automl(history.experiment):
        return ending  # AutoML fits a model itself if no trial was ready in time
    return ending.model_copy(
        update={"state": "failed", "message": f"{ending.message} {_BEGAN_NOTHING}"}
    )


def reason_to_end(history: History, now_unix_s: float) -> tuple[str, str] | None:
    """Return the limit that ends the run at once and a sentence about it, or None.

    Args:
        history: The run so far.
        now_unix_s: The time now, in seconds since 1970.
    """
    budget = history.in_force.budget
    # A replay goes as far as its original went.
    if history.target_reached() and history.replay_of is None:
        best = history.best()
        assert best is not None
        return "target", f"trial {best.number} reached the target"
    tried_s = history.limited_s(now_unix_s) + concluding_s(history.in_force)
    if budget.time is not None and tried_s >= budget.time:
        return "time", f"the time budget of {format_duration(budget.time)} is used up"
    if budget.gpu_time is not None and history.gpu_s(now_unix_s) >= budget.gpu_time:
        return (
            "gpu_time",
            f"the budget of {format_duration(budget.gpu_time)} of GPU time is used up",
        )
    if budget.energy is not None and (history.energy_wh or 0.0) >= budget.energy:
        return "energy", f"the energy budget of {format_energy(budget.energy)} is used up"
    if budget.money is not None and (cost_of(history, now_unix_s) or 0.0) >= budget.money:
        return (
            "money",
            f"the budget of {describe_amount(MONEY, budget.money, budget.price)} is used up",
        )
    if (bought := _bought_too_little(history, now_unix_s)) is not None:
        return "gain", bought
    if budget.plateau is not None:
        without = history.num_configurations_without_improvement()
        if without >= budget.plateau:
            return "plateau", f"no better configuration among the last {without}"
    return None


def _bought_too_little(history: History, now_unix_s: float) -> str | None:
    """Return a sentence if the last amount of `budget.gain` has bought too little, or None.

    The run goes on until it has used that amount since its start, a result was there before it, and
    a trial has ended since then.
    """
    budget = history.in_force.budget
    if budget.gain is None:
        return None
    amount = parse_amount(budget.gain.per, budget.price)
    now = history.spent_at(now_unix_s)
    from_there = _used(amount.kind, now, budget.price) - amount.number
    used = [_used(amount.kind, spent, budget.price) for spent in history.spent]
    num_before = bisect_right(used, from_there)
    if (
        from_there < _used(amount.kind, history.spent_before, budget.price)
        or num_before in (0, len(used))
        or now.best is None
        or (earlier := history.spent[num_before - 1].best) is None
    ):
        return None
    objective = history.objectives[0]
    improvement = sign_of(objective.goal) * (now.best - earlier)
    if improvement >= budget.gain.at_least:
        return None
    return (
        f"the last {budget.gain.per} improved {objective.metric} by"
        f" {format_number(max(0.0, improvement))}, less than {format_number(budget.gain.at_least)}"
    )


def _used(kind: Literal["time", "energy", "money"], spent: Spent, price: str | None) -> float:
    if kind == "time":
        return spent.active_s
    if kind == "energy":
        return spent.energy_wh
    assert price is not None
    return money_of(parse_price(price), spent.active_s, spent.gpu_s)


def has_room(history: History, num_promised: int = 0) -> bool:
    """Return whether the limit on trials allows another configuration.

    Args:
        history: The run so far.
        num_promised: Configurations that will be proposed before it.
    """
    allowed = history.in_force.max_configurations()
    return allowed is None or history.num_configurations() + num_promised < allowed


def _nothing_left(history: History) -> ExperimentError:
    """Return the error about a run that has tried all that its sampler proposes."""
    if (history.message or "").startswith(NOTHING_TO_PROPOSE):
        return ExperimentError(
            NOTHING_TO_PROPOSE,
            next_step="Start a run with another sampler, or with another space for this one.",
        )
    if (
        needed := num_parts(history.experiment.sampler, history.experiment.training.epochs)
    ) is None:
        return ExperimentError(
            "every combination of its space has been tried",
            next_step="Start a run with more values in `search`, or with `repeats`.",
        )
    longer = "sampler.options.length"
    if history.experiment.trains_model:
        longer = "training.epochs"
    return ExperimentError(
        f"its population was trained to its end, with {format_count(needed, 'trial')}",
        next_step=(
            f"Start a run that trains longer ({longer}) or has more members "
            "(sampler.options.population)."
        ),
    )


def extended(
    history: History, more: Mapping[str, Any], now_unix_s: float, *, has_new_code: bool = False
) -> dict[str, Any]:
    """Return the limits of a run that is to be extended.

    Args:
        history: The run so far.
        more: What to add to each limit, by dotted path. Trials are counted in configurations. Time
            is in seconds, energy in watt-hours, and money in the currency of the price, or they are
            text with a unit. `CONFIRM` is not added to: it is the new number of configurations to
            train again.
        now_unix_s: The time now, in seconds since 1970.
        has_new_code: Whether its code changes as well, so that a grid can be tried again.

    Returns:
        The new values of these limits. If a limit was lowered below what is used up, the extension
        starts from what is used up.

    Raises:
        ExperimentError: If the run has no such limit, nothing is added, or it would still end at
            once.
    """
    more = _in_numbers(more, history.in_force.budget.price)
    _check_extensible(history, more, has_new_code=has_new_code)
    extended_limits: dict[str, Any] = {}
    in_force = values_of(history.in_force)
    used = {
        "budget.trials": history.num_configurations(),
        "budget.time": history.limited_s(now_unix_s) + concluding_s(history.in_force),
        "budget.gpu_time": history.gpu_s(now_unix_s),
        ENERGY: history.energy_wh or 0.0,
        MONEY: cost_of(history, now_unix_s) or 0.0,
        "budget.plateau": history.num_configurations_without_improvement(),
    }
    for path, added in more.items():
        if path == CONFIRM:
            extended_limits[path] = added
            continue
        if path not in LIMITS or not isinstance(added, int | float) or not added > 0:
            raise ExperimentError(
                f"cannot be extended by {added!r}", field=path, allowed="more than 0"
            )
        if in_force[path] is None:
            raise ExperimentError("the run has no such limit to extend", field=path)
        extended_limits[path] = max(in_force[path], used[path]) + added
    is_unfinished = any(
        not trial.finished or trial.interrupted for trial in history.trials.values()
    )
    others = [path for path in LIMITS if path not in more and in_force[path] is not None]
    for path in others:
        has_trainings = is_unfinished or CONFIRM in more
        if used[path] >= in_force[path] and not (path == "budget.trials" and has_trainings):
            limit = describe_amount(path, in_force[path], history.in_force.budget.price)
            raise ExperimentError(
                f"the run would end at once: its {path} of {limit} is used up",
                field=path,
                next_step=f"Also give {_option_of(path)}.",
            )
    if history.target_reached():
        raise ExperimentError(
            "the run would end at once: its target is reached",
            next_step=(
                "Start another run with another target that learns from this one: --warm-start."
            ),
        )
    return extended_limits


def _in_numbers(more: Mapping[str, Any], price: str | None) -> dict[str, Any]:
    """Return what is added to limits without units: seconds, watt-hours and money."""
    amounts = dict(more)
    for path in DURATIONS & amounts.keys():
        amounts[path] = parse_duration_s(amounts[path])
    if ENERGY in amounts:
        amounts[ENERGY] = parse_energy_wh(amounts[ENERGY])
    if MONEY in amounts:
        amounts[MONEY] = parse_money(amounts[MONEY], price)
    return amounts


def _check_extensible(history: History, more: Mapping[str, Any], *, has_new_code: bool) -> None:
    """Raise an error if the run has nothing else to try."""
    if history.replay_of is not None:
        raise ExperimentError(
            f"it replays {history.replay_of} and has no other configuration to try"
        )
    if history.reason == "exhausted" and not (has_new_code or CONFIRM in more):
        raise _nothing_left(history)
    if not more:
        options = ", ".join(map(_option_of, LIMITS))
        raise ExperimentError(
            "there is nothing to extend the run by",
            next_step=f"Give at least one of {options}, --confirm, --search and --param.",
        )
    if "budget.trials" in more and tries_one_configuration(history.in_force):
        raise ExperimentError(
            "nothing is searched, so another trial would repeat the first one",
            field="budget.trials",
            next_step="Start a run that searches something, or that has repeats.",
        )


def _option_of(path: str) -> str:
    """Return the option of `extend` for a limit, such as --more-gpu-time."""
    return f"--more-{path.rpartition('.')[2].replace('_', '-')}"
