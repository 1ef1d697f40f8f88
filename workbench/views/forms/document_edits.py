"""What follows from an edit of an experiment's document.

Changes elsewhere in it, made in the same step.

The edit itself, undo and validation are left to the draft.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from workbench.experiment import Component
from workbench.experiment.alert_rules import RULES
from workbench.foundation.errors import WorkbenchError

Document = dict[str, Any]


def follow_task(document: Document, touched: Collection[str]) -> list[str]:
    """Replace objectives that the data of another task does not have, in place.

    Only a metric that comes with the workbench is replaced, and only where the data was changed and
    the objectives were not.

    Args:
        document: The experiment as written.
        touched: The paths that were changed.

    Returns:
        What was replaced, as sentences.
    """
    from workbench.experiment.metric_declarations import TASKS, goal_of
    from workbench.models import METRICS

    parts = {path.partition(".")[0] for path in touched}
    objectives, task = document.get("objectives"), task_of_document(document)
    if (
        task is None
        or "data" not in parts
        or "objectives" in parts
        or not isinstance(objectives, list)
    ):
        return []
    measured = reported_of_document(document)
    free = [f"val_{name}" for name in TASKS[task].metrics if f"val_{name}" in measured] or [
        "val_loss"
    ]
    free = [metric for metric in free if metric not in map(_metric_of, objectives)]
    notes: list[str] = []
    for index, objective in enumerate(objectives):
        metric = _metric_of(objective)
        if metric in measured or metric.removeprefix("val_") not in METRICS or not free:
            continue
        new = free.pop(0)
        goal = goal_of(new)
        kept = {key: value for key, value in objective.items() if key == "value"}
        objectives[index] = {"metric": new, "goal": goal, **kept}
        notes.append(
            f"The objective is now to {goal} {new}: {metric} is not measured for this data."
        )
    return notes


def _metric_of(objective: Any) -> str:
    if not isinstance(objective, Mapping) or not isinstance(objective.get("metric"), str):
        return ""
    return objective["metric"]


def task_of_document(document: Mapping[str, Any]) -> Any:
    """Return the task of the data of a document, which may be invalid, or None if it is unknown."""
    from workbench.data import task_of

    try:
        return task_of(Component.model_validate(document.get("data")))
    except (WorkbenchError, ValueError):
        return None


def reported_of_document(document: Mapping[str, Any]) -> list[str]:
    """Return the metrics that the training loop reports for a document, which may be invalid."""
    from workbench.sweeps.measured_metrics import reported_metrics

    named: list[str] = []
    written = document.get("metrics")
    for item in written if isinstance(written, list | tuple) else ():
        try:
            named.append(Component.model_validate(item).short_name)
        except (WorkbenchError, ValueError):
            continue
    is_federated = document.get("federated") is not None
    return reported_metrics(named, task_of_document(document), is_federated=is_federated)


def add_condition(document: Document, touched: Collection[str]) -> None:
    """Let a momentum that is searched from now on exist only with sgd, in place.

    Args:
        document: The experiment as written.
        touched: The paths that were changed.
    """
    search = document.get("search")
    if "search.momentum" not in touched or not isinstance(search, dict):
        return
    momentum = search.get("momentum")
    optimizer = search.get("optimizer")
    choices = None
    if isinstance(optimizer, dict):
        choices = optimizer.get("choices")
    if not isinstance(momentum, dict) or "when" in momentum or not isinstance(choices, list):
        return
    with_momentum = [name for name in choices if isinstance(name, str) and name.lower() == "sgd"]
    if with_momentum and len(with_momentum) < len(choices):
        condition: Any = with_momentum
        if len(with_momentum) == 1:
            condition = with_momentum[0]
        momentum["when"] = {"optimizer": condition}


def drop_other_kinds(document: dict[str, Any], path: str) -> None:
    """Drop settings of an alert rule that its new kind does not have, in place.

    Args:
        document: The experiment as written.
        path: The path that was changed.
    """
    match path.split("."):
        case ["alerts", place, "on"] if isinstance(document["alerts"], list):
            rule = document["alerts"][int(place)]
            kind = RULES.get(rule["on"]) if isinstance(rule["on"], str) else None
            for key in rule.keys() - (kind.model_fields.keys() if kind else rule.keys()):
                del rule[key]


def drop_empty(document: dict[str, Any], removals: Collection[str]) -> None:
    """Remove a section that may be absent, but not empty, once all of it was removed."""
    if any(path.startswith("advise.") for path in removals) and not document.get("advise", True):
        del document["advise"]


def with_renamed_parent(domain: Any, before: str, after: str) -> Any:
    """Return a searched parameter, as written, with a new name of its parent in its condition."""
    when = domain.get("when") if isinstance(domain, dict) else None
    if not isinstance(when, dict) or before not in when:
        return domain
    renamed = {after if key == before else key: value for key, value in when.items()}
    return {**domain, "when": renamed}


def rename_in_advice(document: dict[str, Any], before: str, after: str) -> None:
    """Let the parameters that the advisor may choose follow a new name, in place."""
    advise = document.get("advise")
    if isinstance(advise, dict):
        advise |= {key: after for key in ("batch", "lr") if advise.get(key) == before}


def places(path: str) -> list[tuple[int, str]]:
    """Return a sort key of paths that orders list indices by number."""
    return [(int(key) if key.isdecimal() and len(key) < 10 else -1, key) for key in path.split(".")]
