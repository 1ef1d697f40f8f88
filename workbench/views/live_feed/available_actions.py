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
        is_imported=history.is_imported,
        is_replay=history.replay_of is not None,
        num_trials=len(history.trials),
        has_best=best is not None,
        has_nothing_left=has_nothing_left(history),
        pinned=row.pinned,
        archived=row.archived,
        has_choice=chosen_by_hand(history) is not None,
        trains_model=_trains_models(history),
        has_versions=bool(history.experiment.search.code_versions),
        is_silent=row.silent_s is not None,
    )
    labels = {"name": row.name, "notes": row.notes}
    params = None
    if best is not None:
        params = best.params
    return tuple(
        _offer(action, row.run_id, history, params, labels=labels)
        for action in ACTIONS.values()
        if action.for_run is not None and action.for_run(standing)
    )


def offers_of_trial(
    run_id: str, state: RunState, history: History, trial: Trial
) -> tuple[Offer, ...]:
    """Return what can be done with a trial in its present state."""
    standing = Standing(
        state=state,
        is_imported=history.is_imported,
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


def offer_to_confirm(run_id: str, num_best: int) -> Offer | None:
    """Return what trains the best configurations again, at once, or None for 0 of them."""
    if not num_best:
        return None
    arguments = {"confirm": num_best}
    snippet = snippet_of("extend", run_id, arguments)
    return Offer(
        kind="extend",
        label=f"Confirm the best {num_best}",
        done_by=ACTIONS["extend"].done_by,
        command=snippet.command,
        python=snippet.python,
        arguments=arguments,
    )


def _trains_models(history: History) -> bool:
    """Return whether a trial leaves a usable model. A trial of AutoML is only one fold."""
    return history.experiment.trains_model and not is_automl(history.experiment)


def _given(
    action: Action,
    run_id: str,
    params: Mapping[str, Any] | None,
    trial: int | None,
    labels: Mapping[str, str] | None,
) -> dict[str, Any]:
    """Return the arguments that a dialog starts with."""
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
    return given


def _offer(
    action: Action,
    run_id: str,
    history: History,
    params: Mapping[str, Any] | None,
    *,
    trial: int | None = None,
    labels: Mapping[str, str] | None = None,
) -> Offer:
    given = _given(action, run_id, params, trial, labels)
    is_result = action.kind == "export" and trial is None and is_automl(history.experiment)
    formats = formats_of(history.experiment, of_trial=trial is not None)
    hidden: set[str] = set()
    if is_result:  # the result of an AutoML run has neither
        hidden = {"trial", "format"}
    elif not formats:
        hidden = {"format"}
    fields = tuple(
        field
        for argument in action.fields
        if argument.name not in hidden
        for field in _fields(argument, given, history, formats)
    )
    filled = {field.part_of or field.name for field in fields}
    examples: dict[str, Any] = {}
    if not any(given.values()):
        examples = {
            item.name: item.example for item in action.arguments if item.example is not None
        }
    snippet = snippet_of(action.kind, run_id, {**given, **examples})
    label = action.label
    if trial is not None and action.label_for_trial:
        label = action.label_for_trial
    explanation = action.explanation
    if is_result:
        explanation = _RESULT
    return Offer(
        kind=action.kind,
        label=label,
        explanation=explanation,
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
    hints = [argument.hint]
    if argument.setting and argument.suggested is None:
        hints = [*_now(argument, history), *hints]
    choices = argument.choices
    if argument.name == "format":
        choices = tuple(formats)
    fallback = None
    if argument.default is not None:
        fallback = _written(value)
    return [
        OfferField(
            name=argument.name,
            label=argument.label,
            hint="; ".join(filter(None, hints)),
            choices=choices,
            value=_written(value),
            fallback=fallback,
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
    words = []
    if not isinstance(domain, Choice):
        words.append(describe(domain))
    if getattr(domain, "log", False):
        words.append("log scale")
    if domain.when:
        words.append(f"only when {describe_condition(domain.when)}")
    return ", ".join(words)


def _choices(domain: Domain | None) -> tuple[str, ...]:
    if not isinstance(domain, Choice):
        return ()
    return tuple(map(_written, domain.choices))


def _now(argument: Argument, history: History) -> list[str]:
    """Return what is in force of the setting that an argument changes."""
    setting = argument.setting or ""
    value = values_of(history.in_force).get(setting)
    if value is None:
        return ["no limit now"] if setting.startswith("budget.") else []
    if argument.kind == "duration":
        value = format_duration(value)
    return [f"now {value}"]


def _written(value: Any) -> str:
    """Write a value for a field, so that it reads back as the same value."""
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(value)
    return format_value(value)
