"""Check an experiment before its run starts, without torch, Ray or Optuna.

An experiment checks itself for consistency. The checks here compare it with the packages that carry
it out: every name exists, every searched parameter is used, batches can be divided, and this
machine has the requested resources. They read only the target and the column names of a table, and
do not run the user's code.
"""

from __future__ import annotations

import ast
import functools
import random
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from workbench.cluster.remote.code_origin import Origin
from workbench.cluster.remote.version_trees import keep_versions
from workbench.data import DATASETS, check_options, check_path, check_searched_option
from workbench.data.chat_tokens import check_tokenizer_of_model
from workbench.data.options import existing_path
from workbench.experiment import Component, Experiment, PlanSettings, Training
from workbench.experiment.aliases import as_written
from workbench.experiment.command import arguments_of
from workbench.experiment.domain import values_to_check
from workbench.experiment.module_inspection import bound_names, find_source, parameters_of
from workbench.experiment.plan import Hardware
from workbench.experiment.searched_fields import data_option_of, is_setting
from workbench.experiment.train_function import (
    check_train_function,
    importing_tool,
    refuse_imported,
)
from workbench.experiment.training_section import BITSANDBYTES, is_own_schedule, why_unusable
from workbench.experiment.trainings import is_private, uses_adapter, weights_of
from workbench.foundation.errors import (
    ExperimentError,
    ResourcesError,
    WorkbenchError,
    install_command,
)
from workbench.foundation.formatting import counted_noun, format_count
from workbench.foundation.registry import Registry
from workbench.hardware.resources import Inventory, gpu_counter, inventory, processor_counters
from workbench.hardware.resources.inventory import check_compiler
from workbench.models import LOSSES, METRICS, MODELS
from workbench.models.configurations import check_value, configuration_type
from workbench.store.alerts.settings import check_sinks, read_settings
from workbench.store.loggers.logger import check_logger
from workbench.sweeps.measured_metrics import (
    check_loss_and_metrics,
    check_what_is_reported,
    unknown,
)
from workbench.sweeps.plan_checks import (
    check_continuable,
    check_elastic,
    check_exchange,
    check_resumed_files,
    check_sharing,
    check_turns,
)
from workbench.sweeps.trial_resources import workers_field, workers_wanted
from workbench.training.planning.plan_resolution import field_of
from workbench.training.planning.settings import resolve
from workbench.training.strategies import STRATEGIES

NUM_SAMPLED_CONFIGURATIONS = 64
_TOKENIZER = "data.tokenizer"
INTERPRETERS = ("python", "python3")
_OWN_NAMES = ("{folder}", "{trial}")


def check(experiment: Experiment, *, on_this_machine: bool = True) -> None:
    """Raise an error if an experiment cannot be carried out.

    Args:
        experiment: The experiment.
        on_this_machine: Whether it is to run here. Its requests are then compared with this
            machine.

    Raises:
        ExperimentError: If a name is unknown, a parameter is unused, or settings exclude each
            other.
        DataError: If the data is not where the experiment says.
        ResourcesError: If this machine can never provide what the experiment requests.
    """
    for problem in find_problems(experiment, on_this_machine=on_this_machine):
        raise problem


def find_problems(
    experiment: Experiment, *, on_this_machine: bool = True
) -> Iterator[WorkbenchError]:
    """Yield the problems that keep an experiment from running, one for each field.

    Args:
        experiment: The experiment.
        on_this_machine: As in `check`.
    """
    seen: set[str | None] = set()
    for run_check in _checks(experiment, on_this_machine):
        try:
            run_check()
        except WorkbenchError as error:
            if error.field not in seen:
                seen.add(error.field)
                yield as_written(error, experiment.written_names)


def _checks(experiment: Experiment, on_this_machine: bool) -> Iterator[Callable[[], None]]:
    """Yield the checks. Each raises an error if it finds a problem."""
    if importing_tool(experiment) is not None:
        yield partial(refuse_imported, experiment, "started")
        return
    resources = experiment.resources
    conditional = (
        (bool(experiment.alerts) and on_this_machine, _check_alerts),
        (bool(experiment.report_to), partial(_check_loggers, on_this_machine=on_this_machine)),
        (resources.elastic, check_elastic),
        (resources.per_gpu != 1, check_sharing),
        (resources.autoscaling, _check_autoscaling),
        (resources.advice == "always", _check_advisable),
    )
    yield from (partial(check, experiment) for is_due, check in conditional if is_due)
    if experiment.command is not None:
        yield from _checks_of_command(experiment, on_this_machine)
    elif experiment.trains_model:
        yield from _checks_of_model(experiment, on_this_machine)
    else:
        yield from _checks_of_function(experiment)
    if experiment.search.code_versions:
        yield partial(_check_versions, experiment)
    if experiment.sampler.kind.enumerates_grid:
        yield partial(_check_grid, experiment)
    if experiment.sampler.kind.is_population:
        yield partial(check_continuable, experiment)
    if experiment.early_stop.turns is not None:
        yield partial(check_turns, experiment)
    if on_this_machine:
        yield partial(_check_resources, experiment)


def _check_versions(experiment: Experiment) -> None:
    keep_versions(experiment, Origin.here())


def _checks_of_command(
    experiment: Experiment, on_this_machine: bool
) -> Iterator[Callable[[], None]]:
    yield partial(check_paths, experiment)
    yield partial(check_resumed_files, experiment)
    if on_this_machine:
        yield partial(check_program, experiment)


def _checks_of_function(experiment: Experiment) -> Iterator[Callable[[], None]]:
    assert experiment.train is not None
    yield partial(_check_reference, experiment.train, "train")
    yield partial(check_train_function, experiment.train, _names_in_configuration(experiment))
    yield partial(_check_takes_worker, experiment)


def _checks_of_model(experiment: Experiment, on_this_machine: bool) -> Iterator[Callable[[], None]]:
    yield partial(_check_model, experiment)
    if on_this_machine:
        yield partial(_check_path, experiment)
    yield partial(_check_data, experiment, on_this_machine)
    if on_this_machine:
        yield partial(check_beginning, experiment)
    yield partial(_check_named_functions, experiment)
    yield partial(check_loss_and_metrics, experiment)
    yield partial(_check_searched_parameters, experiment)
    yield partial(check_what_is_reported, experiment)
    yield partial(_check_configurations, experiment, on_this_machine)


def _check_alerts(experiment: Experiment) -> None:
    """Raise an error for rules with a sink that is not set up on this machine."""
    check_sinks(experiment.alerts, read_settings().names)


def _check_loggers(experiment: Experiment, *, on_this_machine: bool) -> None:
    for index, name in enumerate(experiment.report_to):
        check_logger(name, field=f"report_to.{index}", on_this_machine=on_this_machine)


def _names_in_configuration(experiment: Experiment) -> set[str]:
    """Return the names that a train function finds in its configuration."""
    if experiment.train is None:
        return set(experiment.search.root)
    return {*experiment.search.root, *experiment.train.options}


def _check_takes_worker(experiment: Experiment) -> None:
    """Raise an error for several workers if the function would do the same on all of them."""
    assert experiment.train is not None
    workers, parameters = experiment.plan.decided.workers, parameters_of(experiment.train)
    if "workers" in experiment.search.root and "worker" in (parameters or ()):
        raise ExperimentError(
            "the train function would receive this number, but run on plan.workers",
            field="search.workers",
            next_step="Remove it, or rename the parameter.",
        )
    if workers in (None, 1):
        return
    if parameters is not None and "worker" not in parameters:
        raise ExperimentError(
            f"{workers} workers would all do the same work: the function has no parameter `worker`",
            field="plan.workers",
            allowed="1, or a function with a parameter named worker",
        )


def _check_grid(experiment: Experiment) -> None:
    try:
        next(experiment.search.grid(), None)
    except ExperimentError as error:
        raise error.at("search") from error


def _check_model(experiment: Experiment) -> None:
    if experiment.train is not None:
        _check_reference(experiment.train, "train")
        if "report" in (parameters_of(experiment.train) or ()):
            raise ExperimentError(
                "a train function reads its data itself",
                field="data",
                next_step="Remove data, or use a class that makes its own steps.",
            )
        return
    assert experiment.model is not None
    _check_component(experiment.model, MODELS, "model")
    if not experiment.model.is_reference:
        fields = configuration_type(experiment.model.name).model_fields
        for name, value in experiment.model.options.items():
            if name not in fields:
                raise unknown(
                    f"model.{name}", f"{experiment.model.name} has no such parameter", list(fields)
                )
            check_value(experiment.model.name, name, value, field=f"model.{name}")


def _check_path(experiment: Experiment) -> None:
    """Raise an error for a missing path, even if other options of the data are missing too."""
    assert experiment.data is not None
    path = experiment.data.options.get("path")
    if not experiment.data.is_reference and isinstance(path, str):
        check_path(experiment.data.name, path)


def _check_data(experiment: Experiment, on_this_machine: bool) -> None:
    assert experiment.data is not None
    _check_component(experiment.data, DATASETS, "data")
    if not experiment.data.is_reference:
        options = check_options(experiment.data.name, experiment.data.options)
        _check_reads_tokenizer(experiment)
        if on_this_machine:
            options.check_source()
            _check_tokenizers(experiment)
    for name, domain in experiment.search.root.items():
        if (option := data_option_of(name)) is not None:
            values = values_to_check(domain, NUM_SAMPLED_CONFIGURATIONS)
            check_searched_option(experiment.data, option, values)


def _check_reads_tokenizer(experiment: Experiment) -> None:
    """Raise an error if the data has tokens of a tokenizer, and the model cannot read them."""
    model, data = experiment.model, experiment.data
    if model is None or data is None or model.is_reference or data.is_reference:
        return
    is_searched = _TOKENIZER in experiment.search.root
    if not is_searched and data.options.get("tokenizer") is None:
        return
    if not configuration_type(model.name).reads_tokenizer:
        raise ExperimentError(
            f"{model.name} does not read the tokens of a tokenizer",
            field=f"search.{_TOKENIZER}" if is_searched else _TOKENIZER,
            allowed="with the model hf, or a model of your own that takes input_ids",
            next_step="Remove it, or for new weights use hf with from_scratch: true.",
        )


def _check_tokenizers(experiment: Experiment) -> None:
    """Raise an error if trained weights would read the tokens of another tokenizer."""
    model, data = experiment.model, experiment.data
    if model is None or data is None or model.name != "hf" or model.options.get("from_scratch"):
        return
    folder, domain = model.options.get("path"), experiment.search.root.get(_TOKENIZER)
    named = [data.options.get("tokenizer")]
    if domain is not None:
        named = list(values_to_check(domain, NUM_SAMPLED_CONFIGURATIONS))
    for tokenizer in named:
        if isinstance(folder, str) and isinstance(tokenizer, str) and folder != tokenizer:
            check_tokenizer_of_model(Path(tokenizer).expanduser(), Path(folder).expanduser())


def _check_named_functions(experiment: Experiment) -> None:
    if experiment.loss is not None:
        _check_component(experiment.loss, LOSSES, "loss")
    for index, metric in enumerate(experiment.own_metrics):
        _check_component(metric, METRICS, f"metrics.{index}")


def _check_component(component: Component, registry: Registry, field: str) -> None:
    if component.is_reference:
        _check_reference(component, field)
    elif component.name not in registry:
        raise unknown(field, f"unknown {registry.kind} {component.name!r}", registry.names())


def _check_searched_parameters(experiment: Experiment) -> None:
    """Raise an error for searched parameters that the training, plan and model do not have."""
    if experiment.model is None or experiment.model.is_reference:
        return
    model = experiment.model.name
    theirs = configuration_type(model).model_fields
    for name, domain in experiment.search.root.items():
        if name in experiment.model.options:
            raise ExperimentError(
                f"model.{name} is both set to {experiment.model.options[name]!r} and searched",
                field=f"search.{name}",
                next_step="Remove one of the two.",
            )
        if is_setting(name):
            continue
        if name not in theirs:
            names = [*theirs, *Training.model_fields, *PlanSettings.model_fields]
            raise unknown(
                f"search.{name}", f"neither training, plan nor {model} has such a parameter", names
            )
        for value in values_to_check(domain, NUM_SAMPLED_CONFIGURATIONS):
            check_value(model, name, value, field=f"search.{name}")


def _check_configurations(experiment: Experiment, on_this_machine: bool) -> None:
    """Resolve a sample of configurations, to find settings that exclude each other."""
    rng = random.Random(experiment.seed)
    may_have_gpu = experiment.resources.gpus_per_worker != 0 and (
        not on_this_machine or inventory().gpus
    )
    hardware = None if may_have_gpu else Hardware()
    for _ in range(NUM_SAMPLED_CONFIGURATIONS if experiment.search.root else 1):
        settings = resolve(experiment, experiment.search.sample(rng), hardware=hardware)
        if not experiment.makes_own_steps:
            _check_optimizer(settings.training.optimizer, experiment)
        if is_own_schedule(settings.training.schedule):
            field = field_of("training", "schedule", experiment.search.root)
            _check_reference(Component(name=settings.training.schedule), field)
        if settings.training.gradient_hook is not None:
            field = field_of("training", "gradient_hook", experiment.search.root)
            _check_reference(Component(name=settings.training.gradient_hook), field)
        if settings.plan.strategy not in STRATEGIES:
            raise unknown(
                "plan.strategy", f"unknown strategy {settings.plan.strategy!r}", STRATEGIES.names()
            )
        check_exchange(experiment, settings.plan)


def _check_optimizer(optimizer: str, experiment: Experiment) -> None:
    """Raise an error for an optimizer that torch does not have or that cannot train the model."""
    assert experiment.model is not None
    field = "training.optimizer"
    if "optimizer" in experiment.search.root:
        field = "search.optimizer"
    if ":" in optimizer:
        _check_reference(Component(name=optimizer), field)
        return
    if optimizer.lower() in BITSANDBYTES or not _torch_optimizers():
        return  # the machine that trains has the packages, and checks it
    if optimizer.lower() not in _torch_optimizers():
        raise unknown(field, f"unknown optimizer {optimizer!r}", optimizers())
    reason = why_unusable(optimizer, has_own_model=experiment.model.is_reference)
    if reason is not None:
        raise ExperimentError(
            f"{optimizer} cannot be used: {reason}",
            field=field,
            allowed=optimizers(),
        )


def optimizers() -> list[str]:
    """Return the names of the optimizers that can train any model."""
    of_torch = [
        name for name in _torch_optimizers() if why_unusable(name, has_own_model=False) is None
    ]
    return sorted([*of_torch, *(BITSANDBYTES if find_source("bitsandbytes") is not None else ())])


@functools.cache
def _torch_optimizers() -> frozenset[str]:
    """Return the names of torch's optimizers, read from its source: importing takes longer."""
    source = find_source("torch.optim")
    if source is None:
        return frozenset()
    names = bound_names(ast.parse(source.read_text(encoding="utf-8")))
    return frozenset(name.lower() for name in names if name[0].isupper() and name != "Optimizer")


def _check_autoscaling(experiment: Experiment) -> None:
    """Raise an error for autoscaling that would never request another node."""
    if experiment.resources.concurrency == "auto":
        raise ExperimentError(
            "with resources.concurrency: auto the cluster would never grow",
            field="resources.autoscaling",
            allowed="false, or resources.concurrency as a number",
            next_step="Set resources.concurrency to the number of concurrent trials.",
        )


def _check_advisable(experiment: Experiment) -> None:
    """Raise an error for `advice: always` if measured plans could not be used."""
    problem = None
    if not experiment.trains_model:
        subject = "train function" if experiment.command is None else "command"
        problem = f"a {subject} cannot use measured plans"
    elif is_private(experiment):
        problem = "the steps of a private training are not measured"
    elif experiment.resources.elastic:
        problem = "elastic trials choose their workers themselves"
    elif experiment.resources.autoscaling:
        problem = "the machines to measure on may not be there yet"
    if problem is not None:
        raise ExperimentError(problem, field="resources.advice", allowed="auto, never")


def _check_resources(experiment: Experiment) -> None:
    here = inventory()
    resources = experiment.resources
    if resources.cpus_per_worker > here.num_cpus:
        raise ResourcesError(
            f"a worker needs {resources.cpus_per_worker} CPUs, but this machine has"
            f" {here.num_cpus}",
            field="resources.cpus_per_worker",
            allowed=f"at most {here.num_cpus}",
        )
    wanted_gpus = 0.0 if resources.gpus_per_worker == "auto" else resources.gpus_per_worker
    if wanted_gpus > len(here.gpus):
        raise ResourcesError(
            f"a worker needs {wanted_gpus:g} {counted_noun(wanted_gpus, 'GPU')}, but this machine"
            f" has {len(here.gpus) or f'none: {here.no_gpus_because}'}",
            field="resources.gpus_per_worker",
            allowed=f"at most {len(here.gpus)}, or auto" if here.gpus else "0 or auto",
        )
    if (field := experiment.budget.limit_on_gpus()) is not None and (
        not here.gpus or resources.gpus_per_worker == 0
    ):
        raise ResourcesError(
            "workers have no GPUs here, so GPU time can never end the run",
            field=field,
            next_step="Limit the run by budget.time or budget.trials.",
        )
    if (field := experiment.energy_field) is not None and not _is_metered(
        here, resources.gpus_per_worker != 0
    ):
        outcome, next_step = "it stays unknown", "Choose another metric, such as samples_per_s."
        if field.startswith("budget."):
            outcome = "this budget can never end the run"
            next_step = "Limit the run by budget.time or budget.trials."
        raise ResourcesError(
            f"this machine cannot meter energy, so {outcome}",
            field=field,
            allowed=(
                "machines whose GPUs count their energy, or whose processor counters can be read"
                " (/sys/class/powercap)"
            ),
            next_step=next_step,
        )
    _, workers = workers_wanted(experiment)
    if resources.cpus_per_worker > here.num_cpus:
        raise ResourcesError(
            f"a worker needs {format_count(resources.cpus_per_worker, 'CPU')}, but this machine has"
            f" {here.num_cpus}",
            field="resources.cpus_per_worker",
            allowed=f"at most {here.num_cpus}",
        )
    if workers * resources.cpus_per_worker > here.num_cpus:
        raise ResourcesError(
            f"a trial needs {workers} workers x {resources.cpus_per_worker} CPUs, "
            f"but this machine has {here.num_cpus}",
            field=workers_field(experiment),
            allowed=f"at most {here.num_cpus // resources.cpus_per_worker}, or auto",
        )


def _is_metered(here: Inventory, is_on_gpus: bool) -> bool:
    """Return whether the energy of trials can be metered, on their GPUs if they have any."""
    if here.gpus and is_on_gpus:
        return all(gpu_counter(gpu.uuid) for gpu in here.gpus)
    return bool(processor_counters())


def _check_reference(component: Component, field: str) -> None:
    """Raise an error if a `package.module:name` does not exist, without importing it."""
    if component.payload_hash is not None:
        return
    module_name, _, qualified_name = component.name.partition(":")
    source = find_source(module_name)
    if source is None:
        step = "Start from the folder that contains it, or install its package."
        if _as_import(component.name) != component.name:
            step = f"Write it as Python imports it: {_as_import(component.name)}."
        raise ExperimentError(f"there is no module {module_name!r}", field=field, next_step=step)
    if source.suffix != ".py":
        return
    try:
        tree = ast.parse(source.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        raise ExperimentError(f"{source} is not valid Python: {error}", field=field) from error
    names = set(bound_names(tree))
    first = qualified_name.split(".")[0]
    if "*" not in names and "__getattr__" not in names and first not in names:
        defined = [
            node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)
        ]
        defined_names = sorted(defined or names - {"__all__"})
        raise unknown(field, f"{module_name!r} has no {first!r}", defined_names)


def _as_import(name: str) -> str:
    """Return the import path for a file path: folder/net.py:build is folder.net:build."""
    path, _, rest = name.partition(":")
    return f"{path.removesuffix('.py').removeprefix('./').replace('/', '.')}:{rest}"


def check_beginning(experiment: Experiment) -> None:
    """Raise an error for missing weights, adapters without peft and compiling without a compiler.

    Raises:
        DataError: If there is no such path.
        ExperimentError: If peft or a compiler is missing.
    """
    searched = experiment.search.root.get("compile")
    wanted = [
        experiment.plan.decided.get("compile"),
        *((searched.values() or []) if searched else []),
    ]
    if "default" in wanted:
        check_compiler(field_of("plan", "compile", experiment.search.root))
    _check_four_bits(experiment)
    for path in weights_of(experiment):
        existing_path(Path(path), field=field_of("training", "weights", experiment.search.root))
    if uses_adapter(experiment) and find_source("peft") is None:
        raise ExperimentError(
            "LoRA needs the package peft, which is not installed",
            field=field_of("training", "adapter", experiment.search.root),
            next_step=f"Install it: {install_command('lora')}",
        )


def _check_four_bits(experiment: Experiment) -> None:
    """Raise an error for 4-bit weights without the libraries that store them.

    Raises:
        ExperimentError: If one is missing.
    """
    searched = experiment.search.root.get("base_weights")
    wanted = [experiment.training.base_weights, *((searched.values() or []) if searched else [])]
    missing = [name for name in ("bitsandbytes", "accelerate") if find_source(name) is None]
    if "nf4" in wanted and missing:
        raise ExperimentError(
            f"weights in 4 bits need {' and '.join(missing)}, which is not installed",
            field=field_of("training", "base_weights", experiment.search.root),
            allowed="fp32, bf16",
            next_step=f"Install it: pip install {' '.join(missing)}",
        )


def check_program(experiment: Experiment) -> None:
    """Raise an error for a command whose program, script or linked data is not on this machine.

    Raises:
        ExperimentError: If it is not.
    """
    assert experiment.command is not None
    for name, path in (experiment.links or {}).items():
        if not Path(path).exists():
            raise ExperimentError(
                f"there is no {path} to link",
                field=f"workdir.link.{name}",
                next_step="Start from the folder that contains it, or write its path.",
            )
    program, *others = arguments_of(experiment.command)
    if (variable := re.match(r"[^\W\d]\w*(?==)", program)) is not None:
        raise ExperimentError(
            f"the variable {variable[0]} stands where the program should be",
            field="command",
            next_step=f"Write env before it: env {experiment.command}",
        )
    if "{" in program:
        return
    if program in INTERPRETERS:  # the one that runs the workbench
        _check_script(others)
        return
    # Programs such as torchrun are found even if the environment is not activated.
    programs_folder = Path(sys.executable).parent
    if (
        shutil.which(program) is not None
        or shutil.which(program, path=str(programs_folder)) is not None
    ):
        return
    path = Path(program)
    if path.suffix == ".py":
        problem, step = f"there is no file {program}", "Start from the folder that contains it."
        if path.is_file():
            problem, step = f"{program} is not a program", f"Write python {program}."
        raise ExperimentError(problem, field="command", next_step=step)
    step = "Install it, or write its path."
    if path.is_file():
        step = f"Make it executable: chmod +x {program}."
    raise ExperimentError(f"there is no program {program!r}", field="command", next_step=step)


def check_paths(experiment: Experiment) -> None:
    """Raise an error for a file of metrics that several trials would write to at once.

    Raises:
        ExperimentError: If they would.
    """
    source = experiment.metric_source
    if source.path is None or experiment.resources.concurrency == 1:
        return
    if experiment.links is not None and not Path(source.path).is_absolute():
        return
    if not any(name in source.path for name in _OWN_NAMES):
        raise ExperimentError(
            f"trials that run at once would all write to {source.path}",
            field=f"metrics.{source.kind}",
            allowed="a path with {folder} or {trial}",
            next_step=(
                "Pass {folder} to the program and write the file there. Or give each trial its own"
                " folder with workdir: fresh."
            ),
        )


def _check_script(arguments: list[str]) -> None:
    """Raise an error for a missing script. Interpreter options such as -m are not checked."""
    if not arguments or arguments[0].startswith("-") or "{" in arguments[0]:
        return
    if not Path(arguments[0]).exists():
        raise ExperimentError(
            f"there is no file {arguments[0]}",
            field="command",
            next_step="Start from the folder that contains it, or write its path.",
        )
