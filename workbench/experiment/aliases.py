"""Aliases of settings from other tools, resolved to the names used here.

Only common names are known; a setting given under both names is refused, never guessed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from workbench.experiment.plan import DIMENSIONS
from workbench.foundation.errors import ExperimentError, WorkbenchError

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
_IN_PLAN = {
    short: ("plan", dimension.name) for dimension in DIMENSIONS for short in dimension.short_names
}
"""Short names, which are no aliases outside of the section `plan`."""
WrittenError = TypeVar("WrittenError", bound=WorkbenchError)
_PRUNER = "curves"
"""What stops a model early where its epochs are the fidelity."""
_LOADER_WORKERS = "num_workers"
"""In torch the processes that load data; Ray calls the processes that train by the same name."""


def resolve_aliases(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an experiment with every alias moved to its section and name.

    Parameters that a `train` function or a command reads keep the names that these know.

    Args:
        fields: The fields of an experiment as the user wrote them.

    Raises:
        ExperimentError: If an alias and its name are both given, or a name means different things
            elsewhere.
    """
    resolved = dict(fields)
    search = resolved.get("search")
    trains_model = resolved.get("train") is None and resolved.get("command") is None
    for place in (None, "training", *(("search",) if trains_model else ())):
        _refuse_loader_workers(resolved, place)
    if trains_model and isinstance(search, Mapping):
        resolved["search"] = {
            _searched_name(name, search): _rename_parents(domain, search)
            for name, domain in search.items()
        }
    for place in (None, "training", "plan"):
        section = resolved if place is None else resolved.get(place)
        if isinstance(section, Mapping):
            known = ALIASES | _IN_PLAN if place == "plan" else ALIASES
            for alias in [name for name in section if name in known]:
                _move(resolved, place, alias, *known[alias])
    fidelity = resolved.get("fidelity")
    if trains_model and isinstance(fidelity, Mapping):
        resolved["fidelity"] = {
            _searched_name(name, fidelity): levels for name, levels in fidelity.items()
        }
    makes_own_steps = resolved.get("command") is None and resolved.get("data") is not None
    return _resolve_fidelity(resolved, trains_model=trains_model or makes_own_steps)


def written_names(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the keys that `resolve_aliases` moves, by the dotted path at which it puts their
    values.

    Args:
        fields: The fields of an experiment as the user wrote them.
    """
    found: dict[str, str] = {}
    for place in (None, "training", "plan"):
        section = fields if place is None else fields.get(place)
        known = ALIASES | _IN_PLAN if place == "plan" else ALIASES
        for alias in (
            [name for name in section if name in known] if isinstance(section, Mapping) else []
        ):
            found[".".join(known[alias])] = alias if place is None else f"{place}.{alias}"
    searched = search if isinstance(search := fields.get("search"), Mapping) else {}
    for name in searched:
        if name in ALIASES and ALIASES[name][1] not in searched:
            found[f"search.{ALIASES[name][1]}"] = f"search.{name}"
    for name in fidelity if isinstance(fidelity := fields.get("fidelity"), Mapping) else ():
        ours = ALIASES[name][1] if name in ALIASES else name
        if not {name, ours} & set(searched):
            found[f"search.{ours}"] = f"fidelity.{name}"
    return found


def as_written(error: WrittenError, names: Mapping[str, str]) -> WrittenError:
    """Return an error about the key that the user wrote.

    Args:
        error: An error about the path at which the value was put.
        names: What `written_names` returned.
    """
    for path, name in names.items():
        if error.field == path or (error.field or "").startswith(f"{path}."):
            return error.about(name + (error.field or "")[len(path) :])
    return error


def _resolve_fidelity(fields: Mapping[str, Any], *, trains_model: bool) -> dict[str, Any]:
    """Return fields in which full trainings have the last value of the fidelity.

    Epochs of a model are what `early_stop` counts, and mean just that.
    """
    resolved, written = dict(fields), fields.get("fidelity")
    if not isinstance(written, Mapping) or len(written) != 1:
        return resolved
    ((name, values),) = written.items()
    if name == "epochs" and trains_model:
        del resolved["fidelity"]
        return resolved | _as_early_stopping(resolved, values)
    search = resolved.get("search") or {}
    if (
        isinstance(search, Mapping)
        and name not in search
        and isinstance(values, list | tuple)
        and values
    ):
        resolved["search"] = {**search, name: values[-1]}
    return resolved


def _as_early_stopping(fields: Mapping[str, Any], values: Any) -> dict[str, Any]:
    """Return the settings by which a model trains for the most epochs, and may stop after the
    fewest.
    """
    numbers = values if isinstance(values, list | tuple) and len(values) == 2 else (0, 0)
    if not all(isinstance(each, int) for each in numbers) or not 0 < numbers[0] < numbers[1]:
        raise ExperimentError(
            "a model is stopped at any epoch from the first of two to the second",
            field="fidelity.epochs",
            allowed="two whole numbers, the smaller one first, such as [1, 50]",
        )
    least, most = numbers
    training, stop = fields.get("training") or {}, fields.get("early_stop") or {}
    stop = {"pruner": stop} if isinstance(stop, str) else stop
    for section, name, written in (("training", "epochs", training), ("early_stop", "grace", stop)):
        if isinstance(written, Mapping) and name in written:
            raise _given_twice("fidelity.epochs", f"{section}.{name}")
    if "epochs" in (fields.get("search") or {}):
        raise _given_twice("fidelity.epochs", "search.epochs")
    return {
        "training": {**training, "epochs": most},
        "early_stop": {"pruner": _PRUNER, **stop, "grace": least},
    }


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
            next_step=(
                "Write plan.loaders for those that load data, or plan.workers for those that train."
            ),
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
            _searched_name(name, search) if name in search else name: value
            for name, value in when.items()
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
        f"means the same as {name}, which is given too",
        field=alias,
        next_step="Remove one of the two.",
    )
