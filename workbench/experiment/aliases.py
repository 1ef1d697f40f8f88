"""Aliases of settings from other tools, resolved to the names used here.

Only common names are known; a setting given under both names is refused, never guessed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from workbench.errors import ExperimentError
from workbench.plan import DIMENSIONS

ALIASES: dict[str, tuple[str, str]] = {
    **{alias: ("plan", dimension.name) for dimension in DIMENSIONS for alias in dimension.aliases},
    "batch_size": ("training", "global_batch"),
    "train_batch_size": ("training", "global_batch"),
    "learning_rate": ("training", "lr"),
    "num_train_epochs": ("training", "epochs"),
    "max_epochs": ("training", "epochs"),
    "max_grad_norm": ("training", "clip_norm"),
    "gradient_clip_val": ("training", "clip_norm"),
    "lr_scheduler_type": ("training", "schedule"),
}
_IN_PLAN = {short: ("plan", dimension.name) for dimension in DIMENSIONS for short in dimension.short_names}
"""Short names, which are no aliases outside of the section `plan`."""
_LOADER_WORKERS = "num_workers"
"""In torch the processes that load data; Ray calls the processes that train by the same name."""


def resolve_aliases(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an experiment with every alias moved to its section and name.

    Parameters that a `train` function or a command reads keep the names that these know.

    Args:
        fields: The fields of an experiment as the user wrote them.

    Raises:
        ExperimentError: If an alias and its name are both given, or a name means different things elsewhere.
    """
    resolved = dict(fields)
    search = resolved.get("search")
    trains_model = resolved.get("train") is None and resolved.get("command") is None
    for place in (None, "training", *(("search",) if trains_model else ())):
        _refuse_loader_workers(resolved, place)
    if trains_model and isinstance(search, Mapping):
        resolved["search"] = {
            _searched_name(name, search): _rename_parents(domain, search) for name, domain in search.items()
        }
    for place in (None, "training", "plan"):
        section = resolved if place is None else resolved.get(place)
        if isinstance(section, Mapping):
            known = ALIASES | _IN_PLAN if place == "plan" else ALIASES
            for alias in [name for name in section if name in known]:
                _move(resolved, place, alias, *known[alias])
    return resolved


def resolve_parameters(given: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Return what is given by parameter with aliases of those that are searched replaced.

    Args:
        given: Values or domains by name.
        known: The names of the searched parameters.

    Raises:
        ExperimentError: If a parameter is given under two names.
    """
    resolved: dict[str, Any] = {}
    for name, value in given.items():
        target = ALIASES[name][1] if name not in known and name in ALIASES else name
        if target not in known:
            target = name
        elif target != name and target in given:
            raise _given_twice(name, target)
        resolved[target] = value
    return resolved


def _refuse_loader_workers(fields: Mapping[str, Any], place: str | None) -> None:
    section = fields if place is None else fields.get(place)
    given = section if isinstance(section, Mapping) else {}
    if _LOADER_WORKERS in given:
        raise ExperimentError(
            "means processes that load data in some libraries, and processes that train in others",
            field=_LOADER_WORKERS if place is None else f"{place}.{_LOADER_WORKERS}",
            next_step="Write plan.loaders for those that load data, or plan.workers for those that train.",
        )


def _searched_name(name: str, search: Mapping[str, Any]) -> str:
    if name not in ALIASES:
        return name
    target = ALIASES[name][1]
    if target in search:
        raise _given_twice(f"search.{name}", f"search.{target}")
    return target


def _rename_parents(domain: Any, search: Mapping[str, Any]) -> Any:
    when = domain.get("when") if isinstance(domain, Mapping) else None
    if not isinstance(when, Mapping):
        return domain
    return {
        **domain,
        "when": {
            _searched_name(name, search) if name in search else name: value for name, value in when.items()
        },
    }


def _move(resolved: dict[str, Any], place: str | None, alias: str, section: str, name: str) -> None:
    """Move one aliased setting to a section and name, in place."""
    if place is None:
        value = resolved.pop(alias)
    else:
        remaining = dict(resolved[place])
        value = remaining.pop(alias)
        resolved[place] = remaining
    target = dict(resolved.get(section) or {})
    if name in target:
        raise _given_twice(f"{place}.{alias}" if place else alias, f"{section}.{name}")
    resolved[section] = target | {name: value}


def _given_twice(alias: str, name: str) -> ExperimentError:
    return ExperimentError(
        f"means the same as {name}, which is given too", field=alias, next_step="Remove one of the two."
    )
