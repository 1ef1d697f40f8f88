"""The settings of one trial, from an experiment and a configuration, with every `auto` resolved.

A searched parameter replaces the field of `training` or `plan` with its name. All others belong to
the model. Each function documents its default for `auto`. Decisions of the advisor take precedence.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from pydantic import JsonValue, ValidationError

from workbench.experiment import Component, Experiment, PlanSettings, Training
from workbench.experiment.federated import Federated, federated_with
from workbench.experiment.plan import Hardware, PartialPlan, Plan
from workbench.experiment.schedules import check_averaging, check_schedule
from workbench.experiment.searched_fields import is_setting, option_of, with_options
from workbench.experiment.setting_types import Section
from workbench.experiment.validation_errors import refusal
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import PeakRate
from workbench.models.configurations import FittedConfiguration, configure
from workbench.models.estimators import EstimatorConfiguration, is_estimator, is_from_library
from workbench.training.planning.learning_rate import (
    ONE_CYCLE_WARMUP_FRACTION,
    WARMUP_FRACTION,
    Rule,
    default_lr,
    legw_warmup,
    rule_in_force,
    scaled_lr,
)
from workbench.training.planning.plan_resolution import field_of, resolve_plan

AnySection = TypeVar("AnySection", bound=Section)
_NOTHING = PartialPlan()


@dataclass(frozen=True)
class TrialSettings:
    """The settings of one trial, with nothing left open.

    Attributes:
        training: The training section with searched values in place. It may still hold `auto` if
            another attribute has the value.
        plan: How the trial uses hardware.
        lr: Peak learning rate at the global batch in use. With adascale, the rate before the noise
            is known.
        warmup_epochs: Epochs of warm-up.
        model: Values that belong to the model.
        federated: How clients train it in rounds, or None if its workers share every step. In a
            federation, the global batch of the plan counts all workers, and each worker trains its
            own client.
    """

    training: Training
    plan: Plan
    lr: float
    warmup_epochs: float
    model: dict[str, JsonValue]
    federated: Federated | None = None

    @property
    def step_batch(self) -> int:
        """Samples of an optimizer step, of all replicas or of a single client."""
        return _step_batch(self.plan, self.federated)

    @property
    def follows_noise(self) -> bool:
        """Whether the learning rate follows the noise of the gradients during the training."""
        return _rule(self.training, self.step_batch) == "adascale"

    def peak_lr(self, noise_scale: float | None) -> float:
        """Return the peak learning rate at the global batch in use.

        Args:
            noise_scale: The gradient noise scale in samples, or None if it cannot be estimated yet.
        """
        return _peak_lr(self.training, self.step_batch, noise_scale)

    @property
    def peak_rate(self) -> PeakRate:
        """The peak learning rate, and how it follows from the rate at the reference batch."""
        return PeakRate(
            lr=self.lr,
            at_reference=reference_lr(self.training),
            reference_batch=self.training.reference_batch,
            step_batch=self.step_batch,
            rule=_rule(self.training, self.step_batch),
        )

    def warmup_steps(self, steps_per_epoch: int) -> int:
        """Return the steps of the warm-up."""
        return round(self.warmup_epochs * steps_per_epoch)


def model_values(experiment: Experiment, params: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the values of a configuration that belong to the model.

    These include the parameters of your own model.

    Args:
        experiment: The experiment.
        params: The configuration of the trial.
    """
    options = experiment.trained.options if experiment.trained else {}
    searched = {name: value for name, value in params.items() if not is_setting(name)}
    return {**options, **searched}


def fitted_of(
    experiment: Experiment, params: Mapping[str, JsonValue], *, loads_code: bool = False
) -> FittedConfiguration | None:
    """Return the model that is fitted to all samples at once, or None if optimizer steps train it.

    Args:
        experiment: The experiment.
        params: The configuration of the trial.
        loads_code: Whether your code may be loaded to find out. Otherwise only classes of known
            libraries are recognised.
    """
    if experiment.model is None:
        return None
    if experiment.model.is_reference:
        return _estimator_of(experiment.model, params, loads_code)
    try:
        return configure(experiment.model.name, model_values(experiment, params)).fitted
    except ExperimentError:  # the trial will fail with this error, and report it
        return None


def _estimator_of(
    model: Component, params: Mapping[str, JsonValue], loads_code: bool
) -> EstimatorConfiguration | None:
    is_one = is_from_library(model)
    if not is_one and loads_code:
        try:
            is_one = is_estimator(model.load(field="model"))
        except Exception:  # user code. The trial will fail with this error, and report it.
            return None
    if not is_one:
        return None
    ours = frozenset(Training.model_fields.keys() | PlanSettings.model_fields.keys())
    params = {name: value for name, value in params.items() if option_of(name) is None}
    return EstimatorConfiguration(
        model=model, values={**model.options, **params}, training_names=ours
    )


def resolve(
    experiment: Experiment,
    params: Mapping[str, JsonValue],
    *,
    num_train_samples: int | None = None,
    hardware: Hardware | None = None,
    decided: PartialPlan = _NOTHING,
    num_loaders: int = 0,
) -> TrialSettings:
    """Return the settings of one trial, with every `auto` resolved.

    Args:
        experiment: The experiment.
        params: The configuration of the trial.
        num_train_samples: Samples to train on, or None if not known yet.
        hardware: See `resolve_plan`.
        decided: Decisions about the plan. They take precedence over experiment and configuration.
        num_loaders: Number of processes of your own loaders, used if nothing else decides it.

    Returns:
        The settings.

    Raises:
        ExperimentError: If settings contradict each other. It has the dotted field.
    """
    training = searched_training(experiment, params)
    check_schedule(training)
    check_averaging(training)
    federated = federated_with(experiment.federated, params)
    written = _override(experiment.plan, "plan", params).decided | decided
    if num_loaders and federated is None:  # clients are too small for reading ahead
        written = PartialPlan.of(loaders=num_loaders) | written
    plan = resolve_plan(
        training,
        # Each client is trained by one worker alone.
        written if federated is None else written | PartialPlan.of(workers=1),
        num_train_samples=num_train_samples,
        hardware=hardware,
        params=params,
    )
    if federated is not None:
        plan = dataclasses.replace(plan, workers=written.workers or 1)
    batch = _step_batch(plan, federated)
    lr = _peak_lr(training, batch, None)
    if _rule(training, batch) == "adascale" and not training.measure_noise:
        raise ExperimentError(
            "adascale needs the noise of the gradients, which is not measured",
            field=field_of("training", "lr_rule", params),
            next_step="Remove training.measure_noise, or choose another rule.",
        )
    return TrialSettings(
        training=training,
        plan=plan,
        lr=lr,
        warmup_epochs=_warmup_epochs(training, batch, goes_up=lr > reference_lr(training)),
        model=model_values(experiment, params),
        federated=federated,
    )


def _step_batch(plan: Plan, federated: Federated | None) -> int:
    if federated is None:
        return plan.global_batch
    return plan.micro_batch * plan.accumulation


def searched_training(experiment: Experiment, params: Mapping[str, JsonValue]) -> Training:
    """Return the section `training` of a trial, with searched values in place.

    Args:
        experiment: The experiment.
        params: The configuration of the trial.

    Raises:
        ExperimentError: If a value is not allowed.
    """
    return _override(experiment.training, "training", params)


def reference_lr(training: Training) -> float:
    """Return the rate at the reference batch.

    It is the rate of the experiment, or the default of the optimizer.
    """
    if training.lr == "auto":
        return default_lr(training.optimizer)
    return training.lr


def _rule(training: Training, global_batch: int) -> Rule:
    going_up = global_batch >= training.reference_batch
    return rule_in_force(training.lr_rule, optimizer=training.optimizer, going_up=going_up)


def _peak_lr(training: Training, global_batch: int, noise_scale: float | None) -> float:
    """Scale the rate from the reference batch to the batch in use.

    As long as adascale does not know the noise, the rate stays the same. That is close: the gain of
    adascale is smallest at the start, when gradients are large compared with their noise, and it is
    never below 1.
    """
    lr = reference_lr(training)
    rule = _rule(training, global_batch)
    if rule == "adascale" and noise_scale is None:
        return lr
    options = training.optimizer_options
    given = options.get("betas") or ([options["alpha"]] if "alpha" in options else None)
    decays = None
    if isinstance(given, list):
        decays = [item for item in given if isinstance(item, int | float)]
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
    """Return for how many epochs the rate rises from near 0.

    `warmup_epochs: auto` means none, except for one-cycle, and if a larger batch has raised the
    rate. With legw, the epochs of warm-up are given for the reference batch, like the rate.
    """
    given = training.warmup_epochs
    ratio = global_batch / training.reference_batch
    if given == "auto" and training.schedule == "one_cycle":
        return ONE_CYCLE_WARMUP_FRACTION * training.epochs
    if training.lr_rule == "legw" and ratio > 1:
        fraction = None if given == "auto" else given / training.epochs
        return legw_warmup(fraction, ratio) * training.epochs
    if given != "auto":
        return given
    if not goes_up:
        return 0.0
    return WARMUP_FRACTION * training.epochs


def _override(section: AnySection, field: str, params: Mapping[str, JsonValue]) -> AnySection:
    """Return a section with the searched values in place."""
    kind = type(section)
    searched = {name: value for name, value in params.items() if name in kind.model_fields}
    if kind is Training:
        searched |= {name: value for name, value in params.items() if option_of(name) is not None}
    if not searched:
        return section
    written = {name: getattr(section, name) for name in section.model_fields_set}
    settings = {name: value for name, value in searched.items() if name in kind.model_fields}
    try:
        return kind.model_validate(with_options({**written, **settings}, searched))
    except ValidationError as error:
        refused = refusal(error)
        raise refused.about(field_of(field, refused.field or field, params)) from error
