"""What a form shows of an experiment: its sections and fields, read off the types that check them.

Labels, help, ranges and choices come from the schemas of the sections, of the chosen model of the zoo and of
the chosen data set; nothing about a field is written here. What is wrong is left to the draft.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from workbench.errors import WorkbenchError
from workbench.experiment import Experiment
from workbench.experiment.alert_rules import RULES
from workbench.experiment.sections import (
    READ_BY,
    Budget,
    Constraint,
    EarlyStop,
    Objective,
    Plan,
    Resources,
    Sampler,
    Training,
    write_duration,
)

_SECTIONS: dict[str, type[BaseModel]] = {
    "training": Training, "plan": Plan, "budget": Budget, "early_stop": EarlyStop, "sampler": Sampler,
    "resources": Resources,
}  # fmt: skip
_LISTS: dict[str, type[BaseModel]] = {"objectives": Objective, "constraints": Constraint}
_FIRST_ALERT = "run_ended"
_SEARCHABLE = frozenset({"training", "plan", "model"})
_KINDS = {
    "integer": "whole", "number": "number", "string": "text", "boolean": "switch", "array": "names",
    "object": "mapping",
}  # fmt: skip

Document = Mapping[str, Any]
Fields = list[dict[str, Any]]


def sections_of(document: Document, own_names: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Return all that a form shows of an experiment, apart from its search space.

    Args:
        document: The experiment as its file says it; it may be wrong.
        own_names: What somebody has defined that could be a model, data or a loss.

    Returns:
        Sections with name, title, help and fields, as plain values.
    """
    own = list(own_names)
    return [
        _section("experiment", Experiment.__doc__, _top(document)),
        _section("model", _help(document, "model"), _part(document, "model", own)),
        _section("data", _help(document, "data"), _part(document, "data", own)),
        _section("loss", None, _part(document, "loss", own) + _metrics(document)),
        *(_list(document, name) for name in _LISTS),
        _alerts(document),
        *(_section(name, kind.__doc__, _fields(document, name, kind)) for name, kind in _SECTIONS.items()),
    ]


def models() -> list[dict[str, Any]]:
    """Return the models of the zoo, each with a name and a sentence about it."""
    from workbench.models import MODELS

    return _named(MODELS)


def datasets() -> list[dict[str, Any]]:
    """Return the named data sets, each with a name and a sentence about it."""
    from workbench.data import DATASETS

    return _named(DATASETS)


def fields_of_type(kind: type[BaseModel], written: Any, path: str, document: Document) -> Fields:
    """Return the fields of one type.

    Args:
        kind: A type of settings.
        written: What is written of it; something else than a mapping counts as nothing.
        path: The dotted path at which it is written.
        document: The experiment.
    """
    schema = _schema(kind)
    values = written if isinstance(written, Mapping) else {}
    return [
        _field(f"{path}.{name}", name, one, schema.get("$defs", {}), values, document)
        for name, one in schema.get("properties", {}).items()
    ]


@functools.cache
def _schema(kind: type[BaseModel]) -> dict[str, Any]:
    return kind.model_json_schema()


def _named(registry: Any) -> list[dict[str, Any]]:
    found = []
    for name in registry.names():
        try:
            found.append({"name": name, "help": _sentence(registry.load(name))})
        except WorkbenchError as error:  # what another package registered and does not have
            found.append({"name": name, "help": str(error)})
    return found


def _section(name: str, text: str | None, fields: Fields) -> dict[str, Any]:
    title = name.replace("_", " ").capitalize()
    return {"name": name, "title": title, "help": text and text.strip().splitlines()[0], "fields": fields}


def _top(document: Document) -> Fields:
    properties = _schema(Experiment)["properties"]
    return [
        _field(name, name, properties[name], {}, document, document) for name in ("name", "repeats", "seed")
    ]


def _fields(document: Document, name: str, kind: type[BaseModel]) -> Fields:
    written = document.get(name)
    if name == "sampler" and isinstance(written, str):
        written = {"name": written}
    fields = fields_of_type(kind, written, name, document)
    if name == "early_stop":
        pruner = written.get("pruner", "none") if isinstance(written, Mapping) else "none"
        for field in fields:
            readers = READ_BY.get(field["path"].rpartition(".")[2])
            field["applies"] = readers is None or pruner in readers or field["is_written"]
    return fields


def _list(document: Document, name: str) -> dict[str, Any]:
    """Return the section of a list: the fields of all its items, and what the next would begin as."""
    kind, written = _LISTS[name], document.get(name)
    items = written if isinstance(written, list | tuple) else ()
    reported = _reported(document)
    fields: Fields = []
    for index, item in enumerate(items):
        fields += fields_of_type(kind, item, f"{name}.{index}", document)
    for field in fields:
        if field["path"].endswith(".metric"):
            field["choices"] = reported
    taken = [item.get("metric") for item in items if isinstance(item, Mapping)]
    metric = next((one for one in reported if one not in taken), "")
    least = _schema(Experiment)["properties"][name].get("minItems", 0)
    return _section(name, kind.__doc__, fields) | {
        "list": {"num_items": len(items), "least": least, "next": _beginning(kind, metric)}
    }


def _alerts(document: Document) -> dict[str, Any]:
    """Return the section of the alerts: of which kind a rule is decides what else can be said of it."""
    written = document.get("alerts")
    items = written if isinstance(written, list | tuple) else ()
    fields: Fields = []
    for index, item in enumerate(items):
        named = item.get("on") if isinstance(item, Mapping) else None
        kind = RULES.get(named) if isinstance(named, str) else None
        found = fields_of_type(kind or RULES[_FIRST_ALERT], item, f"alerts.{index}", document)
        on = next(field for field in found if field["path"].endswith(".on"))
        on |= {"choices": list(RULES), "help": _sentence(kind) if kind else None}
        # What it is comes first; of one that nobody knows nothing else is known.
        fields += [on, *(field for field in found if field is not on and kind)]
    help_ = _schema(Experiment)["properties"]["alerts"]["description"]
    return _section("alerts", help_, fields) | {
        "list": {"num_items": len(items), "least": 0, "next": {"on": _FIRST_ALERT}}
    }


def _beginning(kind: type[BaseModel], metric: str) -> dict[str, Any]:
    """Return what an item begins as; what nobody but a person knows is left out, and is then asked for."""
    from workbench.sweeps.preflight import LOOP_METRICS

    is_loss = metric in LOOP_METRICS and "goal" in kind.model_fields
    return {"metric": metric, "goal": "minimize"} if is_loss else {"metric": metric}


def _part(document: Document, part: str, own_names: list[str]) -> Fields:
    """Return the choice of a model, data or a loss, and what can be chosen about it."""
    name, options = component(document.get(part))
    described = _schema(Experiment)["properties"][part]
    chosen = _plain_field(part, part, described, "text")
    chosen |= {
        "value": name,
        "is_written": name is not None,
        "choices": [*_registry(part).names(), *own_names],
    }
    kind = _options_type(part, name)
    return [chosen] if kind is None else [chosen, *fields_of_type(kind, options, part, document)]


def _metrics(document: Document) -> Fields:
    from workbench.models import METRICS

    field = _field("metrics", "metrics", _schema(Experiment)["properties"]["metrics"], {}, document, document)
    return [field | {"choices": METRICS.names()}]


def component(written: Any) -> tuple[str | None, Mapping[str, Any]]:
    """Return the name and the options of a part, as far as they are written."""
    if isinstance(written, str):
        return written, {}
    if not isinstance(written, Mapping):
        return None, {}
    name = written.get("name")
    return name if isinstance(name, str) else None, {key: written[key] for key in written if key != "name"}


def _help(document: Document, part: str) -> str | None:
    kind = _options_type(part, component(document.get(part))[0])
    return None if kind is None else _sentence(kind)


def _sentence(kind: Any) -> str:
    return (inspect.getdoc(kind) or "").partition("\n\n")[0].replace("\n", " ")


def _registry(part: str) -> Any:
    from workbench.data import DATASETS
    from workbench.models import LOSSES, MODELS

    return {"model": MODELS, "data": DATASETS, "loss": LOSSES}[part]


def _options_type(part: str, name: str | None) -> type[BaseModel] | None:
    """Return the type of what can be chosen about a part, where its name has one."""
    if name is None or part == "loss" or name not in _registry(part):
        return None
    try:
        kind = _registry(part).load(name)
    except WorkbenchError:
        return None
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _reported(document: Document) -> list[str]:
    """Return what the training loop reports, validation first; what a train function does is its own."""
    if document.get("train") is not None:
        return []
    from workbench.sweeps.preflight import reported_metrics

    written = document.get("metrics")
    names = [component(item)[0] for item in written] if isinstance(written, list | tuple) else []
    reported = reported_metrics([name for name in names if name is not None])
    return sorted(reported, key=lambda name: not name.startswith("val_"))


def _field(
    path: str, name: str, schema: Mapping[str, Any], definitions: Mapping[str, Any],
    values: Mapping[str, Any], document: Document,
) -> dict[str, Any]:  # fmt: skip
    """Return one field as a form shows it."""
    alternatives = [_followed(one, definitions) for one in schema.get("anyOf", [schema])]
    typed = [one for one in alternatives if one.get("type") != "null" and one.get("const") != "auto"]
    listed = [value for one in typed for value in one.get("enum", [one["const"]] if "const" in one else [])]
    main = next((one for one in typed if one.get("type") in ("integer", "number")), typed[0] if typed else {})
    unit = schema.get("unit")
    kind = {"s": "duration", "bytes": "size"}.get(unit or "") or _KINDS.get(str(main.get("type")), "mapping")
    if listed and len(typed) == 1:
        kind = "choice"
    field = _plain_field(path, name, schema, kind)
    value = values.get(name)
    default = schema.get("default")
    if kind == "duration":
        value, default = write_duration(value), write_duration(default)
    section, _, parameter = path.partition(".")
    searched = document.get("search")
    return field | {
        "low": main.get("minimum", main.get("exclusiveMinimum")),
        "high": main.get("maximum", main.get("exclusiveMaximum")),
        "low_open": "exclusiveMinimum" in main,
        "high_open": "exclusiveMaximum" in main,
        "choices": listed or _suggestions(path),
        "allows_none": any(one.get("type") == "null" for one in alternatives),
        "allows_auto": "auto" in listed or any(one.get("const") == "auto" for one in alternatives),
        "default": default,
        "value": value,
        "is_written": name in values,
        "is_searched": section in _SEARCHABLE and isinstance(searched, Mapping) and parameter in searched,
    }


def _suggestions(path: str) -> list[str] | None:
    """Return what is likely in a field that takes more than that."""
    if path == "plan.strategy":
        from workbench.strategies import STRATEGIES

        return ["auto", *STRATEGIES.names()]
    if path == "training.optimizer":
        from workbench.sweeps.preflight import optimizers

        return sorted(optimizers())
    return None


def _plain_field(path: str, name: str, schema: Mapping[str, Any], kind: str) -> dict[str, Any]:
    words, title = name.replace("_", " "), schema.get("title")
    return {
        "path": path,
        "label": words.capitalize() if title in (None, words.title()) else title,
        "kind": kind,
        "unit": schema.get("unit"),
        "help": schema.get("description"),
        "default": None,
        "is_searched": False,
    }


def _followed(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = schema.get("$ref")
    return schema if reference is None else definitions.get(reference.rpartition("/")[2], {})
