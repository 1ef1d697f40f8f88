"""Check settings that only make sense together: plan, workers, sharing, populations, turns."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

from workbench.experiment import Experiment
from workbench.experiment.command import arguments_of, files_to_resume_from
from workbench.experiment.module_inspection import parameters_of
from workbench.experiment.plan import Plan
from workbench.experiment.space import Params
from workbench.experiment.trainings import EPOCHS, shortest_training, turn_ends
from workbench.foundation.errors import ExperimentError
from workbench.sweeps.trial_resources import workers_wanted
from workbench.training.exchanges.capabilities import USUAL
from workbench.training.planning.equivalent_plans import fixed_of, with_workers
from workbench.training.planning.plan_resolution import field_of
from workbench.training.planning.settings import fitted_of, resolve
from workbench.training.strategies import STRATEGIES
from workbench.training.strategies.capabilities import capabilities_of

_NUM_SAMPLED = 64
_MAX_WORKERS = 1024
_CONTINUING = ("folder", "resume")
_OF_FOLDER = ("{folder}", "{config}", "WORKBENCH_FOLDER")
"""What tells a program the folder of its trial."""
_WITHOUT_STEPS = ("auto", "stdout", "pattern")
_FOLDER_VARIABLE = b"WORKBENCH_FOLDER"
_LARGEST_SCRIPT_BYTES = 10_000_000


def check_exchange(experiment: Experiment, plan: Plan) -> None:
    """Raise an error for an exchange without replicas that could exchange anything.

    Args:
        experiment: The experiment.
        plan: The plan of one of its configurations.

    Raises:
        ExperimentError: If the exchange is not the default and there is only one replica.
    """
    if plan.exchange != USUAL and plan.replicas == 1:
        raise ExperimentError(
            f"the exchange {plan.exchange} needs several replicas, and there is only one",
            field=field_of("plan", "workers", experiment.search.root),
            allowed=f"2 or more with plan.exchange {plan.exchange}",
            next_step="Set the number of workers to 2 or more, or remove the exchange.",
        )


def check_elastic(experiment: Experiment) -> None:
    """Raise an error for elastic trials that can never grow.

    Args:
        experiment: The experiment.

    Raises:
        ExperimentError: If none of its configurations allows more workers.
    """
    search, strategy = experiment.search.root, experiment.search.root.get("strategy")
    written = experiment.plan.decided.get("strategy")
    strategies = [written] if strategy is None else strategy.values() or []
    limited = [str(name) for name in strategies if name in STRATEGIES and _is_for_one(str(name))]
    problem = next_step = None
    if not experiment.trains_model:
        subject = "train function" if experiment.command is None else "command"
        problem = f"the effect of more workers is unknown for a {subject}"
        next_step = f"Remove it, or use a model and data instead of the {subject}."
    elif limited:
        problem, next_step = (
            f"the strategy {limited[0]} supports a single worker only",
            "Set the strategy to auto, or to one for several workers.",
        )
    elif "workers" in search:
        problem = "the number of workers is searched, so it cannot change during a trial"
        next_step = "Remove one of the two."
    elif not _could_grow(experiment):
        problem = (
            "micro batch and accumulation leave no room for more workers at the same global batch"
        )
        next_step = "Set plan.micro_batch or plan.accumulation to auto."
    if problem is not None:
        raise ExperimentError(
            problem, field="resources.elastic", allowed="false here", next_step=next_step
        )


def _could_grow(experiment: Experiment) -> bool:
    rng = random.Random(experiment.seed)
    for _ in range(_NUM_SAMPLED if experiment.search.root else 1):
        params = experiment.search.sample(rng)
        plan, fixed = resolve(experiment, params).plan, fixed_of(experiment, params)
        more = range(plan.workers + 1, min(plan.global_batch, _MAX_WORKERS) + 1)
        if any(with_workers(plan, number, fixed=fixed) for number in more):
            return True
    return False


def _is_for_one(strategy: str) -> bool:
    return capabilities_of(strategy).max_workers == 1


def check_sharing(experiment: Experiment) -> None:
    """Raise an error for trials that share GPUs if other settings contradict it.

    Args:
        experiment: The experiment.

    Raises:
        ExperimentError: If the experiment sets the GPUs per worker, if trials may have several
            workers, or if auto has nothing to measure.
    """
    resources, allowed = experiment.resources, "1 here"
    _, most = workers_wanted(experiment)
    search, decided = experiment.search.root, experiment.plan.decided
    is_divided = any(
        name in search or (decided.get(name) or 1) != 1 for name in ("stages", "tensor", "shard")
    )
    problem = None
    if resources.gpus_per_worker != "auto":
        problem = "resources.gpus_per_worker already sets how much of a GPU a worker has"
    elif most > 1 or is_divided:
        problem = "trials with several workers cannot share a GPU"
    elif resources.elastic:
        problem = "elastic trials use more GPUs, so they cannot share one"
    elif resources.per_gpu == "auto" and not experiment.trains_model:
        problem, allowed = (
            "auto measures how trials share a GPU, and that needs a model",
            "a number",
        )
    elif resources.per_gpu == "auto" and resources.autoscaling:
        problem, allowed = "the machines to measure on may not be there yet", "a number"
    if problem is not None:
        raise ExperimentError(problem, field="resources.per_gpu", allowed=allowed)


def check_turns(experiment: Experiment) -> None:
    """Raise an error for turns of trainings that are too short or cannot be continued.

    Args:
        experiment: The experiment.

    Raises:
        ExperimentError: If a training is too short, its length is not known, or it keeps no
            checkpoints.
    """
    shortest = shortest_training(experiment)
    if not experiment.trains_model and experiment.early_stop.length is None:
        options = {} if experiment.train is None else experiment.train.options
        if EPOCHS not in {**options, **shortest}:
            subject = "function" if experiment.command is None else "command"
            raise ExperimentError(
                f"missing: how long the {subject} trains, so that it can be divided into turns",
                field="early_stop.length",
                allowed="the last step that it reports, or the name of the parameter that sets it",
                next_step="Set it to a number, or search the parameter epochs.",
            )
    turn_ends(experiment, shortest)
    check_continuable(experiment)


def _check_command_continues(experiment: Experiment, name: str, other_way: str) -> None:
    command = experiment.command or ""
    if not any(f"{{{name}" in command for name in _CONTINUING) and not _reads_folder(command):
        raise ExperimentError(
            f"{name} needs checkpoints, but the command receives no folder for them",
            field="command",
            allowed="a command with {folder}, {resume} or {resume_from:FILE}",
            next_step=(
                "Let the program save a checkpoint in {folder} before each report and load it at"
                f" the start: see the guide on your own script. Or {other_way}."
            ),
        )
    if experiment.step is None and experiment.metric_source.kind in _WITHOUT_STEPS:
        raise ExperimentError(
            f"{name} counts in steps, but the command has none",
            field="step",
            allowed="the name of a value that the program prints with its metrics, such as epoch",
            next_step="Write step: epoch, or another name.",
        )


def check_resumed_files(experiment: Experiment) -> None:
    """Raise an error if a command continues from a file that it has no folder to save in.

    Args:
        experiment: The experiment.

    Raises:
        ExperimentError: If the command has `{resume_from:FILE}` but does not know its folder.
    """
    command = experiment.command or ""
    files = files_to_resume_from(command)
    if not files or experiment.workdir is not None:
        return
    is_told = any(name in command for name in _OF_FOLDER) or _reads_folder(command)
    if not is_told and any(Path(argument).is_file() for argument in arguments_of(command)):
        raise ExperimentError(
            f"the command continues from {files[0]} in the folder of its trial, but does not know"
            " this folder, so it cannot save the file there",
            field="command",
            allowed="{folder} in the command, or workdir: fresh",
            next_step=(
                "Pass {folder} to the option for the output. If the program saves in the folder in"
                " which it starts, write workdir: fresh."
            ),
        )


def _reads_folder(command: str) -> bool:
    """Return whether a script of the command reads the folder from its environment."""
    for argument in arguments_of(command):
        path = Path(argument)
        with contextlib.suppress(OSError, ValueError):
            is_script = path.is_file() and path.stat().st_size < _LARGEST_SCRIPT_BYTES
            if is_script and _FOLDER_VARIABLE in path.read_bytes():
                return True
    return False


def check_continuable(experiment: Experiment) -> None:
    """Raise an error for turns or a population whose trainings cannot be continued.

    Args:
        experiment: The experiment.

    Raises:
        ExperimentError: If its function or command keeps no checkpoints, or a model is fitted to
            all samples at once.
    """
    name = experiment.sampler.name
    if experiment.early_stop.turns is not None:
        name = "early_stop.turns"
    check_keeps_checkpoints(experiment, name, "remove early_stop.turns")
    if not experiment.trains_model:
        return
    rng = random.Random(experiment.seed)
    for _ in range(_NUM_SAMPLED if experiment.search.root else 1):
        check_trains_in_steps(experiment, experiment.search.sample(rng), name)


def check_keeps_checkpoints(experiment: Experiment, name: str, other_way: str) -> None:
    """Raise an error if the function or the command of an experiment keeps no checkpoints.

    Args:
        experiment: The experiment.
        name: What needs the checkpoints.
        other_way: What to do otherwise, imperative.

    Raises:
        ExperimentError: If there can be no checkpoints.
    """
    if experiment.command is not None:
        _check_command_continues(experiment, name, other_way)
        return
    if not experiment.trains_model:
        assert experiment.train is not None
        parameters = parameters_of(experiment.train)
        if parameters is not None and "folder" not in parameters:
            raise ExperimentError(
                f"{name} needs checkpoints, but the function has no parameter `folder` for them",
                field="train",
                allowed="a function with a parameter named folder",
                next_step=(
                    "Add the parameter. Save a checkpoint in it before each report, and load it at"
                    " the start."
                ),
            )


def check_trains_in_steps(experiment: Experiment, params: Params, name: str) -> None:
    """Raise an error for a model that is fitted to all samples at once.

    Args:
        experiment: The experiment, which trains a model.
        params: The configuration.
        name: What continues a training.

    Raises:
        ExperimentError: If the model has no state to continue from.
    """
    if fitted_of(experiment, params) is not None:
        raise ExperimentError(
            f"{name} continues trainings, but a model that is fitted to all samples at once has"
            " no state to continue from",
            field="model",
            next_step="Choose a model that is trained step by step.",
        )
