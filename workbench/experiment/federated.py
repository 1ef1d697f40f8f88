"""The `federated` section.

A trial whose clients keep their samples, and a server that sees their weights.

It states what is allowed and what excludes each other; `federated.<setting>` in the search space
stands for a setting. Who holds what, and what a server does, is left to
`workbench.training.federated`.
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

from workbench.experiment.goals import Constraint
from workbench.experiment.plan import PlanValue
from workbench.experiment.refusals import refusal
from workbench.experiment.sections import PlanSettings, Resources, find_other_value
from workbench.experiment.setting_types import Auto, Epochs, OptionalSeconds, PositiveInt, Section
from workbench.experiment.space import Space
from workbench.experiment.training_section import Training
from workbench.foundation.errors import ExperimentError

PREFIX = "federated."
ServerRule = Literal["fedavg", "fedavgm", "fedadagrad", "fedadam", "fedyogi"]
ADAPTIVE: tuple[ServerRule, ...] = ("fedadagrad", "fedadam", "fedyogi")
BYTES_METRIC = "bytes_per_client"
"""What each client has received and sent so far, on average, in bytes."""
ROUNDS_METRIC = "rounds_to_target"
"""The round in which the target was reached; one more than there are rounds until then."""
BYTES_TO_TARGET_METRIC = "bytes_to_target"
"""What a client had received and sent by then, on average.

Before, what `ROUNDS_METRIC` rounds take.
"""
ANSWERED_METRIC = "clients_answered"
"""How many clients sent something in the last round."""
SPREADS = ("min", "max", "std")
"""What is reported of the values of a metric over the clients."""
_Part = Annotated[float, Field(ge=0, lt=1)]
_MANY = 1000

# Which servers or aggregations read a setting; the others would ignore it.
_READ_BY: dict[str, tuple[str, tuple[str, ...]]] = {
    "server_momentum": ("server", ("fedavgm", *ADAPTIVE)),
    "server_second_moment": ("server", ("fedadam", "fedyogi")),
    "server_tau": ("server", ADAPTIVE),
    "trim": ("aggregation", ("trimmed_mean",)),
    "num_bad": ("aggregation", ("krum",)),
}
_OF_OPTIMIZER_STEPS = {
    "average_decay": "the server's rule takes the place of means of weights",
    "average_start": "the server's rule takes the place of means of weights",
    "average_lr": "the server's rule takes the place of means of weights",
    "measure_noise": "the noise of gradients is not measured on clients",
    "find_unused_parameters": "each client is trained by a single worker",
    "checkpoint_after": "checkpoints are written between rounds",
    "augment": "clients train on their samples as they are",
    "samples": "clients train on all of their samples",
}
# What a plan may hold by dimension, and why nothing else.
_PLAN: dict[str, tuple[tuple[PlanValue, ...], str]] = {
    "strategy": (("single",), "each client is trained by a single worker"),
    "stages": ((1,), "each client is trained by a single worker"),
    "tensor": ((1,), "each client is trained by a single worker"),
    "exchange": (("allreduce",), "workers exchange the weights of clients, not gradients"),
    "compile": (("none",), "the weights change with each client"),
    "memory_format": (("contiguous",), "the weights change with each client"),
    "loaders": ((0,), "clients are too small to be read ahead"),
}


_PARTITIONS = "iid, owners, {dirichlet: 0.3} or {labels: 2}"


class Partition(Section):
    """How the samples are divided among the clients; exactly one of these."""

    dirichlet: PositiveFloat | None = Field(
        default=None,
        description="Shares of each class from a Dirichlet distribution; 0.1 is very uneven.",
    )
    labels: PositiveInt | None = Field(
        default=None, description="Number of classes that each client has."
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.dirichlet is None) == (self.labels is None):
            raise ExperimentError("needs exactly one way", allowed=_PARTITIONS)
        return self


def _refuse_other_words(given: Any) -> Any:
    if isinstance(given, str) and given not in ("iid", "owners"):
        raise ExperimentError(f"{given!r} is not a way to divide samples", allowed=_PARTITIONS)
    return given


class Federated(Section):
    """Rounds of training on clients that keep their samples; an epoch of the trial is one round."""

    clients: PositiveInt = Field(
        description="Number of clients, among which the training samples are divided."
    )
    fraction: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.1,
        description="Share of the clients that takes part in a round; at least one does.",
    )
    local_epochs: Epochs = Field(
        default=1, description="Passes of a client over its own samples in a round."
    )
    partition: Annotated[
        Literal["iid", "owners"] | Partition, BeforeValidator(_refuse_other_words)
    ] = Field(
        default="iid",
        description=(
            "How samples are divided: iid; {dirichlet: 0.3} by class; {labels: 2} classes each; or "
            "owners, by the client that the data name for each sample."
        ),
    )
    server: ServerRule = Field(
        default="fedavg", description="What the server does with the mean change."
    )
    server_lr: PositiveFloat | Auto = Field(
        default="auto",
        title="Server's learning rate",
        description="The server's learning rate; auto: 1 for fedavg and fedavgm, else 0.01.",
    )
    server_momentum: _Part = Field(
        default=0.9, description="Decay of the server's running mean of changes."
    )
    server_second_moment: _Part = Field(
        default=0.99,
        description="Decay of the server's running mean of squares, for fedadam and fedyogi.",
    )
    server_tau: PositiveFloat = Field(
        default=1e-3, description="Added to the root of the mean square; larger values adapt less."
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
            "The mean by numbers of samples, or one that resists bad clients: trimmed_mean or krum."
        ),
    )
    trim: Annotated[float, Field(ge=0, lt=0.5)] = Field(
        default=0.1, description="Share of the clients that trimmed_mean leaves out at each end."
    )
    num_bad: PositiveInt = Field(
        default=1,
        title="Bad clients",
        description="Number of bad clients in a round that krum expects.",
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
        description="Leave a client out of a round whose own training takes longer than this.",
    )
    target: Constraint | None = Field(
        default=None,
        description=(
            "End the rounds once a metric reaches a value, {metric: val_accuracy, at_least: 0.9}; "
            "reported as rounds_to_target and bytes_to_target."
        ),
    )
    secure: bool = Field(
        default=False,
        description="Add up changes under pairwise masks, so that the server learns the sum only.",
    )


def client_metrics(measured: Iterable[str]) -> list[str]:
    """Return the names of what only a federation reports.

    Args:
        measured: Names of metrics of the validation samples; of the loss the spread counts only
            where it is the only one.
    """
    names = [name for name in measured if name != "loss"] or ["loss"]
    own = (BYTES_METRIC, ANSWERED_METRIC, ROUNDS_METRIC, BYTES_TO_TARGET_METRIC)
    return [*own, *(f"val_{name}_client_{kind}" for name in names for kind in SPREADS)]


def default_server_lr(rule: ServerRule) -> float:
    """Return the usual rate of a server: 1 keeps the mean of the clients.

    Adaptive ones take small steps.
    """
    return 0.01 if rule in ADAPTIVE else 1.0


def is_federated_setting(name: str) -> bool:
    """Return whether a parameter stands for a setting of the section `federated`."""
    return name.startswith(PREFIX)


def federated_with(
    federated: Federated | None, params: Mapping[str, JsonValue]
) -> Federated | None:
    """Return the section with the searched values of one configuration in their places.

    Args:
        federated: The section; None where the experiment is not federated.
        params: The configuration of the trial.

    Raises:
        ExperimentError: If the result is refused.
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
    """Check that a federation is trained as one, and every value that its settings may take.

    Args:
        federated: The section.
        search: What is searched, also settings of the section.
        training: How each client trains.
        plan: How a trial uses hardware.
        resources: What the run may use.
        wanted: The metrics of objectives and constraints.

    Raises:
        ExperimentError: If a setting would be ignored, or a value is refused.
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
        written[setting] = {option: value} if option else value
    try:
        return Federated.model_validate(written)
    except ValidationError as error:
        found = refusal(error)
        name = next(iter(values))
        raise ExperimentError(
            f"{values[name]!r} is not a value of {name}" if len(values) == 1 else found.problem,
            field=f"search.{name}" if len(values) == 1 else f"federated.{found.field}",
            allowed=found.allowed or found.problem,
            next_step=found.next_step,
        ) from error


def _check_searched(federated: Federated, searched: Mapping[str, Any]) -> None:
    for name, domain in searched.items():
        setting = name.removeprefix(PREFIX).partition(".")[0]
        if setting in federated.model_fields_set:
            raise ExperimentError(
                f"federated.{setting} is set and also searched",
                field=f"search.{name}",
                next_step="Remove one of the two.",
            )
        values = domain.values()
        ends = [getattr(domain, "low", None), getattr(domain, "high", None)]
        for value in ends if values is None or len(values) > _MANY else values:
            _with_values(federated, {name: value})


def _check_training(training: Training, search: Space, resources: Resources) -> None:
    given = training.model_fields_set
    for name, reason in _OF_OPTIMIZER_STEPS.items():
        searched = next((each for each in search.root if each.partition(".")[0] == name), None)
        if searched is not None or name in given:
            field = f"training.{name}" if searched is None else f"search.{searched}"
            raise ExperimentError(
                reason, field=field, next_step="Remove it, or the section federated."
            )
    for pattern, group in training.parameter_groups.items():
        if group.frozen_epochs:
            raise ExperimentError(
                "each client begins its own steps",
                field=f"training.parameter_groups.{pattern}.frozen_epochs",
                next_step="Remove it, or the section federated.",
            )
    rules = search.root.get("lr_rule")
    if "adascale" in ([training.lr_rule] if rules is None else rules.values() or []):
        raise ExperimentError(
            "the noise of gradients is not measured on clients",
            field="training.lr_rule" if rules is None else "search.lr_rule",
            allowed="auto, constant, linear, sqrt, legw",
        )
    if resources.elastic:
        raise ExperimentError(
            "more workers do not divide the steps of a client",
            field="resources.elastic",
            allowed="false here",
            next_step="Set plan.workers instead.",
        )
    if resources.advice == "always":
        raise ExperimentError(
            "plans of a federation are not measured",
            field="resources.advice",
            allowed="auto, never",
        )


def _check_plan(plan: PlanSettings, search: Space) -> None:
    found = find_other_value(plan, search, {name: allowed for name, (allowed, _) in _PLAN.items()})
    if found is not None:
        allowed, reason = _PLAN[found[0]]
        raise ExperimentError(
            reason,
            field=found[1],
            allowed=["auto", *(str(value) for value in allowed)],
            next_step="Remove it, or the section federated.",
        )


def _check_what_is_read(federated: Federated, searched: set[str]) -> None:
    """Refuse settings that the server or the aggregation that is named does not read."""
    for name, (chooser, readers) in _READ_BY.items():
        given = PREFIX + name in searched or name in federated.model_fields_set
        if (
            given
            and PREFIX + chooser not in searched
            and getattr(federated, chooser) not in readers
        ):
            raise ExperimentError(
                f"{getattr(federated, chooser)} does not read it",
                field=f"search.{PREFIX}{name}" if PREFIX + name in searched else PREFIX + name,
                next_step=f"Remove it, or set federated.{chooser} to {' or '.join(readers)}.",
            )


def _check_target(federated: Federated, wanted: Collection[str]) -> None:
    reached = [name for name in (ROUNDS_METRIC, BYTES_TO_TARGET_METRIC) if name in wanted]
    if reached and federated.target is None:
        raise ExperimentError(
            f"{reached[0]} needs one",
            field="federated.target",
            allowed="such as {metric: val_accuracy, at_least: 0.9}",
        )


def _check_robust(federated: Federated, params: Mapping[str, Any]) -> None:
    if federated.secure and federated.aggregation != "mean":
        name = "federated.aggregation"
        raise ExperimentError(
            f"{federated.aggregation} compares single clients, which secure aggregation hides",
            field=f"search.{name}" if name in params else name,
            allowed="mean with federated.secure",
            next_step="Set one of the two to its default.",
        )
