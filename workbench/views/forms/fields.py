"""What a form shows: its sections and fields, and the state of a draft.

Sections and fields are derived from the types that validate an experiment. Labels, help, bounds and
choices come from the schemas of the sections, of the chosen model of the zoo and of the chosen data
set. Validation is left to the draft.
"""

from __future__ import annotations

import functools
import inspect
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel

from workbench.experiment import Experiment
from workbench.experiment.actions import is_jobs_address
from workbench.experiment.alert_rules import RULES
from workbench.experiment.dotted import SHORT_FORMS
from workbench.experiment.federated import Federated
from workbench.experiment.goals import Constraint, Objective
from workbench.experiment.metric_source import MetricSource
from workbench.experiment.own_advice import OwnAdvice
from workbench.experiment.pruners import readers_of
from workbench.experiment.search_methods import Confirm, EarlyStop, Sampler
from workbench.experiment.searched_fields import is_setting
from workbench.experiment.sections import Budget, PlanSettings, Resources
from workbench.experiment.training_section import Training
from workbench.foundation.errors import WorkbenchError
from workbench.foundation.formatting import compact_duration
from workbench.foundation.python_values import plain
from workbench.views.forms.document_edits import reported_of_document
from workbench.views.forms.draft import Draft
from workbench.views.forms.presets import described, example
from workbench.views.forms.protocol import (
    FieldKind,
    FormField,
    FormState,
    ItemList,
    NamedChoice,
    Section,
)
from workbench.views.forms.search_rows import (
    initial_search,
    initial_search_of_own,
    rows_of_search,
)

_SECTIONS: dict[str, type[BaseModel]] = {
    "training": Training,
    "plan": PlanSettings,
    "federated": Federated,
    "budget": Budget,
    "early_stop": EarlyStop,
    "confirm": Confirm,
    "sampler": Sampler,
    "resources": Resources,
}
_LISTS: dict[str, type[BaseModel]] = {"objectives": Objective, "constraints": Constraint}
_OF_COMMANDS = ("command", "step", "resources.stop_grace", "resources.max_log_size")
_OF_PARAMETERS = ("advise.batch", "advise.lr")
_FIRST_ALERT = "run_ended"
_SEARCHABLE = frozenset({"training", "plan", "model"})
_KINDS: dict[str, FieldKind] = {
    "integer": "whole",
    "number": "number",
    "string": "text",
    "boolean": "switch",
    "array": "names",
    "object": "mapping",
}
_OWN_KINDS: dict[type, FieldKind] = {bool: "switch", int: "whole", float: "number", str: "text"}
_UNIT_KINDS: dict[str | None, FieldKind] = {"s": "duration", "bytes": "size"}

Document = Mapping[str, Any]
Fields = list[FormField]


def sections_of(
    document: Document,
    own_names: Iterable[str] = (),
    own_values: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> list[Section]:
    """Return the sections of an experiment, except its search space.

    Args:
        document: The experiment as written. It may be invalid.
        own_names: Names defined in the notebook that could be a model, data or a loss.
        own_values: What an own model, under `model`, or a train function, under `train`, reads from
            its configuration, with its defaults.
    """
    own = list(own_names)
    return [
        _section("experiment", Experiment.__doc__, _top(document)),
        _section(
            "model",
            _help(document, "model"),
            [*_part(document, "model", own), *_own_fields(document, own_values)],
        ),
        _section("data", _help(document, "data"), _part(document, "data", own)),
        _section("loss", None, _part(document, "loss", own) + _metrics(document)),
        *(_list(document, name) for name in _LISTS),
        _alerts(document),
        _section("advise", OwnAdvice.__doc__, _advise(document)),
        *(
            _section(name, kind.__doc__, _fields(document, name, kind))
            for name, kind in _SECTIONS.items()
        ),
    ]


def models() -> list[NamedChoice]:
    """Return the models of the zoo."""
    from workbench.models import MODELS

    return _named(MODELS)


def datasets() -> list[NamedChoice]:
    """Return the named data sets."""
    from workbench.data import DATASETS

    return _named(DATASETS)


def fields_of_type(kind: type[BaseModel], written: Any, path: str, document: Document) -> Fields:
    """Return the fields of one type.

    Args:
        kind: A type of settings.
        written: Its written value. Anything but a mapping is ignored.
        path: Its dotted path.
        document: The experiment.
    """
    schema = _schema(kind)
    values = written if isinstance(written, Mapping) else {}
    return [
        _field(f"{path}.{name}", described, document, values, schema.get("$defs", {}))
        for name, described in schema.get("properties", {}).items()
    ]


@functools.cache
def _schema(kind: type[BaseModel]) -> dict[str, Any]:
    return kind.model_json_schema()


def _named(registry: Any) -> list[NamedChoice]:
    choices = []
    for name in registry.names():
        try:
            choices.append(NamedChoice(name=name, help=_sentence(registry.load(name))))
        except WorkbenchError as error:  # it needs a package that is not installed
            choices.append(NamedChoice(name=name, help=str(error)))
    return choices


def _section(name: str, text: str | None, fields: Fields, items: ItemList | None = None) -> Section:
    title = name.replace("_", " ").capitalize()
    help_ = None
    if text:
        help_ = " ".join(text.strip().partition("\n\n")[0].split())
    return Section(name=name, title=title, help=help_, fields=tuple(fields), items=items)


def _top(document: Document) -> Fields:
    properties = _schema(Experiment)["properties"]
    names = ("name", "command", "step", "fidelity", "repeats", "seed", "report_to")
    fields = [_field(name, properties[name], document, document) for name in names]
    return [
        _of_command(field, document) if field.path in _OF_COMMANDS else field for field in fields
    ]


def _of_command(field: FormField, document: Document) -> FormField:
    """Return a field that only a command reads."""
    return field.model_copy(
        update={"applies": field.is_written or document.get("command") is not None}
    )


def _of_federation(field: FormField, document: Document) -> FormField:
    """Return a field that only a federation reads. Its number of clients is what makes one."""
    applies = field.path == "federated.clients" or document.get("federated") is not None
    return field.model_copy(update={"applies": applies})


def _fields(document: Document, name: str, kind: type[BaseModel]) -> Fields:
    written = document.get(name)
    if name in SHORT_FORMS and isinstance(written, str):
        written = {SHORT_FORMS[name]: written}
    fields = fields_of_type(kind, written, name, document)
    if name == "early_stop":
        pruner = written.get("pruner", "none") if isinstance(written, Mapping) else "none"
        return [_applying(field, pruner, document.get("train") is not None) for field in fields]
    if name == "federated":
        return [_of_federation(field, document) for field in fields]
    if name == "resources":
        return [
            _of_command(field, document) if field.path in _OF_COMMANDS else field
            for field in fields
        ]
    return fields


def _applying(field: FormField, pruner: Any, calls_function: bool) -> FormField:
    """Return a field of early stopping with whether the chosen pruner, and what is trained, read
    it.
    """
    name = field.path.rpartition(".")[2]
    readers = readers_of(name)
    applies = (readers is None or pruner in readers) and (calls_function or name != "unit")
    return field.model_copy(update={"applies": applies or field.is_written})


def _advise(document: Document) -> Fields:
    """Return what the advisor may choose of a function or a command.

    Nothing for other trainings.
    """
    written, search = document.get("advise"), document.get("search")
    if document.get("train") is None and document.get("command") is None and written is None:
        return []
    searched = tuple(map(str, search)) if isinstance(search, Mapping) else ()
    fields = fields_of_type(OwnAdvice, written, "advise", document)
    return [
        field.model_copy(update={"choices": searched}) if field.path in _OF_PARAMETERS else field
        for field in fields
    ]


def _list(document: Document, name: str) -> Section:
    """Return the section of a list, with the fields of all its items."""
    kind = _LISTS[name]
    written = document.get(name)
    items = ()
    if isinstance(written, list | tuple):
        items = written
    reported = _reported(document)
    fields: Fields = []
    for index, item in enumerate(items):
        for field in fields_of_type(kind, item, f"{name}.{index}", document):
            is_metric = field.path.endswith(".metric")
            fields.append(
                field.model_copy(update={"choices": tuple(reported)}) if is_metric else field
            )
    taken = [item.get("metric") for item in items if isinstance(item, Mapping)]
    metric = next((name for name in reported if name not in taken), "")
    min_items = _schema(Experiment)["properties"][name].get("minItems", 0)
    listed = ItemList(num_items=len(items), min_items=min_items, next=_new_item(kind, metric))
    return _section(name, kind.__doc__, fields, listed)


def _alerts(document: Document) -> Section:
    """Return the section of the alerts. The kind of each rule determines its other fields."""
    written = document.get("alerts")
    items = written if isinstance(written, list | tuple) else ()
    fields: Fields = []
    for index, item in enumerate(items):
        named = item.get("on") if isinstance(item, Mapping) else None
        kind = RULES.get(named) if isinstance(named, str) else None
        path = f"alerts.{index}"
        alert_fields = fields_of_type(kind or RULES[_FIRST_ALERT], item, path, document)
        on = next(field for field in alert_fields if field.path.endswith(".on"))
        # The kind comes first. The fields of an unknown kind are unknown.
        fields.append(
            on.model_copy(
                update={"choices": tuple(RULES), "help": _sentence(kind) if kind else None}
            )
        )
        fields += [field for field in alert_fields if field is not on and kind]
    help_ = _schema(Experiment)["properties"]["alerts"]["description"]
    listed = ItemList(num_items=len(items), min_items=0, next={"on": _FIRST_ALERT})
    return _section("alerts", help_, fields, listed)


def _new_item(kind: type[BaseModel], metric: str) -> dict[str, Any]:
    """Return what a new item starts with.

    Settings only the user can know are omitted, and reported.
    """
    from workbench.experiment.metric_declarations import goal_of

    goal = goal_of(metric)
    if goal is None or "goal" not in kind.model_fields:
        return {"metric": metric}
    return {"metric": metric, "goal": goal}


def _part(document: Document, part: str, own_names: list[str]) -> Fields:
    """Return the field that chooses a model, data or a loss, and the fields of its options."""
    name, options = component(document.get(part))
    described = _schema(Experiment)["properties"][part]
    chosen = FormField(
        **_described(part, part, described),
        kind="text",
        default=None,
        value=name,
        is_written=name is not None,
        choices=(*_registry(part).names(), *own_names),
    )
    kind = _options_type(part, name)
    if kind is None:
        return [chosen]
    return [chosen, *fields_of_type(kind, options, part, document)]


def _own_fields(document: Document, own_values: Mapping[str, Mapping[str, Any]]) -> Fields:
    """Return the fields of what an own model or train function reads, and of what is set for it.

    A value of the model that is a setting of the training has its field there.
    """
    fields: Fields = []
    for part, values in own_values.items():
        _, options = component(document.get(part))
        names = [*values, *(name for name in options if name not in values)]
        fields += [
            _own_field(document, part, name, values.get(name))
            for name in names
            if part == "train" or not is_setting(name)
        ]
    return fields


def _own_field(document: Document, part: str, name: str, default: Any) -> FormField:
    written, options = component(document.get(part))
    searched = document.get("search")
    title = str(written).partition("@")[0].rpartition(":")[2]
    field = FormField(
        path=f"{part}.{name}",
        label=name,
        kind=_OWN_KINDS.get(type(default), "mapping"),
        help=f"`{title}` reads it" + (", and has no default." if default is None else "."),
        default=default,
        value=plain(options.get(name)),
        is_written=name in options,
        is_searched=isinstance(searched, Mapping) and name in searched,
    )
    return field.model_copy(update={"initial_search": plain(initial_search_of_own(field))})


def _metrics(document: Document) -> Fields:
    """Return the fields of what is reported, and of the directions of metrics that are no
    objective.
    """
    from workbench.models import METRICS

    properties = _schema(Experiment)["properties"]
    goals = _field("goals", properties["goals"], document, document)
    if document.get("command") is not None:
        return [*fields_of_type(MetricSource, document.get("metrics"), "metrics", document), goals]
    field = _field("metrics", properties["metrics"], document, document)
    return [field.model_copy(update={"choices": tuple(METRICS.names())}), goals]


def component(written: Any) -> tuple[str | None, Mapping[str, Any]]:
    """Return the name and the options of a part, as far as they are written."""
    if isinstance(written, str):
        return written, {}
    if not isinstance(written, Mapping):
        return None, {}
    name = written.get("name")
    if not isinstance(name, str):
        name = None
    return name, {key: written[key] for key in written if key != "name"}


def _help(document: Document, part: str) -> str | None:
    kind = _options_type(part, component(document.get(part))[0])
    if kind is None:
        return None
    return _sentence(kind)


def _sentence(kind: Any) -> str:
    return (inspect.getdoc(kind) or "").partition("\n\n")[0].replace("\n", " ")


def _registry(part: str) -> Any:
    from workbench.data import DATASETS
    from workbench.models import LOSSES, MODELS

    return {"model": MODELS, "data": DATASETS, "loss": LOSSES}[part]


def _options_type(part: str, name: str | None) -> type[BaseModel] | None:
    """Return the type of the options of a part, or None if its name has none."""
    if name is None or part == "loss" or name not in _registry(part):
        return None
    try:
        kind = _registry(part).load(name)
    except WorkbenchError:
        return None
    if not isinstance(kind, type) or not issubclass(kind, BaseModel):
        return None
    return kind


def _reported(document: Document) -> list[str]:
    """Return the metrics that the training loop reports, validation first.

    None for other training.
    """
    if document.get("train") is not None or document.get("command") is not None:
        return []
    return sorted(reported_of_document(document), key=lambda name: not name.startswith("val_"))


def _field(
    path: str,
    schema: Mapping[str, Any],
    document: Document,
    values: Mapping[str, Any],
    definitions: Mapping[str, Any] = MappingProxyType({}),
) -> FormField:
    """Return one field.

    Args:
        path: Its dotted path.
        schema: Its JSON schema.
        document: The experiment as written.
        values: The written values of the fields next to it, by name.
        definitions: The definitions that the schema refers to.
    """
    name = path.rpartition(".")[2]
    alternatives = [
        _followed(alternative, definitions)
        for alternative in schema.get("anyOf", schema.get("oneOf", [schema]))
    ]
    allows_none = any(alternative.get("type") == "null" for alternative in alternatives)
    allows_auto = any(alternative.get("const") == "auto" for alternative in alternatives)
    typed = [
        alternative
        for alternative in alternatives
        if alternative.get("type") != "null" and alternative.get("const") != "auto"
    ]
    listed: list[Any] = []
    for alternative in typed:
        if "enum" in alternative:
            listed += alternative["enum"]
        elif "const" in alternative:
            listed.append(alternative["const"])
    numbers = [item for item in typed if item.get("type") in ("integer", "number")]
    main = next(iter([*numbers, *typed]), {})
    unit = schema.get("unit")
    kind = _UNIT_KINDS.get(unit) or _KINDS.get(str(main.get("type")), "mapping")
    if listed and len(typed) == 1:
        kind = "choice"
    choices = listed or _suggestions(path) or _columns(schema.get("column_of"), values)
    if "column_of" in schema and choices:
        kind = "choice"
    value = values.get(name)
    default = schema.get("default")
    if kind == "text" and isinstance(value, Mapping):
        # Such as objectives.0.value, which reads this too.
        value = ", ".join(f"{key}: {item}" for key, item in value.items())
    if kind == "duration":
        value, default = compact_duration(value), compact_duration(default)
    section, _, parameter = path.partition(".")
    searched = document.get("search")
    field = FormField(
        **_described(path, name, schema),
        kind=kind,
        low=main.get("minimum", main.get("exclusiveMinimum")),
        high=main.get("maximum", main.get("exclusiveMaximum")),
        low_open="exclusiveMinimum" in main,
        high_open="exclusiveMaximum" in main,
        choices=None if choices is None else tuple(choices),
        allows_none=allows_none,
        allows_auto=allows_auto or "auto" in listed,
        default=plain(default),
        value=plain(value),
        is_written=name in values,
        is_searched=section in _SEARCHABLE
        and isinstance(searched, Mapping)
        and parameter in searched,
    )
    if section not in _SEARCHABLE:
        return field
    return field.model_copy(update={"initial_search": plain(initial_search(field))})


def _columns(option: str | None, values: Mapping[str, Any]) -> list[str] | None:
    """Return the columns of the table at another option, or None if there are none."""
    named = values.get(option) if option else None
    if not isinstance(named, str):
        return None
    from workbench.data.table_files import columns_of

    return columns_of(named) or None


def _suggestions(path: str) -> list[str] | None:
    """Return likely values of a field that also accepts others."""
    if path == "plan.strategy":
        from workbench.training.strategies import STRATEGIES

        return ["auto", *STRATEGIES.names()]
    if path == "plan.exchange":
        from workbench.training.exchanges import EXCHANGES

        return ["auto", *EXCHANGES.names()]
    if path == "training.optimizer":
        from workbench.sweeps.preflight import optimizers

        return optimizers()
    return None


def _described(path: str, name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the path, label, unit and help of a field."""
    words = name.replace("_", " ")
    title = schema.get("title")
    if title in (None, words.title()):
        title = words.capitalize()
    return {
        "path": path,
        "label": title,
        "unit": schema.get("unit"),
        "help": schema.get("description"),
    }


def _followed(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = schema.get("$ref")
    if reference is None:
        return schema
    return definitions.get(reference.rpartition("/")[2], {})


def state_of(
    draft: Draft, *, answered: int = 0, refusal: WorkbenchError | None = None
) -> FormState:
    """Return everything that a form shows of a draft.

    Args:
        draft: The draft.
        answered: The last message of the form that the draft includes.
        refusal: Why that message was refused.
    """
    own_names = draft.notebook.names()
    problems = list(draft.problems)
    if refusal is not None:
        problems.insert(0, refusal)
    saved_path = None
    if draft.saved_path is not None:
        saved_path = str(draft.saved_path)
    shipped_example = None
    if draft.is_untouched:
        shipped_example = example()
    return FormState(
        revision=draft.revision,
        answered=answered,
        document=plain(draft.document),
        is_experiment=draft.is_experiment,
        problems=tuple(error.to_problem() for error in problems),
        yaml=draft.yaml,
        yaml_problems=tuple(error.to_problem() for error in draft.yaml_problems),
        python=draft.python,
        python_problems=tuple(error.to_problem() for error in draft.python_problems),
        hash=draft.hash,
        command=command_of(draft),
        can_undo=draft.undo_label is not None,
        undo_label=draft.undo_label,
        can_redo=draft.can_redo,
        saved_path=saved_path,
        is_saved=draft.is_saved,
        address=draft.address,
        notes=tuple(draft.notes),
        search=rows_of_search(plain(draft.document)),
        sections=tuple(sections_of(draft.document, own_names, draft.own_values())),
        models=(
            *(
                NamedChoice(name=name, help="From this notebook.", is_own=True)
                for name in own_names
            ),
            *models(),
        ),
        datasets=tuple(datasets()),
        presets=tuple(described()),
        example=shipped_example,
    )


def command_of(draft: Draft) -> str:
    """Return the command that runs the experiment once it is saved."""
    address = draft.valid_address  # an invalid one may contain a password
    command = "sweep"
    if is_jobs_address(address):
        command = "submit"
    words = ["workbench", command, str(draft.saved_path or default_path(draft))]
    if address is not None:
        words += ["--address", address]
    return shlex.join(words)


def default_path(draft: Draft) -> Path:
    """Return the default path for saving the experiment."""
    name = re.sub(r"[^\w.-]+", "-", draft.experiment.name).strip("-.")
    return Path(f"{name or 'experiment'}.yaml")
