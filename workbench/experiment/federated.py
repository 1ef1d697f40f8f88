"""The section `federated`: clients that keep their samples, and a server that averages weights.

This module checks the settings and their combinations. In the search space a setting is called
`federated.<setting>`. The training itself is in `workbench.training.federated`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    JsonValue,
    PositiveFloat,
    ValidationError,
    model_validator,
)
from typing_extensions import Self

from workbench.experiment.domain import Domain, values_to_check
from workbench.experiment.goals import Constraint
from workbench.experiment.plan import PlanValue
from workbench.experiment.sections import PlanSettings, Resources, find_other_value
from workbench.experiment.setting_types import Auto, Epochs, OptionalSeconds, PositiveInt, Section
from workbench.experiment.space import Space, possible_values
from workbench.experiment.training_section import Training
from workbench.experiment.validation_errors import refusal
from workbench.foundation.errors import ExperimentError

PREFIX = "federated."
ServerRule = Literal["fedavg", "fedavgm", "fedadagrad", "fedadam", "fedyogi"]
ADAPTIVE: tuple[ServerRule, ...] = ("fedadagrad", "fedadam", "fedyogi")
BYTES_METRIC = "bytes_per_client"
"""What a client has received and sent so far, on average, in bytes."""
ROUNDS_METRIC = "rounds_to_target"
"""The round in which the target was reached. Before that, one more than the number of rounds."""
BYTES_TO_TARGET_METRIC = "bytes_to_target"
"""What a client had received and sent when the target was reached, on average.

Before that, the bytes of `ROUNDS_METRIC` rounds.
"""
ANSWERED_METRIC = "clients_answered"
"""How many clients sent something in the last round."""
SPREADS = ("min", "max", "std")
"""The statistics of a metric over the clients that are reported."""
_Part = Annotated[float, Field(ge=0, lt=1)]

# For each setting: the field that decides whether it is read, and the values of that field that
# read it. With any other value the setting would be ignored silently.
_READ_BY: dict[str, tuple[str, tuple[str, ...]]] = {
    "server_momentum": ("server", ("fedavgm", *ADAPTIVE)),
    "server_second_moment": ("server", ("fedadam", "fedyogi")),
    "server_tau": ("server", ADAPTIVE),
    "trim": ("aggregation", ("trimmed_mean",)),
    "num_bad": ("aggregation", ("krum",)),
}
_AVERAGED = "in federated training, the server averages the weights"
_SINGLE_WORKER = "in federated training, a single worker trains each client"
_OF_OPTIMIZER_STEPS = {
    "average_decay": _AVERAGED,
    "average_start": _AVERAGED,
    "average_lr": _AVERAGED,
    "measure_noise": "gradient noise is not measured on clients",
    "find_unused_parameters": _SINGLE_WORKER,
    "evaluate_after": "in federated training, evaluations follow rounds",
    "checkpoint_after": "in federated training, checkpoints are written between rounds",
    "augment": "clients cannot change their samples at random",
    "samples": "clients train on all their samples",
    "tokens": "clients train on all their samples",
}
# For each dimension: the values that federated training allows, and why no others.
_PLAN: dict[str, tuple[tuple[PlanValue, ...], str]] = {
    "strategy": (("single",), _SINGLE_WORKER),
    "stages": ((1,), _SINGLE_WORKER),
    "tensor": ((1,), _SINGLE_WORKER),
    "exchange": (("allreduce",), "workers exchange the weights of clients, not gradients"),
    "compile": (("none",), "in federated training, a model cannot be compiled"),
    "memory_format": (
        ("contiguous",),
        "in federated training, the memory format cannot be changed",
    ),
    "loaders": ((0,), "clients have too few samples to read ahead"),
}


_PARTITIONS = "iid, owners, {dirichlet: 0.3} or {labels: 2}"


class Partition(Section):
    """How the samples are divided among the clients. Give exactly one of the two."""

    dirichlet: PositiveFloat | None = Field(
        default=None,
        description="Draw each class's shares from a Dirichlet distribution. 0.1 is very uneven.",
    )
    labels: PositiveInt | None = Field(
        default=None, description="Number of classes that each client has."
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.dirichlet is None) == (self.labels is None):
            raise ExperimentError("give exactly one way to divide the samples", allowed=_PARTITIONS)
        return self


def _refuse_other_words(given: Any) -> Any:
    if isinstance(given, str) and given not in ("iid", "owners"):
        raise ExperimentError(f"{given!r} is not a way to divide samples", allowed=_PARTITIONS)
    return given


class Federated(Section):
    """Rounds of training on clients that keep their samples. A round counts as one epoch."""

    clients: PositiveInt = Field(
        description="Number of clients, among which the training samples are divided."
    )
    fraction: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.1,
        description="Share of the clients that take part in a round. It is at least one client.",
    )
    local_epochs: Epochs = Field(
        default=1, description="Passes of a client over its own samples in a round."
    )
    partition: Annotated[
        Literal["iid", "owners"] | Partition, BeforeValidator(_refuse_other_words)
    ] = Field(
        default="iid",
        description=(
            "How to divide the samples: iid, {dirichlet: 0.3} unevenly by class, {labels: 2} "
            "with two classes each, or owners, if the data say which client has each sample."
        ),
    )
    server: ServerRule = Field(
        default="fedavg", description="How the server applies the clients' mean change."
    )
    server_lr: PositiveFloat | Auto = Field(
        default="auto",
        title="Server's learning rate",
        description="The server's learning rate. auto: 1 for fedavg and fedavgm, else 0.01.",
    )
    server_momentum: _Part = Field(
        default=0.9, description="Decay of the server's running mean of changes."
    )
    server_second_moment: _Part = Field(
        default=0.99,
        description="Decay of the server's running mean of squares, for fedadam and fedyogi.",
    )
    server_tau: PositiveFloat = Field(
        default=1e-3, description="Added to the root of the mean square. Larger values adapt less."
    )
    proximal: float = Field(
        default=0.0,
        ge=0,
        description=(
            "Weight of the distance to the round's weights in each client's loss (FedProx)."
        ),
    )
    aggregation: Literal["mean", "trimmed_mean", "krum"] = Field(
        default="mean",
        description=(
            "mean weights clients by their samples. trimmed_mean and krum resist bad clients."
        ),
    )
    trim: Annotated[float, Field(ge=0, lt=0.5)] = Field(
        default=0.1, description="Share of the clients that trimmed_mean drops at each end."
    )
    num_bad: PositiveInt = Field(
        default=1,
        title="Bad clients",
        description="Number of bad clients that krum expects in a round.",
    )
    failures: _Part = Field(
        default=0.0,
        description=(
            "Probability that the update of a participating client never reaches the server."
        ),
    )
    stragglers: _Part = Field(
        default=0.0,
        description="Probability that a client completes only part of its local training.",
    )
    timeout: OptionalSeconds = Field(
        default=None,
        description="Skip a client in a round if its training takes longer than this.",
    )
    target: Constraint | None = Field(
        default=None,
        description=(
            "End the training once a metric reaches a value: {metric: val_accuracy, at_least: "
            "0.9}. Adds the metrics rounds_to_target and bytes_to_target."
        ),
    )
    secure: bool = Field(
        default=False,
        description="Mask the changes in pairs, so that the server learns only their sum.",
    )


def client_metrics(measured: Iterable[str]) -> list[str]:
    """Return the names of the metrics that only federated training reports.

    Args:
        measured: Metrics on the validation samples. The spread of the loss is reported only if
            there is no other metric.
    """
    names = [name for name in measured if name != "loss"] or ["loss"]
    of_federation = (BYTES_METRIC, ANSWERED_METRIC, ROUNDS_METRIC, BYTES_TO_TARGET_METRIC)
    return [*of_federation, *(f"val_{name}_client_{kind}" for name in names for kind in SPREADS)]


def default_server_lr(rule: ServerRule) -> float:
    """Return the usual learning rate of a server.

    At 1.0 the server adopts the clients' mean. Adaptive rules need smaller steps.
    """
    if rule in ADAPTIVE:
        return 0.01
    return 1.0


def is_federated_setting(name: str) -> bool:
    """Return whether a searched parameter is a setting of the section `federated`."""
    return name.startswith(PREFIX)


def federated_with(
    federated: Federated | None, params: Mapping[str, JsonValue]
) -> Federated | None:
    """Return the section with the values of one configuration filled in.

    Args:
        federated: The section, or None if the experiment is not federated.
        params: The configuration of the trial.

    Raises:
        ExperimentError: If the resulting section is not valid.
    """
    searched = {name: value for name, value in params.items() if is_federated_setting(name)}
    if federated is None or not searched:
        return federated
    changed = _with_values(federated, searched)
    _check_robust(changed, params)
    return changed


def check_federated(
    federated: Federated,
    search: Space,
    *,
    training: Training,
    plan: PlanSettings,
    resources: Resources,
    wanted: Collection[str],
) -> None:
    """Check the section `federated`, its searched values, and the settings that it excludes.

    Args:
        federated: The section.
        search: What is searched, including settings of the section.
        training: How each client trains.
        plan: How a trial uses hardware.
        resources: What the run may use.
        wanted: The metrics of objectives and constraints.

    Raises:
        ExperimentError: If a setting would be ignored, or a value is not allowed.
    """
    searched = {name: item for name, item in search.root.items() if is_federated_setting(name)}
    _check_searched(federated, searched)
    _check_training(training, search, resources)
    _check_plan(plan, search)
    _check_what_is_read(federated, set(searched))
    _check_robust(federated, {})
    _check_target(federated, wanted)


def _with_values(federated: Federated, values: Mapping[str, Any]) -> Federated:
    written: dict[str, Any] = federated.model_dump(mode="json")
    for name, value in values.items():
        setting, _, option = name.removeprefix(PREFIX).partition(".")
        if option:
            written[setting] = {option: value}
        else:
            written[setting] = value
    try:
        return Federated.model_validate(written)
    except ValidationError as error:
        rejected = refusal(error)
        problem, field = rejected.problem, f"federated.{rejected.field}"
        if len(values) == 1:
            ((name, value),) = values.items()
            problem, field = f"{value!r} is not a value of {name}", f"search.{name}"
        raise ExperimentError(
            problem,
            field=field,
            allowed=rejected.allowed or rejected.problem,
            next_step=rejected.next_step,
        ) from error


def _check_searched(federated: Federated, searched: Mapping[str, Domain]) -> None:
    for name, domain in searched.items():
        setting = name.removeprefix(PREFIX).partition(".")[0]
        if setting in federated.model_fields_set:
            raise ExperimentError(
                f"federated.{setting} is set and also searched",
                field=f"search.{name}",
                next_step="Remove one of the two.",
            )
        for value in values_to_check(domain):
            _with_values(federated, {name: value})


def _check_training(training: Training, search: Space, resources: Resources) -> None:
    written = training.model_fields_set
    for name, reason in _OF_OPTIMIZER_STEPS.items():
        fields = [f"search.{param}" for param in search.root if param.partition(".")[0] == name]
        if name in written:
            fields.append(f"training.{name}")
        if fields:
            raise ExperimentError(
                reason, field=fields[0], next_step="Remove it, or the section federated."
            )
    for pattern, group in training.parameter_groups.items():
        if group.frozen_epochs:
            raise ExperimentError(
                "each client starts its own training, so epochs cannot be counted",
                field=f"training.parameter_groups.{pattern}.frozen_epochs",
                next_step="Remove it, or the section federated.",
            )
    if "adascale" in possible_values(search, "lr_rule", training.lr_rule):
        section = "search" if "lr_rule" in search.root else "training"
        raise ExperimentError(
            "adascale needs the gradient noise, which is not measured on clients",
            field=f"{section}.lr_rule",
            allowed="auto, constant, linear, sqrt, legw",
        )
    if resources.elastic:
        raise ExperimentError(
            "a client's steps cannot be divided among more workers",
            field="resources.elastic",
            allowed="false with the section federated",
            next_step="Set plan.workers instead.",
        )
    if resources.advice == "always":
        raise ExperimentError(
            "plans cannot be measured for federated training",
            field="resources.advice",
            allowed="auto, never",
        )


def _check_plan(plan: PlanSettings, search: Space) -> None:
    other = find_other_value(plan, search, {name: allowed for name, (allowed, _) in _PLAN.items()})
    if other is not None:
        dimension, field = other
        allowed, reason = _PLAN[dimension]
        raise ExperimentError(
            reason,
            field=field,
            allowed=["auto", *(str(value) for value in allowed)],
            next_step="Remove it, or the section federated.",
        )


def _check_what_is_read(federated: Federated, searched: set[str]) -> None:
    """Raise an error for a setting that the chosen server or aggregation does not read."""
    for name, (chooser, readers) in _READ_BY.items():
        is_searched = PREFIX + name in searched
        if not is_searched and name not in federated.model_fields_set:
            continue
        if PREFIX + chooser not in searched and getattr(federated, chooser) not in readers:
            field = PREFIX + name
            if is_searched:
                field = f"search.{field}"
            raise ExperimentError(
                f"{getattr(federated, chooser)} does not use it",
                field=field,
                next_step=f"Remove it, or set federated.{chooser} to {' or '.join(readers)}.",
            )


def _check_target(federated: Federated, wanted: Collection[str]) -> None:
    reached = [name for name in (ROUNDS_METRIC, BYTES_TO_TARGET_METRIC) if name in wanted]
    if reached and federated.target is None:
        raise ExperimentError(
            f"{reached[0]} needs a target",
            field="federated.target",
            next_step="Add one, such as target: {metric: val_accuracy, at_least: 0.9}.",
        )


def _check_robust(federated: Federated, params: Mapping[str, Any]) -> None:
    if federated.secure and federated.aggregation != "mean":
        field = "federated.aggregation"
        if field in params:
            field = f"search.{field}"
        raise ExperimentError(
            f"{federated.aggregation} compares single clients, which federated.secure hides",
            field=field,
            allowed="mean with federated.secure",
            next_step="Remove one of the two.",
        )
