"""Writes the reference of experiment files from the types that check them."""

from __future__ import annotations

import json
import types
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from workbench.data import DATASETS
from workbench.experiment import Experiment
from workbench.experiment.alert_rules import RULES
from workbench.experiment.aliases import ALIASES
from workbench.experiment.domain import Choice, Fixed, Float, Int
from workbench.experiment.pruners import PRUNERS
from workbench.experiment.samplers import SAMPLERS
from workbench.foundation.formatting import compact_duration
from workbench.models import LOSSES, METRICS, MODELS
from workbench.store.alerts.sinks import SINKS

_SECTIONS = (
    "objectives",
    "constraints",
    "training",
    "plan",
    "federated",
    "budget",
    "sampler",
    "early_stop",
    "resources",
    "advise",
)
_NAMES = {
    float: "number",
    int: "whole number",
    str: "text",
    bool: "true or false",
    type(None): "null",
}


def pages() -> dict[str, str]:
    """Return the generated parts of the page, by their marks."""
    return {
        "TOP": _table(Experiment.model_fields),
        "SECTIONS": "\n\n".join(_section(name) for name in _SECTIONS),
        "DOMAINS": "\n\n".join(
            f"### {kind.__name__}\n\n{_first_line(kind)}\n\n{_table(kind.model_fields)}"
            for kind in (Float, Int, Choice, Fixed)
        ),
        "RULES": "\n\n".join(
            f"### `on: {name}`\n\n{_first_line(kind)}\n\n{_table(kind.model_fields, ('on',))}"
            for name, kind in RULES.items()
        ),
        "SINKS": "\n\n".join(
            f"### `kind: {name}`\n\n{_first_line(kind)}\n\n{_table(kind.model_fields, ('kind',))}"
            for name, kind in ((name, SINKS.load(name)) for name in SINKS.names())
        ),
        "SAMPLERS": _registered(SAMPLERS),
        "PRUNERS": _registered(PRUNERS),
        "MODELS": _registered(MODELS),
        "DATASETS": _registered(DATASETS),
        "LOSSES": ", ".join(f"`{name}`" for name in LOSSES.names()),
        "METRICS": ", ".join(f"`{name}`" for name in METRICS.names()),
        "ALIASES": _rows(
            ("Name", "Means"),
            ((f"`{name}`", f"`{'.'.join(meant)}`") for name, meant in ALIASES.items()),
        ),
    }


def _section(name: str) -> str:
    kind = _model_in(Experiment.model_fields[name].annotation)
    assert kind is not None
    return f"## `{name}`\n\n{_first_line(kind)}\n\n{_table(kind.model_fields)}"


def _registered(registry: Any) -> str:
    parts = []
    for name in registry.names():
        if name == "one_of":  # its options are those of the others
            continue
        kind = registry.load(name, field="name")
        table = f"\n\n{_table(kind.model_fields)}" if kind.model_fields else ""
        parts.append(f"### `{name}`\n\n{_first_line(kind)}{table}")
    return "\n\n".join(parts)


def _table(fields: Mapping[str, FieldInfo], without: Iterable[str] = ()) -> str:
    rows = (
        (f"`{name}`", _written(field), _default(field), _meaning(field))
        for name, field in fields.items()
        if name not in without
    )
    return _rows(("Field", "Value", "Default", "Meaning"), rows)


def _rows(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def _meaning(field: FieldInfo) -> str:
    kind = _model_in(field.annotation)
    return field.description or (_first_line(kind) if kind else "")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default_factory is not None or isinstance(field.default, BaseModel | tuple):
        return ""
    value = field.default
    if value is PydanticUndefined or value is None:
        return ""
    if _unit(field) == "s":
        value = compact_duration(value)
    return f"`{json.dumps(value) if isinstance(value, bool) else value}`"


def _unit(field: FieldInfo) -> str | None:
    extra = field.json_schema_extra
    return str(extra["unit"]) if isinstance(extra, dict) and "unit" in extra else None


def _written(field: FieldInfo) -> str:
    """Return in a few words what a field takes."""
    known = {"s": "duration", "bytes": "size"}
    if (unit := _unit(field)) in known:
        return known[unit]
    return f"{_kind(field.annotation)} ({unit})" if unit else _kind(field.annotation)


def _kind(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kind(inner[0])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in inner)
    if origin in (Union, types.UnionType):
        kinds = [_kind(each) for each in inner if each is not type(None)]
        return " or ".join(dict.fromkeys(kinds))
    if origin in (tuple, list):
        return f"list of {_kind(inner[0])}"
    if origin is dict:
        return "mapping"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "a name, or a mapping" if annotation.__name__ == "Component" else "mapping"
    return _NAMES.get(annotation, "value")


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for each in get_args(annotation) if (found := _model_in(each))), None)


def _first_line(kind: type) -> str:
    return (kind.__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")
