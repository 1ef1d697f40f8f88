"""The file of tiers: the machines, their links, what they run, and how data is protected.

Quantities are written with units and kept in plain ones (bytes, bits per second, seconds, watts,
joules). What follows from the file is left to `prediction`, `simulated_queues` and
`workbench.tiers.processes`.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PositiveFloat, ValidationError, model_validator
from typing_extensions import Self

from workbench.experiment.setting_types import OptionalBytes, PositiveInt, Section, unit
from workbench.experiment.yaml_file import read_yaml_file
from workbench.foundation.errors import ExperimentError
from workbench.foundation.formatting import (
    format_duration,
    parse_duration_s,
    parse_quantity,
    parse_rate_per_s,
)
from workbench.foundation.validation_errors import findings
from workbench.tiers.placement.schedulers import SCHEDULERS

HERE = "here"
_HOLDS = "a file of tiers: tiers, links, place, privacy"
_NUMBER = re.compile(r"\d+(?:\.\d*)?(?:e[+-]?\d+)?")


def _needs_unit(usual: str) -> BeforeValidator:
    """Raise an error for a number without a unit, because nobody means 20 s of latency or 1 bit/s.

    Args:
        usual: The unit that is suggested.
    """

    def check(given: Any) -> Any:
        text = str(given).strip()
        if isinstance(given, bool) or not _NUMBER.fullmatch(text) or float(text) == 0.0:
            return given
        raise ExperimentError(
            f"{text} has no unit",
            allowed="a number with its unit",
            next_step=f"Write {text}{usual} if that is meant.",
        )

    return BeforeValidator(check)


def _quantity(spellings: tuple[str, ...], allowed: str) -> BeforeValidator:
    return BeforeValidator(lambda given: parse_quantity(given, spellings, allowed=allowed))


def _duration_s(given: Any) -> Any:
    """Return the seconds of a duration. Unlike elsewhere, a number alone is none."""
    try:
        return parse_duration_s(given)
    except ExperimentError as error:
        raise ExperimentError(
            error.problem, allowed="a number with its unit, such as 100ms, 2s or 10m"
        ) from error


Bandwidth = Annotated[
    PositiveFloat,
    _quantity(("bit", "bit/s", "bps"), "such as 20Mbit, 1Gbit/s, 250kbit"),
    _needs_unit("Mbit"),
    unit("bit/s"),
]
Seconds = Annotated[PositiveFloat, BeforeValidator(_duration_s), _needs_unit("s"), unit("s")]
Power = Annotated[
    PositiveFloat, _quantity(("W",), "such as 2W, 500mW"), _needs_unit("W"), unit("W")
]
EnergyPerByte = Annotated[
    float,
    Field(ge=0),
    _quantity(("J/B",), "such as 0.5uJ/B, 40nJ/B"),
    _needs_unit("uJ/B"),
    unit("J/B"),
]
Latency = Annotated[
    Literal["min"] | PositiveFloat | None,
    BeforeValidator(lambda given: given if given == "min" else _duration_s(given)),
    _needs_unit("ms"),
    unit("s"),
]
Label = Annotated[str, BeforeValidator(lambda given: str(given) if type(given) is int else given)]
"""The name of a class, which may be a number."""
Arrivals = Annotated[
    PositiveFloat, BeforeValidator(parse_rate_per_s), _needs_unit("/s"), unit("1/s")
]


class Tier(Section):
    """A group of equal machines."""

    count: PositiveInt = Field(default=1, description="Number of machines.")
    machine: str = Field(
        default=HERE,
        min_length=1,
        description="`here`, or the file that `workbench place profile` wrote on such a machine.",
    )
    memory: Annotated[OptionalBytes, _needs_unit("MB")] = Field(
        default=None, description="Memory of one machine that models may take."
    )
    power: Power | None = Field(default=None, description="Power of one machine while it computes.")
    arrivals: Arrivals | None = Field(
        default=None, description="Requests that start at one machine, in the first tier only."
    )
    batch: PositiveInt = Field(
        default=1, description="Largest number of requests that are computed at once."
    )
    max_load: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, description="Share of the time that one machine may compute, at most."
    )
    max_power: Power | None = Field(
        default=None,
        description="Power of one machine that computing may take on average. Needs `power`.",
    )

    @model_validator(mode="after")
    def _has_power(self) -> Self:
        if self.max_power is not None and self.power is None:
            raise ExperimentError(
                "the power of a machine while it computes is not known",
                field="max_power",
                next_step="Also set power, such as power: 2W.",
            )
        return self


class Link(Section):
    """The connection of one machine of a tier with the next tier."""

    bandwidth: Bandwidth | None = Field(
        default=None, description="Bits per second in each direction."
    )
    rtt: Annotated[
        float, Field(ge=0), BeforeValidator(_duration_s), _needs_unit("ms"), unit("s")
    ] = Field(default=0.0, description="Time of an empty message there and back.")
    energy: EnergyPerByte | None = Field(
        default=None, description="Energy that the sender spends on a byte."
    )
    trace: str | None = Field(
        default=None,
        description="A CSV file with the columns time_s and bits_per_s, instead of a bandwidth.",
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.bandwidth is None) == (self.trace is None):
            raise ExperimentError(
                "a link needs a bandwidth or a trace, not both",
                field="bandwidth",
                allowed="bandwidth: 20Mbit, or trace: FILE.csv",
            )
        return self


class Objective(Section):
    """What the recommended plan must keep to, and what it makes best."""

    p95_latency: Latency = Field(
        default=None, description="The time within which 95 of 100 requests are answered, or `min`."
    )
    accuracy: Literal["max"] | Annotated[float, Field(gt=0, le=1)] = Field(
        default="max", description="`max`, or the least share of correct answers."
    )


class Scene(Section):
    """How the views of several devices that see one scene are gathered."""

    patience: Seconds = Field(
        default=0.5, description="How long the view of a device that is alive is waited for."
    )
    missing: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        default=(),
        description=(
            "The views that are missing in every scene, by their numbers from 0. Shows what is left"
            " when these devices are lost."
        ),
    )


class Place(Section):
    """What is placed, and how."""

    source: str | None = Field(
        default=None,
        alias="from",
        min_length=1,
        description=(
            "A bundle whose stages are spread over the tiers, or a trial, such as last/best."
        ),
    )
    models: dict[str, str] = Field(
        default={},
        description=(
            "A bundle or trial for the first tier, the last tier and any between them. Without one,"
            " the first and the last tier use the one in `from`."
        ),
    )
    scheduler: str = Field(default="mapping", description="The scheduler that `place run` uses.")
    objective: Objective = Field(
        default=Objective(), description="What the recommended plan must meet."
    )
    labels: dict[Label, tuple[Label, ...]] = Field(
        default={},
        description=(
            "Groups of classes, such as {cat: [siamese, persian]}. If an exit is only sure of the"
            " group, it answers with the group before the request is sent on."
        ),
    )
    threshold: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None,
        description=(
            "The probability from which an answer leaves at the first exit, instead of the"
            " exported one."
        ),
    )
    scene: Scene | None = Field(
        default=None,
        description=(
            "Several devices see each scene. The model says how many, and joins their views."
        ),
    )
    busy: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.7, description="Load of a tier from which `threshold` sends fewer requests there."
    )
    monitoring: Literal["heartbeat", "none"] = Field(
        default="heartbeat",
        description=(
            "With `heartbeat`, a silent tier is given up at once, with `none` after the timeout."
        ),
    )
    heartbeat_period: Seconds = Field(
        default=0.1,
        description=(
            "How often a device sends a heartbeat. It is less often if heartbeats would take more"
            " than 2 % of the time of a link or a machine."
        ),
    )
    timeout: Seconds = Field(default=1.0, description="Time after which the local answer is given.")

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if self.source is None and not self.models:
            raise ExperimentError(
                "give one bundle, or one bundle for each of two tiers",
                field="from",
                allowed="from: BUNDLE, or models: {FIRST_TIER: BUNDLE, LAST_TIER: BUNDLE}",
            )
        if self.scheduler not in SCHEDULERS:
            raise ExperimentError(
                f"unknown scheduler {self.scheduler!r}",
                field="scheduler",
                allowed=SCHEDULERS.names(),
            )
        return self

    @property
    def missing_views(self) -> tuple[int, ...]:
        """The views that are missing in every scene."""
        return () if self.scene is None else self.scene.missing

    @model_validator(mode="after")
    def _fits_a_scene(self) -> Self:
        if self.scene is None:
            return self
        if self.scene.patience >= self.timeout:
            raise ExperimentError(
                "devices would give up before the views are gathered",
                field="scene.patience",
                allowed=f"less than place.timeout, {format_duration(self.timeout)}",
            )
        for name, is_given in {
            "models": bool(self.models),
            "labels": bool(self.labels),
            "threshold": self.threshold is not None,
        }.items():
            if is_given:
                raise ExperimentError(
                    "devices that see one scene always send their features, and one model joins"
                    " them",
                    field=name,
                    next_step=f"Remove {name}, or remove scene.",
                )
        return self


class Privacy(Section):
    """How the data that leaves a tier is protected."""

    transport: Literal["mtls", "plain"] = Field(
        default="mtls", description="`mtls`: mutual TLS 1.3."
    )
    features: Literal["float32", "uint8"] = Field(
        default="float32", description="How features are sent."
    )
    noise: Annotated[float, Field(ge=0)] = Field(
        default=0.0,
        description="Standard deviation of added noise, relative to that of each feature.",
    )
    report_leak: bool = Field(
        default=False, description="Measure what can be recovered from the data that is sent."
    )


class TiersFile(Section):
    """The whole file, with the tiers in the order in which requests pass them."""

    tiers: dict[str, Tier] = Field(min_length=1)
    links: dict[str, Link] = {}
    place: Place
    privacy: Privacy = Privacy()

    @model_validator(mode="after")
    def _starts_with_devices(self) -> Self:
        first = next(iter(self.tiers))
        if self.tiers[first].batch > 1:
            raise ExperimentError(
                "a device computes its requests one after another",
                field=f"tiers.{first}.batch",
                allowed="1",
                next_step="Set batch in the tiers after it.",
            )
        return self

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        names = list(self.tiers)
        for name in names:
            if not name.isidentifier():
                raise ExperimentError(
                    f"{name!r} is not a name of a tier",
                    field=f"tiers.{name}",
                    allowed="letters, digits and _",
                )
            if (self.tiers[name].arrivals is None) == (name == names[0]):
                raise ExperimentError(
                    "requests start at the first tier only",
                    field=f"tiers.{name}.arrivals",
                    next_step=(f"Set arrivals, such as 0.1/s, only in tiers.{names[0]}."),
                )
        wanted = [f"{first}-{second}" for first, second in pairwise(names)]
        for name in (*self.links, *wanted):
            if name not in wanted:
                raise ExperimentError(
                    "it does not join neighbouring tiers", field=f"links.{name}", allowed=wanted
                )
            if name not in self.links:
                raise ExperimentError("missing", field=f"links.{name}", next_step="Add it.")
        for name in self.place.models:
            if name not in self.tiers:
                raise ExperimentError(
                    "there is no such tier", field=f"place.models.{name}", allowed=names
                )
        if self.place.models and len(self.models_of_ends()) < 2:
            raise ExperimentError(
                "the first tier and the last tier need a model",
                field="place.models",
                allowed=f"a model for {names[0]} and one for {names[-1]}",
                next_step="Give both models, or one of them and the other as place.from.",
            )
        return self

    @model_validator(mode="after")
    def _has_tiers_between(self) -> Self:
        if self.place.scene is not None and len(self.tiers) < 2:
            raise ExperimentError(
                "there is no tier that joins the views",
                field="place.scene",
                next_step="Add a second tier, or remove scene.",
            )
        if self.place.scheduler == "next-tier" and len(self.tiers) < 3:
            raise ExperimentError(
                f"next-tier needs three tiers or more, and there are {len(self.tiers)}",
                field="place.scheduler",
                allowed=[known for known in SCHEDULERS.names() if known != "next-tier"],
                next_step="With two tiers, end-cloud does the same.",
            )
        return self

    def models_of_ends(self) -> dict[str, str]:
        """Return the models of the first and the last tier.

        The bundles of `models`, or else the bundle of `from`.
        """
        names, place = list(self.tiers), self.place
        models = {name: place.models.get(name, place.source) for name in (names[0], names[-1])}
        return {name: model for name, model in models.items() if model is not None}

    def tier_models(self) -> dict[str, str]:
        """Return the model of each tier that has its own, in the order of the tiers."""
        if not self.place.models:
            return {}
        models = self.models_of_ends() | self.place.models
        return {name: models[name] for name in self.tiers if name in models}

    def links_in_order(self) -> list[Link]:
        """Return the links, starting between the first and the second tier."""
        return [self.links[f"{first}-{second}"] for first, second in pairwise(self.tiers)]


def read_tiers(path: Path) -> TiersFile:
    """Read a file of tiers.

    Args:
        path: The file. The files that it names are relative to its folder.

    Raises:
        ExperimentError: If it cannot be read or is invalid. The error has the dotted field.
    """
    document: dict[str, Any] = read_yaml_file(path, holds=_HOLDS)
    try:
        return TiersFile.model_validate(document)
    except ValidationError as error:
        raise findings(error, TiersFile)[0] from error
