"""The settings of an experiment that may change during a run: its budget and its concurrency.

A change gives the experiment that is in force from then on and is checked like an experiment file.
The run keeps the experiment that it was started with, and its hash.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

from workbench.experiment.energy_units import format_energy
from workbench.experiment.money_units import describe_money
from workbench.experiment.space import describe
from workbench.foundation.errors import ExperimentError
from workbench.foundation.formatting import format_duration

if TYPE_CHECKING:
    from workbench.experiment.experiment import Experiment

Setting = Literal[
    "resources.concurrency",
    "budget.trials",
    "budget.time",
    "budget.gpu_time",
    "budget.energy",
    "budget.money",
    "budget.plateau",
]
CHANGEABLE: tuple[Setting, ...] = get_args(Setting)
DURATIONS: frozenset[str] = frozenset({"budget.time", "budget.gpu_time"})
"""Those in seconds."""
ENERGY = "budget.energy"
"""The one in watt-hours."""
MONEY = "budget.money"
"""The one in the currency of the price."""


def change(experiment: Experiment, settings: Mapping[str, Any]) -> Experiment:
    """Return the experiment with some settings changed that may change while it runs.

    A limit that is added leaves the others as they are, also the number of trials that an
    experiment without any limit gets.

    Args:
        experiment: What has been in force.
        settings: New values by dotted path, those of `CHANGEABLE`; durations such as `1h` are
            understood.

    Raises:
        ExperimentError: If there is nothing to change, a setting cannot change, or its value is
            wrong.
    """
    if not settings:
        raise ExperimentError("no setting was given", allowed=list(CHANGEABLE))
    for path, value in settings.items():
        if path not in CHANGEABLE:
            raise ExperimentError(
                "cannot change during a run", field=path, allowed=list(CHANGEABLE)
            )
        if value is None or isinstance(value, bool):
            raise ExperimentError(f"{value!r} is not a value", field=path, allowed="a number")
    sections: dict[str, dict[str, Any]] = {"budget": {"trials": experiment.max_configurations()}}
    for path, value in settings.items():
        section, _, name = path.partition(".")
        sections.setdefault(section, {})[name] = value
    return experiment.replace(**sections)


def describe_changes(before: Experiment, after: Experiment) -> list[str]:
    """Return each setting that differs, such as `budget.trials 20 -> 70`."""
    old, new = values_of(before), values_of(after)
    price = before.budget.price
    limits = [
        f"{path} {_write(path, old[path], price)} -> {_write(path, value, price)}"
        for path, value in new.items()
        if value != old[path]
    ]
    searched = after.search.root
    return limits + [
        f"search.{name} {describe(domain)} ->"
        f" {describe(searched[name]) if name in searched else 'none'}"
        for name, domain in before.search.root.items()
        if searched.get(name) != domain
    ]


def _write(path: str, value: float | str | None, price: str | None) -> str:
    if value is None:
        return "none"
    return describe_amount(path, value, price)


def describe_amount(path: str, value: float | str, price: str | None) -> str:
    """Write the value of a setting with its unit, money in the currency of the price."""
    if path in DURATIONS:
        return format_duration(float(value))
    if path == MONEY and price is not None:
        return describe_money(float(value), price)
    return format_energy(float(value)) if path == ENERGY else str(value)


def values_of(experiment: Experiment) -> dict[str, Any]:
    """Return the settings that may change, by dotted path; None for a limit that there is not."""
    return {
        "resources.concurrency": experiment.resources.concurrency,
        "budget.trials": experiment.max_configurations(),
        "budget.time": experiment.budget.time,
        "budget.gpu_time": experiment.budget.gpu_time,
        ENERGY: experiment.budget.energy,
        MONEY: experiment.budget.money,
        "budget.plateau": experiment.budget.plateau,
    }
