"""Configurations that represent a search space: the defaults, a sample, both ends."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import JsonValue

from workbench.experiment import Component, Experiment, Training
from workbench.experiment.domain import Domain, Float, Int
from workbench.experiment.federated import PREFIX, default_server_lr, is_federated_setting
from workbench.experiment.plan import NAMES as PLAN_NAMES
from workbench.experiment.searched_fields import data_option_of, option_of
from workbench.experiment.space import Fixed, Params, Space
from workbench.experiment.training_section import Augmentation, LowRankAdapter
from workbench.models.configurations import configuration_type
from workbench.training.planning.settings import TrialSettings, reference_lr, resolve


@dataclass(frozen=True)
class DefaultConfiguration:
    """The searched parameters at their defaults.

    Attributes:
        params: Values by name, in the order of the space, as far as they are known.
        unknown: Parameters whose default only user code knows.
    """

    params: dict[str, JsonValue]
    unknown: tuple[str, ...]


def default_configuration(experiment: Experiment) -> DefaultConfiguration:
    """Return the default of every searched parameter.

    A parameter that only applies to other choices than the defaults is skipped.

    Args:
        experiment: The experiment. Its fixed settings stay as they are.

    Raises:
        ExperimentError: If fixed settings contradict each other.
    """
    search = experiment.search
    settings = None
    if experiment.trains_model:
        settings = resolve(experiment.model_copy(update={"search": Space({})}), {})
    params: dict[str, JsonValue] = {}
    unknown: list[str] = []
    for name in search.order():
        if any(parent in unknown for parent in search.root[name].when):
            unknown.append(name)
            continue
        if not search.exists(name, params):
            continue
        domain = search.root[name]
        if isinstance(domain, Fixed):
            params[name] = domain.value
            continue
        default = _default(experiment, settings, name)
        params |= default
        if not default:
            unknown.append(name)
    ordered = {name: params[name] for name in search.root if name in params}
    return DefaultConfiguration(ordered, tuple(unknown))


def _default(
    experiment: Experiment, settings: TrialSettings | None, name: str
) -> Mapping[str, JsonValue]:
    """Return the default of one parameter by its name, or nothing if it is not known."""
    if settings is None:
        return {}
    if name == "lr":
        return {name: reference_lr(settings.training)}
    if name == "warmup_epochs":
        return {name: settings.warmup_epochs}
    if name == "global_batch":
        return {name: settings.plan.global_batch}
    if name in PLAN_NAMES:
        return {name: getattr(settings.plan, name)}
    if name in Training.model_fields:
        return {name: getattr(settings.training, name)}
    if is_federated_setting(name):
        return _of_federation(settings, name)
    if (place := option_of(name)) is not None:
        return _option(settings.training, *place)
    return _of_component(experiment, name)


def _of_component(experiment: Experiment, name: str) -> Mapping[str, JsonValue]:
    """Return the default of an option of the data or the model, or nothing if code knows it."""
    if (option := data_option_of(name)) is not None:
        return _option_of_data(experiment.data, name, option)
    component = experiment.trained
    assert component is not None
    if component.is_reference:
        return {}
    field = configuration_type(component.name).model_fields.get(name)
    return {} if field is None or field.is_required() else {name: field.default}


def _of_federation(settings: TrialSettings, name: str) -> dict[str, JsonValue]:
    """Return the default of a setting of the federation, or nothing for an option of a setting."""
    setting = name.removeprefix(PREFIX)
    if "." in setting:
        return {}
    value = getattr(settings.federated, setting)
    if setting == "server_lr" and settings.federated is not None and value == "auto":
        value = default_server_lr(settings.federated.server)
    return {name: value}


def _option(training: Training, setting: str, option: str) -> dict[str, JsonValue]:
    """Return the default of an option of a setting, or nothing if it is not known."""
    if setting == "adapter":
        return {f"{setting}.{option}": getattr(training.adapter or LowRankAdapter(), option)}
    if setting == "augment":
        return {f"{setting}.{option}": getattr(training.augment or Augmentation(), option)}
    options = getattr(training, setting)
    if option not in options:
        return {}
    return {f"{setting}.{option}": options[option]}


def _option_of_data(data: Component | None, name: str, option: str) -> dict[str, JsonValue]:
    """Return the default of an option of a named data set, or nothing if only code knows it."""
    if data is None or data.is_reference:
        return {}
    from workbench.data import DATASETS

    default = DATASETS.load(data.name, field="data").model_fields[option].default
    return {name: list(default) if isinstance(default, tuple) else default}


def configurations_to_try(experiment: Experiment) -> Iterator[tuple[str, Params]]:
    """Yield different configurations of an experiment with descriptions, a typical one first.

    Args:
        experiment: The experiment. Without a search space, there is one empty configuration.
    """
    space = experiment.search
    sample = space.sample(random.Random(experiment.seed))
    seen = [sample]
    yield "a sample", sample
    ends: tuple[tuple[str, Literal[0, -1]], ...] = (
        ("the largest values", -1),
        ("the smallest values", 0),
    )
    for description, end in ends:
        params: Params = {}
        for name in space.order():
            if space.exists(name, params):
                params[name] = _end_of(space.root[name], end)
        if params not in seen:
            seen.append(params)
            yield description, params


def _end_of(domain: Domain, end: Literal[0, -1]) -> JsonValue:
    """Return the smallest (0) or largest (-1) value, or the first or last of other choices."""
    if isinstance(domain, Float | Int):
        values = domain.values()
        if values is not None:
            return values[end]
        return domain.low if end == 0 else domain.high
    choices = domain.values()
    if all(isinstance(choice, int | float) and not isinstance(choice, bool) for choice in choices):
        choices = sorted(choices)  # type: ignore[type-var]
    return choices[end]
