"""What a trial trains: a model, a function or a program.

And which settings each would never receive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.experiment.command import check_command
from workbench.experiment.own_advice import check_own_advice
from workbench.experiment.plan import PlanValue
from workbench.experiment.plan_settings import find_other_value
from workbench.experiment.space import Choice, Fixed
from workbench.foundation.errors import ExperimentError

if TYPE_CHECKING:
    from workbench.experiment import Experiment

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


def check_what_is_trained(experiment: Experiment) -> None:
    """Check that an experiment names one thing to train, and nothing that this would ignore.

    Raises:
        ExperimentError: If it does not.
    """
    check_own_advice(experiment)
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


def check_unit(experiment: Experiment) -> None:
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


def check_one_checkpoint(experiment: Experiment) -> None:
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


def longest_training(experiment: Experiment) -> int | None:
    """Return the most epochs of a trial; None where only a function or a program knows them."""
    if not experiment.trains_model:
        return None
    domain = experiment.search.root.get("epochs")
    if domain is None:
        return experiment.training.epochs
    if isinstance(domain, Choice | Fixed):
        return max(int(value) for value in domain.values() if isinstance(value, int | float))
    return int(domain.high)


def check_momentum(experiment: Experiment) -> None:
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


def check_gradient_hook(experiment: Experiment) -> None:
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
    found = find_other_value(
        experiment, {name: allowed for name, (allowed, *_) in _PLAN_OF_OWN_STEPS.items()}
    )
    if found is not None:
        allowed, reason, next_step = _PLAN_OF_OWN_STEPS[found[0]]
        raise ExperimentError(
            reason, field=found[1], allowed=[str(value) for value in allowed], next_step=next_step
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
