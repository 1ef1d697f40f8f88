"""From an experiment and one configuration to the settings of one trial, with every `auto` answered.

Searched names stand in for the fields of `training` and `plan`; what is left belongs to the model. The
answers to `auto` are plain defaults, given beside each function; an advisor may fill the plan in first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from pydantic import JsonValue, ValidationError

from workbench.errors import ExperimentError
from workbench.experiment import Experiment, Plan, Training
from workbench.experiment.refusals import refusal
from workbench.experiment.sections import Section
from workbench.models.configurations import FittedConfiguration, configure
from workbench.training.learning_rate import (
    ONE_CYCLE_WARMUP_FRACTION,
    WARMUP_FRACTION,
    Rule,
    default_lr,
    legw_warmup,
    rule_in_force,
    scaled_lr,
)

Precision = Literal["fp32", "bf16", "fp16"]
AnySection = TypeVar("AnySection", bound=Section)


@dataclass(frozen=True)
class Split:
    """How an optimizer step is divided: global_batch = micro_batch x accumulation x workers.

    Attributes:
        global_batch: Samples per optimizer step, over all workers.
        micro_batch: Samples that one worker takes at once.
        accumulation: Micro batches per optimizer step.
        workers: Data-parallel processes.
    """

    global_batch: int
    micro_batch: int
    accumulation: int
    workers: int


@dataclass(frozen=True)
class TrialSettings:
    """What one trial does, nothing left open.

    Attributes:
        training: The training section with searched values in place; it may still say `auto` where the
            answer is another attribute.
        split: How an optimizer step is divided.
        precision: Type of the arithmetic.
        strategy: How workers make one step.
        recompute: Whether the activations of blocks are computed again in the backward pass.
        lr: Peak learning rate at the global batch in use; with adascale while the noise is not known.
        warmup_epochs: Epochs of warm-up.
        model: Values that belong to the model.
    """

    training: Training
    split: Split
    precision: Precision
    strategy: str
    recompute: bool
    lr: float
    warmup_epochs: float
    model: dict[str, JsonValue]

    def plan(self) -> dict[str, JsonValue]:
        """Return the plan in full, as it is shown and stored."""
        return {
            "workers": self.split.workers,
            "micro_batch": self.split.micro_batch,
            "accumulation": self.split.accumulation,
            "global_batch": self.split.global_batch,
            "precision": self.precision,
            "strategy": self.strategy,
            "recompute": "blocks" if self.recompute else "none",
        }

    @property
    def follows_noise(self) -> bool:
        """Whether the learning rate follows the noise of the gradients as the training goes on."""
        return _rule(self.training, self.split.global_batch) == "adascale"

    def peak_lr(self, noise_scale: float | None) -> float:
        """Return the peak learning rate at the global batch in use.

        Args:
            noise_scale: The gradient noise scale in samples; None where it is not estimable (yet).
        """
        return _peak_lr(self.training, self.split.global_batch, noise_scale)

    def warmup_steps(self, steps_per_epoch: int) -> int:
        """Return the steps of the warm-up."""
        return round(self.warmup_epochs * steps_per_epoch)


def model_values(experiment: Experiment, params: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the values of a configuration that belong to the model, with those that the model names itself.

    Args:
        experiment: The experiment.
        params: The configuration of the trial.
    """
    named = experiment.model.options if experiment.model else {}
    ours = Training.model_fields.keys() | Plan.model_fields.keys()
    searched = {name: value for name, value in params.items() if name not in ours}
    return {**named, **searched}


def fitted_of(experiment: Experiment, params: Mapping[str, JsonValue]) -> FittedConfiguration | None:
    """Return what a configuration fits to all samples at once; None where optimizer steps train it.

    Args:
        experiment: The experiment.
        params: The configuration of the trial.
    """
    if experiment.model is None or experiment.model.is_reference:
        return None
    try:
        return configure(experiment.model.name, model_values(experiment, params)).fitted
    except ExperimentError:  # the trial will fail with it, and say so
        return None


def resolve(
    experiment: Experiment,
    params: Mapping[str, JsonValue],
    *,
    num_train_samples: int | None = None,
    device: str = "cpu",
    has_bf16: bool = False,
    decided: Mapping[str, JsonValue] | None = None,
) -> TrialSettings:
    """Answer every open question about one trial.

    Args:
        experiment: The experiment.
        params: The configuration of the trial.
        num_train_samples: Samples to train on; None where that is not known yet.
        device: "cpu" or "cuda".
        has_bf16: Whether the device computes in bf16 at full speed.
        decided: Values of the plan that count before those of experiment and configuration.

    Returns:
        The settings.

    Raises:
        ExperimentError: If settings exclude each other; it names the dotted field.
    """
    training = _override(experiment.training, "training", params)
    plan = _override(experiment.plan, "plan", params)
    if decided:
        plan = plan.model_copy(update=dict(decided))
    split = split_batch(training, plan, num_train_samples, params)
    lr = _peak_lr(training, split.global_batch, None)
    if _rule(training, split.global_batch) == "adascale" and not training.measure_noise:
        raise ExperimentError(
            "adascale follows the noise of the gradients, which is not measured",
            field=_where("training", "lr_rule", params),
            next_step="Leave out measure_noise, or choose another rule.",
        )
    return TrialSettings(
        training=training,
        split=split,
        precision=_precision(plan, device, has_bf16, params),
        strategy=_strategy(plan, split.workers, params),
        recompute=plan.recompute == "blocks",
        lr=lr,
        warmup_epochs=_warmup_epochs(training, split.global_batch, goes_up=lr > reference_lr(training)),
        model=model_values(experiment, params),
    )


def reference_lr(training: Training) -> float:
    """Return the rate at the reference batch: the one that is named, or the optimizer's usual one."""
    return default_lr(training.optimizer) if training.lr == "auto" else training.lr


def split_batch(
    training: Training,
    plan: Plan,
    num_train_samples: int | None,
    params: Mapping[str, JsonValue] | None = None,
) -> Split:
    """Decide how an optimizer step is divided.

    `workers: auto` is 1. Of global batch, micro batch and accumulation, those that are given decide the
    others; where it is open, accumulation is 1 and the global batch is the reference batch, or the train
    set where that is smaller, rounded so that the parts are equal.

    Args:
        training: The training section.
        plan: The plan.
        num_train_samples: Samples to train on; None where that is not known yet.
        params: The configuration, to name a searched field where it was written.

    Raises:
        ExperimentError: If the three numbers exclude each other or the global batch exceeds the train set.
    """
    searched = params or {}
    workers = 1 if plan.workers == "auto" else plan.workers
    micro, accumulation, wanted = plan.micro_batch, plan.accumulation, training.global_batch
    target = wanted if wanted != "auto" else min(training.reference_batch, num_train_samples or 2**62)
    if micro == "auto":
        accumulation = 1 if accumulation == "auto" else accumulation
        micro = max(1, target // (accumulation * workers))
    elif accumulation == "auto":
        accumulation = max(1, target // (micro * workers))
    global_batch = micro * accumulation * workers
    if wanted not in ("auto", global_batch):
        raise ExperimentError(
            f"{wanted} samples are not micro_batch {micro} x accumulation {accumulation} x workers {workers}",
            field=_where("training", "global_batch", searched),
            allowed=f"{global_batch}, or another multiple of micro_batch x accumulation x workers",
            next_step="Change one of the four, or leave one of them auto.",
        )
    if num_train_samples is not None and global_batch > num_train_samples:
        blamed = ("training", "global_batch") if wanted != "auto" else ("plan", "micro_batch")
        raise ExperimentError(
            f"a step of {global_batch} samples is larger than the train set",
            field=_where(*blamed, searched),
            allowed=f"at most {num_train_samples} samples per step",
        )
    return Split(global_batch, micro, accumulation, workers)


def smaller_micro_batch(plan: Mapping[str, JsonValue]) -> dict[str, JsonValue] | None:
    """Return what to change of a plan so that it needs less memory and trains the same.

    Args:
        plan: A plan in full.

    Returns:
        Micro batch and accumulation: the largest micro batch of at most half the size that divides a
        worker's part of the global batch; None where there is none.
    """
    micro, accumulation = plan.get("micro_batch"), plan.get("accumulation")
    if not isinstance(micro, int) or not isinstance(accumulation, int) or micro < 2:
        return None
    part = micro * accumulation
    smaller = next(size for size in range(micro // 2, 0, -1) if part % size == 0)
    return {"micro_batch": smaller, "accumulation": part // smaller}


def with_workers(
    plan: Mapping[str, JsonValue], num_workers: int, *, fixed: Collection[str] = ()
) -> dict[str, JsonValue] | None:
    """Return what to change of a plan so that more workers, or fewer, train the same.

    Args:
        plan: A plan in full.
        num_workers: The number of workers that it should have.
        fixed: What must stay as it is: micro_batch, accumulation, both or neither.

    Returns:
        Workers, micro batch and accumulation for the same global batch: with more workers less accumulation
        first, and a smaller micro batch only where that is not enough; None where there is no such division.
    """
    global_batch, micro = plan.get("global_batch"), plan.get("micro_batch")
    accumulation = plan.get("accumulation")
    if not (isinstance(global_batch, int) and isinstance(micro, int)) or global_batch % num_workers:
        return None
    part = global_batch // num_workers
    for size in range(min(micro, part), 0, -1):
        is_kept = "micro_batch" not in fixed or size == micro
        if part % size == 0 and is_kept and ("accumulation" not in fixed or part // size == accumulation):
            return {"workers": num_workers, "micro_batch": size, "accumulation": part // size}
    return None


def fixed_of(experiment: Experiment, params: Mapping[str, JsonValue]) -> frozenset[str]:
    """Return what of micro_batch and accumulation a person or the search decides for a trial.

    Args:
        experiment: The experiment.
        params: The configuration of the trial.
    """
    plan = experiment.plan
    return frozenset(
        name for name in ("micro_batch", "accumulation") if name in params or getattr(plan, name) != "auto"
    )


def _rule(training: Training, global_batch: int) -> Rule:
    going_up = global_batch >= training.reference_batch
    return rule_in_force(training.lr_rule, optimizer=training.optimizer, going_up=going_up)


def _peak_lr(training: Training, global_batch: int, noise_scale: float | None) -> float:
    """Carry the rate from the reference batch to the one in use.

    Where adascale does not know the noise, the rate stays: its gain is least at the beginning, when the
    gradient is large beside its noise, and 1 is what it never falls below.
    """
    lr, rule = reference_lr(training), _rule(training, global_batch)
    if rule == "adascale" and noise_scale is None:
        return lr
    options = training.optimizer_options
    given = options.get("betas") or ([options["alpha"]] if "alpha" in options else None)
    decays = [item for item in given if isinstance(item, int | float)] if isinstance(given, list) else None
    return scaled_lr(
        lr,
        optimizer=training.optimizer,
        rule=rule,
        from_batch=training.reference_batch,
        to_batch=global_batch,
        noise_scale=noise_scale,
        decays=decays,
    )


def _warmup_epochs(training: Training, global_batch: int, *, goes_up: bool) -> float:
    """Say how long the rate rises from near 0.

    `warmup_epochs: auto` is none, but for one-cycle, and where the batch raised the rate. With legw, epochs
    of warm-up are meant at the reference batch, as the rate is.
    """
    given, ratio = training.warmup_epochs, global_batch / training.reference_batch
    if given == "auto" and training.schedule == "one_cycle":
        return ONE_CYCLE_WARMUP_FRACTION * training.epochs
    if training.lr_rule == "legw" and ratio > 1:
        fraction = None if given == "auto" else given / training.epochs
        return legw_warmup(fraction, ratio) * training.epochs
    if given != "auto":
        return given
    return WARMUP_FRACTION * training.epochs if goes_up else 0.0


def _precision(plan: Plan, device: str, has_bf16: bool, params: Mapping[str, JsonValue]) -> Precision:
    """Answer `precision: auto`: bf16 on a GPU that computes in it, else fp32."""
    if plan.precision == "auto":
        return "bf16" if device == "cuda" and has_bf16 else "fp32"
    if plan.precision == "fp16" and device == "cpu":
        raise ExperimentError(
            "a CPU does not train in fp16",
            field=_where("plan", "precision", params),
            allowed="fp32, bf16, auto",
        )
    return plan.precision


def _strategy(plan: Plan, num_workers: int, params: Mapping[str, JsonValue]) -> str:
    """Answer `strategy: auto`: single for one worker, ddp for more."""
    if plan.strategy == "auto":
        return "single" if num_workers == 1 else "ddp"
    if plan.strategy == "single" and num_workers > 1:
        raise ExperimentError(
            f"{num_workers} workers cannot train as single",
            field=_where("plan", "strategy", params),
            allowed="auto, ddp, fsdp",
            next_step="Choose one of these, or one worker.",
        )
    return plan.strategy


def _where(section: str, name: str, params: Mapping[str, Any]) -> str:
    return f"search.{name}" if name in params else f"{section}.{name}"


def _override(section: AnySection, field: str, params: Mapping[str, JsonValue]) -> AnySection:
    """Return a section with the searched values in place."""
    kind = type(section)
    searched = {name: value for name, value in params.items() if name in kind.model_fields}
    if not searched:
        return section
    written = {name: getattr(section, name) for name in section.model_fields_set}
    try:
        return kind.model_validate({**written, **searched})
    except ValidationError as error:
        found = refusal(error)
        raise found.about(_where(field, found.field or field, params)) from error
