"""The actions that are possible with a run or a trial, each with its dialog and its snippets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workbench.experiment.actions import ACTIONS, Action, Argument, Standing, snippet_of
from workbench.experiment.automl import is_automl
from workbench.experiment.changes import values_of
from workbench.experiment.space import Choice, Domain, describe, describe_condition
from workbench.foundation.events import RunState
from workbench.foundation.formatting import format_duration, format_value
from workbench.runs.bundles.bundle_formats import formats_of
from workbench.runs.descriptions import has_nothing_left
from workbench.store.database import RunRow
from workbench.store.history import History, Trial
from workbench.store.history.history import can_be_chosen, chosen_by_hand
from workbench.views.live_feed.action_messages import Offer, OfferField

_RESULT = "Writes the result as one ONNX graph, with a script that predicts without the workbench."


def offers_of_run(row: RunRow, history: History, *, is_advice: bool) -> tuple[Offer, ...]:
    """Return what can be done with a run in its present state."""
    best = history.best()
    standing = Standing(
        state=row.state,
        is_advice=is_advice,
        is_replay=history.replay_of is not None,
        num_trials=len(history.trials),
        has_best=best is not None,
        has_nothing_left=has_nothing_left(history),
        pinned=row.pinned,
        archived=row.archived,
        has_choice=chosen_by_hand(history) is not None,
        trains_model=_trains_models(history),
        is_silent=row.silent_s is not None,
    )
    labels = {"name": row.name, "notes": row.notes}
    return tuple(
        _offer(action, row.run_id, history, None if best is None else best.params, labels=labels)
        for action in ACTIONS.values()
        if action.for_run is not None and action.for_run(standing)
    )


def offers_of_trial(
    run_id: str, state: RunState, history: History, trial: Trial
) -> tuple[Offer, ...]:
    """Return what can be done with a trial in its present state."""
    standing = Standing(
        state=state,
        trial_state=trial.state,
        trains_model=_trains_models(history),
        has_choice=chosen_by_hand(history) is trial,
        can_be_chosen=can_be_chosen(history, trial) and not is_automl(history.experiment),
    )
    return tuple(
        _offer(action, run_id, history, trial.params, trial=trial.number)
        for action in ACTIONS.values()
        if action.for_trial is not None and action.for_trial(standing)
    )


def _trains_models(history: History) -> bool:
    """Return whether a trial leaves a model that stands for itself.

    One of AutoML is that of one fold.
    """
    return history.experiment.trains_model and not is_automl(history.experiment)


def _offer(
    action: Action,
    run_id: str,
    history: History,
    params: Mapping[str, Any] | None,
    *,
    trial: int | None = None,
    labels: Mapping[str, str] | None = None,
) -> Offer:
    given: dict[str, Any] = {}
    for argument in action.arguments:
        if argument.name == "trial" and trial is not None:
            given["trial"] = trial
        elif argument.kind == "settings" and argument.label:
            given[argument.name] = dict(params or {})
        elif argument.begins_with and labels is not None:
            given[argument.name] = labels[argument.begins_with]
        elif argument.suggested is not None:
            given[argument.name] = argument.suggested
    for argument in action.arguments:
        if argument.default is not None:
            given[argument.name] = argument.default(run_id, given)
    is_result = action.kind == "export" and trial is None and is_automl(history.experiment)
    shown = [one for one in action.fields if not (is_result and one.name in ("trial", "format"))]
    formats = formats_of(history.experiment, of_trial=trial is not None)
    fields = tuple(
        field
        for one in shown
        if formats or one.name != "format"
        for field in _fields(one, given, history, formats)
    )
    filled = {field.part_of or field.name for field in fields}
    examples = {one.name: one.example for one in action.arguments if one.example is not None}
    snippet = snippet_of(
        action.kind, run_id, given if any(given.values()) else {**given, **examples}
    )
    return Offer(
        kind=action.kind,
        label=(
            action.label_for_trial if trial is not None and action.label_for_trial else action.label
        ),
        explanation=_RESULT if is_result else action.explanation,
        done_by=action.done_by,
        command=snippet.command,
        python=snippet.python,
        dangerous=action.is_dangerous,
        asks_first=action.asks_first,
        frees_space=action.frees_space,
        arguments={name: value for name, value in given.items() if name not in filled},
        fields=fields,
    )


def _fields(
    argument: Argument, given: Mapping[str, Any], history: History, formats: Sequence[str]
) -> list[OfferField]:
    value = given.get(argument.name)
    if argument.kind == "settings":
        names: dict[str, None] = dict.fromkeys([*history.experiment.search.root, *(value or {})])
        domains = history.experiment.search.root
        return [
            OfferField(
                name=name,
                part_of=argument.name,
                label=name,
                value=_written((value or {}).get(name)),
                hint=_allowed(domains.get(name)),
                choices=_choices(domains.get(name)),
            )
            for name in names
        ]
    hints = [_now(argument, history)] if argument.setting and argument.suggested is None else []
    return [
        OfferField(
            name=argument.name,
            label=argument.label,
            hint="; ".join(filter(None, [*hints, argument.hint])),
            choices=tuple(formats) if argument.name == "format" else argument.choices,
            value=_written(value),
            fallback=None if argument.default is None else _written(value),
            is_text=argument.kind in ("text", "folder", "new_file"),
            is_list=argument.kind == "texts",
            is_long=argument.is_long,
            may_be_empty=argument.may_be_empty,
        )
    ]


def _allowed(domain: Domain | None) -> str:
    """Return which values a parameter may have, in words."""
    if domain is None:
        return ""
    words = [] if isinstance(domain, Choice) else [describe(domain)]
    words += ["log scale"] if getattr(domain, "log", False) else []
    words += [f"only when {describe_condition(domain.when)}"] if domain.when else []
    return ", ".join(words)


def _choices(domain: Domain | None) -> tuple[str, ...]:
    return tuple(map(_written, domain.choices)) if isinstance(domain, Choice) else ()


def _now(argument: Argument, history: History) -> str:
    """Return what is in force of the setting that an argument changes."""
    value = values_of(history.in_force).get(argument.setting or "")
    if value is None:
        return "no limit now"
    return f"now {format_duration(value) if argument.kind == 'duration' else value}"


def _written(value: Any) -> str:
    """Write a value as it stands in a field, where it reads back as it."""
    if value is None:
        return ""
    return repr(value) if isinstance(value, float) else format_value(value)
