"""The experiment: what to tune, as one frozen object, one YAML file, one content hash.

It states what the user wants and checks that it is consistent: names, ranges, conditions, parts
that exclude each other. Whether models, datasets and hardware can satisfy it is checked where a run
starts. Every refusal names the dotted field, what was allowed, and the next step.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    Tag,
    ValidationError,
    model_serializer,
    model_validator,
)
from typing_extensions import Self

from workbench.experiment.alert_rules import AlertRule
from workbench.experiment.aliases import resolve_aliases, written_names
from workbench.experiment.command import parse_command
from workbench.experiment.components import Component
from workbench.experiment.federated import Federated, check_federated
from workbench.experiment.fidelity import WrittenFidelity, check_fidelity
from workbench.experiment.goals import Constraint, Goal, Objective
from workbench.experiment.metric_source import MetricSource
from workbench.experiment.naming import check_name
from workbench.experiment.own_advice import OwnAdvice
from workbench.experiment.plan_settings import PlanSettings
from workbench.experiment.populations import check_population, num_parts
from workbench.experiment.private import check_private
from workbench.experiment.pruners import pruners_for_several_objectives
from workbench.experiment.refusals import refusal_of_all
from workbench.experiment.samplers import samplers_for_several_objectives
from workbench.experiment.search_methods import Confirm, EarlyStop, Sampler
from workbench.experiment.searched_fields import check_searched_fields
from workbench.experiment.sections import Budget, Resources, Training
from workbench.experiment.setting_types import PositiveInt
from workbench.experiment.space import Space
from workbench.experiment.what_is_trained import (
    check_gradient_hook,
    check_momentum,
    check_one_checkpoint,
    check_unit,
    check_what_is_trained,
)
from workbench.experiment.yaml_file import read_yaml, read_yaml_file, write_yaml
from workbench.foundation.errors import ExperimentError, WorkbenchError
from workbench.foundation.outside_text import escaped, unwritable_text
from workbench.foundation.python_values import python_values

__all__ = [
    "Budget",
    "Component",
    "Confirm",
    "Constraint",
    "EarlyStop",
    "Experiment",
    "Objective",
    "PlanSettings",
    "Resources",
    "Sampler",
    "Space",
    "Training",
]

DEFAULT_TRIALS = 20
_NAMED = ("model", "data", "train", "loss", "sampler")
_Metrics = Annotated[
    Annotated[tuple[Component, ...], Tag("metric-list")]
    | Annotated[MetricSource, Tag("metric-source")],
    Discriminator(
        lambda given: (
            "metric-source" if isinstance(given, Mapping | MetricSource) else "metric-list"
        )
    ),
]


class Experiment(BaseModel):
    """What to tune: model, data, objectives, search space, training defaults, budget, resources.

    Example:
        >>> experiment = wb.Experiment(
        ...     model="mlp", data="digits", objectives=[{"metric": "val_loss", "goal": "minimize"}]
        ... )
        >>> experiment.replace(training={"epochs": 5}).training.epochs
        5
        >>> wb.Experiment.from_yaml(experiment.to_yaml()).hash() == experiment.hash()
        True
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: Annotated[str, AfterValidator(check_name)] = Field(
        default="experiment", min_length=1, max_length=80, description="Name of the experiment."
    )
    model: Component | None = Field(
        default=None, description="A zoo name, package.module:function, or a callable."
    )
    data: Component | None = Field(
        default=None, description="A dataset name, package.module:function, or a callable."
    )
    train: Component | None = Field(
        None,
        description=(
            "Instead of model and data: a function (config, report), by package.module:function. "
            "With data: a class with steps of its own."
        ),
    )
    command: Annotated[
        str | None, BeforeValidator(lambda given: None if given is None else parse_command(given))
    ] = Field(
        None,
        description=(
            "Instead of model and data: a program to start, with placeholders for the parameters, "
            "such as python train.py --lr {lr}; a line or a list."
        ),
    )
    loss: Component | None = Field(
        default=None,
        description=(
            "Loss; the default is the one that the model returns, else that of the data's task."
        ),
    )
    metrics: _Metrics = Field(
        default=(),
        description=(
            "Metrics; the default follows from the data's task. Of a command: where its metrics are"
            " read."
        ),
    )
    step: str | None = Field(
        default=None,
        min_length=1,
        description=(
            "Name of the value by which a command counts its steps, such as epoch; without it, its "
            "reports are counted."
        ),
    )
    advise: OwnAdvice | None = Field(
        default=None,
        description=(
            "Of a train function or a command: the parameters that `workbench advise` chooses, "
            "such as {batch: batch_size, workers: true}, and the speed that it reports."
        ),
    )
    objectives: tuple[Objective, ...] = Field(min_length=1, description="What to improve.")
    goals: dict[str, Goal] = Field(
        default_factory=dict,
        description=(
            "Which direction of other reported metrics is better, such as {f1: maximize}, where "
            "neither an objective nor the metric itself declares it."
        ),
    )
    constraints: tuple[Constraint, ...] = Field(
        default=(), description="Limits that a trial must keep to be feasible."
    )
    search: Space = Field(default_factory=lambda: Space({}), description="Parameters, by name.")
    fidelity: WrittenFidelity | None = Field(
        default=None,
        description=(
            "What makes trainings cheaper, from the smallest to the full value: {epochs: [1, 50]}, "
            "{samples: [0.1, 1.0]}, or a parameter such as {image_size: [32, 128]}; only promising "
            "configurations are trained in full."
        ),
    )
    training: Training = Field(default_factory=lambda: Training())
    plan: PlanSettings = Field(default_factory=lambda: PlanSettings())
    federated: Federated | None = Field(
        default=None,
        description=(
            "Train the model in rounds on clients that keep their samples: {clients: 100, "
            "fraction: 0.1}; training.epochs is the number of rounds."
        ),
    )
    budget: Budget = Field(default_factory=lambda: Budget())
    sampler: Sampler = Field(default_factory=lambda: Sampler())
    early_stop: EarlyStop = Field(default_factory=lambda: EarlyStop())
    confirm: Confirm = Field(default_factory=lambda: Confirm())
    resources: Resources = Field(default_factory=lambda: Resources())
    alerts: tuple[AlertRule, ...] = Field(
        default=(), description="Rules that raise alerts about the run."
    )
    report_to: tuple[str, ...] = Field(
        default=(), description="Loggers that receive each trial: tensorboard, mlflow, wandb."
    )
    repeats: PositiveInt = Field(
        default=1, description="Number of trainings per configuration, each with a different seed."
    )
    seed: int = Field(
        default=0, ge=0, lt=2**32, description="Seed of everything random in the run."
    )

    def __init__(self, /, **fields: Any) -> None:
        """Check and build an experiment.

        Args:
            **fields: The fields of an experiment file; sections may be mappings.

        Raises:
            ExperimentError: If anything is wrong; all that is wrong is listed.
        """
        _refuse_unwritable(fields)
        written = written_names(fields)
        try:
            super().__init__(**resolve_aliases(python_values(fields)))
        except ValidationError as error:
            raise refusal_of_all(error, Experiment, written) from error
        vars(self)["_written_names"] = (
            written  # no field, and so no part of what is compared and stored
        )

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_what_is_trained(self)
        _check_objectives(self)
        check_unit(self)
        check_momentum(self)
        check_gradient_hook(self)
        check_private(self)
        check_searched_fields(self)
        is_endless = self.max_configurations() is None and not _enumerates_grid(self.sampler)
        self.confirm.check(
            repeats=self.repeats, num_objectives=len(self.objectives), is_endless=is_endless
        )
        check_federated(self)
        check_population(self)
        check_fidelity(self)
        return self

    @model_serializer(mode="wrap")
    def _write_what_differs(self, handler: SerializerFunctionWrapHandler) -> Any:
        written: dict[str, Any] = handler(self)
        return {
            key: value
            for key, value in written.items()
            if value not in (None, {}, [], ())
            and not (key in ("repeats", "seed") and value == type(self).model_fields[key].default)
            and not (key == "sampler" and value == {})
        }

    @property
    def written_names(self) -> Mapping[str, str]:
        """The keys that the user wrote in place of ours, by the dotted path of ours."""
        return vars(self).get("_written_names", {})

    @property
    def trains_model(self) -> bool:
        """Whether the workbench's own loop trains it, not a function or a program."""
        return self.command is None and (self.train is None or self.makes_own_steps)

    @property
    def makes_own_steps(self) -> bool:
        """Whether `train` is a class whose steps the workbench's own loop makes on `data`."""
        return self.train is not None and self.data is not None

    @property
    def trained(self) -> Component | None:
        """What the workbench's own loop trains: a model, or a class with steps of its own."""
        return self.train if self.makes_own_steps else self.model

    @property
    def leaves_loss_to_model(self) -> bool:
        """Whether the model receives the targets and computes its loss itself."""
        return self.loss is not None and self.loss.name == "model"

    @property
    def own_metrics(self) -> tuple[Component, ...]:
        """The metrics that the workbench computes in addition to those of the task."""
        return self.metrics if isinstance(self.metrics, tuple) else ()

    @property
    def limited_metrics(self) -> frozenset[str]:
        """The metrics that are compared with limits.

        Of constraints, and of the target of a federation.
        """
        limits = list(self.constraints)
        if self.federated is not None and self.federated.target is not None:
            limits.append(self.federated.target)
        return frozenset(limit.metric for limit in limits)

    @property
    def decisive_metrics(self) -> frozenset[str]:
        """The metrics that can end a trial.

        Objectives, those with limits, and what early stopping counts.
        """
        counted = self.early_stop.counted_metric
        improved = (objective.metric for objective in self.objectives)
        return self.limited_metrics.union(improved, () if counted is None else (counted,))

    @property
    def metric_source(self) -> MetricSource:
        """Where the metrics of a program are read."""
        return self.metrics if isinstance(self.metrics, MetricSource) else MetricSource()

    @classmethod
    def from_yaml(cls, text: str) -> Experiment:
        """Read an experiment from YAML text.

        Raises:
            ExperimentError: If the text is no experiment.
        """
        return cls(**read_yaml(text))

    @classmethod
    def from_file(cls, path: str | Path) -> Experiment:
        """Read an experiment file.

        Raises:
            ExperimentError: If the file cannot be read or is no experiment.
        """
        document = read_yaml_file(Path(path))
        document.setdefault("name", Path(path).stem)
        return cls(**document)

    def to_yaml(self) -> str:
        """Write the experiment as YAML, without what equals the default."""
        return write_yaml(self.model_dump(mode="json"))

    def hash(self) -> str:
        """Return the identity of the experiment: SHA-256 of its canonical JSON, in hexadecimal.

        Two experiments that mean the same, however they were written, have the same hash; the name
        is a label and does not count.
        """
        document = self.model_dump(mode="json", exclude={"name"})
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()

    def max_configurations(self) -> int | None:
        """Return how many configurations a run may propose, or None where only other limits end it.

        Where nothing is searched there is only one. An experiment without any limit gets
        `DEFAULT_TRIALS`, or one for each part of the trainings of its population: no run is endless
        by accident.
        """
        budget = self.budget
        if not self.search.has_choice and num_parts(self) is None:
            return 1
        others = (budget.time, budget.gpu_time, budget.energy, budget.money, budget.plateau)
        if budget.trials is None and (set(others) != {None} or _enumerates_grid(self.sampler)):
            return None
        return budget.trials or num_parts(self) or DEFAULT_TRIALS

    def max_trainings(self) -> int | None:
        """Return how many trainings a run may have, repeats included, or None as
        `max_configurations`.
        """
        most = self.max_configurations()
        return (
            None if most is None else most * self.repeats + self.confirm.max_trainings(self.repeats)
        )

    def replace(self, /, **settings: Any) -> Experiment:
        """Return a copy with some settings changed.

        Args:
            **settings: Values by field; of a section, a mapping changes what it names and keeps the
                rest: `replace(training={"epochs": 5})` changes only the epochs. Where another
                model, data, loss or sampler is named, the options of the one before are left.

        Raises:
            ExperimentError: If the result is no experiment.
        """
        document = self.model_dump(mode="json")
        for key, value in settings.items():
            before = document.get(key)
            if isinstance(value, Mapping) and isinstance(before, Mapping):
                document[key] = {**({} if _names_another(key, value, before) else before), **value}
            else:
                document[key] = value
        from workbench.experiment.stored import read_document

        # Where a sampler that is not installed was read, it is kept.
        keeps = "sampler" not in settings and "early_stop" not in settings
        changed = read_document(document) if keeps else Experiment(**document)
        vars(changed)["_written_names"] = self.written_names
        return changed.with_payloads(self.payloads())

    def payloads(self) -> dict[str, bytes]:
        """Return the bytes of embedded objects that are at hand, by their SHA-256."""
        return {
            component.payload_hash: component.payload
            for component in self._components().values()
            if component.payload_hash and component.payload
        }

    def payload_hashes(self) -> list[str]:
        """Return the SHA-256 of every embedded object, at hand or not."""
        hashes = (component.payload_hash for component in self._components().values())
        return sorted({found for found in hashes if found})

    def with_payloads(self, payloads: Mapping[str, bytes]) -> Experiment:
        """Return the experiment with the bytes of its embedded objects put back.

        Args:
            payloads: Bytes by their SHA-256; those that the experiment does not name are left out.

        Raises:
            RunError: If bytes do not match their hash.
        """

        def restore(component: Component) -> Component:
            payload = payloads.get(component.payload_hash or "")
            return component if payload is None else component.with_payload(payload)

        update: dict[str, Any] = {
            key: restore(component)
            for key, component in self._components().items()
            if "." not in key
        }
        if isinstance(self.metrics, tuple):
            update["metrics"] = tuple(restore(metric) for metric in self.metrics)
        return self.model_copy(update=update)

    def _components(self) -> dict[str, Component]:
        named = {"model": self.model, "data": self.data, "train": self.train, "loss": self.loss}
        found = {key: component for key, component in named.items() if component is not None}
        return found | {f"metrics.{index}": metric for index, metric in enumerate(self.own_metrics)}


def _enumerates_grid(sampler: Sampler) -> bool:
    """Return whether configurations are the points of a grid.

    False if the sampler is not installed.
    """
    try:
        return sampler.kind.enumerates_grid
    except WorkbenchError:
        return False


def _refuse_unwritable(fields: Mapping[str, Any]) -> None:
    """Refuse texts that neither YAML nor JSON can hold, such as names of files that are not
    UTF-8.
    """
    found = unwritable_text(fields)
    if found is not None:
        place, text = found
        raise ExperimentError(
            f"{text[:200]!a} is not Unicode text, so no file and no store can keep it",
            field=escaped(place),
            allowed="text that can be written as UTF-8",
            next_step="Rename the file, or choose by a number and keep the names in your code.",
        )


def _names_another(key: str, value: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Return whether a setting names another component or sampler, to which the old options mean
    nothing.
    """
    return key in _NAMED and "name" in value and value["name"] != before.get("name")


def _check_objectives(experiment: Experiment) -> None:
    metrics = [objective.metric for objective in experiment.objectives]
    for index, metric in enumerate(metrics):
        if metric in metrics[:index]:
            raise ExperimentError(
                f"{metric} is an objective already",
                field=f"objectives.{index}.metric",
                next_step="Remove one.",
            )
    for metric in experiment.goals:
        if metric in metrics:
            raise ExperimentError(
                f"{metric} is an objective, which states its goal",
                field=f"goals.{metric}",
                next_step="Remove it here.",
            )
    check_one_checkpoint(experiment)
    if len(metrics) > 1 and not experiment.early_stop.kind.handles_several_objectives:
        raise ExperimentError(
            f"{experiment.early_stop.pruner} cannot rank trials by several objectives",
            field="early_stop.pruner",
            allowed=pruners_for_several_objectives(),
            next_step="Choose another pruner, or turn all objectives but one into constraints.",
        )
    if len(metrics) > 1 and not experiment.sampler.kind.handles_several_objectives:
        raise ExperimentError(
            "supports only one objective",
            field="sampler.name",
            allowed=samplers_for_several_objectives(),
        )
