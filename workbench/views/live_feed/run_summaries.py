"""Summaries of runs: entries of the list of runs, and the header of one run."""

from __future__ import annotations

import itertools
from typing import Any

from workbench.advisor.advice_card import card_of
from workbench.experiment.actions import write_for_panel
from workbench.experiment.automl import is_automl
from workbench.experiment.budget_units import describe_money
from workbench.experiment.changes import CHANGEABLE, values_of
from workbench.experiment.goals import better_of
from workbench.foundation.events import FINISHED_RUN_STATES
from workbench.foundation.formatting import format_count, format_duration, format_value
from workbench.foundation.python_values import plain
from workbench.runs.descriptions import format_numbers
from workbench.runs.plots.prepare import model_figures
from workbench.runs.plots.series import AXES, Axis
from workbench.runs.progress import TimeLeft, driven_until_unix_s, elapsed_s, progress_of
from workbench.runs.summary import summarize
from workbench.store.database import RunRow, Store
from workbench.store.history import History, Trial, cost_of, failure_groups, verdicts_of
from workbench.store.history.certainty import certainty_lines
from workbench.store.history.history import chosen_by_hand, describe_choice
from workbench.views.live_feed.available_actions import offer_to_confirm, offers_of_run
from workbench.views.live_feed.chosen_model import candidates, chosen_model
from workbench.views.live_feed.protocol import (
    Best,
    Chosen,
    CodeDecision,
    Extreme,
    Failure,
    Front,
    ObjectiveSummary,
    RunDetail,
    RunItem,
    Summary,
)
from workbench.views.live_feed.run_tail import RunTail

ADVICE_FIGURES = (
    "throughput_by_batch",
    "step_time",
    "scaling",
    "memory",
    "time_to_target",
    "noise",
    "rates",
    "candidates",
    "predictions",
)
_STATES = ("running", "waiting", "complete", "pruned", "stopped", "failed")
_EVENTS_OF_A_SUMMARY = (
    "driver_started",
    "run_state_changed",
    "settings_changed",
    "sharing_measured",
    "energy_metered",
    "noted",
    "replay_planned",
    "trial_proposed",
    "trial_started",
    "attempt_ended",
    "trial_ended",
    "advice_requested",
    "model_chosen",
)
"""Everything that changes progress, cost and results. A run may have millions of reports."""
_MAX_SUMMARIES = 5_000
_MAX_PARAMS_PER_RUN = 40
_NUM_SPARK_STEPS = 24
_MAX_FAILURES = 20
_MAX_TRIALS_PER_FAILURE = 12
_MAX_MESSAGE_CHARS = 500


class Summaries:
    """Entries of the list of runs, for runs that are not followed.

    The events of a run are read once, and again after changes.
    """

    def __init__(self, store: Store) -> None:
        """Summarise the runs of `store`."""
        self._store = store
        self._items: dict[str, tuple[int, RunItem]] = {}  # with the last event that was read

    def item(self, row: RunRow) -> RunItem:
        """Return the entry of a run as of its last `refresh`, without reading its events."""
        if row.run_id not in self._items:
            return _unread_item(row)
        return with_labels(self._items[row.run_id][1], row)

    def is_stale(self, row: RunRow) -> bool:
        """Return whether a run has new events since it was summarised."""
        return row.run_id not in self._items or self._items[row.run_id][0] != row.last_seq

    def refresh(self, row: RunRow) -> None:
        """Read the events of a run, except its reports."""
        history, is_advice = History(self._store.experiment(row.run_id)), False
        for stored in self._store.events(row.run_id, types=_EVENTS_OF_A_SUMMARY):
            is_advice = is_advice or stored.event.type == "advice_requested"
            history.apply(stored.event)
        while len(self._items) >= _MAX_SUMMARIES:
            del self._items[next(iter(self._items))]
        self._items[row.run_id] = row.last_seq, summary_of(row, history, is_advice=is_advice)


def with_labels(item: RunItem, row: RunRow) -> RunItem:
    """Return an entry of the list of runs with what users have written about the run."""
    return item.model_copy(update=_labels_of(row))


def summary_of(row: RunRow, history: History, *, is_advice: bool) -> RunItem:
    """Return the entry of a run in the list of runs."""
    num_candidates = None
    if is_automl(history.experiment):
        num_candidates = history.num_configurations()
    best, objective = history.best(), history.objectives[0]
    spark = () if best is None else _best_so_far(history)
    value = None
    if best is not None and len(history.objectives) == 1:
        value = history.mean_values(best)[objective.metric]
    price = history.experiment.budget.price
    cost = cost_of(history, driven_until_unix_s(row, history))
    return _unread_item(row).model_copy(
        update={
            "metric": objective.metric,
            "value": value,
            "params": _first_params(None if value is None else best),
            "elapsed_s": elapsed_s(row, history),
            "cost": cost,
            "cost_text": describe_money(cost, price) if price and cost is not None else None,
            "kind": "advice" if is_advice else "sweep",
            "progress": _progress(row, history, is_advice=is_advice),
            "best": _describe_best(history),
            "num_trials": len(history.trials),
            "num_candidates": num_candidates,
            "spark": spark,
            "goal": objective.goal,
        }
    )


def _first_params(best: Trial | None) -> dict[str, Any]:
    """Return the configuration of the best trial, as far as a table can show it."""
    return {} if best is None else dict(itertools.islice(best.params.items(), _MAX_PARAMS_PER_RUN))


def run_detail(tail: RunTail) -> RunDetail:
    """Return the state and progress of a run.

    Args:
        tail: The run, locked by the caller.
    """
    row, history, series = tail.row, tail.data.history, tail.data.series
    reading = history.reading
    in_force = values_of(history.in_force)
    ended = row.state in FINISHED_RUN_STATES
    left = None
    if not ended and row.state != "lost":
        left = _time_left(row, history, driven_until_unix_s(row, history), is_advice=tail.is_advice)
    by_hand = chosen_by_hand(history)
    counts = {state: len(trials) for state in _STATES if (trials := history.in_state(state))}
    return RunDetail(
        run_id=row.run_id,
        name=row.name,
        kind="advice" if tail.is_advice else "sweep",
        state=row.state,
        reason=history.reason,
        message=_message(tail),
        created_unix_s=row.created_unix_s,
        ended_unix_s=history.ended_unix_s,
        elapsed_s=elapsed_s(row, history),
        left_s=left and left.seconds,
        left_low_s=left and left.low_s,
        left_high_s=left and left.high_s,
        progress=_progress(row, history, is_advice=tail.is_advice),
        owner=_owner(row),
        counts=counts,
        num_configurations=history.num_different_configurations(),
        chosen=chosen_model(history),
        candidates=candidates(history),
        best=_best(history, ended=ended),
        front=_front(history),
        no_best=None if tail.is_advice or history.result else history.why_no_best(),
        summary=_summary(row, history) if not tail.is_advice else None,
        chosen_by_hand=by_hand
        and Chosen(trial=by_hand.number, words=describe_choice(history) or ""),
        decisions=_decisions(tail) if ended else (),
        failures=_failures(history),
        verdicts=tuple(
            verdict.describe(write_for_panel) for verdict in verdicts_of(history, row.run_id)
        ),
        objectives=tuple(
            ObjectiveSummary(metric=item.metric, goal=item.goal, target=item.target)
            for item in history.objectives
        ),
        metrics=tuple(dict.fromkeys([item.metric for item in history.objectives] + series.metrics)),
        params=tuple(history.experiment.search.root),
        axes=_axes(history),
        has_throughput=_has_throughput(history),
        settings={path: in_force[path] for path in CHANGEABLE},
        experiment_hash=row.experiment_hash,
        tags=row.tags,
        notes=row.notes,
        pinned=row.pinned,
        archived=row.archived,
        figures=_figures(tail),
        card=card_of(tail.data.advice.advice) if tail.data.advice.advice else None,
        latest=_latest(tail),
        loading=tail.loading,
        reading=reading and reading.describe(),
        offers=offers_of_run(row, history, is_advice=tail.is_advice),
    )


def _decisions(tail: RunTail) -> tuple[CodeDecision, ...]:
    judged = tail.data.history.judged_versions
    return tuple(
        CodeDecision(
            version=item.candidate,
            baseline=item.baseline,
            decision=item.decision,
            words=item.words,
            effect=item.effect,
            low=item.low,
            high=item.high,
            verdict=judged[item.candidate].verdict if item.candidate in judged else None,
            by=judged[item.candidate].by if item.candidate in judged else None,
        )
        for item in tail.decisions()
    )


def _axes(history: History) -> tuple[Axis, ...]:
    """Return what curves can be drawn over. Functions and programs may know no epochs."""
    has_epochs = history.experiment.trains_model or any(
        trial.last_epoch is not None for trial in history.trials.values()
    )
    return tuple(axis for axis in AXES if axis != "epoch" or has_epochs)


def _has_throughput(history: History) -> bool:
    """Return whether trials report samples per second. Functions and programs may not."""
    return history.experiment.trains_model or any(
        trial.samples_per_s is not None for trial in history.trials.values()
    )


def _latest(tail: RunTail) -> str | None:
    """Return the last line of the log of a run that has nothing else to show yet."""
    is_empty = not tail.data.history.trials and not tail.data.advice.advice
    if not is_empty or tail.row.state != "running":
        return None
    # The header already shows that it is running.
    return next((line.text for line in reversed(tail.log) if line.text != "run running"), None)


def _summary(row: RunRow, history: History) -> Summary | None:
    if history.reading is not None:
        return None
    summary = summarize(row.run_id, row.state, history, elapsed_s(row, history))
    if summary is None:
        return None
    step = summary.next_step
    return Summary(
        sentences=summary.sentences,
        next_lead=step and step.lead,
        next_kind=step and step.verb,
        next_trial=step.arguments.get("trial") if step and step.verb == "show" else None,
        confirm=offer_to_confirm(row.run_id, summary.num_to_confirm),
    )


def _time_left(row: RunRow, history: History, now_s: float, *, is_advice: bool) -> TimeLeft | None:
    """Return the time that is left. Advice has another limit than the sweep that it is for."""
    if not is_advice:
        return progress_of(history, now_s).left
    if history.advice_budget_s is None:
        return None
    left_s = max(0.0, history.advice_budget_s - elapsed_s(row, history))
    # Measurements may show earlier that more of them would change nothing.
    return TimeLeft(left_s, 0.0, left_s)


def _progress(row: RunRow, history: History, *, is_advice: bool) -> float | None:
    """Return how far a run is, from 0 to 1, or None if nothing limits it.

    The progress of advice is the share of its time that has passed. A run that failed has made none
    if no trial reported anything before it failed.
    """
    if row.state == "complete":
        return 1.0
    if is_advice:
        if history.advice_budget_s is None:
            return None
        return min(1.0, elapsed_s(row, history) / history.advice_budget_s)
    if row.state == "failed" and not any(
        trial.last_step for trial in history.trials.values() if trial.state != "failed"
    ):
        return 0.0
    return progress_of(history, driven_until_unix_s(row, history)).part


def _best(history: History, *, ended: bool) -> Best | None:
    """Return the best trial, or None if there is none or several objectives leave a front."""
    best = history.best() if len(history.objectives) == 1 else None
    if best is None:
        return None
    return Best(
        trial=best.number,
        values=plain(history.mean_values(best)),
        params=best.params,
        num_repeats=len(history.repeats_of(best)),
        certainty=tuple(certainty_lines(history)) if ended else (),
    )


def _failures(history: History) -> tuple[Failure, ...]:
    """Return why trials failed, by cause, as far as a page can show it."""
    return tuple(
        Failure(
            reason=group.reason,
            message=group.message[:_MAX_MESSAGE_CHARS],
            place=group.place and group.place[-_MAX_MESSAGE_CHARS:],
            num_trials=len(group.trials),
            trials=tuple(trial.number for trial in group.trials[:_MAX_TRIALS_PER_FAILURE]),
        )
        for group in failure_groups(history)[:_MAX_FAILURES]
    )


def _figures(tail: RunTail) -> tuple[str, ...]:
    """Return the figures that Python draws. The front end draws the others of a search itself."""
    history = tail.data.history
    trials = history.trials.values()
    figures = model_figures(history)
    if any(trial.segment is not None for trial in trials):
        figures = (*figures, "schedule")
    if trials:
        figures = (*figures, "timeline")
    if tail.data.advice.exists:
        return (*figures, *ADVICE_FIGURES)
    if len({trial.plan.workers for trial in trials} - {None}) > 1:
        return (*figures, "scaling")
    return figures


def _front(history: History) -> Front | None:
    if len(history.objectives) == 1:
        return None
    extremes = tuple(
        Extreme(metric=metric, value=trial.values[metric], trial=trial.number)
        for metric, trial in history.extremes().items()
    )
    return Front(num_trials=len(history.front()), extremes=extremes)


def _describe_best(history: History) -> str | None:
    """Return the best value, or with several objectives how many trials are on the front."""
    if (chosen := chosen_model(history)) is not None:
        return f"test {chosen.metric} {format_value(chosen.value)}"
    best, metric = history.best(), history.objectives[0].metric
    if best is None:
        return None
    if len(history.objectives) > 1:
        return f"{format_count(len(history.front()), 'trial')} on the front"
    return f"{metric} {format_value(history.mean_values(best)[metric])}"


def _unread_item(row: RunRow) -> RunItem:
    """Return the entry of a run whose events were not read yet."""
    return RunItem(
        run_id=row.run_id,
        name=row.name,
        state=row.state,
        kind="sweep",
        created_unix_s=row.created_unix_s,
        owner=_owner(row),
        progress=None,
        best=None,
        num_trials=None,
    ).model_copy(update=_labels_of(row))


def _labels_of(row: RunRow) -> dict[str, Any]:
    """Return the fields of an entry that may change without an event."""
    return {
        "state": row.state,
        "name": row.name,
        "tags": row.tags,
        "pinned": row.pinned,
        "archived": row.archived,
        "has_notes": bool(row.notes),
    }


def _best_so_far(history: History) -> tuple[float, ...]:
    """Return the best value of the first objective after each trial that ended, thinned out."""
    metric, goal = history.objectives[0].metric, history.objectives[0].goal
    ended = sorted(history.ranked(), key=lambda trial: trial.last_event_unix_s)
    values = (trial.values[metric] for trial in ended)
    best = list(itertools.accumulate(values, better_of(goal)))
    last = len(best) - 1
    indices = {round(step * last / _NUM_SPARK_STEPS) for step in range(_NUM_SPARK_STEPS + 1)}
    return tuple(float(f"{best[index]:.4g}") for index in sorted(indices))


def _message(tail: RunTail) -> str | None:
    history = tail.data.history
    if tail.row.silent_s is not None:
        return f"no sign of its driver for {format_duration(int(tail.row.silent_s))}"
    if tail.row.state != "lost":
        return history.message
    running = [trial.number for trial in history.in_state("running", "waiting")]
    words = ["its driver no longer runs"]
    if running:
        words.append(f"{format_numbers(running)} had not finished")
    if not tail.is_advice:
        words.append("resume it to continue")
    return "; ".join(words)


def _owner(row: RunRow) -> str | None:
    """Return the machine on which a run is driven."""
    return row.owner and f"on {row.owner.host}"
