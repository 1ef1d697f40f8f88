"""Which settings an experiment leaves to the advisor. Nothing is measured here.

`SettingsReader` reads the allowed values of each setting. `choices_of` decides which of them may be
combined.

A setting is open if it is `auto`. A searched setting is open among its values. Any other setting is
fixed. Parameters that the advisor does not decide get the values of one configuration, which is
drawn with the experiment's seed.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from pydantic import JsonValue

from workbench.advisor.plan_variants import Variant, exchange_options
from workbench.experiment import Experiment, PlanSettings
from workbench.experiment.domain import Int, values_to_check
from workbench.experiment.module_inspection import method_parameters_of
from workbench.experiment.plan import (
    EXCHANGE_OPTIONS,
    VARIANT,
    Dimension,
    Hardware,
    PartialPlan,
    PlanValue,
)
from workbench.experiment.plan import NAMES as PLAN_DIMENSIONS
from workbench.experiment.space import Domain, describe_condition
from workbench.experiment.trainings import is_private
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import RatesTested
from workbench.models import MODELS
from workbench.training.planning.learning_rate import default_lr
from workbench.training.planning.settings import fitted_of, reference_lr, resolve
from workbench.training.strategies import STRATEGIES
from workbench.training.strategies.capabilities import BY_AXIS, capabilities_of, strategy_for_many

DECIDED = (*PLAN_DIMENSIONS, "global_batch", "lr")
"""Parameters that the advisor decides, by name."""
# How far below and above the reference batch an open global batch is searched, in doublings.
_DOUBLINGS_DOWN, _DOUBLINGS_UP = 3, 5
MIN_STEPS_PER_EPOCH = 4
"""An epoch has at least this many steps, which limits the global batch."""
_MANY_SAMPLES = 2**62
_VARIANT = {dimension.name for dimension in VARIANT}
_ANY_RATE = 1e-3
# How many configurations are drawn to find one whose model is trained in steps.
_MAX_DRAWN = 64
# Makes every batch possible if only the learning rate matters.
_ONE_WORKER = PlanSettings(workers=1, accumulation=1)
# An open rate is searched within this factor of the usual one.
_RATE_RANGE = 100.0
_MAX_VALUES = 64


@dataclass(frozen=True)
class Choices:
    """The settings that the advisor may choose from.

    Attributes:
        params: The configuration that provides all other parameters.
        workers: Allowed numbers of workers, in rising order.
        global_batches: Allowed global batches, in rising order.
        micro_batches: Allowed micro batches, or None if any is allowed.
        accumulations: Allowed numbers of micro steps, or None if any is allowed.
        options: The allowed values of every other dimension of a plan, the usual one first.
            Strategies are for several workers.
        rates: The lowest and the highest rate at the reference batch. They are equal if the rate is
            fixed.
        listed_rates: The allowed rates if the experiment lists them, otherwise None.
        open_fields: Dotted paths of the settings that the advisor decides.
        why_rate_stays: Why the advisor does not decide the rate although it is searched. None if
            it is decided or not searched.
    """

    params: dict[str, JsonValue]
    workers: tuple[int, ...]
    global_batches: tuple[int, ...]
    micro_batches: tuple[int, ...] | None
    accumulations: tuple[int, ...] | None
    options: Mapping[str, tuple[PlanValue, ...]]
    rates: tuple[float, float]
    listed_rates: tuple[float, ...] | None
    open_fields: tuple[str, ...]
    why_rate_stays: str | None = None

    def allowed_rate(self, lr: float) -> float:
        """Return the allowed rate with the smallest ratio to `lr`."""
        if self.listed_rates is not None:
            return min(self.listed_rates, key=lambda listed: abs(math.log(listed / lr)))
        return min(max(lr, self.rates[0]), self.rates[1])

    def allows(self, variant: Variant) -> bool:
        """Return whether a variant is allowed."""
        return all(variant.get(name) in values for name, values in self.options.items())

    @property
    def usual_variant(self) -> Variant:
        """The first allowed value of every dimension."""
        return PartialPlan.of(**{name: values[0] for name, values in self.options.items()})

    @property
    def is_rate_open(self) -> bool:
        """Whether there is a rate to choose."""
        return self.rates[0] < self.rates[1]


def choices_of(
    experiment: Experiment, *, num_train_samples: int | None, max_workers: int, hardware: Hardware
) -> Choices:
    """Return the settings that an experiment leaves open.

    Args:
        experiment: An experiment that trains a model or has an `advise` section.
        num_train_samples: Samples of the training data, or None if unknown.
        max_workers: Workers that can run at once.
        hardware: The devices of the workers.

    Raises:
        ExperimentError: If plans of the experiment cannot be measured, or no plan is possible here.
    """
    check_advisable(experiment)
    read = SettingsReader(experiment)
    params = base_params(experiment)
    settings = resolve(experiment, params, num_train_samples=num_train_samples)
    most = num_train_samples or _MANY_SAMPLES
    workers = read.numbers("plan", "workers")
    if workers is None:
        workers = tuple(
            sorted({2**power for power in range(max_workers.bit_length())} | {max_workers})
        )
    workers = tuple(number for number in workers if number <= max_workers)
    batches = read.numbers("training", "global_batch")
    micro_batches, accumulations = (
        read.numbers("plan", "micro_batch"),
        read.numbers("plan", "accumulation"),
    )
    if batches is None:
        batches = tuple(_batches_around(experiment.training.reference_batch, most))
        if micro_batches is not None and accumulations is not None:
            batches = tuple(
                sorted({m * a * w for m in micro_batches for a in accumulations for w in workers})
            )
    options = {dimension.name: read.options(dimension, hardware) for dimension in VARIANT}
    several = tuple(name for name in options["strategy"] if not _is_for_one(str(name)))
    if not several:
        workers = tuple(number for number in workers if number == 1)
        several = tuple(dict.fromkeys(strategy_for_many(str(name)) for name in options["strategy"]))
    options["strategy"] = several
    options = _with_axes(options, experiment, max(workers, default=1))
    if options["shard"] == (0,) and is_open(experiment, "shard"):
        options["shard"] = _shards_of_parts(options, max(workers, default=1))
    else:  # a value was set or searched, and only some strategies support it
        able = [name for name in options["strategy"] if capabilities_of(str(name)).takes_shard]
        options["strategy"] = tuple(able) or options["strategy"]
    options |= exchange_options(options)
    if not workers or not batches:
        raise ExperimentError(
            "your settings leave no plan that is possible here",
            field="training.global_batch" if workers else "plan.workers",
            allowed=f"at most {max_workers} workers",
        )
    rates, listed = read.rates(settings.training.optimizer)
    return Choices(
        params=params,
        workers=workers,
        global_batches=tuple(batch for batch in batches if batch <= most) or batches[:1],
        micro_batches=micro_batches,
        accumulations=accumulations,
        options=options,
        rates=rates,
        listed_rates=listed,
        open_fields=tuple(read.open_fields()),
        why_rate_stays=read.why_rate_stays(),
    )


def with_divided_models(choices: Choices, experiment: Experiment) -> Choices:
    """Return the choices together with the strategies that divide a model into parts."""
    options = {**choices.options, "strategy": (*choices.options["strategy"], *BY_AXIS.values())}
    return dataclasses.replace(
        choices, options=_with_axes(options, experiment, max(choices.workers))
    )


def _with_axes(
    options: dict[str, tuple[PlanValue, ...]], experiment: Experiment, max_workers: int
) -> dict[str, tuple[PlanValue, ...]]:
    """Make strategies and the numbers of parts of a model consistent with each other.

    A strategy that divides a model opens the number of parts, and a number of parts above 1 adds
    the strategy that divides the model.
    """
    for axis, usual in BY_AXIS.items():
        sizes, strategies = options[axis], options["strategy"]
        able = [
            name
            for name in strategies
            if name in STRATEGIES and capabilities_of(str(name)).axis == axis
        ]
        if sizes == (1,) and able and is_open(experiment, axis):
            # Powers of two up to 128. One part is included if a strategy that does not divide the
            # model is also allowed.
            sizes = tuple(2**power for power in range(1 - (len(able) < len(strategies)), 8))
            sizes = tuple(size for size in sizes if size <= max_workers) or (1,)
        elif max(sizes) != 1 and not able and is_open(experiment, "strategy"):
            strategies = (*strategies, usual) if 1 in sizes else (usual,)
        options = {**options, axis: sizes, "strategy": strategies}
    return options


def _shards_of_parts(
    options: Mapping[str, tuple[PlanValue, ...]], max_workers: int
) -> tuple[int, ...]:
    """Return the numbers of replicas among which the parameters of stages or parts can be sharded.

    0 means that they are not sharded.
    """
    able = [capabilities_of(str(name)) for name in options["strategy"] if name in STRATEGIES]
    axes = [
        capabilities.axis
        for capabilities in able
        if capabilities.takes_shard and capabilities.axis is not None
    ]
    sizes = [size for axis in axes for size in options[axis] if isinstance(size, int) and size > 1]
    most = max_workers // min(sizes, default=max_workers)
    return (0, *(2**power for power in range(1, most.bit_length())))


def check_advisable(experiment: Experiment) -> None:
    """Raise an error unless plans of an experiment can be measured.

    Raises:
        ExperimentError: If the batch parameter of a function or program is unknown, the steps
            cannot be measured, or the models make no optimizer steps.
    """
    if not experiment.trains_model and experiment.advise is None:
        is_function = experiment.command is None
        raise ExperimentError(
            "the advisor does not know which parameter of the"
            f" {'train function' if is_function else 'command'} is its batch",
            field="train" if is_function else "command",
            next_step=(
                "Write advise: {batch: NAME} with the name of that parameter, and report"
                " samples_per_s or steps_per_s."
            ),
        )
    if experiment.federated is not None:
        raise ExperimentError(
            "the advisor cannot measure the steps of federated clients",
            field="federated",
            next_step=(
                "Choose plan.workers yourself: the clients of a round are divided among them."
            ),
        )
    if is_private(experiment):
        raise ExperimentError(
            "the advisor cannot measure the steps of a private training",
            field="training.private",
            next_step=(
                "Choose training.global_batch yourself: larger batches need less noise per sample."
            ),
        )
    if fitted_of(experiment, drawn_params(experiment)) is not None:
        raise ExperimentError(
            "the advisor has nothing to choose for a model that is fitted to all samples at once",
            field="model",
            next_step="Run a sweep instead.",
        )


def is_open(experiment: Experiment, name: str) -> bool:
    """Return whether a dimension of the plan is neither set nor searched."""
    return name not in experiment.search.root and name not in experiment.plan.decided


def base_params(experiment: Experiment) -> dict[str, JsonValue]:
    """Return the values of the parameters that the advisor does not decide."""
    return {name: value for name, value in drawn_params(experiment).items() if name not in DECIDED}


def drawn_params(experiment: Experiment) -> dict[str, JsonValue]:
    """Return the one configuration that represents all.

    Configurations are drawn with the experiment's seed. The first one whose model is trained in
    steps is taken. If dimensions of the plan are searched, the drawn configuration with most of
    them at their first listed value is taken instead.
    """
    rng = random.Random(experiment.seed)
    drawn = (experiment.search.sample(rng) for _ in range(_MAX_DRAWN))
    first = next(drawn)
    by_steps = (params for params in chain([first], drawn) if fitted_of(experiment, params) is None)
    if not _VARIANT & experiment.search.root.keys():
        return next(by_steps, first)
    return min(by_steps, key=lambda params: _num_unusual(experiment, params), default=first)


def _num_unusual(experiment: Experiment, params: Mapping[str, JsonValue]) -> int:
    """Return how many searched dimensions of the plan do not have their first value."""
    listed = {name: experiment.search.root[name].values() for name in _VARIANT & params.keys()}
    return sum(bool(values) and params[name] != values[0] for name, values in listed.items())


def rate_factor(
    experiment: Experiment, params: Mapping[str, JsonValue], global_batch: int
) -> float:
    """Return the learning rate at a global batch, divided by the rate at the reference batch."""
    rated = {**params, "lr": _ANY_RATE, "global_batch": global_batch}
    return resolve(experiment.model_copy(update={"plan": _ONE_WORKER}), rated).lr / _ANY_RATE


def believed_rate(
    experiment: Experiment, choices: Choices, rates: RatesTested | None = None
) -> float:
    """Return the best guess of the rate at the reference batch before any training.

    It is an allowed rate.

    Args:
        experiment: The experiment.
        choices: The allowed settings.
        rates: A range test, or None. If it suggests no rate, the guess is the experiment's own
            rate.
    """
    if rates is not None and rates.suggested is not None:
        factor = rate_factor(experiment, choices.params, rates.global_batch)
        return choices.allowed_rate(float(f"{rates.suggested / factor:.3g}"))
    return choices.allowed_rate(reference_lr(resolve(experiment, choices.params).training))


def _is_for_one(strategy: str) -> bool:
    return strategy in STRATEGIES and capabilities_of(strategy).max_workers == 1


def _batches_around(reference: int, num_train_samples: int) -> Iterator[int]:
    most = max(1, num_train_samples // MIN_STEPS_PER_EPOCH)
    batches: set[int] = {min(reference, num_train_samples)}
    for doublings in range(-_DOUBLINGS_DOWN, _DOUBLINGS_UP + 1):
        batch = round(reference * 2.0**doublings)
        if 1 <= batch <= most:
            batches.add(batch)
    yield from sorted(batches)


class SettingsReader:
    """Reads a setting from the search space if it is searched, otherwise from its section."""

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self._search = experiment.search.root

    def numbers(self, section: str, name: str) -> tuple[int, ...] | None:
        """Return the allowed whole numbers of a field in rising order, or None if it is open."""
        if name in self._search:
            return tuple(
                sorted(value for value in _values(self._search[name]) if isinstance(value, int))
            )
        written = getattr(getattr(self._experiment, section), name)
        return None if written == "auto" else (written,)

    def options(self, dimension: Dimension, hardware: Hardware) -> tuple[PlanValue, ...]:
        """Return the values that a dimension of the plan may have, the usual one first."""
        name = dimension.name
        written: Sequence[Any] = [getattr(self._experiment.plan, name)]
        if name in self._search:
            written = _values(self._search[name])
        if "auto" not in written:
            return tuple(written)
        assert dimension.candidates is not None
        candidates = dimension.candidates(hardware)
        if name == "strategy" and self._needs_whole_step():
            candidates = tuple(
                candidate
                for candidate in candidates
                if capabilities_of(str(candidate)).has_whole_step
            )
        # Compiling your own code may fail or change what it computes, and channels_last only
        # helps convolutions. Both stay at the usual value.
        stays = (name == "compile" and self._may_vary()) or (
            name == "memory_format" and not self._is_convolutional()
        )
        return candidates[:1] if stays or dimension.advised_for == "nothing" else candidates

    def _needs_whole_step(self) -> bool:
        """Return whether each worker must hold all parameters and gradients."""
        has_hook = (
            self._experiment.training.gradient_hook is not None or "gradient_hook" in self._search
        )
        return self._experiment.makes_own_steps or has_hook

    def _may_vary(self) -> bool:
        """Return whether the user's own code takes part in a step.

        Such code may compute something different in each step.
        """
        named = (self._experiment.model, self._experiment.loss, self._experiment.train)
        return "model" in self._search or any(
            component and (component.payload_hash or ":" in component.name) for component in named
        )

    def _is_convolutional(self) -> bool:
        """Return whether the model is built in and has convolutions of images."""
        model = self._experiment.model
        if self._may_vary() or model is None:
            return False
        configuration = MODELS.load(model.name)
        return isinstance(configuration, type) and getattr(configuration, "convolves_images", False)

    def rates(self, optimizer: str) -> tuple[tuple[float, float], tuple[float, ...] | None]:
        """Return the range of rates at the reference batch, and the rates if they are listed."""
        domain = self._search.get("lr")
        if not self._takes_rate():
            usual = reference_lr(self._experiment.training)
            return (usual, usual), None
        # A rate that only exists under a condition is left to the search.
        if domain is None or domain.when:
            written = self._experiment.training.lr
            if written != "auto":
                return (written, written), None
            usual = default_lr(optimizer)
            return (usual / _RATE_RANGE, usual * _RATE_RANGE), None
        low, high = getattr(domain, "low", None), getattr(domain, "high", None)
        if low is not None and high is not None and getattr(domain, "step", None) is None:
            return (float(low), float(high)), None
        listed = tuple(sorted(float(value) for value in _values(domain)))  # type: ignore[arg-type]
        return (listed[0], listed[-1]), listed

    def _takes_rate(self) -> bool:
        """Return whether the optimizers use the rate. A train class may set its own."""
        experiment = self._experiment
        if not experiment.makes_own_steps or experiment.train is None:
            return True
        parameters = method_parameters_of(experiment.train, "configure")
        return parameters is None or "lr" in parameters

    def why_rate_stays(self) -> str | None:
        """Return why the advisor does not decide the rate although it is searched.

        Returns None if the rate is decided or fixed.
        """
        domain = self._search.get("lr")
        if domain is None or len(domain.values() or (0, 1)) == 1:
            return None
        if not self._takes_rate():
            return "the train class's configure method has no parameter lr"
        if domain.when:
            return f"it only exists if {describe_condition(domain.when)}"
        if "optimizer" in self._search:
            return "the optimizer is also searched, and each one needs a different rate"
        return None

    def _decides_rate(self) -> bool:
        """Return whether one rate suits all configurations that are still searched."""
        return (
            self._takes_rate() and "optimizer" not in self._search and self.why_rate_stays() is None
        )

    def open_fields(self) -> Iterator[str]:
        """Yield the dotted paths of the open settings."""
        for name in ("global_batch", "lr"):
            if name == "lr" and not self._decides_rate():
                continue
            if name in self._search or getattr(self._experiment.training, name) == "auto":
                yield f"training.{name}"
        for name in PLAN_DIMENSIONS:
            if name in EXCHANGE_OPTIONS and name not in self._search:
                continue  # every exchange has its own defaults for them
            if name in self._search or getattr(self._experiment.plan, name) == "auto":
                yield f"plan.{name}"
        if self._experiment.resources.placement == "auto":
            yield "resources.placement"


def _values(domain: Domain) -> Sequence[JsonValue]:
    """Return all values of a domain, or some if there are too many.

    A range of whole numbers is represented by its ends and the powers of two between them, a
    continuous range by its ends, and anything else by evenly spaced values.
    """
    values = domain.values()
    if values is None:
        return values_to_check(domain)
    if len(values) <= _MAX_VALUES:
        return list(values)
    if not isinstance(domain, Int):
        last = len(values) - 1
        indices = (round(index * last / (_MAX_VALUES - 1)) for index in range(_MAX_VALUES))
        return [values[index] for index in indices]
    low, high = domain.low, domain.high
    doubled = {low, high} | {
        2**power for power in range(high.bit_length()) if low <= 2**power <= high
    }
    return [value for value in sorted(doubled) if value in values]
