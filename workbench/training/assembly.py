"""Assembles everything that the loop of a trial needs: data, model, optimizer, strategy.

Loss and metrics are left to `loss_and_metrics`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from pydantic import JsonValue
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily

from workbench.data import Datasets
from workbench.data.augmentation import augmented
from workbench.data.batches import num_batches
from workbench.data.ordered_splits import OrderedSplit
from workbench.experiment import Experiment, Objective, Training
from workbench.experiment.goals import Goal
from workbench.experiment.metric_declarations import goal_in
from workbench.experiment.plan import Hardware
from workbench.experiment.plan.dimensions import size_bytes
from workbench.experiment.schedules import averaged_from
from workbench.experiment.training_section import Adapter
from workbench.experiment.trainings import is_private
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import Noted, TokenCounts
from workbench.hardware.performance.flops import flops_per_token, peak_flops_per_s
from workbench.hardware.performance.profiler import StepProfiler
from workbench.hardware.resources.inventory import check_compiler
from workbench.models.adapters import build_model, construct, declared_goals
from workbench.models.batch_parts import DividedLoss
from workbench.models.exits import check_task
from workbench.models.folder_models import PREFIX, FolderModel, LanguageModel, TextClassifier
from workbench.models.low_rank import add_adapter
from workbench.models.metrics import AnyMetric
from workbench.models.model_calls import call_model
from workbench.models.own_steps import OwnSteps, total_loss
from workbench.models.pairing import Kind, Pairing
from workbench.models.pretrained import (
    are_weights_of,
    has_lazy,
    initialise,
    load_pretrained,
    make_fake,
    set_up_lazy,
)
from workbench.training.exchanges.exchange import exchange_of
from workbench.training.loaders import Loaders
from workbench.training.loading import load_trial_data
from workbench.training.loss_and_metrics import (
    call_of,
    loss_kind_of,
    loss_of,
    measures_tokens_only,
    metrics_of,
    pairing_of,
)
from workbench.training.optimizers import (
    freeze,
    gradient_hook_of,
    grouped,
    groups_of,
    hidden_matrices,
    optimizer_factory,
    uses_muon,
)
from workbench.training.planning.plan_resolution import field_of
from workbench.training.planning.settings import TrialSettings, reference_lr, resolve
from workbench.training.schedules import ConstantAtTheEnd, Length, Schedule, schedule_of
from workbench.training.strategies import STRATEGIES
from workbench.training.strategies.private_steps import PrivacyBudget, privacy_budget
from workbench.training.strategies.recompute import has_blocks
from workbench.training.strategies.single import normalisations
from workbench.training.strategies.strategy import StepSettings, Strategy, Worker
from workbench.training.strategies.weight_mean import EqualMean, MovingMean, WeightMean
from workbench.training.tensor_source import Source, few_inputs, sources_of
from workbench.training.worker_task import TrialTask

if TYPE_CHECKING:
    from workbench.training.lm_eval_tasks import LanguageTaskMeter


@dataclass(frozen=True)
class Parts:
    """Everything that the loop of one trial needs."""

    worker: Worker
    settings: TrialSettings
    strategy: Strategy
    schedule: Schedule
    profiler: StepProfiler
    train: Source
    validation: Source
    datasets: Datasets
    """The loaded data."""
    metrics: dict[str, AnyMetric]
    pairing: Pairing
    """How outputs meet targets."""
    loss: DividedLoss
    """The loss. A step adds up its parts."""
    loss_kind: Kind | None
    """How the loss understands outputs and targets, or None for your own loss."""
    makes_own_steps: bool
    objectives: tuple[Objective, ...]
    mixes_samples: bool
    """Whether the model normalises by statistics of the batch that it receives."""
    model_bytes: int
    has_blocks: bool
    """Whether the model has blocks that could be recomputed in the backward pass."""
    loaders: Loaders | None = None
    privacy: PrivacyBudget | None = None
    """How much the training may reveal about a sample, or None if it is not private."""
    language_tasks: LanguageTaskMeter | None = None
    """Tasks of lm_eval that are repeated at each evaluation, if the data names some."""
    tokens: TokenCounts | None = None
    """How many tokens the training sees, or None if samples are not tokens."""
    notes: tuple[str, ...] = ()
    """Messages for the user about the assembly."""

    def close(self) -> None:
        """Free everything, so that the worker can serve another trial."""
        if self.loaders is not None:
            self.loaders.close()
        self.strategy.close()


def assemble(task: TrialTask, worker: Worker, profiler: StepProfiler | None = None) -> Parts:
    """Load the data, build the model, and set up the strategy of a trial.

    Args:
        task: The order.
        worker: Which of its workers this is.
        profiler: Times the steps. None uses one with almost no overhead.

    Raises:
        WorkbenchError: If a name, a value or the data is wrong.
    """
    experiment, device = task.experiment, worker.device
    torch.set_num_threads(experiment.resources.cpus_per_worker)
    datasets = load_trial_data(task.run_id, experiment, task.seed, task.params)
    settings = trial_settings(task, device, datasets)
    worker = dataclasses.replace(worker, workers_per_replica=settings.plan.workers_per_replica)
    _seed(task.seed)  # before the model is built, so that all workers draw the same weights
    if settings.plan.compile == "default":
        check_compiler(field_of("plan", "compile", task.params))
    profiler = profiler or StepProfiler(device.type)
    _check_four_bits(settings.training, device)
    exchange = exchange_of(settings.plan, worker.num_replicas)
    steps_per_epoch = _steps_per_epoch(settings, datasets)
    privacy = privacy_budget(
        settings.training,
        len(datasets.train),
        settings.plan.global_batch,
        num_steps=steps_per_epoch * settings.training.epochs,
    )
    if privacy is not None:
        _refuse_own_order(datasets)
    pairing = pairing_of(experiment, datasets)
    steps = step_settings(
        experiment,
        settings,
        datasets,
        pairing,
        mark=profiler.mark,
        exchange=exchange,
        hiding=privacy.hiding if privacy is not None else None,
    )
    make_strategy = strategy_of(experiment, settings.plan.strategy)
    # Check objectives before building the model, which may take long. Only your own steps need the
    # model to say which metrics there are.
    metrics = None
    if not experiment.makes_own_steps:
        metrics = metrics_of(experiment, datasets, pairing=pairing)
    notes: list[str] = []
    model = build_trial_model(experiment, task.params, settings, datasets, note=notes.append)
    model_bytes = sum(parameter.nbytes for parameter in model.parameters())
    strategy = make_strategy(for_model(steps, settings, model))
    # Before the strategy divides the model.
    tokens = _token_counts(model, datasets, settings, worker)
    loss = steps.loss
    assert isinstance(loss, DividedLoss)
    if metrics is None:
        metrics = metrics_of(experiment, datasets, model)
    else:
        metrics["loss"] = dataclasses.replace(metrics["loss"], measure=loss.measure)  # type: ignore[call-arg]
    # The schedule may follow a metric, so it needs to know which ones there are.
    schedule = _schedule(experiment, settings, steps_per_epoch, metrics, worker)
    where = field_of("training", "optimizer", task.params)
    strategy.setup(model, optimizer_factory(settings.training, settings.lr, field=where), worker)
    # Replicas and stages start with the same weights, but dropout must differ between them. The
    # parts of a tensor-parallel layer must drop the same units.
    seed_offset = worker.rank if settings.plan.tensor == 1 else worker.replica
    _seed_torch(task.seed + seed_offset)
    loaded = datasets
    if settings.training.augment is not None:
        datasets = augmented(datasets, settings.training.augment)
    train, validation, loaders = sources_of(datasets, device, settings.plan.loaders)
    if loaders is not None and not loaders.has_work:
        notes.append("no loaders are started, because the data is already in GPU memory")
    return Parts(
        datasets=loaded,
        loss=loss,
        loss_kind=loss_kind_of(experiment, datasets),
        makes_own_steps=experiment.makes_own_steps,
        worker=worker,
        settings=settings,
        strategy=strategy,
        schedule=schedule,
        profiler=profiler,
        train=train,
        validation=validation,
        metrics=metrics,
        pairing=pairing,
        objectives=experiment.objectives,
        mixes_samples=bool(normalisations(model)),
        model_bytes=model_bytes,
        has_blocks=has_blocks(model),
        loaders=loaders,
        privacy=privacy,
        language_tasks=_language_tasks(experiment, loaded),
        tokens=tokens,
        notes=tuple(notes),
    )


def _language_tasks(experiment: Experiment, datasets: Datasets) -> LanguageTaskMeter | None:
    if datasets.language_tasks is None:
        return None
    from workbench.training.lm_eval_tasks import LanguageTaskMeter  # needs the package lm_eval

    return LanguageTaskMeter(datasets.language_tasks, experiment.required_metrics.values())


def notes_on_assembly(task: TrialTask, parts: Parts) -> list[Noted]:
    """Return messages about how a training was assembled.

    They are returned once per run, because its trials start in the same way. If initial weights are
    searched, they are returned for each trial.

    Args:
        task: The order.
        parts: The assembled training.
    """
    is_like_others = task.trial > 0 and "weights" not in task.params
    if parts.worker.rank or task.attempt or is_like_others:
        return []
    return [Noted(level="info", message=message, trial=task.trial) for message in parts.notes]


def step_settings(
    experiment: Experiment,
    settings: TrialSettings,
    datasets: Datasets,
    pairing: Pairing | None = None,
    **others: Any,
) -> StepSettings:
    """Return the settings of a trial's steps for its strategy.

    Args:
        experiment: The experiment.
        settings: The settings of the trial.
        datasets: The data of the training.
        pairing: How outputs meet targets, or None to derive it from the experiment and the data.
        **others: Further fields of the result.
    """
    training, groups = settings.training, groups_of(experiment, settings)
    steps_per_epoch = _steps_per_epoch(settings, datasets)
    is_of_folder = experiment.model is not None and experiment.model.name == "hf"
    divide = functools.partial(
        grouped,
        groups=groups,
        steps_per_epoch=steps_per_epoch,
        prefix=PREFIX if is_of_folder else "",
    )
    return StepSettings(
        loss=loss_of(experiment, datasets, pairing),
        precision=settings.plan.precision,
        gradient_hook=gradient_hook_of(training),
        clip_norm=training.clip_norm,
        recompute=settings.plan.recompute != "none",
        kept_bytes=size_bytes(settings.plan.recompute),
        compiles=settings.plan.compile == "default",
        records=settings.plan.compile == "cuda_graphs",
        is_channels_last=settings.plan.memory_format == "channels_last",
        average=_average(training, steps_per_epoch),
        find_unused=training.find_unused_parameters,
        peak_lr=settings.lr,
        group=divide if groups or uses_muon(training) else None,
        call=call_of(experiment),
        bucket_bytes=size_bytes(settings.plan.bucket),
        pipeline_schedule=settings.plan.pipeline_schedule,
        shard=settings.plan.shard,
        example=few_inputs(datasets.train) if settings.plan.stages > 1 else None,
        **others,
    )


def for_model(steps: StepSettings, settings: TrialSettings, model: nn.Module) -> StepSettings:
    """Return the settings of a trial's steps, with those that depend on the parts of its model.

    Args:
        steps: The settings from `step_settings`.
        settings: The settings of the trial.
        model: The whole model, before a strategy places it.
    """
    if not uses_muon(settings.training) or steps.group is None:
        return steps
    divide: Callable[..., Any] = steps.group  # `grouped`, of which the model gives the rest
    hidden = hidden_matrices(model)
    return dataclasses.replace(steps, group=functools.partial(divide, hidden=hidden))


def _token_counts(
    model: nn.Module, datasets: Datasets, settings: TrialSettings, worker: Worker
) -> TokenCounts | None:
    """Return the tokens of a training. Operations are counted for GPUs only.

    A CPU has no peak rate that a data sheet gives and a training could reach.
    """
    per_sample = datasets.tokens_per_sample
    if per_sample is None:
        return None
    counts = TokenCounts(
        per_sample=per_sample,
        num_samples=len(datasets.train),
        num_parameters=sum(parameter.numel() for parameter in model.parameters()),
    )
    if worker.device.type != "cuda":
        return counts
    peak = peak_flops_per_s(worker.device, settings.plan.precision)
    if peak is None:
        return counts
    return counts.model_copy(
        update={
            "flops_per_token": flops_per_token(model, max(1, round(per_sample))),
            "peak_flops_per_s": peak * worker.num_workers,
        }
    )


def trial_settings(task: TrialTask, device: torch.device, datasets: Datasets) -> TrialSettings:
    """Return the settings of a trial on a device, with every `auto` resolved.

    Args:
        task: The order.
        device: The worker's device.
        datasets: The data of the training.

    Raises:
        ExperimentError: If settings contradict each other.
    """
    has_gpu = device.type == "cuda"
    has_bf16 = has_gpu and torch.cuda.is_bf16_supported(including_emulation=False)
    num_loaders = max((arguments.num_workers for arguments in datasets.loading.values()), default=0)
    return resolve(
        task.experiment,
        task.params,
        num_train_samples=len(datasets.train),
        hardware=Hardware(has_gpu, has_bf16),
        decided=task.plan,
        num_loaders=num_loaders,
    )


def build_trial_model(
    experiment: Experiment,
    params: Mapping[str, JsonValue],
    settings: TrialSettings,
    datasets: Datasets,
    *,
    pretrained: bool = True,
    note: Callable[[str], object] = lambda message: None,
) -> torch.nn.Module:
    """Build the model of a trial, on the CPU.

    Lazy modules get their shapes from samples of the data.

    Args:
        experiment: The experiment. It must train a model.
        params: The configuration of the trial.
        settings: The settings of the trial.
        datasets: The data that the model must fit.
        pretrained: Whether to load the initial weights of the training.
        note: Receives a line that says which weights were loaded.

    Raises:
        WorkbenchError: If a name or a value is wrong.
    """
    model = _with_shapes(experiment, params, settings, datasets)
    training = settings.training
    # Patterns and files have the names that transformers gives.
    named = model
    _check_base_weights(training, model)
    if datasets.task == "preferences":
        _check_reference(training, model)
    adapter = _adapter_of(training, model)
    if pretrained:
        _check_unfrozen(settings, adapter)
    if isinstance(model, LanguageModel):
        is_paired = datasets.task == "preferences"
        model.computes_losses = is_paired or measures_tokens_only(experiment)
    if isinstance(model, FolderModel):
        is_new = bool(settings.model.get("from_scratch", False))
        # The weights under an adapter are not in checkpoints, so they always come from the folder.
        is_read = pretrained or training.adapter is not None
        # An export adds an adapter to exact weights, whatever it was trained on.
        stored = training.base_weights if pretrained else "fp32"
        note(model.load(stored, is_pretrained=is_read and not is_new))
        named = model.inner
    check_task(model, datasets.task, datasets.target_shape)
    initialise(model, training.initialisation)
    if pretrained and training.weights is not None:
        where = field_of("training", "weights", params)
        own_prefix = PREFIX if named is not model else ""
        loaded = load_pretrained(named, training.weights, field=where, own_prefix=own_prefix)
        note(loaded.describe(training.weights.path))
    if pretrained and isinstance(model, LanguageModel) and _is_packed(datasets):
        model.check_packing()
    # After the weights, whose names do not know the adapter's layers. It freezes the model, except
    # for its own matrices.
    if adapter is not None:
        add_adapter(named, adapter, field=field_of("training", "adapter", params))
        if isinstance(model, FolderModel) and begins_with_folder(settings):
            model.train_in_single_precision()
            model.store_only_trained()
    freeze(named, training.parameter_groups)
    return model


def begins_with_folder(settings: TrialSettings) -> bool:
    """Return whether a model of a folder begins with exactly the weights in it.

    Args:
        settings: The settings of the trial.
    """
    training = settings.training
    if settings.model.get("from_scratch", False) or training.initialisation != "default":
        return False
    folder = Path(str(settings.model.get("path")))
    return training.weights is None or are_weights_of(training.weights, folder)


def _adapter_of(training: Training, model: nn.Module) -> Adapter:
    """Return the adapter, beside which the new last layer of a classifier is trained as a whole."""
    adapter = training.adapter
    if adapter is None or not isinstance(model, TextClassifier):
        return adapter
    head = tuple(f"^{re.escape(name)}$" for name in model.head)
    return adapter.model_copy(update={"unfrozen": (*adapter.unfrozen, *head)})


def _is_packed(datasets: Datasets) -> bool:
    """Return whether rows have positions, because several documents may be in a row."""
    inputs = few_inputs(datasets.train)
    return isinstance(inputs, Mapping) and "position_ids" in inputs


def _check_four_bits(training: Training, device: torch.device) -> None:
    """Check that the device can train on weights in 4 bits.

    On a CPU, bitsandbytes changes the weights at the first evaluation, and trains on others then.

    Raises:
        ExperimentError: If it cannot.
    """
    if training.base_weights == "nf4" and device.type != "cuda":
        raise ExperimentError(
            "weights in 4 bits are trained on NVIDIA GPUs only",
            field="training.base_weights",
            allowed="fp32, bf16",
            next_step="Use bf16, or a GPU.",
        )


def _check_base_weights(training: Training, model: nn.Module) -> None:
    """Check that weights which are stored in fewer bits are not trained themselves.

    Raises:
        ExperimentError: If they would be.
    """
    if training.base_weights == "fp32":
        return
    problem = None
    if not isinstance(model, FolderModel):
        problem = "only models in folders can store them in fewer bits"
    elif training.adapter is None:
        problem = "without an adapter, these weights are trained themselves, in single precision"
    if problem is not None:
        raise ExperimentError(
            problem,
            field="training.base_weights",
            allowed="fp32",
            next_step="Add training.adapter, or remove base_weights.",
        )


def _check_reference(training: Training, model: nn.Module) -> None:
    """Check that the weights below an adapter stay as they are, to compare answers with them.

    Raises:
        ExperimentError: If they do not.
    """
    adapter = training.adapter
    problem, field, next_step = None, "training.adapter", "Add training.adapter."
    if not isinstance(model, LanguageModel):
        problem, field = "only language models in folders learn from preferences", "model"
        next_step = "Set model: {name: hf, path: FOLDER}."
    elif adapter is None:
        problem = "preferences are learned against the weights without an adapter, but none is set"
    elif adapter.unfrozen:
        problem = "preferences are learned against the weights without the adapter, which must stay"
        field, next_step = f"{field}.unfrozen", "Remove it."
    if problem is not None:
        raise ExperimentError(problem, field=field, next_step=next_step)


def _check_unfrozen(settings: TrialSettings, adapter: Adapter) -> None:
    """Check that whole modules, which are trained in single precision, fit the weights around them.

    Raises:
        ExperimentError: If nothing converts between them.
    """
    training, precision = settings.training, settings.plan.precision
    is_mixed = training.base_weights != "fp32" and precision == "fp32"
    if is_mixed and adapter is not None and adapter.unfrozen:
        raise ExperimentError(
            "unfrozen weights are trained in single precision, but others are stored in"
            f" {training.base_weights}",
            field="plan.precision",
            allowed="bf16, fp16",
            next_step="Set plan.precision: bf16, or remove unfrozen or base_weights.",
        )


def strategy_of(experiment: Experiment, name: str) -> type[Strategy]:
    """Return the class of a strategy.

    Args:
        experiment: The experiment.
        name: The strategy of the plan.

    Raises:
        UnknownNameError: If no package registers the name.
    """
    if is_private(experiment):
        from workbench.training.strategies.private_steps import PrivateSteps

        return PrivateSteps
    if experiment.federated is not None:
        from workbench.training.strategies.client_steps import ClientSteps

        return ClientSteps
    if experiment.makes_own_steps:
        from workbench.training.strategies.optimizer_phases import Phased

        return Phased
    return STRATEGIES.load(name, field="plan.strategy")


def _steps_per_epoch(settings: TrialSettings, datasets: Datasets) -> int:
    """Return the number of optimizer steps in an epoch."""
    drops_last = datasets.order.drops_last
    return num_batches(len(datasets.train), settings.plan.global_batch, drops_last=drops_last)


def _refuse_own_order(datasets: Datasets) -> None:
    """Check that no sampler or stream chooses the samples of a private training.

    Raises:
        ExperimentError: If one does. Privacy is only guaranteed if a step takes each sample with
            the same probability.
    """
    if isinstance(datasets.train, OrderedSplit):
        raise ExperimentError(
            "a private training draws the samples of each step, but train has a sampler or is a"
            " stream",
            field="training.private",
            next_step=("Use training data that is indexed by sample number, without a sampler."),
        )


def _average(training: Training, steps_per_epoch: int) -> Callable[[nn.Module], WeightMean] | None:
    if training.average_decay is not None:
        return functools.partial(MovingMean, decay=training.average_decay)
    if training.average_start is None:
        return None
    first_step = averaged_from(training) * steps_per_epoch
    return functools.partial(EqualMean, first_step=first_step, steps_per_epoch=steps_per_epoch)


def _schedule(
    experiment: Experiment,
    settings: TrialSettings,
    steps_per_epoch: int,
    metrics: Mapping[str, AnyMetric],
    worker: Worker,
) -> Schedule:
    training = settings.training
    # In a federation, the rate changes by round, because clients make different numbers of steps.
    if settings.federated is not None:
        steps_per_epoch = 1
    total_steps = steps_per_epoch * training.epochs
    length = Length(
        total_steps,
        warmup_steps=min(settings.warmup_steps(steps_per_epoch), total_steps),
        epochs=training.epochs,
        evaluations=math.ceil(training.epochs / training.evaluate_every),
    )
    declared = declared_goals(metrics)
    names = ("train_loss", *(f"val_{name}" for name in metrics))
    measured: dict[str, Goal | None] = {name: goal_in(experiment, name, declared) for name in names}
    schedule = schedule_of(
        training,
        settings.lr,
        length,
        objectives=experiment.objectives,
        measured=measured,
        group=worker.group,
    )
    if training.average_lr is None:
        return schedule
    part = training.average_lr / reference_lr(training)
    return ConstantAtTheEnd(schedule, averaged_from(training) * steps_per_epoch, part)


def _with_shapes(
    experiment: Experiment,
    params: Mapping[str, JsonValue],
    settings: TrialSettings,
    datasets: Datasets,
) -> nn.Module:
    """Build a model and run samples through its lazy modules. See `build_trial_model`."""
    model: nn.Module | None = None
    try:
        model = _build(experiment, params, settings, datasets)
    except RuntimeError as error:
        if "Uninitialized" not in str(error):
            raise
    if model is not None and not has_lazy(model):
        return model
    with unset_fake_temporarily() as fake:  # torch cannot make lazy modules of fake tensors
        if model is None:
            model = _build(experiment, params, settings, datasets)
        call = total_loss if experiment.makes_own_steps else call_model
        set_up_lazy(model, few_inputs(datasets.train), call)
    if isinstance(fake, FakeTensorMode):
        replaced = make_fake(model, fake)
        if isinstance(model, OwnSteps):
            model.replace(replaced)
    return model


def _build(
    experiment: Experiment,
    params: Mapping[str, JsonValue],
    settings: TrialSettings,
    datasets: Datasets,
) -> nn.Module:
    """Build a model as the experiment describes it. See `build_trial_model`."""
    component = experiment.trained
    assert component is not None
    field = "train" if experiment.makes_own_steps else "model"
    name: Any = component.name
    values: Any = settings.model
    if component.is_reference:
        name = component.load(field=field)
        values = {**component.options, **params}
    if experiment.makes_own_steps:
        return _build_own_steps(experiment, construct(name, values, field=field), settings)
    return build_model(
        name,
        values,
        input_shape=datasets.input_shape,
        num_outputs=datasets.num_outputs,
        vocabulary_size=datasets.vocabulary_size,
        target_shape=datasets.target_shape,
    )


def _build_own_steps(experiment: Experiment, owner: Any, settings: TrialSettings) -> nn.Module:
    model = OwnSteps(owner, settings.lr)
    if "lr" in experiment.training.model_fields_set and not model.takes_lr:
        raise ExperimentError(
            "the learning rate does not reach your optimizers",
            field="training.lr",
            next_step="Add a parameter lr to configure, or remove this setting.",
        )
    return model


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    _seed_torch(seed)


def _seed_torch(seed: int) -> None:
    """Seed the generators of torch like `torch.manual_seed`.

    That also keeps the call stack for each kind of device that there might be. Without any device,
    this takes a third of the time in which a small model is assembled.
    """
    has_device = (
        torch.cuda.is_available() or torch.backends.mps.is_available() or torch.xpu.is_available()
    )
    if has_device:
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)
