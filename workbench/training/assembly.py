"""From the order for a trial to everything that its loop needs.

Data, model, optimizer, strategy.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from pydantic import JsonValue
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily

from workbench.data import Datasets, Split
from workbench.data.augmentation import augmented
from workbench.data.batches import num_batches
from workbench.data.known_targets import known_targets
from workbench.data.ordered import OrderedSplit
from workbench.experiment import Component, Experiment, Objective, Training
from workbench.experiment.goals import Goal
from workbench.experiment.metric_declarations import goal_in, is_rate_in
from workbench.experiment.plan import Hardware
from workbench.experiment.plan.dimension import size_bytes
from workbench.experiment.private import is_private
from workbench.experiment.schedules import averaged_from
from workbench.foundation.errors import ExperimentError
from workbench.hardware.performance.flops import count_flops
from workbench.hardware.performance.profiler import StepProfiler
from workbench.hardware.resources.compiler import check_compiler
from workbench.models.adapters import build_model, declared_goals, load_loss, load_metrics
from workbench.models.calls import call_model, loss_in
from workbench.models.construction import construct
from workbench.models.exits import check_task, joint
from workbench.models.initialisation import has_lazy, initialise, make_fake, set_up_lazy
from workbench.models.losses import cross_entropy, cross_entropy_in_parts, of_model
from workbench.models.low_rank import add_adapter
from workbench.models.metrics import AnyMetric, Metric, kind_read_by
from workbench.models.own_functions import single_scores_of
from workbench.models.own_steps import OwnSteps, call_with_batch, metrics_by_name, total_loss
from workbench.models.pairing import IGNORED, Kind, Pairing, SingleScores, declared_class_dim
from workbench.models.parts import DividedLoss, Division
from workbench.models.pretrained import load_pretrained
from workbench.training.exchanges.exchange import exchange_of
from workbench.training.loaders import Loaders
from workbench.training.loading import load_trial_data
from workbench.training.objectives import check_objectives
from workbench.training.optimizers import freeze, gradient_hook_of, grouped, optimizer_factory
from workbench.training.planning.plan_resolution import field_of
from workbench.training.planning.settings import TrialSettings, reference_lr, resolve
from workbench.training.schedules import ConstantAtTheEnd, Length, Schedule, schedule_of
from workbench.training.source import Source, sources_of
from workbench.training.strategies import STRATEGIES
from workbench.training.strategies.private import PrivacyBudget, privacy_budget
from workbench.training.strategies.recompute import has_blocks
from workbench.training.strategies.single import normalisations
from workbench.training.strategies.strategy import StepSettings, Strategy, Worker
from workbench.training.strategies.weight_mean import EqualMean, MovingMean, WeightMean
from workbench.training.task import TrialTask

_NUM_LEARNED_FROM = 16
_NUM_SET_UP_SAMPLES = 2  # normalisation over a batch needs more than one


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
    """The data as it was loaded."""
    metrics: dict[str, AnyMetric]
    pairing: Pairing
    """How outputs meet targets."""
    loss: DividedLoss
    """The loss, of which a step adds up parts."""
    loss_kind: Kind | None
    """As what the loss reads them; None for one of the user's own, which takes them as they are."""
    makes_own_steps: bool
    objectives: tuple[Objective, ...]
    mixes_samples: bool
    """Whether the model normalises by statistics of the batch that it is given."""
    model_bytes: int
    has_blocks: bool
    """Whether the model has blocks that could be computed again in the backward pass."""
    loaders: Loaders | None = None
    privacy: PrivacyBudget | None = None
    """What the training may reveal about a sample; None where it is not private."""

    def close(self) -> None:
        """Give back everything, so that the worker can serve another trial."""
        if self.loaders is not None:
            self.loaders.close()
        self.strategy.close()


def assemble(task: TrialTask, worker: Worker, profiler: StepProfiler | None = None) -> Parts:
    """Load the data, build the model, and set up the strategy of a trial.

    Args:
        task: The order.
        worker: Which of its workers this is.
        profiler: What times the steps; None for one that costs next to nothing.

    Raises:
        WorkbenchError: If a name, a value or the data is wrong.
    """
    experiment, device = task.experiment, worker.device
    torch.set_num_threads(experiment.resources.cpus_per_worker)
    datasets = load_trial_data(task.run_id, experiment, task.seed, task.params)
    settings = trial_settings(task, device, datasets)
    worker = dataclasses.replace(worker, workers_per_replica=settings.plan.workers_per_replica)
    _seed(task.seed)
    if settings.plan.compile == "default":
        check_compiler(field_of("plan", "compile", task.params))
    profiler = profiler or StepProfiler(device.type)
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
        hiding=None if privacy is None else privacy.hiding,
    )
    strategy = strategy_of(experiment, settings.plan.strategy)(steps)
    # Wrong objectives are refused before a model is built; of own steps only the model knows the
    # metrics.
    known = (
        None if experiment.makes_own_steps else metrics_of(experiment, datasets, pairing=pairing)
    )
    model = build_trial_model(experiment, task.params, settings, datasets)
    model_bytes = sum(parameter.nbytes for parameter in model.parameters())
    metrics = metrics_of(experiment, datasets, model) if known is None else known
    loss = steps.loss
    assert isinstance(loss, DividedLoss)
    if known is not None:
        metrics["loss"] = dataclasses.replace(metrics["loss"], measure=loss.measure)  # type: ignore[call-arg]
    schedule = _schedule(experiment, settings, steps_per_epoch, metrics, worker)
    where = field_of("training", "optimizer", task.params)
    strategy.setup(model, optimizer_factory(settings.training, settings.lr, field=where), worker)
    # Replicas and stages begin with the same weights but must not drop the same units; tensor parts
    # must.
    torch.manual_seed(task.seed + (worker.rank if settings.plan.tensor == 1 else worker.replica))
    loaded = datasets
    if settings.training.augment is not None:
        datasets = augmented(datasets, settings.training.augment)
    train, validation, loaders = sources_of(datasets, device, settings.plan.loaders)
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
    )


def step_settings(
    experiment: Experiment,
    settings: TrialSettings,
    datasets: Datasets,
    pairing: Pairing | None = None,
    **others: Any,
) -> StepSettings:
    """Return what a strategy must know about the steps of a trial.

    Args:
        experiment: The experiment.
        settings: What follows from it for the trial.
        datasets: What is trained on.
        pairing: How outputs meet targets; None for what follows from the experiment and the data.
        **others: Fields of the result that follow from neither.
    """
    training, groups = settings.training, settings.training.parameter_groups
    steps_per_epoch = _steps_per_epoch(settings, datasets)
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
        group=(
            functools.partial(grouped, groups=groups, steps_per_epoch=steps_per_epoch)
            if groups
            else None
        ),
        call=call_of(experiment),
        bucket_bytes=size_bytes(settings.plan.bucket),
        pipeline_schedule=settings.plan.pipeline_schedule,
        shard=settings.plan.shard,
        example=_few_samples(datasets.train) if settings.plan.stages > 1 else None,
        **others,
    )


def _steps_per_epoch(settings: TrialSettings, datasets: Datasets) -> int:
    """Return the number of optimizer steps in an epoch."""
    drops_last = datasets.order.drops_last
    return num_batches(len(datasets.train), settings.plan.global_batch, drops_last=drops_last)


def _refuse_own_order(datasets: Datasets) -> None:
    """Refuse a private training of samples that a sampler or a stream chooses.

    Raises:
        ExperimentError: If one does: the promise rests on steps that take each sample with one
            probability.
    """
    if isinstance(datasets.train, OrderedSplit):
        raise ExperimentError(
            "a private training draws the samples of each step, and train has a sampler or is a"
            " stream",
            field="training.private",
            next_step=(
                "Give train as a data set that is indexed by sample number, without a sampler."
            ),
        )


def _few_samples(split: Split) -> Any:
    """Return the inputs of two samples, on the CPU."""
    source = Source(split, torch.device("cpu"))
    return source.fetch(np.resize(np.arange(len(source)), _NUM_SET_UP_SAMPLES))[0]


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
    # In a federation the rate changes with the rounds: each client takes another number of steps.
    steps_per_epoch = 1 if settings.federated is not None else steps_per_epoch
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
        training, settings.lr, length, experiment.objectives, measured, worker.group
    )
    if training.average_lr is None:
        return schedule
    part = training.average_lr / reference_lr(training)
    return ConstantAtTheEnd(schedule, averaged_from(training) * steps_per_epoch, part)


def trial_settings(task: TrialTask, device: torch.device, datasets: Datasets) -> TrialSettings:
    """Answer every open question about a trial for the device that it trains on.

    Args:
        task: The order.
        device: Where the worker computes.
        datasets: What it trains on.

    Raises:
        ExperimentError: If settings exclude each other.
    """
    has_gpu = device.type == "cuda"
    has_bf16 = has_gpu and torch.cuda.is_bf16_supported(including_emulation=False)
    num_loaders = max((each.num_workers for each in datasets.loading.values()), default=0)
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
) -> torch.nn.Module:
    """Build the model of a trial, on the CPU.

    Lazy modules get their shapes from samples of the data.

    Args:
        experiment: The experiment; it trains a model.
        params: The configuration of the trial.
        settings: What follows from both.
        datasets: What the model must fit to.
        pretrained: Whether to load the weights that the training begins with.

    Raises:
        WorkbenchError: If a name or a value is wrong.
    """
    component = experiment.trained
    assert component is not None
    field = "train" if experiment.makes_own_steps else "model"
    own: Any = component.load(field=field) if component.is_reference else None
    values = {**component.options, **params}

    def build() -> nn.Module:
        if experiment.makes_own_steps:
            return _build_own_steps(experiment, construct(own, values, field=field), settings)
        return build_model(
            *((component.name, settings.model) if own is None else (own, values)),
            input_shape=datasets.input_shape,
            num_outputs=datasets.num_outputs,
            vocabulary_size=datasets.vocabulary_size,
            target_shape=datasets.target_shape,
        )

    def prepared(model: nn.Module) -> nn.Module:
        training = settings.training
        check_task(model, datasets.task, datasets.target_shape)
        initialise(model, training.initialisation)
        if pretrained and training.weights is not None:
            path = field_of("training", "weights", params)
            print(
                load_pretrained(model, training.weights, field=path).describe(training.weights.path)
            )
        if training.adapter is not None:
            add_adapter(model, training.adapter, field=field_of("training", "adapter", params))
        freeze(model, training.parameter_groups)
        return model

    model: nn.Module | None = None
    try:
        model = build()
    except RuntimeError as error:
        if "Uninitialized" not in str(error):
            raise
    if model is not None and not has_lazy(model):
        return prepared(model)
    with unset_fake_temporarily() as fake:  # of fake tensors torch makes no lazy modules
        model = build() if model is None else model
        set_up_lazy(
            model,
            _few_samples(datasets.train),
            total_loss if experiment.makes_own_steps else call_model,
        )
    if isinstance(fake, FakeTensorMode):
        replaced = make_fake(model, fake)
        if isinstance(model, OwnSteps):
            model.replace(replaced)
    return prepared(model)


def _build_own_steps(experiment: Experiment, owner: Any, settings: TrialSettings) -> nn.Module:
    model = OwnSteps(owner, settings.lr)
    if "lr" in experiment.training.model_fields_set and not model.takes_lr:
        raise ExperimentError(
            "does not reach the optimizers",
            field="training.lr",
            next_step="Give configure a parameter lr, or remove it.",
        )
    return model


def call_of(experiment: Experiment) -> Callable[[nn.Module, Any], Any]:
    """Return how what an experiment trains is called with inputs, to predict or to be measured."""
    return call_with_batch if experiment.makes_own_steps else call_model


def count_step_flops(
    experiment: Experiment, datasets: Datasets, model: nn.Module, inputs: Any, targets: Any
) -> float:
    """Count the operations of forward and backward over one batch; see `performance.flops`."""
    if experiment.makes_own_steps:
        return count_flops(model, lambda loss, _: loss, inputs, targets, total_loss)
    return count_flops(model, loss_of(experiment, datasets), inputs, targets, call_model)


def pairing_of(experiment: Experiment, datasets: Datasets) -> Pairing:
    """Return what is known of outputs and targets before a model has returned any.

    Args:
        experiment: The experiment.
        datasets: Its data.
    """
    component = experiment.trained
    assert component is not None
    has_classes = datasets.task in ("classification", "language_model")

    def declared() -> int | None:
        return declared_class_dim(component.load(field="model")) if component.is_reference else -1

    return Pairing(
        task=datasets.task,
        num_outputs=datasets.num_outputs if has_classes else None,
        target_shape=datasets.target_shape,
        model=component.title,
        data=datasets.name,
        single_scores=_single_scores_of(experiment),
        declared=declared,
    )


def _single_scores_of(experiment: Experiment) -> SingleScores:
    """Return what the loss takes single numbers of two classes for."""
    if experiment.loss is None or not experiment.loss.is_reference:
        return "logits"
    found = _function(experiment.loss, "loss")
    return "logits" if kind_read_by(found) is not None else single_scores_of(found)


def learned_pairing(experiment: Experiment, datasets: Datasets, model: nn.Module) -> Pairing:
    """Return how outputs meet targets as a trained model shows it for some samples of train.

    Args:
        experiment: The experiment.
        datasets: Its data; where it has no classes, nothing is computed.
        model: The model, on the CPU and in evaluation mode.

    Raises:
        DataError: If a sample has several classes, so that outputs are no scores of which one is
            the answer.
    """
    pairing = pairing_of(experiment, datasets)
    if (
        datasets.task != "classification"
        or experiment.leaves_loss_to_model
        or experiment.makes_own_steps
    ):
        return pairing
    source = Source(datasets.train, torch.device("cpu"))
    inputs, targets = source.fetch(source.all_indices[:_NUM_LEARNED_FROM])
    with (
        torch.inference_mode(),
        contextlib.suppress(ExperimentError),
    ):  # a loss of its own may need other forms
        pairing.classes(call_model(model, inputs), targets)
    return pairing


def loss_of(
    experiment: Experiment, datasets: Datasets, pairing: Pairing | None = None
) -> DividedLoss:
    """Return the loss that an experiment names, else the one that the model returns, or that of its
    task.

    Args:
        experiment: The experiment.
        datasets: Its data.
        pairing: How outputs meet targets; None for what follows from the two.
    """
    pairing = pairing or pairing_of(experiment, datasets)
    found = load_loss(_function(experiment.loss, "loss"), datasets.task)
    is_counted = found is cross_entropy and leaves_out_targets(datasets)
    loss = cross_entropy_in_parts if is_counted else found
    named = joint(load_loss(loss, datasets.task, pairing=pairing))
    division: Division = "counts" if is_counted else "samples"
    if experiment.loss is not None:
        return DividedLoss(named, division, takes_returned=found is of_model)

    def returned_or_usual(outputs: Any, targets: Any) -> Any:
        returned = loss_in(outputs)
        if returned is None:
            pairing.returns_outputs = True
        # A model that squeezes its outputs returns a single number for a single sample, which is no
        # loss.
        is_output = pairing.returns_outputs and isinstance(outputs, torch.Tensor)
        return named(outputs, targets) if returned is None or is_output else returned

    return DividedLoss(returned_or_usual, division, takes_returned=True)


def known_samples(
    experiment: Experiment, datasets: Datasets, metrics: Iterable[str]
) -> dict[str, Any]:
    """Return on what the metrics of a training are measured, as fields of its plan's event.

    Args:
        experiment: The experiment.
        datasets: Its data.
        metrics: What is measured on validation.
    """
    return {
        "num_validation": len(datasets.validation),
        "num_test": 0 if datasets.test is None else len(datasets.test),
        "rates": rates_of(experiment, datasets, metrics),
    }


def rates_of(experiment: Experiment, datasets: Datasets, metrics: Iterable[str]) -> list[str]:
    """Return the metrics that are a share of the validation samples, by reported name.

    Args:
        experiment: The experiment.
        datasets: Its data. Where a sample has several answers, such as pixels, these depend on each
            other; and where some are left out, the share is of fewer than all samples.
        metrics: What is measured on validation.
    """
    if datasets.task != "classification" or datasets.target_shape or leaves_out_targets(datasets):
        return []
    return [
        name for name in (f"val_{metric}" for metric in metrics) if is_rate_in(experiment, name)
    ]


def leaves_out_targets(datasets: Datasets) -> bool:
    """Return whether losses of classes leave out some targets, or may do: those of -100."""
    if datasets.task not in ("classification", "language_model"):
        return False
    known = [known_targets(split) for split in (datasets.train, datasets.validation)]
    return any(targets is None or bool((targets == IGNORED).any()) for targets in known)


def loss_kind_of(experiment: Experiment, datasets: Datasets) -> Kind | None:
    """Return as what the loss that an experiment names, or that of its task, reads outputs and
    targets.

    Args:
        experiment: The experiment.
        datasets: Its data.
    """
    if experiment.makes_own_steps:
        return None
    return kind_read_by(load_loss(_function(experiment.loss, "loss"), datasets.task))


def metrics_of(
    experiment: Experiment,
    datasets: Datasets,
    model: nn.Module | None = None,
    *,
    pairing: Pairing | None = None,
) -> dict[str, AnyMetric]:
    """Return what is measured on validation, by name.

    Args:
        experiment: Names metrics, or leaves those that are usual for the task; the loss is always
            measured.
        datasets: The data.
        model: What is trained; own steps state their metrics when they evaluate two samples.
        pairing: How outputs meet targets; None for what follows from experiment and data.

    Raises:
        ExperimentError: If an objective or a constraint names nothing that is measured.
    """
    metrics = _metrics_of(experiment, datasets, model, pairing or pairing_of(experiment, datasets))
    check_objectives(experiment, metrics)
    return metrics


def _metrics_of(
    experiment: Experiment, datasets: Datasets, model: nn.Module | None, pairing: Pairing
) -> dict[str, AnyMetric]:
    if isinstance(model, OwnSteps):
        batch = _few_samples(datasets.validation)
        model.eval()
        with torch.random.fork_rng(devices=[]), torch.inference_mode():
            names = list(model(batch))
        model.train()
        return {**metrics_by_name(names)}
    named = {item.short_name: _function(item, "metrics") for item in experiment.own_metrics}
    chosen = load_metrics(
        named or None, datasets.task, target_scale=datasets.target_scale, pairing=pairing
    )
    loss = loss_of(experiment, datasets, pairing)
    adds_up = None if loss_kind_of(experiment, datasets) is None else True
    return {"loss": Metric(loss.measure, adds_up=adds_up)} | chosen


def _function(component: Component | None, field: str) -> Any:
    """Return the name or the function that a component stands for, its options bound."""
    if component is None:
        return None
    found = component.load(field=field) if component.is_reference else component.name
    if not component.options:
        return found
    if isinstance(found, str) or not callable(found):
        raise ExperimentError(
            f"{component.name} takes no options",
            field=field,
            next_step="Remove them, or name a function.",
        )
    return functools.partial(found, **component.options)


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def strategy_of(experiment: Experiment, name: str) -> type[Strategy]:
    """Return the class of a strategy.

    Args:
        experiment: What is trained.
        name: The strategy of the plan.

    Raises:
        UnknownNameError: If no package registers the name.
    """
    if is_private(experiment):
        from workbench.training.strategies.private import PrivateSteps

        return PrivateSteps
    if experiment.federated is not None:
        from workbench.training.strategies.client_steps import ClientSteps

        return ClientSteps
    if experiment.makes_own_steps:
        from workbench.training.strategies.phases import Phased

        return Phased
    return STRATEGIES.load(name, field="plan.strategy")
