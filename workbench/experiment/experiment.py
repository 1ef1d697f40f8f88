"""The experiment: its fields, the properties that follow from them, and checks across fields."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

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
from workbench.experiment.code_versions import CODE
from workbench.experiment.command import (
    Workdir,
    check_command,
    files_to_resume_from,
    parse_command,
)
from workbench.experiment.components import Component
from workbench.experiment.domain import Versions
from workbench.experiment.dotted import SHORT_FORMS
from workbench.experiment.federated import Federated, check_federated, is_federated_setting
from workbench.experiment.fidelity import Levels, WrittenFidelity
from workbench.experiment.goals import (
    ENERGY_USED,
    MONEY_SPENT,
    RESOURCES,
    Constraint,
    Goal,
    Objective,
)
from workbench.experiment.metric_source import MetricSource
from workbench.experiment.own_advice import OwnAdvice
from workbench.experiment.plan import PlanValue
from workbench.experiment.populations import check_options, num_parts, options_of
from workbench.experiment.pruners import (
    PRUNERS,
    pruners_for_several_objectives,
    pruners_for_turns,
)
from workbench.experiment.samplers import (
    SAMPLERS,
    samplers_for_fidelities,
    samplers_for_several_objectives,
)
from workbench.experiment.search_methods import Confirm, EarlyStop, Sampler
from workbench.experiment.searched_fields import check_searched_fields
from workbench.experiment.sections import Budget, PlanSettings, Resources, find_other_value
from workbench.experiment.setting_types import PositiveInt, Section
from workbench.experiment.space import Space, possible_values
from workbench.experiment.training_section import PRIVATE_PREFIX, Training
from workbench.experiment.validation_errors import refusal_of_all
from workbench.experiment.yaml_file import read_yaml, read_yaml_file, write_yaml
from workbench.foundation.errors import ExperimentError, WorkbenchError
from workbench.foundation.outside_text import escaped, unwritable_text
from workbench.foundation.python_values import python_values
from workbench.foundation.registry import Registry

_ALLOWED = "one line of printable characters without / and \\"


def check_name(name: str) -> str:
    """Return the name of an experiment if it is allowed.

    Args:
        name: The requested name.

    Raises:
        ExperimentError: If the name is blank, looks like a path, or contains an invisible
            character. Some of these reverse the direction of the text, so that a name looks like a
            different one.
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
_CONFIRM = "confirm"
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
_CALLS_MODULES_ITSELF = "a class with its own steps calls its modules itself"
# For each dimension: the values that a class with its own steps allows, why, and the next step.
_PLAN_OF_OWN_STEPS: dict[str, tuple[tuple[PlanValue, ...], str, str]] = {
    "compile": (
        ("none",),
        _CALLS_MODULES_ITSELF,
        "Remove it, and call torch.compile in configure.",
    ),
    "memory_format": (
        ("contiguous",),
        _CALLS_MODULES_ITSELF,
        "Remove it, and convert modules and images in configure and in each step.",
    ),
    "stages": ((1,), _CALLS_MODULES_ITSELF, "Remove it."),
    "tensor": ((1,), _CALLS_MODULES_ITSELF, "Remove it."),
    "exchange": (
        ("allreduce",),
        "a class with its own steps exchanges its gradients itself",
        "Remove it.",
    ),
    "strategy": (
        ("single", "ddp"),
        "a class with its own steps needs the whole model on each worker",
        "Remove the other values.",
    ),
}
_OF_PROGRAMS = ("stop_grace", "max_log_size")


_NAMED = ("model", "data", "train", "loss", "sampler")


def _metrics_tag(given: object) -> str:
    if isinstance(given, Mapping | MetricSource):
        return "metric-source"
    return "metric-list"


_Metrics = Annotated[
    Annotated[tuple[Component, ...], Tag("metric-list")]
    | Annotated[MetricSource, Tag("metric-source")],
    Discriminator(_metrics_tag),
]


def _workdir_tag(given: object) -> str:
    if isinstance(given, Mapping | Workdir):
        return "workdir-section"
    if given != "fresh":
        raise ExperimentError(
            f"{given!r} is not a working folder",
            field="workdir",
            allowed="fresh, or {link: [data]}",
        )
    return "workdir-name"


_Workdir = Annotated[
    Annotated[Literal["fresh"], Tag("workdir-name")] | Annotated[Workdir, Tag("workdir-section")],
    Discriminator(_workdir_tag),
]


def _parse_written_command(given: object) -> str | None:
    if given is None:
        return None
    return parse_command(given)


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
            "Instead of model and data: a function (config, report), as package.module:function. "
            "Together with data: a class with its own training steps."
        ),
    )
    command: Annotated[str | None, BeforeValidator(_parse_written_command)] = Field(
        None,
        description=(
            "Instead of model and data: a program to start, as one line or a list. Placeholders "
            "take the parameters: python train.py --lr {lr}."
        ),
    )
    workdir: _Workdir | None = Field(
        None,
        description=(
            "fresh starts a command in a new folder for each trial, with a copy of the code. "
            "{link: [data]} also links data into it. By default, all trials run in the folder of "
            "the run."
        ),
    )
    loss: Component | None = Field(
        default=None,
        description=(
            "Loss. By default the loss that the model returns, or else the usual one for the "
            "data's task."
        ),
    )
    metrics: _Metrics = Field(
        default=(),
        description=(
            "Metrics to measure. The default follows from the data's task. For a command: where "
            "to read its metrics."
        ),
    )
    step: str | None = Field(
        default=None,
        min_length=1,
        description=(
            "Value by which a command counts its steps, such as epoch. Without it, the reports "
            "are counted."
        ),
    )
    advise: OwnAdvice | None = Field(
        default=None,
        description=(
            "For a train function or a command: the parameters that `workbench advise` chooses, "
            "such as {batch: batch_size, workers: true}, and the metric that reports the speed."
        ),
    )
    objectives: tuple[Objective, ...] = Field(min_length=1, description="What to improve.")
    goals: dict[str, Goal] = Field(
        default_factory=dict,
        description=(
            "Which direction is better for other reported metrics, such as {f1: maximize}. Only "
            "needed if neither an objective nor the metric itself says so."
        ),
    )
    constraints: tuple[Constraint, ...] = Field(
        default=(), description="Limits that a trial must keep to be feasible."
    )
    search: Space = Field(default_factory=lambda: Space({}), description="Parameters, by name.")
    fidelity: WrittenFidelity | None = Field(
        default=None,
        description=(
            "What makes a training cheaper, from the smallest to the full value: {epochs: [1, "
            "50]}, {samples: [0.1, 1.0]}, or a parameter such as {image_size: [32, 128]}. Only "
            "promising configurations are trained in full."
        ),
    )
    training: Training = Field(default_factory=lambda: Training())
    plan: PlanSettings = Field(default_factory=lambda: PlanSettings())
    federated: Federated | None = Field(
        default=None,
        description=(
            "Train the model in rounds on clients that keep their samples: {clients: 100, "
            "fraction: 0.1}. training.epochs is the number of rounds."
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
            **fields: The fields of an experiment file. A section may be a mapping.

        Raises:
            ExperimentError: If anything is wrong. The message lists every problem.
        """
        _refuse_unwritable(fields)
        written = written_names(fields)
        try:
            super().__init__(**_with_repeated_versions(resolve_aliases(python_values(fields))))
        except ValidationError as error:
            raise refusal_of_all(error, Experiment, written) from error
        # Not a field, so it is neither compared nor stored: two files that differ only in the
        # names of their keys are the same experiment.
        vars(self)["_written_names"] = written

    @model_validator(mode="after")
    def _check(self) -> Self:
        # First what is trained: the other checks assume that exactly one of model, train and
        # command is given.
        _check_what_is_trained(self)
        _check_versions(self)
        if "data.tokenizer" not in self.search.root:
            vars(self)["data"] = _with_tokenizer(self.data, self.model)
        _check_objectives(self)
        _check_unit(self)
        _check_momentum(self)
        _check_gradient_hook(self)
        _check_private(self)
        if self.trains_model:
            check_searched_fields(self.search, self.training, self.plan)
        is_endless = self.max_configurations() is None and not _enumerates_grid(self.sampler)
        self.confirm.check(
            repeats=self.repeats,
            num_objectives=len(self.objectives),
            num_trials=self.budget.trials,
            is_endless=is_endless,
        )
        _check_federated(self)
        _check_population(self)
        _check_fidelity(self)
        _check_turns(self)
        return self

    @model_serializer(mode="wrap")
    def _write_what_differs(self, handler: SerializerFunctionWrapHandler) -> Any:
        written: dict[str, Any] = handler(self)
        return {
            key: value
            for key, value in written.items()
            # An empty section says that versions of the code are not trained again.
            if (value not in (None, {}, [], ()) or (key == _CONFIRM and self.search.code_versions))
            and not (key in ("repeats", "seed") and value == type(self).model_fields[key].default)
            and not (key == "sampler" and value == {})
        }

    @property
    def links(self) -> Mapping[str, str] | None:
        """What is linked into the working folder of each trial, by its name there.

        None if trials have no working folders.
        """
        if self.workdir is None:
            # Every trial needs the files of its version.
            return {} if self.command is not None and self.search.code_versions else None
        return self.workdir.link if isinstance(self.workdir, Workdir) else {}

    @property
    def written_names(self) -> Mapping[str, str]:
        """The keys as the user wrote them, by the dotted path of our name for the same setting."""
        return vars(self).get("_written_names", {})

    @property
    def trains_model(self) -> bool:
        """Whether the workbench's own loop does the training, not a function or a program."""
        return self.command is None and (self.train is None or self.makes_own_steps)

    @property
    def makes_own_steps(self) -> bool:
        """Whether `train` is a class whose steps the workbench's own loop makes on `data`."""
        return self.train is not None and self.data is not None

    @property
    def trained(self) -> Component | None:
        """What the workbench's own loop trains: a model, or a class with its own steps."""
        if self.makes_own_steps:
            return self.train
        return self.model

    @property
    def continues_levels(self) -> bool:
        """Whether a training at a higher fidelity continues the one at the level below.

        All others train from the start: a model that has seen small images is not trained.
        """
        levels = Levels.of(self.fidelity)
        return (
            levels is not None
            and levels.is_duration
            and self.command is not None
            and bool(files_to_resume_from(self.command))
        )

    @property
    def leaves_loss_to_model(self) -> bool:
        """Whether the model receives the targets and computes its loss itself."""
        return self.loss is not None and self.loss.name == "model"

    @property
    def own_metrics(self) -> tuple[Component, ...]:
        """The metrics that the workbench computes in addition to the task's usual ones."""
        if isinstance(self.metrics, MetricSource):
            return ()
        return self.metrics

    @property
    def required_metrics(self) -> dict[str, str]:
        """The metrics of objectives and constraints, by dotted field."""
        objectives = enumerate(self.objectives)
        constraints = enumerate(self.constraints)
        return {
            **{f"objectives.{index}.metric": item.metric for index, item in objectives},
            **{f"constraints.{index}.metric": item.metric for index, item in constraints},
        }

    @property
    def energy_field(self) -> str | None:
        """The dotted field that needs metered energy, or None if nothing does.

        A function or a program may report energy that it measures itself.
        """
        if (field := self.budget.limit_on_energy()) is not None or not self.trains_model:
            return field
        named = (name for name, metric in self.required_metrics.items() if metric == ENERGY_USED)
        return next(named, None)

    @property
    def limited_metrics(self) -> frozenset[str]:
        """The metrics that have a limit: in a constraint, or as the target of a federation."""
        limits = list(self.constraints)
        if self.federated is not None and self.federated.target is not None:
            limits.append(self.federated.target)
        return frozenset(limit.metric for limit in limits)

    @property
    def decisive_metrics(self) -> frozenset[str]:
        """The metrics that can end a trial.

        These are the objectives, the metrics with a limit, and the one that early stopping counts.
        """
        decisive = self.limited_metrics.union(objective.metric for objective in self.objectives)
        if self.early_stop.counted_metric is None:
            return decisive
        return decisive | {self.early_stop.counted_metric}

    @property
    def metric_source(self) -> MetricSource:
        """The place from which a program's metrics are read."""
        if isinstance(self.metrics, MetricSource):
            return self.metrics
        return MetricSource()

    @classmethod
    def from_yaml(cls, text: str) -> Experiment:
        """Read an experiment from YAML text.

        Raises:
            ExperimentError: If the text is not a valid experiment.
        """
        return cls(**read_yaml(text))

    @classmethod
    def from_file(cls, path: str | Path) -> Experiment:
        """Read an experiment file.

        Raises:
            ExperimentError: If the file cannot be read, or is not a valid experiment.
        """
        document = read_yaml_file(Path(path))
        document.setdefault("name", Path(path).stem)
        return cls(**document)

    def to_yaml(self) -> str:
        """Write the experiment as YAML, without settings that equal their defaults."""
        return write_yaml(self.model_dump(mode="json"))

    def hash(self) -> str:
        """Return the identity of the experiment: SHA-256 of its canonical JSON, in hexadecimal.

        Two experiments that mean the same have the same hash, however they were written. The name
        does not count, because it is only a label.
        """
        document = self.model_dump(mode="json", exclude={"name"})
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()

    def max_configurations(self) -> int | None:
        """Return how many configurations a run may propose, or None if only other limits end it.

        If nothing is searched, there is only one. An experiment without any limit gets
        `DEFAULT_TRIALS`, or, with a population, one for each part of its trainings. So no run is
        endless by accident.
        """
        budget = self.budget
        num_of_population = num_parts(self.sampler, self.training.epochs)
        if not self.search.has_choice and num_of_population is None:
            return 1
        others = (budget.time, budget.gpu_time, budget.energy, budget.money, budget.plateau)
        is_limited = budget.gain is not None or any(limit is not None for limit in others)
        if budget.trials is None and (is_limited or _enumerates_grid(self.sampler)):
            return None
        return budget.trials or num_of_population or DEFAULT_TRIALS

    def max_trainings(self) -> int | None:
        """Return how many trainings a run may have, repeats included.

        None if `max_configurations` is None.
        """
        num_configurations = self.max_configurations()
        if num_configurations is None:
            return None
        return num_configurations * self.repeats + self.max_confirmations()

    def max_confirmations(self) -> int:
        """Return how many trainings `confirm` adds at most, over all versions of the code."""
        num_versions = max(1, len(self.search.code_versions))
        return num_versions * self.confirm.max_trainings(self.repeats)

    def replace(self, /, **settings: Any) -> Experiment:
        """Return a copy with some settings changed.

        Args:
            **settings: New values by field. For a section, a mapping changes the fields that it
                contains and keeps the rest: `replace(training={"epochs": 5})` changes only the
                epochs. If you choose another model, data, loss or sampler, the options of the
                previous one are dropped.

        Raises:
            ExperimentError: If the result is not a valid experiment.
        """
        document = self.model_dump(mode="json")
        for key, value in settings.items():
            before = document.get(key)
            if (
                isinstance(value, Mapping)
                and isinstance(before, Mapping)
                and not _chooses_another(key, value, before)
            ):
                document[key] = {**before, **value}
            else:
                document[key] = value
        # A stored run may use a sampler or pruner that is not installed here. Only a change of
        # these two sections needs them.
        if "sampler" in settings or "early_stop" in settings:
            changed = Experiment(**document)
        else:
            changed = read_document(document)
        vars(changed)["_written_names"] = self.written_names
        return changed.with_payloads(self.payloads())

    def payloads(self) -> dict[str, bytes]:
        """Return the bytes of the embedded objects that are loaded, by their SHA-256."""
        return {
            component.payload_hash: component.payload
            for component in self._components().values()
            if component.payload_hash and component.payload
        }

    def payload_hashes(self) -> list[str]:
        """Return the SHA-256 of every embedded object, whether its bytes are loaded or not."""
        hashes = (component.payload_hash for component in self._components().values())
        return sorted({sha256 for sha256 in hashes if sha256})

    def with_payloads(self, payloads: Mapping[str, bytes]) -> Experiment:
        """Return the experiment with the bytes of its embedded objects put back.

        Args:
            payloads: Bytes by their SHA-256. Bytes that the experiment does not use are ignored.

        Raises:
            RunError: If bytes do not match their hash.
        """

        def restore(component: Component) -> Component:
            payload = payloads.get(component.payload_hash or "")
            if payload is None:
                return component
            return component.with_payload(payload)

        update: dict[str, Any] = {
            key: restore(component)
            for key, component in self._components().items()
            if "." not in key
        }
        if isinstance(self.metrics, tuple):
            update["metrics"] = tuple(restore(metric) for metric in self.metrics)
        return self.model_copy(update=update)

    def _components(self) -> dict[str, Component]:
        fields = {"model": self.model, "data": self.data, "train": self.train, "loss": self.loss}
        present = {key: component for key, component in fields.items() if component is not None}
        return present | {
            f"metrics.{index}": metric for index, metric in enumerate(self.own_metrics)
        }


def _with_repeated_versions(fields: dict[str, Any]) -> dict[str, Any]:
    """Train the best configuration of each version of the code again, unless `confirm` is given.

    The trials that chose a configuration were also lucky, so they cannot decide between versions.
    """
    search, objectives = fields.get("search"), fields.get("objectives")
    code = search.root.get(CODE) if isinstance(search, Space) else None
    if isinstance(search, Mapping):
        code = search.get(CODE)
    is_searched = isinstance(code, Versions) or (isinstance(code, Mapping) and "versions" in code)
    has_one = isinstance(objectives, Sequence) and len(objectives) == 1
    budget = fields.get("budget")
    trials = budget.get("trials") if isinstance(budget, Mapping) else getattr(budget, "trials", 1)
    if not is_searched or not has_one or _CONFIRM in fields or trials is None:
        return fields
    return {**fields, _CONFIRM: {"best": 1}}


def _enumerates_grid(sampler: Sampler) -> bool:
    """Return whether the sampler tries the points of a grid, False if it is not installed."""
    try:
        return sampler.kind.enumerates_grid
    except WorkbenchError:
        return False


def _refuse_unwritable(fields: Mapping[str, Any]) -> None:
    """Raise an error for text that no file can hold, such as a file name that is not UTF-8."""
    unwritable = unwritable_text(fields)
    if unwritable is not None:
        place, text = unwritable
        raise ExperimentError(
            f"{text[:200]!a} is not Unicode text and cannot be saved",
            field=escaped(place),
            allowed="text that can be written as UTF-8",
            next_step="Rename the file, or search a number and look the name up in your code.",
        )


def _chooses_another(key: str, value: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Return whether a setting chooses another component, which does not have the old options."""
    return key in _NAMED and "name" in value and value["name"] != before.get("name")


def _check_objectives(experiment: Experiment) -> None:
    metrics = [objective.metric for objective in experiment.objectives]
    for index, metric in enumerate(metrics):
        if metric in metrics[:index]:
            raise ExperimentError(
                f"{metric} is already an objective",
                field=f"objectives.{index}.metric",
                next_step="Remove one of the two.",
            )
    for metric in experiment.goals:
        if metric in metrics:
            raise ExperimentError(
                f"{metric} is an objective and has its goal there",
                field=f"goals.{metric}",
                next_step="Remove it from goals.",
            )
    _check_one_checkpoint(experiment)
    _check_resources(experiment)
    _check_limits(experiment)
    if len(metrics) > 1 and experiment.budget.gain is not None:
        raise ExperimentError(
            "the gain of several objectives is not one number",
            field="budget.gain",
            next_step="Remove it, or turn all objectives but one into constraints.",
        )
    if len(metrics) > 1 and not experiment.early_stop.kind.handles_several_objectives:
        raise ExperimentError(
            f"{experiment.early_stop.pruner} cannot rank trials by several objectives",
            field="early_stop.pruner",
            allowed=pruners_for_several_objectives(),
            next_step="Choose another pruner, or turn all objectives but one into constraints.",
        )
    if len(metrics) > 1 and not experiment.sampler.kind.handles_several_objectives:
        raise ExperimentError(
            f"{experiment.sampler.name} supports only one objective",
            field="sampler.name",
            allowed=samplers_for_several_objectives(),
            next_step="Choose another sampler, or turn all objectives but one into constraints.",
        )


def _check_what_is_trained(experiment: Experiment) -> None:
    """Check that there is one thing to train, and no setting that it would ignore."""
    if experiment.advise is not None:
        if experiment.train is None and experiment.command is None:
            raise ExperimentError(
                "only a train function or a command needs it, not a model",
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
                next_step="Give a model and data, a train function, or a command.",
            )


def _check_versions(experiment: Experiment) -> None:
    """Raise an error if versions of the code are searched and would not be run."""
    if not experiment.search.code_versions:
        return
    if experiment.trains_model:
        raise ExperimentError(
            "versions of the code need a command or a train function",
            field=f"search.{CODE}",
            next_step="Write the training as a command or a train function, or remove it.",
        )
    if experiment.payload_hashes():
        raise ExperimentError(
            "a function of a notebook or of the main script has no versions",
            field=f"search.{CODE}",
            next_step="Put the function into a module: train: package.module:function.",
        )
    if experiment.sampler.kind.is_population:
        raise ExperimentError(
            f"the sampler {experiment.sampler.name} changes parameters during a training, and a"
            " training has one version of the code",
            field=f"search.{CODE}",
            next_step="Choose another sampler.",
        )


def _with_tokenizer(data: Component | None, model: Component | None) -> Component | None:
    """Return data that is read with the tokenizer of the model, if it needs one and names none."""
    if data is None or model is None or model.name != "hf":
        return data
    if data.name not in ("conversations", "preferences", "labelled_text", "text_pairs"):
        return data
    folder = model.options.get("path")
    if folder is None or data.options.get("tokenizer") is not None:
        return data
    return data.model_copy(update={"options": {**data.options, "tokenizer": folder}})


def _check_unit(experiment: Experiment) -> None:
    """Raise an error for a unit of early stopping that the training does not count."""
    unit = experiment.early_stop.unit
    if experiment.trains_model and unit not in (None, "epochs"):
        raise ExperimentError(
            f"the training of a model is not counted in {unit}",
            field="early_stop.unit",
            allowed="epochs",
            next_step="Remove it. Only a train function or a command chooses its unit.",
        )
    if unit in [objective.metric for objective in experiment.objectives]:
        raise ExperimentError(
            f"{unit} is an objective, so it cannot count progress",
            field="early_stop.unit",
            allowed="steps, or another reported metric",
        )


def _check_one_checkpoint(experiment: Experiment) -> None:
    """Raise an error if objectives need different checkpoints, because only one is exported."""
    follows_best = [
        item.value in ("returned", "best")
        for item in experiment.objectives
        if item.metric not in RESOURCES
    ]
    if experiment.trains_model and len(set(follows_best)) > 1:
        allowed = "last or {mean_last: 3}"
        if follows_best[0]:
            allowed = "returned or best"
        raise ExperimentError(
            "a model is exported from one checkpoint, but the objectives use two",
            field=f"objectives.{follows_best.index(not follows_best[0])}.value",
            allowed=allowed,
            next_step="Let all objectives use the best checkpoint, or all the last one.",
        )


def _check_limits(experiment: Experiment) -> None:
    """Raise an error for two limits on one metric that no value keeps."""
    for index, limit in enumerate(experiment.constraints):
        for other in experiment.constraints[:index]:
            if other.metric != limit.metric:
                continue
            least = [item.at_least for item in (limit, other) if item.at_least is not None]
            most = [item.at_most for item in (limit, other) if item.at_most is not None]
            if least and most and min(most) < max(least):
                raise ExperimentError(
                    f"no {limit.metric} is at least {max(least):g} and at most {min(most):g}",
                    field=f"constraints.{index}",
                    next_step="Change one of the two limits.",
                )


def _check_resources(experiment: Experiment) -> None:
    """Raise an error for objectives on what a trial uses that cannot be followed.

    A function or a program may report its own numbers under the same names. A model does not.
    """
    for index, objective in enumerate(experiment.objectives):
        if objective.metric not in RESOURCES:
            continue
        if objective.value not in ("returned", "last"):
            raise ExperimentError(
                f"{objective.metric} counts for a whole trial, not for one of its reports",
                field=f"objectives.{index}.value",
                next_step="Remove it.",
            )
        if index == 0 and experiment.trains_model:
            raise ExperimentError(
                f"{objective.metric} cannot be the first objective, because the checkpoint of a"
                " model is chosen by the first one",
                field="objectives.0.metric",
                next_step="Put a metric such as val_loss first.",
            )
    if not experiment.trains_model or experiment.budget.price is not None:
        return
    for field, metric in experiment.required_metrics.items():
        if metric == MONEY_SPENT:
            raise ExperimentError(
                "missing, but the cost of a trial follows from it",
                field="budget.price",
                allowed="such as 2.50 EUR/h, or 1.80 USD/GPU-h",
                next_step=f"Give it, or remove {field.removesuffix('.metric')}.",
            )


def _check_momentum(experiment: Experiment) -> None:
    """Raise an error for a momentum that no optimizer of the experiment reads."""
    optimizers = possible_values(experiment.search, "optimizer", experiment.training.optimizer)
    if any(str(name).lower() == "sgd" for name in optimizers) or not experiment.trains_model:
        return
    fields = {"search.momentum": "momentum" in experiment.search.root}
    fields["training.momentum"] = "momentum" in experiment.training.model_dump()
    for field, is_given in fields.items():
        if is_given:
            raise ExperimentError(
                "only the optimizer sgd has a momentum",
                field=field,
                next_step="Remove it, or train with sgd.",
            )


def _check_gradient_hook(experiment: Experiment) -> None:
    """Raise an error for options of a gradient hook if there is no hook."""
    if experiment.training.gradient_hook is not None or "gradient_hook" in experiment.search.root:
        return
    setting = "gradient_hook_options"
    fields = [f"search.{name}" for name in experiment.search.root if name.startswith(f"{setting}.")]
    if experiment.training.gradient_hook_options:
        fields.append(f"training.{setting}")
    if fields:
        raise ExperimentError(
            "there is no gradient hook to receive it",
            field=fields[0],
            next_step="Set training.gradient_hook to the function, or remove this.",
        )


def _check_function(experiment: Experiment) -> None:
    assert experiment.train is not None
    for field in ("model", "loss"):
        if getattr(experiment, field) is not None:
            raise ExperimentError(
                f"a train function or class has its own {field}",
                field=field,
                next_step=f"Remove {field} or train.",
            )
    if not experiment.train.is_reference:
        next_step = None
        if " " in experiment.train.name:
            next_step = "If this is a command line, write it as command instead of train."
        raise ExperimentError(
            f"{experiment.train.name!r} is not the name of a function",
            field="train",
            allowed="package.module:function, or with data package.module:Class",
            next_step=next_step,
        )
    if experiment.makes_own_steps:
        _check_own_steps(experiment)
        return
    _refuse_sections(
        experiment,
        "a train function decides this itself",
        "Remove it, or pass it to the function: write it under train, next to its name.",
    )
    if experiment.metrics:
        raise ExperimentError(
            "a train function reports its own metrics", field="metrics", next_step="Remove it."
        )


def _check_own_steps(experiment: Experiment) -> None:
    if experiment.metrics:
        raise ExperimentError(
            "a class with its own steps measures its own metrics",
            field="metrics",
            next_step="Remove it, and return the metrics from the method evaluate.",
        )
    for name in _OF_OPTIMIZERS:
        if name in experiment.training.model_fields_set:
            raise ExperimentError(
                "a class with its own steps makes its own optimizers",
                field=f"training.{name}",
                next_step=(
                    "Remove it, or pass it to the class: write it under train, next to its name."
                ),
            )
    other = find_other_value(
        experiment.plan,
        experiment.search,
        {name: allowed for name, (allowed, *_) in _PLAN_OF_OWN_STEPS.items()},
    )
    if other is not None:
        dimension, field = other
        allowed, reason, next_step = _PLAN_OF_OWN_STEPS[dimension]
        raise ExperimentError(
            reason, field=field, allowed=[str(value) for value in allowed], next_step=next_step
        )


def _check_program(experiment: Experiment) -> None:
    assert experiment.command is not None
    for field in ("model", "data", "train", "loss"):
        if getattr(experiment, field) is not None:
            raise ExperimentError(
                f"the program that command starts has its own {field}",
                field=field,
                next_step=f"Remove {field} or command.",
            )
    _refuse_sections(
        experiment,
        "a program decides this itself",
        "Remove it, or pass it to the program as an argument of command.",
    )
    if experiment.own_metrics:
        raise ExperimentError(
            "a program computes its own metrics",
            field="metrics",
            allowed="the place to read them from, such as {from: auto} or {jsonl: PATH}",
        )
    if experiment.early_stop.counted_metric is not None:
        raise ExperimentError(
            "for a command, the field step says what counts as a step",
            field="early_stop.unit",
            next_step=f"Remove it, and write step: {experiment.early_stop.unit}.",
        )
    check_command(
        experiment.command,
        experiment.search,
        has_other_way=experiment.metric_source.kind == "wandb",  # in `wandb.config`
    )


def _refuse_sections(experiment: Experiment, problem: str, next_step: str) -> None:
    """Raise an error for settings of the workbench's own loop, which does not run here."""
    for section in ("training", "plan"):
        for name in getattr(experiment, section).model_dump():
            if (section, name) != ("plan", "workers"):
                raise ExperimentError(problem, field=f"{section}.{name}", next_step=next_step)


def _refuse_settings_of_programs(experiment: Experiment) -> None:
    for field in ("step", "workdir"):
        if getattr(experiment, field) is not None:
            raise ExperimentError(
                "only a command has this setting", field=field, next_step="Remove it."
            )
    if not isinstance(experiment.metrics, tuple):
        raise ExperimentError(
            "only a command's metrics are read from its output or a file",
            field="metrics",
            allowed="a list of metrics",
            next_step="Remove it, or add a command.",
        )
    written = experiment.resources.model_dump()
    for name in _OF_PROGRAMS:
        if name in written:
            raise ExperimentError(
                "only a command has this setting",
                field=f"resources.{name}",
                next_step="Remove it.",
            )


def _check_private(experiment: Experiment) -> None:
    """Check that private training, or a parameter of it, fits the rest of the experiment."""
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
            "differential privacy needs a model that the workbench trains, without federated",
            field="training.private",
            next_step="Remove it, or give a model and data and remove federated.",
        )
    experiment.training.check_private(experiment.search, experiment.plan)


def _check_federated(experiment: Experiment) -> None:
    """Check that federated training, or a parameter of it, fits the rest of the experiment."""
    if experiment.federated is None:
        searched = next(filter(is_federated_setting, experiment.search.root), None)
        if searched is not None and experiment.trains_model:
            raise ExperimentError(
                "the experiment is not federated",
                field=f"search.{searched}",
                next_step="Add the section federated, or remove the parameter.",
            )
        return
    if experiment.model is None:
        raise ExperimentError(
            "federated training needs a model",
            field="federated",
            next_step="Remove it, or give a model and data.",
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
    """Raise an error for anything that cannot be combined with a fidelity."""
    levels = Levels.of(experiment.fidelity)
    if levels is None:
        return
    levels.check(experiment.search, trains_model=experiment.trains_model)
    kind = experiment.sampler.kind
    if kind.learns_from_complete_only or kind.enumerates_grid or kind.is_population:
        raise ExperimentError(
            f"{experiment.sampler.name} cannot learn from trainings at a low fidelity",
            field="sampler.name",
            allowed=samplers_for_fidelities(),
            next_step="Choose another sampler, or remove fidelity.",
        )
    if len(experiment.objectives) > 1:
        raise ExperimentError(
            "a fidelity needs exactly one objective, which decides what is trained further",
            field="fidelity",
            next_step="Remove it, or turn all objectives but one into constraints.",
        )
    if experiment.early_stop.pruner != "none":
        raise ExperimentError(
            "a pruner cannot be combined with fidelity",
            field="early_stop.pruner",
            next_step="Remove one of the two.",
        )
    if experiment.repeats > 1:
        raise ExperimentError(
            "with fidelity, a configuration is trained once at each level",
            field="repeats",
            next_step="Remove it. To train the best configurations again, use confirm.",
        )


def _check_turns(experiment: Experiment) -> None:
    """Raise an error for anything that cannot be combined with turns."""
    if experiment.early_stop.turns is None:
        if experiment.early_stop.length is not None:
            raise ExperimentError(
                "only turns need to know how long a training is",
                field="early_stop.length",
                next_step="Remove it, or set early_stop.turns.",
            )
        return
    if experiment.early_stop.kind.compares_complete:
        raise ExperimentError(
            f"{experiment.early_stop.pruner} compares trials with complete ones, but with turns no"
            " trial is complete before the last turn",
            field="early_stop.pruner",
            allowed=pruners_for_turns(),
            next_step="Set curves instead, or remove turns.",
        )
    excluded: list[tuple[str, bool, str]] = [
        (
            "sampler.name",
            experiment.sampler.kind.is_population,
            f"{experiment.sampler.name} already trains in parts",
        ),
        (
            "fidelity",
            experiment.fidelity is not None,
            "with a fidelity, each training starts from the beginning",
        ),
        (
            "federated",
            experiment.federated is not None,
            "the rounds of a federation are not divided into turns",
        ),
        (
            "resources.elastic",
            experiment.resources.elastic,
            "an elastic trial gets more workers instead of a turn",
        ),
    ]
    for field, is_given, reason in excluded:
        if is_given:
            raise ExperimentError(
                f"{reason}, so you cannot combine it with early_stop.turns",
                field=field,
                next_step="Remove one of the two.",
            )
    budget = experiment.budget
    gradual = (budget.time, budget.gpu_time, budget.energy, budget.money)
    is_endless = set(gradual) == {None} and not _enumerates_grid(experiment.sampler)
    if experiment.max_configurations() is None and is_endless:
        raise ExperimentError(
            "every configuration starts before one ends, so neither a plateau nor a gain would ever"
            " end the run",
            field="budget.plateau" if budget.plateau is not None else "budget.gain",
            next_step="Also set budget.trials or budget.time.",
        )
    if experiment.trains_model and experiment.early_stop.length is not None:
        raise ExperimentError(
            "only a train function or a command needs it",
            field="early_stop.length",
            next_step="Remove it, and set training.epochs.",
        )


def _check_population(experiment: Experiment) -> None:
    """Raise an error for anything that cannot be combined with a population."""
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
                f"you cannot combine it with the sampler {name}, which trains in parts",
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

    It always includes the sampler. Otherwise a new default in a later version would change what an
    old run was.
    """
    document = experiment.model_dump(mode="json")
    return json.dumps({"sampler": {"name": experiment.sampler.name}} | document)


def read_stored(written: str) -> Experiment:
    """Read an experiment that was valid when it was stored.

    Args:
        written: Its JSON.

    Raises:
        ExperimentError: If this version cannot read it for a reason other than a missing package.
    """
    return read_document(json.loads(written))


def read_document(document: Mapping[str, Any]) -> Experiment:
    """Read an experiment that was valid on another machine, even if its sampler is missing here.

    Args:
        document: Its settings.

    Raises:
        ExperimentError: If this version cannot read it for a reason other than a missing package.
    """
    # `model_construct` and `model_copy` do not validate, so the names of a sampler and a pruner
    # that are not installed survive.
    absent = _absent_sections(document)
    experiment = Experiment(**{key: value for key, value in document.items() if key not in absent})
    if not absent:
        return experiment
    return experiment.model_copy(update=absent)


def check_installed(experiment: Experiment) -> None:
    """Check that the sampler and the pruner of an experiment are installed here.

    Raises:
        ExperimentError: If one of them is not installed.
    """
    choices = (
        (SAMPLERS, experiment.sampler.name, "sampler.name"),
        (PRUNERS, experiment.early_stop.pruner, "early_stop.pruner"),
    )
    for registry, name, field in choices:
        if (problem := _problem_of(registry, name)) is not None:
            raise ExperimentError(
                f"the {registry.kind} {name!r} is not installed here: {problem}",
                field=field,
                next_step="Install the package that provides it, here and where the driver runs.",
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
    """Return the fields of a section that may be written as a single name."""
    written = document.get(section)
    if isinstance(written, str):
        return {SHORT_FORMS[section]: written}
    if isinstance(written, Mapping):
        return dict(written)
    return {}


def _is_absent(registry: Registry, name: object) -> bool:
    return isinstance(name, str) and _problem_of(registry, name) is not None


def _problem_of(registry: Registry, name: str) -> str | None:
    """Return why a name of a registry cannot be used here, or None if it can."""
    try:
        registry.load(name)
    except WorkbenchError as error:
        return error.problem
    return None
