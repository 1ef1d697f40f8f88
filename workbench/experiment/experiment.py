"""The experiment itself: its fields, what follows from them, and what excludes each other."""

from __future__ import annotations

import hashlib
import json
import unicodedata
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
from workbench.experiment.command import check_command, parse_command
from workbench.experiment.components import Component
from workbench.experiment.dotted import SHORT_FORMS
from workbench.experiment.federated import Federated, check_federated, is_federated_setting
from workbench.experiment.fidelity import Levels, WrittenFidelity
from workbench.experiment.goals import Constraint, Goal, Objective
from workbench.experiment.metric_source import MetricSource
from workbench.experiment.own_advice import OwnAdvice
from workbench.experiment.plan import PlanValue
from workbench.experiment.populations import check_options, num_parts, options_of
from workbench.experiment.pruners import PRUNERS, pruners_for_several_objectives
from workbench.experiment.refusals import refusal_of_all
from workbench.experiment.samplers import (
    SAMPLERS,
    samplers_for_fidelities,
    samplers_for_several_objectives,
)
from workbench.experiment.search_methods import Confirm, EarlyStop, Sampler
from workbench.experiment.searched_fields import check_searched_fields
from workbench.experiment.sections import Budget, PlanSettings, Resources, find_other_value
from workbench.experiment.setting_types import PositiveInt, Section
from workbench.experiment.space import Space
from workbench.experiment.training_section import PRIVATE_PREFIX, Training
from workbench.experiment.yaml_file import read_yaml, read_yaml_file, write_yaml
from workbench.foundation.errors import ExperimentError, WorkbenchError
from workbench.foundation.outside_text import escaped, unwritable_text
from workbench.foundation.python_values import python_values
from workbench.foundation.registry import Registry

_ALLOWED = "one line of printable characters without / and \\"


def check_name(name: str) -> str:
    """Return the name of an experiment, or refuse it.

    Args:
        name: The requested name.

    Raises:
        ExperimentError: If it is blank, looks like a path, or contains an invisible character: a
            control character, or one that turns the direction of writing, so that it reads as
            something else.
    """
    if not name.strip(" ."):
        raise ExperimentError(f"{name!r} has no visible characters", allowed=_ALLOWED)
    for character in name:
        if character in "/\\":
            raise ExperimentError(
                f"{name!r} contains {character}, like a path",
                allowed=_ALLOWED,
                next_step="Use - instead.",
            )
        if not character.isprintable():
            title = unicodedata.name(character, "a character without a name").lower()
            raise ExperimentError(
                f"{name!a} contains U+{ord(character):04X} ({title}), which is invisible",
                allowed=_ALLOWED,
                next_step="Remove it.",
            )
    return name


DEFAULT_TRIALS = 20
_OF_OPTIMIZERS = (
    "optimizer",
    "momentum",
    "weight_decay",
    "optimizer_options",
    "parameter_groups",
    "adapter",
    "gradient_hook",
    "initialisation",
)
# What a plan may hold by dimension, why nothing else, and the next step.
_PLAN_OF_OWN_STEPS: dict[str, tuple[tuple[PlanValue, ...], str, str]] = {
    "compile": (
        ("none",),
        "own steps call their modules themselves",
        "Remove it, and call torch.compile in configure.",
    ),
    "memory_format": (
        ("contiguous",),
        "own steps call their modules themselves",
        "Remove it, and convert modules and images in configure and in each step.",
    ),
    "stages": ((1,), "own steps call their modules themselves", "Remove it."),
    "tensor": ((1,), "own steps call their modules themselves", "Remove it."),
    "exchange": (("allreduce",), "own steps exchange their gradients themselves", "Remove it."),
    "strategy": (
        ("single", "ddp"),
        "own steps need the whole model on each worker",
        "Remove the others.",
    ),
}
_OF_PROGRAMS = ("stop_grace", "max_log_size")


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
        _check_what_is_trained(self)
        _check_objectives(self)
        _check_unit(self)
        _check_momentum(self)
        _check_gradient_hook(self)
        _check_private(self)
        if self.trains_model:
            check_searched_fields(self.search, self.training, self.plan)
        is_endless = self.max_configurations() is None and not _enumerates_grid(self.sampler)
        self.confirm.check(
            repeats=self.repeats, num_objectives=len(self.objectives), is_endless=is_endless
        )
        _check_federated(self)
        _check_population(self)
        _check_fidelity(self)
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
        num_of_population = num_parts(self.sampler, self.training.epochs)
        if not self.search.has_choice and num_of_population is None:
            return 1
        others = (budget.time, budget.gpu_time, budget.energy, budget.money, budget.plateau)
        if budget.trials is None and (set(others) != {None} or _enumerates_grid(self.sampler)):
            return None
        return budget.trials or num_of_population or DEFAULT_TRIALS

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
    _check_one_checkpoint(experiment)
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


def _check_what_is_trained(experiment: Experiment) -> None:
    """Check that an experiment names one thing to train, and nothing that this would ignore."""
    if experiment.advise is not None:
        if experiment.train is None and experiment.command is None:
            raise ExperimentError(
                "the advisor knows the batch and the rate of a model",
                field="advise",
                next_step="Remove it.",
            )
        experiment.advise.check(experiment.search, experiment.plan)
    if experiment.command is not None:
        _check_program(experiment)
        return
    _refuse_settings_of_programs(experiment)
    if experiment.train is not None:
        _check_function(experiment)
        return
    for field in ("model", "data"):
        if getattr(experiment, field) is None:
            raise ExperimentError(
                "missing",
                field=field,
                next_step="Name a model and data, a train function, or a command.",
            )


def _check_unit(experiment: Experiment) -> None:
    """Refuse a unit of early stopping in which the training does not count."""
    unit = experiment.early_stop.unit
    if experiment.trains_model and unit not in (None, "epochs"):
        raise ExperimentError(
            f"a model is not counted in {unit}",
            field="early_stop.unit",
            allowed="epochs",
            next_step="Remove it; only a train function or a command chooses its unit.",
        )
    if unit in [objective.metric for objective in experiment.objectives]:
        raise ExperimentError(
            f"{unit} is an objective and so does not measure progress",
            field="early_stop.unit",
            allowed="steps, or another metric that is reported",
        )


def _check_one_checkpoint(experiment: Experiment) -> None:
    """Refuse objectives that are read at different checkpoints of one model.

    Only one is exported.
    """
    follows_best = [item.value in ("returned", "best") for item in experiment.objectives]
    if experiment.trains_model and len(set(follows_best)) > 1:
        raise ExperimentError(
            "a model is exported from one checkpoint, but the objectives use two",
            field=f"objectives.{follows_best.index(not follows_best[0])}.value",
            allowed="returned or best" if follows_best[0] else "last or {mean_last: 3}",
            next_step="Have all objectives follow the best checkpoint, or all the last one.",
        )


def _check_momentum(experiment: Experiment) -> None:
    """Refuse a momentum that no optimizer of the experiment reads."""
    optimizers = experiment.search.root.get("optimizer")
    named = [experiment.training.optimizer] if optimizers is None else optimizers.values() or []
    if any(str(name).lower() == "sgd" for name in named) or not experiment.trains_model:
        return
    fields = {"search.momentum": "momentum" in experiment.search.root}
    fields["training.momentum"] = "momentum" in experiment.training.model_dump()
    for field, is_given in fields.items():
        if is_given:
            raise ExperimentError(
                "only the optimizer sgd reads it",
                field=field,
                next_step="Remove it, or train with sgd.",
            )


def _check_gradient_hook(experiment: Experiment) -> None:
    """Refuse options of a gradient hook where none is named."""
    if experiment.training.gradient_hook is not None or "gradient_hook" in experiment.search.root:
        return
    setting = "gradient_hook_options"
    searched = [name for name in experiment.search.root if name.startswith(f"{setting}.")]
    if searched or experiment.training.gradient_hook_options:
        raise ExperimentError(
            "there is no gradient hook that would receive it",
            field=f"search.{searched[0]}" if searched else f"training.{setting}",
            next_step="Name the function as training.gradient_hook, or remove it.",
        )


def _check_function(experiment: Experiment) -> None:
    assert experiment.train is not None
    for field in ("model", "loss"):
        if getattr(experiment, field) is not None:
            raise ExperimentError(
                f"what train names defines its own {field}",
                field=field,
                next_step=f"Remove {field} or train.",
            )
    if not experiment.train.is_reference:
        raise ExperimentError(
            f"{experiment.train.name!r} does not name a function",
            field="train",
            allowed="package.module:function, or with data package.module:Class",
            next_step=(
                "Write a command line as command instead of train."
                if " " in experiment.train.name
                else None
            ),
        )
    if experiment.makes_own_steps:
        _check_own_steps(experiment)
        return
    _refuse_sections(
        experiment,
        "a train function decides this itself",
        "Remove it, or pass it to the function: under train, beside its name.",
    )
    if experiment.metrics:
        raise ExperimentError(
            "a train function reports its own", field="metrics", next_step="Remove it."
        )


def _check_own_steps(experiment: Experiment) -> None:
    if experiment.metrics:
        raise ExperimentError(
            "own steps measure their own metrics",
            field="metrics",
            next_step="Remove it, and return the metrics from the method evaluate.",
        )
    for name in _OF_OPTIMIZERS:
        if name in experiment.training.model_fields_set:
            raise ExperimentError(
                "own steps make their optimizers themselves",
                field=f"training.{name}",
                next_step="Remove it, or pass it to the class: under train, beside its name.",
            )
    other = find_other_value(
        experiment.plan,
        experiment.search,
        {name: allowed for name, (allowed, *_) in _PLAN_OF_OWN_STEPS.items()},
    )
    if other is not None:
        allowed, reason, next_step = _PLAN_OF_OWN_STEPS[other[0]]
        raise ExperimentError(
            reason, field=other[1], allowed=[str(value) for value in allowed], next_step=next_step
        )


def _check_program(experiment: Experiment) -> None:
    assert experiment.command is not None
    for field in ("model", "data", "train", "loss"):
        if getattr(experiment, field) is not None:
            raise ExperimentError(
                "a command starts a program that has its own",
                field=field,
                next_step=f"Remove {field} or command.",
            )
    _refuse_sections(
        experiment,
        "a program decides this itself",
        "Remove it, or pass it to the program: in command.",
    )
    if experiment.own_metrics:
        raise ExperimentError(
            "a program computes its own",
            field="metrics",
            allowed="where they are read, such as {from: auto} or {jsonl: PATH}",
        )
    if experiment.early_stop.counted_metric is not None:
        raise ExperimentError(
            "the steps of a command are counted by step",
            field="early_stop.unit",
            next_step=f"Remove it, and write step: {experiment.early_stop.unit}.",
        )
    check_command(experiment.command, experiment.search)


def _refuse_sections(experiment: Experiment, problem: str, next_step: str) -> None:
    """Refuse settings of the workbench's own loop."""
    for section in ("training", "plan"):
        for name in getattr(experiment, section).model_dump():
            if (section, name) != ("plan", "workers"):
                raise ExperimentError(problem, field=f"{section}.{name}", next_step=next_step)


def _refuse_settings_of_programs(experiment: Experiment) -> None:
    if experiment.step is not None:
        raise ExperimentError(
            "only a command counts its steps by it", field="step", next_step="Remove it."
        )
    if not isinstance(experiment.metrics, tuple):
        raise ExperimentError(
            "only the metrics of a command are read from somewhere",
            field="metrics",
            allowed="a list of metrics",
            next_step="Remove it, or write a command.",
        )
    written = experiment.resources.model_dump()
    for name in _OF_PROGRAMS:
        if name in written:
            raise ExperimentError(
                "only a command has it", field=f"resources.{name}", next_step="Remove it."
            )


def _check_private(experiment: Experiment) -> None:
    """Refuse what a private training excludes, or its settings where the training is not."""
    if experiment.training.private is None:
        for name in experiment.search.root:
            if name.startswith(PRIVATE_PREFIX):
                raise ExperimentError(
                    "the training is not private",
                    field=f"search.{name}",
                    next_step="Add training.private: {epsilon: 8}, or remove the parameter.",
                )
        return
    if experiment.model is None or experiment.federated is not None:
        raise ExperimentError(
            "only a model that the workbench trains by itself can be trained with differential"
            " privacy",
            field="training.private",
            next_step="Remove it, or name a model and data, without federated.",
        )
    experiment.training.check_private(experiment.search, experiment.plan)


def _check_federated(experiment: Experiment) -> None:
    """Refuse what a federation excludes, or its settings where there is none."""
    if experiment.federated is None:
        searched = next(filter(is_federated_setting, experiment.search.root), None)
        if searched is not None and experiment.trains_model:
            raise ExperimentError(
                "the experiment is not federated",
                field=f"search.{searched}",
                next_step="Add a section federated, or remove the parameter.",
            )
        return
    if experiment.model is None:
        raise ExperimentError(
            "only a model is trained by clients",
            field="federated",
            next_step="Remove it, or name a model and data.",
        )
    check_federated(
        experiment.federated,
        experiment.search,
        training=experiment.training,
        plan=experiment.plan,
        resources=experiment.resources,
        wanted=[item.metric for item in (*experiment.objectives, *experiment.constraints)],
    )


def _check_fidelity(experiment: Experiment) -> None:
    """Refuse what cannot be searched at several levels."""
    levels = Levels.of(experiment.fidelity)
    if levels is None:
        return
    levels.check(experiment.search, trains_model=experiment.trains_model)
    kind = experiment.sampler.kind
    if kind.learns_from_complete_only or kind.enumerates_grid or kind.is_population:
        raise ExperimentError(
            f"{experiment.sampler.name} learns nothing from trainings at a low fidelity",
            field="sampler.name",
            allowed=samplers_for_fidelities(),
        )
    if len(experiment.objectives) > 1:
        raise ExperimentError(
            "the value of one objective decides which configurations are trained at a higher level",
            field="fidelity",
            next_step="Remove it, or turn all objectives but one into constraints.",
        )
    if experiment.early_stop.pruner != "none":
        raise ExperimentError(
            "trainings at a low fidelity are compared at their ends",
            field="early_stop.pruner",
            next_step="Remove it, or fidelity.",
        )
    if experiment.repeats > 1:
        raise ExperimentError(
            "a configuration is trained once at each level of its fidelity",
            field="repeats",
            next_step="Remove it; confirm trains the best configurations again.",
        )


def _check_population(experiment: Experiment) -> None:
    """Refuse what cannot be trained in parts."""
    options = options_of(experiment.sampler)
    if options is None:
        return
    name = experiment.sampler.name
    excluded: list[tuple[str, bool]] = [
        ("early_stop.pruner", experiment.early_stop.pruner != "none"),
        ("repeats", experiment.repeats > 1),
        ("confirm", experiment.confirm.best is not None),
        ("federated", experiment.federated is not None),
        ("training.private", experiment.training.private is not None),
        ("command", experiment.command is not None),
        ("search.epochs", "epochs" in experiment.search.root),
    ]
    for field, is_given in excluded:
        if is_given:
            raise ExperimentError(
                f"cannot be combined with the sampler {name}, whose trials are parts of trainings",
                field=field,
                next_step="Remove it, or choose another sampler.",
            )
    check_options(
        options,
        experiment.search,
        epochs=experiment.training.epochs,
        trains_model=experiment.trains_model,
    )


def write_stored(experiment: Experiment) -> str:
    """Return the JSON of an experiment as the store keeps it.

    It names the sampler even if that is the default, so that another default in a later version
    does not change what a run is.
    """
    document = experiment.model_dump(mode="json")
    return json.dumps({"sampler": {"name": experiment.sampler.name}} | document)


def read_stored(written: str) -> Experiment:
    """Read an experiment that was valid when it was stored.

    Args:
        written: Its JSON.

    Raises:
        ExperimentError: If this version cannot read it, for any other reason than a missing
            package.
    """
    return read_document(json.loads(written))


def read_document(document: Mapping[str, Any]) -> Experiment:
    """Read an experiment that was valid where its sampler and pruner are installed.

    Args:
        document: Its settings.

    Raises:
        ExperimentError: If this version cannot read it, for any other reason than a missing
            package.
    """
    absent = _absent_sections(document)
    found = Experiment(**{key: value for key, value in document.items() if key not in absent})
    return found.model_copy(update=absent) if absent else found


def check_installed(experiment: Experiment) -> None:
    """Check that the sampler and the pruner of an experiment are installed here.

    Raises:
        ExperimentError: If one is not.
    """
    named = (
        (SAMPLERS, experiment.sampler.name, "sampler.name"),
        (PRUNERS, experiment.early_stop.pruner, "early_stop.pruner"),
    )
    for registry, name, field in named:
        if (problem := _problem_of(registry, name)) is not None:
            raise ExperimentError(
                f"the {registry.kind} {name!r} is not installed here: {problem}",
                field=field,
                next_step="Install the package that provides it, here and where the run is driven.",
            )


def _absent_sections(document: Mapping[str, Any]) -> dict[str, Section]:
    absent: dict[str, Section] = {}
    sampler = _fields_of(document, "sampler")
    if _is_absent(SAMPLERS, sampler.get("name")):
        absent["sampler"] = Sampler.model_construct(**sampler)
    early_stop = _fields_of(document, "early_stop")
    if _is_absent(PRUNERS, early_stop.get("pruner")):
        absent["early_stop"] = EarlyStop.model_construct(**early_stop)
    return absent


def _fields_of(document: Mapping[str, Any], section: str) -> dict[str, Any]:
    """Return the fields of a section that may be written as one name."""
    written = document.get(section)
    if isinstance(written, str):
        return {SHORT_FORMS[section]: written}
    return dict(written) if isinstance(written, Mapping) else {}


def _is_absent(registry: Registry, name: object) -> bool:
    return isinstance(name, str) and _problem_of(registry, name) is not None


def _problem_of(registry: Registry, name: str) -> str | None:
    """Return why a name of a registry cannot be used here; None if it can."""
    try:
        registry.load(name)
    except WorkbenchError as error:
        return error.problem
    return None
