"""The catalogue of machines that can be rented.

An editable file, each number with its source and date.
"""

from __future__ import annotations

import datetime
import functools
import math
import re
import statistics
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)
from typing_extensions import Self

from workbench.experiment.validation_errors import findings
from workbench.experiment.yaml_file import read_yaml_file
from workbench.foundation.errors import ArgumentError, ExperimentError

SHIPPED = Path(__file__).with_name("catalogue.yaml")
Provider = Literal["aws", "gcp", "azure", "lambda", "runpod", "own"]
CriterionName = Literal["price", "performance", "stability", "maturity", "flexibility"]
CRITERIA: tuple[CriterionName, ...] = get_args(CriterionName)
Market = Literal["on demand", "spot"]
MARKETS: tuple[Market, ...] = ("on demand", "spot")
_HOURS = {"hour": 1.0, "day": 24.0, "month": 730.0}
_Part = Annotated[float, Field(ge=0, lt=1)]


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Source(_Entry):
    """The origin of a number, and the date on which it was looked up or published."""

    origin: str = Field(min_length=1)
    date: datetime.date


class Price(_Entry):
    """The price of a machine, or null if it is unknown."""

    usd_per_hour: PositiveFloat | None
    origin: str | None = None
    date: datetime.date | None = None

    @model_validator(mode="after")
    def _has_a_source(self) -> Self:
        if self.usd_per_hour is not None and (self.origin is None or self.date is None):
            raise ExperimentError(
                "a price needs an origin and a date",
                field="origin",
                next_step="Add origin and date, or omit the price.",
            )
        return self


class Device(_Entry):
    """A GPU: its peak rates, by its data sheet."""

    name: str = Field(min_length=1)
    names: tuple[str, ...] = Field(
        default=(), description="Names that drivers report. By default any that contain `name`."
    )
    memory_gib: PositiveFloat
    teraflops: dict[Literal["fp32", "bf16", "fp16"], PositiveFloat]
    memory_gb_per_s: PositiveFloat
    source: Source

    def matches(self, driver_name: str) -> bool:
        """Return whether a driver that reports this name means this device."""
        words = self.names or (self.name,)
        return any(
            re.search(
                rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])", driver_name, re.IGNORECASE
            )
            for word in words
        )


class Interruption(_Entry):
    """How likely a spot machine is reclaimed within a period."""

    name: str = Field(min_length=1)
    least: _Part
    most: _Part
    per: Literal["hour", "day", "month"]
    note: str = ""
    source: Source

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.most < self.least:
            raise ExperimentError(f"{self.most:g} is less than least, {self.least:g}", field="most")
        return self

    def rates_per_hour(self) -> tuple[float, float, float]:
        """Return interruptions per hour of one machine: the middle, the minimum, the maximum."""
        parts = ((self.least + self.most) / 2.0, self.least, self.most)
        middle, minimum, maximum = (-math.log1p(-part) / _HOURS[self.per] for part in parts)
        return middle, minimum, maximum


class Machine(_Entry):
    """One type of machine in one region."""

    provider: Provider
    type: str = Field(min_length=1)
    region: str = Field(min_length=1)
    device: str | None = Field(
        default=None, description="A device of the catalogue. None means CPUs only."
    )
    gpus: int = Field(default=0, ge=0)
    vcpus: PositiveInt
    memory_gib: PositiveFloat
    on_demand: Price = Price(usd_per_hour=None)
    spot: Price = Price(usd_per_hour=None)
    interruption: str | None = Field(default=None, description="An entry of `interruptions`.")
    markets: tuple[Market, ...] = Field(
        default=MARKETS, min_length=1, description="The ways to rent it."
    )
    source: Source

    @model_validator(mode="after")
    def _device_and_gpus(self) -> Self:
        if (self.device is None) != (self.gpus == 0):
            raise ExperimentError(
                f"gpus is {self.gpus}, but the device is {self.device or 'not set'}",
                field="gpus",
                allowed="both a device and a number of GPUs, or neither",
            )
        return self

    def price(self, market: Market) -> Price:
        """Return its price, by the way to rent it."""
        if market == "spot":
            return self.spot
        return self.on_demand


class Criterion(_Entry):
    """How providers compare in one respect."""

    name: CriterionName
    ranking: tuple[tuple[Provider, ...], ...] = Field(
        min_length=1, description="The best first. Providers in one list share a place."
    )
    source: Source

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        listed = [provider for group in self.ranking for provider in group]
        for provider in listed:
            if listed.count(provider) > 1:
                raise ExperimentError(f"{provider} is listed twice", field="ranking")
        return self

    def place(self, provider: str) -> float | None:
        """Return the place of a provider from 1, the mean place of equals, or None if unknown."""
        before = 0
        for group in self.ranking:
            if provider in group:
                return before + (1 + len(group)) / 2
            before += len(group)
        return None


class Catalogue(_Entry):
    """The whole catalogue."""

    criteria: tuple[Criterion, ...] = ()
    devices: tuple[Device, ...] = ()
    interruptions: tuple[Interruption, ...] = ()
    machines: tuple[Machine, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_are_known(self) -> Self:
        devices, classes = (
            {entry.name for entry in group} for group in (self.devices, self.interruptions)
        )
        for index, machine in enumerate(self.machines):
            for field, name, known in (
                ("device", machine.device, devices),
                ("interruption", machine.interruption, classes),
            ):
                if name is not None and name not in known:
                    raise ExperimentError(
                        f"the catalogue has no {field} {name!r}",
                        field=f"machines.{index}.{field}",
                        allowed=sorted(known),
                    )
        return self

    def newest_criteria(self) -> dict[CriterionName, Criterion]:
        """Return the newest entry of each criterion that has one."""
        ordered = sorted(self.criteria, key=lambda entry: entry.source.date)
        return {entry.name: entry for entry in ordered}

    def rent_per_teraflops(self) -> dict[str, tuple[float, datetime.date]]:
        """Return what computing costs on demand, by provider, as far as prices have a source.

        Returns:
            The median of US dollars per hour for 100 teraflops in half precision over the machines
            with GPUs, and the date of the oldest of these prices.
        """
        known: dict[str, list[tuple[float, datetime.date]]] = {}
        for machine in self.machines:
            device, price = self.device(machine.device), machine.on_demand
            if device is None or price.usd_per_hour is None or price.date is None:
                continue
            if (teraflops := device.teraflops.get("fp16")) is not None:
                cost = 100 * price.usd_per_hour / (machine.gpus * teraflops)
                known.setdefault(machine.provider, []).append((cost, price.date))
        return {
            provider: (statistics.median(cost for cost, _ in costs), min(day for _, day in costs))
            for provider, costs in known.items()
        }

    def device(self, name: str | None) -> Device | None:
        """Return a device by its name in the catalogue."""
        return next((device for device in self.devices if device.name == name), None)

    def device_by_driver_name(self, driver_name: str) -> Device | None:
        """Return the first device that matches the name that a driver reports."""
        return next((device for device in self.devices if device.matches(driver_name)), None)

    def interruption(self, machine: Machine) -> Interruption | None:
        """Return how likely a machine is reclaimed, or None if that is unknown."""
        return next(
            (
                interruption
                for interruption in self.interruptions
                if interruption.name == machine.interruption
            ),
            None,
        )

    def machine(self, type: str, provider: str | None = None) -> Machine:
        """Return a machine by its type.

        Raises:
            ArgumentError: If the catalogue holds none, or several.
        """
        matching = [
            machine
            for machine in self.machines
            if machine.type == type and provider in (None, machine.provider)
        ]
        if len(matching) != 1:
            known = [
                machine.type for machine in self.machines if provider in (None, machine.provider)
            ]
            raise ArgumentError(
                f"the catalogue has {len(matching) or 'no'} machines of type {type!r}",
                field="--machine",
                allowed=known,
            )
        return matching[0]


def read_catalogue(path: Path | None = None) -> Catalogue:
    """Read a catalogue.

    Args:
        path: A file that replaces the shipped one, in the same format. None for the shipped one.

    Raises:
        ExperimentError: If it cannot be read or is invalid, with the dotted field.
    """
    return _shipped() if path is None else _read(path)


@functools.cache
def _shipped() -> Catalogue:
    # Read once, because it is part of the installed package. A user's file may change meanwhile.
    return _read(SHIPPED)


def _read(path: Path) -> Catalogue:
    document = read_yaml_file(path, holds="a catalogue: machines, each with its type and provider")
    try:
        return Catalogue.model_validate(document)
    except ValidationError as error:
        first = min(
            findings(error, Catalogue), key=lambda finding: finding.problem != "unknown key"
        )
        raise first.at(str(path)) from error
