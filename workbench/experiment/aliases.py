"""Aliases: what other tools call our settings.

Only common names are known. A setting that is given under both names is an error, because we would
have to guess which one counts.
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
"""Short names, which are aliases only in the section `plan`."""
WrittenError = TypeVar("WrittenError", bound=WorkbenchError)
_PLACES_OF_ALIASES = (None, "training", "plan")
"""The sections in which an alias may be written. None: outside of all sections."""
_PRUNER = "curves"
"""The pruner that stops a model early if its epochs are the fidelity."""
_LOADER_WORKERS = "num_workers"
"""In torch, processes that load data. Ray uses the same name for processes that train."""


def resolve_aliases(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an experiment with every alias moved to its section and name.

    A `train` function or a command keeps its own names for its parameters.

    Args:
        fields: The fields of an experiment as the user wrote them.

    Raises:
        ExperimentError: If an alias and its name are both given, or if the alias is ambiguous.
    """
    resolved = dict(fields)
    search = resolved.get("search")
    trains_model = resolved.get("train") is None and resolved.get("command") is None
    _refuse_loader_workers(resolved, None)
    _refuse_loader_workers(resolved, "training")
    if trains_model:
        _refuse_loader_workers(resolved, "search")
        if isinstance(search, Mapping):
            resolved["search"] = {
                _searched_name(name, search): _rename_parents(domain, search)
                for name, domain in search.items()
            }
    for place in _PLACES_OF_ALIASES:
        aliases = _aliases_in(place)
        for alias in [name for name in _section_of(resolved, place) if name in aliases]:
            _move(resolved, place, alias, *aliases[alias])
    fidelity = resolved.get("fidelity")
    if trains_model and isinstance(fidelity, Mapping):
        resolved["fidelity"] = {
            _searched_name(name, fidelity): levels for name, levels in fidelity.items()
        }
    makes_own_steps = resolved.get("command") is None and resolved.get("data") is not None
    # Last, because it looks for training.epochs, which the user may have written as an alias.
    return _resolve_fidelity(resolved, trains_model=trains_model or makes_own_steps)


def written_names(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the keys that `resolve_aliases` moves, by the dotted path to which it moves them.

    Args:
        fields: The fields of an experiment as the user wrote them.
    """
    written: dict[str, str] = {}
    for place in _PLACES_OF_ALIASES:
        aliases = _aliases_in(place)
        for alias in _section_of(fields, place):
            if alias in aliases:
                written[".".join(aliases[alias])] = _dotted(place, alias)
    searched = _section_of(fields, "search")
    for name in searched:
        if _our_name(name) not in searched:
            written[f"search.{_our_name(name)}"] = f"search.{name}"
    for name in _section_of(fields, "fidelity"):
        if not {name, _our_name(name)} & set(searched):
            written[f"search.{_our_name(name)}"] = f"fidelity.{name}"
    return written


def _section_of(fields: Mapping[str, Any], place: str | None) -> Mapping[str, Any]:
    """Return a section, or all fields for None. Empty for anything that is not a mapping."""
    section: Any = fields
    if place is not None:
        section = fields.get(place)
    if isinstance(section, Mapping):
        return section
    return {}


def _aliases_in(place: str | None) -> Mapping[str, tuple[str, str]]:
    if place == "plan":
        return ALIASES | _IN_PLAN
    return ALIASES


def _our_name(name: str) -> str:
    if name in ALIASES:
        return ALIASES[name][1]
    return name


def _dotted(place: str | None, name: str) -> str:
    if place is None:
        return name
    return f"{place}.{name}"


def as_written(error: WrittenError, names: Mapping[str, str]) -> WrittenError:
    """Return the same error about the key that the user wrote.

    Args:
        error: An error about the path to which the value was moved.
        names: What `written_names` returned.
    """
    for path, name in names.items():
        if error.field == path or (error.field or "").startswith(f"{path}."):
            return error.about(name + (error.field or "")[len(path) :])
    return error


def _resolve_fidelity(fields: Mapping[str, Any], *, trains_model: bool) -> dict[str, Any]:
    """Return fields in which the fidelity is expressed by other settings.

    Epochs of a model become settings of `early_stop`, which counts epochs. Any other parameter gets
    the last level as its value, for full trainings.
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
    """Return settings that train for the most epochs, and allow an early stop after the fewest."""
    if not _are_levels_of_epochs(values):
        raise ExperimentError(
            "it needs the fewest and the most epochs of a training",
            field="fidelity.epochs",
            allowed="two whole numbers, the smaller one first, such as [1, 50]",
        )
    fewest, most = values
    training, stop = fields.get("training") or {}, fields.get("early_stop") or {}
    if isinstance(stop, str):
        stop = {"pruner": stop}
    for section, name, written in (("training", "epochs", training), ("early_stop", "grace", stop)):
        if isinstance(written, Mapping) and name in written:
            raise _given_twice("fidelity.epochs", f"{section}.{name}")
    if "epochs" in (fields.get("search") or {}):
        raise _given_twice("fidelity.epochs", "search.epochs")
    return {
        "training": {**training, "epochs": most},
        "early_stop": {"pruner": _PRUNER, **stop, "grace": fewest},
    }


def _are_levels_of_epochs(values: Any) -> bool:
    if not isinstance(values, list | tuple) or len(values) != 2:
        return False
    fewest, most = values
    return isinstance(fewest, int) and isinstance(most, int) and 0 < fewest < most


def resolve_parameters(given: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Return values by parameter, with aliases of searched parameters resolved.

    Args:
        given: Values or domains by name. A name may be an alias.
        known: The names of the searched parameters.

    Raises:
        ExperimentError: If a parameter is given under two names.
    """
    resolved: dict[str, Any] = {}
    for name, value in given.items():
        target = name
        if name not in known and _our_name(name) in known:
            target = _our_name(name)
            if target in given:
                raise _given_twice(name, target)
        resolved[target] = value
    return resolved


def _refuse_loader_workers(fields: Mapping[str, Any], place: str | None) -> None:
    if _LOADER_WORKERS in _section_of(fields, place):
        raise ExperimentError(
            "some libraries mean processes that load data by this, others processes that train",
            field=_dotted(place, _LOADER_WORKERS),
            next_step="Write plan.loaders to load data, or plan.workers to train.",
        )


def _searched_name(name: str, search: Mapping[str, Any]) -> str:
    if name not in ALIASES:
        return name
    target = ALIASES[name][1]
    if target in search:
        raise _given_twice(f"search.{name}", f"search.{target}")
    return target


def _rename_parents(domain: Any, search: Mapping[str, Any]) -> Any:
    if not isinstance(domain, Mapping) or not isinstance(domain.get("when"), Mapping):
        return domain
    when: dict[str, Any] = {}
    for parent, wanted in domain["when"].items():
        name = parent
        if parent in search:
            name = _searched_name(parent, search)
        when[name] = wanted
    return {**domain, "when": when}


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
        raise _given_twice(_dotted(place, alias), f"{section}.{name}")
    resolved[section] = target | {name: value}


def _given_twice(alias: str, name: str) -> ExperimentError:
    return ExperimentError(
        f"it means the same as {name}, which is also given",
        field=alias,
        next_step="Remove one of the two.",
    )
