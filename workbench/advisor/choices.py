"""What an experiment leaves to the advisor, and what it fixes. Nothing is measured here.

`SettingsReader` reads what each setting may be. `choices_of` decides what may be combined.

A setting that is `auto` is open, a searched one is open among its values, and a written one stays.
Parameters that the advisor does not decide have the values of one configuration, which the
experiment's seed draws.
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

from workbench.advisor.variants import Variant, exchange_options
from workbench.experiment import Experiment, PlanSettings
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
# How far from the reference batch, in doublings, an open global batch is searched.
_DOUBLINGS_DOWN, _DOUBLINGS_UP = 3, 5
MIN_STEPS_PER_EPOCH = 4
"""A step takes at most one in this many samples of the training data, else an epoch has too few
steps.
"""
_MANY_SAMPLES = 2**62
_VARIANT = {dimension.name for dimension in VARIANT}
_ANY_RATE = 1e-3
# Configurations that are drawn to find one whose model is trained by steps.
_MAX_DRAWN = 64
# One worker, whatever the batch, where only the learning rate matters.
_ONE_WORKER = PlanSettings(workers=1, accumulation=1)
# How far from the usual rate an open one is searched.
_RATE_RANGE = 100.0
_MAX_VALUES = 64


@dataclass(frozen=True)
class Choices:
    """What may be chosen.

    Attributes:
        params: The configuration whose other parameters stand.
        workers: Numbers of workers, rising.
        global_batches: Global batches, rising.
        micro_batches: The micro batches that are allowed, or None if any is.
        accumulations: The same of accumulation.
        options: The allowed values of every other dimension of a plan, the usual one first.
            Strategies are those for several workers.
        rates: The lowest and the highest rate at the reference batch. The same twice where it is
            fixed.
        listed_rates: The rates that are allowed, where they are listed.
        open_fields: Dotted paths of what the advisor decides.
        why_rate_stays: Why the rate is not decided although it is searched, or None if it is not
            searched, or decided.
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
        """Return the rate that is allowed and nearest to `lr`, in proportion."""
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
    """Return what an experiment leaves open.

    Args:
        experiment: It trains a model, or is in the words of plans.
        num_train_samples: Samples of the training data, or None if that is not known.
        max_workers: Workers that there can be at once.
        hardware: What workers compute on.

    Raises:
        ExperimentError: If it trains no model, or allows no plan that is possible here.
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
    else:  # only some strategies have it
        able = [name for name in options["strategy"] if capabilities_of(str(name)).takes_shard]
        options["strategy"] = tuple(able) or options["strategy"]
    options |= exchange_options(options)
    if not workers or not batches:
        raise ExperimentError(
            "no plan is possible within what is allowed",
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
    """Return the choices with the strategies that divide a model, in as many parts as are open."""
    options = {**choices.options, "strategy": (*choices.options["strategy"], *BY_AXIS.values())}
    return dataclasses.replace(
        choices, options=_with_axes(options, experiment, max(choices.workers))
    )


def _with_axes(
    options: dict[str, tuple[PlanValue, ...]], experiment: Experiment, max_workers: int
) -> dict[str, tuple[PlanValue, ...]]:
    """Return the options with strategies and how they divide a model following from each other."""
    for axis, usual in BY_AXIS.items():
        sizes, strategies = options[axis], options["strategy"]
        able = [
            name
            for name in strategies
            if name in STRATEGIES and capabilities_of(str(name)).axis == axis
        ]
        if sizes == (1,) and able and is_open(experiment, axis):
            sizes = tuple(2**power for power in range(1 - (len(able) < len(strategies)), 8))
            sizes = tuple(size for size in sizes if size <= max_workers) or (1,)
        elif max(sizes) != 1 and not able and is_open(experiment, "strategy"):
            strategies = (*strategies, usual) if 1 in sizes else (usual,)
        options = {**options, axis: sizes, "strategy": strategies}
    return options


def _shards_of_parts(
    options: Mapping[str, tuple[PlanValue, ...]], max_workers: int
) -> tuple[int, ...]:
    """Return among how many replicas of stages or parts their parameters may be divided.

    0 for none.
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
    """Raise unless plans of an experiment can be measured.

    Raises:
        ExperimentError: If the batch of a function or program is not known, or the models make no
            optimizer steps.
    """
    if not experiment.trains_model and experiment.advise is None:
        is_function = experiment.command is None
        raise ExperimentError(
            "the advisor does not know what the batch of a"
            f" {'train function' if is_function else 'command'} is",
            field="train" if is_function else "command",
            next_step=(
                "Write advise: {batch: NAME} with the parameter that is its batch, and have it"
                " report samples_per_s or steps_per_s."
            ),
        )
    if experiment.federated is not None:
        raise ExperimentError(
            "the steps of clients are not measured, so no plan can be advised",
            field="federated",
            next_step=(
                "Choose plan.workers by hand: clients of a round are divided among the workers."
            ),
        )
    if is_private(experiment):
        raise ExperimentError(
            "the steps of a private training are not measured, so no plan can be advised",
            field="training.private",
            next_step=(
                "Choose training.global_batch by hand: larger batches need less noise in each"
                " sample."
            ),
        )
    if fitted_of(experiment, drawn_params(experiment)) is not None:
        raise ExperimentError(
            "the advisor cannot measure a model that is fitted to all samples at once: it makes no"
            " steps",
            field="model",
            next_step="Run a sweep: there is no plan to choose.",
        )


def is_open(experiment: Experiment, name: str) -> bool:
    """Return whether a dimension of the plan is neither written nor searched."""
    return name not in experiment.search.root and name not in experiment.plan.decided


def base_params(experiment: Experiment) -> dict[str, JsonValue]:
    """Return the values of the parameters that the advisor does not decide."""
    return {name: value for name, value in drawn_params(experiment).items() if name not in DECIDED}


def drawn_params(experiment: Experiment) -> dict[str, JsonValue]:
    """Return the one configuration that stands for all.

    It is the first that the experiment's seed draws, of those whose model is trained by steps, with
    what is searched of the plan as listed first, as far as drawn.
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
    """Return the learning rate at a global batch over that at the reference batch."""
    rated = {**params, "lr": _ANY_RATE, "global_batch": global_batch}
    return resolve(experiment.model_copy(update={"plan": _ONE_WORKER}), rated).lr / _ANY_RATE


def believed_rate(
    experiment: Experiment, choices: Choices, rates: RatesTested | None = None
) -> float:
    """Return the rate at the reference batch that is believed in before any training.

    It is one that is allowed.

    Args:
        experiment: What is to be trained.
        choices: What may be chosen.
        rates: A range test. Where it suggests nothing, the rate is that of the experiment as it
            stands.
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
    """Reads settings from the search where they are searched, else from their section."""

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self._search = experiment.search.root

    def numbers(self, section: str, name: str) -> tuple[int, ...] | None:
        """Return the whole numbers that a field may have, rising, or None if it is open."""
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
        """Return whether own code takes part in a step.

        It may compute something else each time.
        """
        named = (self._experiment.model, self._experiment.loss, self._experiment.train)
        return "model" in self._search or any(
            component and (component.payload_hash or ":" in component.name) for component in named
        )

    def _is_convolutional(self) -> bool:
        """Return whether the model comes with the workbench and has convolutions of images."""
        model = self._experiment.model
        if self._may_vary() or model is None:
            return False
        configuration = MODELS.load(model.name)
        return isinstance(configuration, type) and getattr(configuration, "convolves_images", False)

    def rates(self, optimizer: str) -> tuple[tuple[float, float], tuple[float, ...] | None]:
        """Return the range of rates at the reference batch, and the rates where they are listed."""
        domain = self._search.get("lr")
        if not self._takes_rate():
            usual = reference_lr(self._experiment.training)
            return (usual, usual), None
        if domain is None or domain.when:  # where it exists only sometimes it stays the search's
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
        """Return whether the rate reaches the optimizers: own steps may set theirs themselves."""
        experiment = self._experiment
        if not experiment.makes_own_steps or experiment.train is None:
            return True
        parameters = method_parameters_of(experiment.train, "configure")
        return parameters is None or "lr" in parameters

    def why_rate_stays(self) -> str | None:
        """Return why no rate is decided although it is searched.

        None if it is decided, or fixed.
        """
        domain = self._search.get("lr")
        if domain is None or len(domain.values() or (0, 1)) == 1:
            return None
        if not self._takes_rate():
            return "configure of the train class has no parameter lr"
        if domain.when:
            return f"it exists only where {describe_condition(domain.when)}"
        if "optimizer" in self._search:
            return "the optimizer is also searched, and each one needs a different rate"
        return None

    def _decides_rate(self) -> bool:
        """Return whether one rate suits everything that is still searched."""
        return (
            self._takes_rate() and "optimizer" not in self._search and self.why_rate_stays() is None
        )

    def open_fields(self) -> Iterator[str]:
        """Yield the dotted paths of what is open."""
        for name in ("global_batch", "lr"):
            if name == "lr" and not self._decides_rate():
                continue
            if name in self._search or getattr(self._experiment.training, name) == "auto":
                yield f"training.{name}"
        for name in PLAN_DIMENSIONS:
            if name in EXCHANGE_OPTIONS and name not in self._search:
                continue  # each exchange has its usual ones
            if name in self._search or getattr(self._experiment.plan, name) == "auto":
                yield f"plan.{name}"
        if self._experiment.resources.placement == "auto":
            yield "resources.placement"


def _values(domain: Domain) -> Sequence[JsonValue]:
    """Return the values of a domain: all of them, or some that are spread evenly over it."""
    values = domain.values()
    if values is None:
        return [getattr(domain, "low", None), getattr(domain, "high", None)]
    if len(values) <= _MAX_VALUES:
        return list(values)
    low, high = values[0], values[-1]
    assert isinstance(low, int)
    assert isinstance(high, int)
    doubled = {low, high} | {
        2**power for power in range(high.bit_length()) if low <= 2**power <= high
    }
    return [value for value in sorted(doubled) if value in values]
