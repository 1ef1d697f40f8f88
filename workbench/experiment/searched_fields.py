"""Parameters that replace settings of the training and the plan, or one option of such a setting.

`lr` stands for `training.lr`, and `adapter.rank` for one option of `training.adapter`. Putting the
values in their places for one trial is left to planning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, JsonValue, ValidationError

from workbench.experiment.federated import is_federated_setting
from workbench.experiment.refusals import refusal
from workbench.experiment.sections import PlanSettings
from workbench.experiment.setting_types import Section
from workbench.experiment.space import Space
from workbench.experiment.training_section import Training
from workbench.foundation.errors import ExperimentError

WITH_OPTIONS = (
    "adapter",
    "augment",
    "gradient_hook_options",
    "optimizer_options",
    "private",
    "schedule_options",
)
"""The settings of the training whose options can be searched one by one."""
_MANY = 1000


def is_setting(name: str) -> bool:
    """Return whether a parameter replaces a setting, or an option of one.

    Others belong to the model.
    """
    is_whole = name in Training.model_fields or name in PlanSettings.model_fields
    return is_whole or option_of(name) is not None or is_federated_setting(name)


def option_of(name: str) -> tuple[str, str] | None:
    """Return the setting and the option that a parameter such as `adapter.rank` stands for.

    Else None.
    """
    setting, _, option = name.partition(".")
    return (setting, option) if option and setting in WITH_OPTIONS else None


def with_options(written: Mapping[str, Any], params: Mapping[str, JsonValue]) -> dict[str, Any]:
    """Return settings of the training in which searched options have their values.

    Args:
        written: Settings by name, searched ones among them.
        params: The configuration. Where it has no adapter, options of the adapter mean nothing.
    """
    found = dict(written)
    for name, value in params.items():
        if (place := option_of(name)) is not None:
            setting, option = place
            options = found.get(setting)
            if options is None and setting in params:
                continue
            found[setting] = {**_plain(options), option: value}
    return found


def _plain(options: Any) -> Mapping[str, Any]:
    if isinstance(options, BaseModel):
        return {name: getattr(options, name) for name in options.model_fields_set}
    return options or {}


def check_searched_fields(search: Space, training: Training, plan: PlanSettings) -> None:
    """Check every value that a searched setting may take against its type.

    Raises:
        ExperimentError: If a value is refused, or a setting is both set and searched.
    """
    sections: tuple[tuple[str, Section], ...] = (("training", training), ("plan", plan))
    for field, section in sections:
        for name, domain in search.root.items():
            place = option_of(name) if field == "training" else None
            if name not in type(section).model_fields and place is None:
                continue
            _refuse_twice(field, section, name, place)
            values = domain.values()
            ends = [getattr(domain, "low", None), getattr(domain, "high", None)]
            for value in ends if values is None or len(values) > _MANY else values:
                _check_value(field, type(section), name, value)


def check_training_value(name: str, value: Any, *, field: str) -> None:
    """Check a value of a setting of the training; other names are not looked at.

    Args:
        name: The setting.
        value: The value.
        field: Where it is written.

    Raises:
        ExperimentError: If it is not a value of the setting.
    """
    if name in Training.model_fields:
        try:
            _check_value("training", Training, name, value)
        except ExperimentError as error:
            raise error.about(field) from error


def _check_value(field: str, kind: type[Section], name: str, value: Any) -> None:
    settings = with_options({}, {name: value}) if option_of(name) else {name: value}
    if name == "warmup_epochs":
        settings["epochs"] = 10**9
    try:
        kind.model_validate(settings)
    except ValidationError as error:
        found = refusal(error)
        raise ExperimentError(
            f"{value!r} is not a value of {field}.{name}",
            field=f"search.{name}",
            allowed=found.allowed or found.problem,
            next_step=found.next_step,
        ) from error


def _refuse_twice(field: str, section: Section, name: str, place: tuple[str, str] | None) -> None:
    setting, option = place or (name, None)
    if setting not in section.model_fields_set:
        return
    value = getattr(section, setting)
    if option is not None:
        if option not in _plain(value):
            return
        value = _plain(value)[option]
    if value != "auto":
        raise ExperimentError(
            f"{field}.{name} is set to {value!r} and also searched",
            field=f"search.{name}",
            next_step="Remove one of the two.",
        )
