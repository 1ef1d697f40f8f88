"""Searched parameters that replace settings of the training and the plan, and options of the data.

`lr` replaces `training.lr`, `adapter.rank` replaces one option of `training.adapter`, and
`data.size` replaces the option `size` of the data. Planning fills in the values of each trial.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, JsonValue, ValidationError

from workbench.experiment.domain import values_to_check
from workbench.experiment.federated import is_federated_setting
from workbench.experiment.sections import PlanSettings
from workbench.experiment.setting_types import Section
from workbench.experiment.space import Space
from workbench.experiment.training_section import Training
from workbench.experiment.validation_errors import refusal
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
DATA_PREFIX = "data."
"""The prefix of parameters that replace options of the data."""


def is_setting(name: str) -> bool:
    """Return whether a parameter replaces a setting or an option. Others belong to the model."""
    is_whole = name in Training.model_fields or name in PlanSettings.model_fields
    return (
        is_whole
        or option_of(name) is not None
        or data_option_of(name) is not None
        or is_federated_setting(name)
    )


def data_option_of(name: str) -> str | None:
    """Return the option of the data that a parameter such as `data.size` replaces, or None."""
    return name.removeprefix(DATA_PREFIX) if name.startswith(DATA_PREFIX) else None


def data_params(params: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the part of a configuration that consists of options of the data."""
    return {name: value for name, value in params.items() if data_option_of(name) is not None}


def option_of(name: str) -> tuple[str, str] | None:
    """Return the setting and the option of a parameter such as `adapter.rank`, or None."""
    setting, _, option = name.partition(".")
    if not option or setting not in WITH_OPTIONS:
        return None
    return setting, option


def with_options(written: Mapping[str, Any], params: Mapping[str, JsonValue]) -> dict[str, Any]:
    """Return settings of the training with searched options filled in.

    Args:
        written: Settings by name, including searched ones.
        params: The configuration of a trial.
    """
    settings = dict(written)
    for name, value in params.items():
        if (place := option_of(name)) is not None:
            setting, option = place
            options = settings.get(setting)
            # The trial has no adapter at all, so the rank of an adapter has no meaning.
            if options is None and setting in params:
                continue
            settings[setting] = {**_plain(options), option: value}
    return settings


def _plain(options: Any) -> Mapping[str, Any]:
    if isinstance(options, BaseModel):
        return {name: getattr(options, name) for name in options.model_fields_set}
    return options or {}


def check_searched_fields(search: Space, training: Training, plan: PlanSettings) -> None:
    """Check every value of a searched setting against the type of the setting.

    Args:
        search: What is searched.
        training: The section `training`.
        plan: The section `plan`.

    Raises:
        ExperimentError: If a value is not allowed, or a setting is both set and searched.
    """
    sections: tuple[tuple[str, Section], ...] = (("training", training), ("plan", plan))
    for field, section in sections:
        for name, domain in search.root.items():
            place = option_of(name)
            is_option = place is not None and field == "training"
            if name not in type(section).model_fields and not is_option:
                continue
            _refuse_twice(field, section, name, place)
            for value in values_to_check(domain):
                _check_value(field, type(section), name, value)


def check_training_value(name: str, value: Any, *, field: str) -> None:
    """Check the value of a setting of the training. Other names are ignored.

    Args:
        name: The setting.
        value: The value.
        field: The dotted field where it is written.

    Raises:
        ExperimentError: If it is not a value of the setting.
    """
    if name in Training.model_fields:
        try:
            _check_value("training", Training, name, value)
        except ExperimentError as error:
            raise error.about(field) from error


def _check_value(field: str, kind: type[Section], name: str, value: Any) -> None:
    settings: dict[str, Any] = {name: value}
    if option_of(name):
        settings = with_options({}, settings)
    # The warm-up may not be longer than the training, whose epochs are not known here.
    if name == "warmup_epochs":
        settings["epochs"] = 10**9
    try:
        kind.model_validate(settings)
    except ValidationError as error:
        rejected = refusal(error)
        raise ExperimentError(
            f"{value!r} is not a value of {field}.{name}",
            field=f"search.{name}",
            allowed=rejected.allowed or rejected.problem,
            next_step=rejected.next_step,
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
