"""What the advisor may choose, and what a person has fixed: read off an experiment, nothing is measured.

What says `auto` is free; what is searched is free among its values; what is written stays. Parameters that
the advisor knows nothing of have the values of one configuration that the experiment's seed draws.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from workbench.errors import ExperimentError
from workbench.events import RatesTested
from workbench.experiment import Experiment
from workbench.space import Domain
from workbench.training.learning_rate import default_lr
from workbench.training.settings import fitted_of, reference_lr, resolve

PLAN_FIELDS = ("workers", "micro_batch", "accumulation", "precision", "strategy", "recompute")
DECIDED = (*PLAN_FIELDS, "global_batch", "lr")
# How far from the reference batch, in doublings, an open global batch is looked for.
_DOUBLINGS_DOWN, _DOUBLINGS_UP = 3, 5
# A step takes at most one in so many samples of the training data, else an epoch has too few steps.
_MOST_OF_DATA = 4
# How far from the usual rate an open one is looked for.
_RATE_RANGE = 100.0
_MOST_VALUES = 64
_ANY_RATE = 1e-3
# Configurations that are looked at for one whose model is trained by steps.
_MOST_DRAWN = 64
# One worker, whatever the batch: what is asked is the rate alone.
_FREE: dict[str, JsonValue] = {"workers": 1, "micro_batch": "auto", "accumulation": 1}


@dataclass(frozen=True, order=True)
class Variant:
    """What of a plan changes the work itself rather than how it is divided."""

    precision: str
    strategy: str
    """ddp, which alone is `single`; or fsdp."""
    recompute: str


@dataclass(frozen=True)
class Choices:
    """What may be chosen.

    Attributes:
        params: The configuration whose other parameters stand.
        workers: Numbers of workers, rising.
        global_batches: Global batches, rising.
        micro_batches: The micro batches that are allowed; None where any is.
        accumulations: The same of accumulation.
        precisions: Types of the arithmetic.
        strategies: Strategies for several workers; one worker alone is `single`, or `fsdp` where nothing else
            is allowed.
        recomputes: What may be computed again: "none", "blocks".
        rates: The least and the most rate at the reference batch; the same twice where it is fixed.
        listed_rates: The rates that are allowed, where they are listed.
        open_fields: Dotted paths of what the advisor decides.
    """

    params: dict[str, JsonValue]
    workers: tuple[int, ...]
    global_batches: tuple[int, ...]
    micro_batches: tuple[int, ...] | None
    accumulations: tuple[int, ...] | None
    precisions: tuple[str, ...]
    strategies: tuple[str, ...]
    recomputes: tuple[str, ...]
    rates: tuple[float, float]
    listed_rates: tuple[float, ...] | None
    open_fields: tuple[str, ...]

    def allowed_rate(self, lr: float) -> float:
        """Return the rate that is allowed and nearest to `lr`, in proportion."""
        if self.listed_rates is not None:
            return min(self.listed_rates, key=lambda listed: abs(math.log(listed / lr)))
        return min(max(lr, self.rates[0]), self.rates[1])

    def allows(self, variant: Variant) -> bool:
        """Say whether a variant of the work is allowed."""
        return (
            variant.precision in self.precisions
            and variant.strategy in self.strategies
            and variant.recompute in self.recomputes
        )

    @property
    def is_rate_open(self) -> bool:
        """Whether there is a rate to choose."""
        return self.rates[0] < self.rates[1]


def choices_of(
    experiment: Experiment, *, num_train_samples: int, most_workers: int, on_gpu: bool, has_bf16: bool
) -> Choices:
    """Read off an experiment what is open.

    Args:
        experiment: It trains a model.
        num_train_samples: Samples of the training data.
        most_workers: Workers that there can be at once.
        on_gpu: Whether workers compute on GPUs.
        has_bf16: Whether these compute in bf16 at full speed.

    Raises:
        ExperimentError: If it trains no model, or nothing that is allowed can be.
    """
    check_advisable(experiment)
    read = _Reader(experiment)
    params = base_params(experiment)
    settings = resolve(experiment, params, num_train_samples=num_train_samples)
    workers = read.numbers("plan", "workers")
    if workers is None:
        workers = tuple(sorted({2**power for power in range(most_workers.bit_length())} | {most_workers}))
    workers = tuple(number for number in workers if number <= most_workers)
    batches = read.numbers("training", "global_batch")
    micro_batches, accumulations = read.numbers("plan", "micro_batch"), read.numbers("plan", "accumulation")
    if batches is None:
        batches = tuple(_batches_around(experiment.training.reference_batch, num_train_samples))
        if micro_batches is not None and accumulations is not None:
            batches = tuple(
                sorted({m * a * w for m in micro_batches for a in accumulations for w in workers})
            )
    if not workers or not batches:
        raise ExperimentError("nothing that is allowed can be", field="plan.workers" if not workers else
                              "training.global_batch", allowed=f"at most {most_workers} workers")  # fmt: skip
    strategies = read.texts("strategy") or ("ddp", "fsdp")
    if strategies == ("single",):
        workers, strategies = (1,), ("ddp",)
    usual = ("bf16", "fp32") if on_gpu and has_bf16 else ("fp32",)
    rates, listed = read.rates(settings.training.optimizer)
    return Choices(
        params=params,
        workers=workers,
        global_batches=tuple(batch for batch in batches if batch <= num_train_samples) or batches[:1],
        micro_batches=micro_batches,
        accumulations=accumulations,
        precisions=read.texts("precision") or usual,
        strategies=tuple(name for name in strategies if name != "single"),
        recomputes=read.texts("recompute") or ("none", "blocks"),
        rates=rates,
        listed_rates=listed,
        open_fields=tuple(read.open_fields()),
    )


def check_advisable(experiment: Experiment) -> None:
    """Refuse what nothing can be said about.

    Raises:
        ExperimentError: If the experiment trains no model, or only models that make no optimizer steps.
    """
    if experiment.train is not None:
        raise ExperimentError(
            "what a train function does with a plan is its own",
            field="train",
            next_step="Name a model and data instead, and the advisor can measure them.",
        )
    if fitted_of(experiment, drawn_params(experiment)) is not None:
        raise ExperimentError(
            "a model that is fitted to all samples at once makes no steps that could be measured",
            field="model",
            next_step="Sweep it: it has no plan to choose.",
        )


def base_params(experiment: Experiment) -> dict[str, JsonValue]:
    """Return the values of the parameters that the advisor does not decide."""
    return {name: value for name, value in drawn_params(experiment).items() if name not in DECIDED}


def drawn_params(experiment: Experiment) -> dict[str, JsonValue]:
    """Return the one configuration that stands for all.

    It is the first that the experiment's seed draws, of those whose model is trained by steps.
    """
    rng = random.Random(experiment.seed)
    drawn = (experiment.search.sample(rng) for _ in range(_MOST_DRAWN))
    first = next(drawn)
    return next((params for params in (first, *drawn) if fitted_of(experiment, params) is None), first)


def rate_factor(experiment: Experiment, params: Mapping[str, JsonValue], global_batch: int) -> float:
    """Return the learning rate at a global batch over that at the reference batch."""
    asked = {**params, "lr": _ANY_RATE, "global_batch": global_batch}
    return resolve(experiment, asked, decided=_FREE).lr / _ANY_RATE


def believed_rate(experiment: Experiment, choices: Choices, rates: RatesTested | None = None) -> float:
    """Return the rate at the reference batch that is believed in before any training, as far as allowed.

    Args:
        experiment: What is to be trained.
        choices: What may be chosen.
        rates: A range test; where it suggests nothing, the rate is that of the experiment as it stands.
    """
    if rates is not None and rates.suggested is not None:
        factor = rate_factor(experiment, choices.params, rates.global_batch)
        return choices.allowed_rate(float(f"{rates.suggested / factor:.3g}"))
    return choices.allowed_rate(reference_lr(resolve(experiment, choices.params).training))


class _Reader:
    """Looks a field up where it was searched, or else where it was written."""

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self._search = experiment.search.root

    def numbers(self, section: str, name: str) -> tuple[int, ...] | None:
        """Return the whole numbers that a field may have, rising; None where it is open."""
        if name in self._search:
            return tuple(sorted(value for value in _values(self._search[name]) if isinstance(value, int)))
        written = getattr(getattr(self._experiment, section), name)
        return None if written == "auto" else (written,)

    def texts(self, name: str) -> tuple[str, ...] | None:
        """Return the texts that a field of the plan may have; None where it is open."""
        if name in self._search:
            values = tuple(str(value) for value in _values(self._search[name]))
            return None if "auto" in values else values
        written = getattr(self._experiment.plan, name)
        return None if written == "auto" else (written,)

    def rates(self, optimizer: str) -> tuple[tuple[float, float], tuple[float, ...] | None]:
        """Return the range of rates at the reference batch, and the rates where they are listed."""
        domain = self._search.get("lr")
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

    def _decides_rate(self) -> bool:
        """Say whether one rate can be right for all that is still searched: each optimizer needs its own."""
        domain = self._search.get("lr")
        return "optimizer" not in self._search and (domain is None or not domain.when)

    def open_fields(self) -> Iterator[str]:
        """Yield the dotted paths of what is open."""
        for name in ("global_batch", "lr"):
            if name == "lr" and not self._decides_rate():
                continue
            if name in self._search or getattr(self._experiment.training, name) == "auto":
                yield f"training.{name}"
        for name in PLAN_FIELDS:
            if name in self._search or getattr(self._experiment.plan, name) == "auto":
                yield f"plan.{name}"
        if self._experiment.resources.placement == "auto":
            yield "resources.placement"


def _values(domain: Domain) -> Sequence[JsonValue]:
    """Return the values of a domain: all of them, or some that are spread evenly over it."""
    values = domain.values()
    if values is None:
        return [getattr(domain, "low", None), getattr(domain, "high", None)]
    if len(values) <= _MOST_VALUES:
        return list(values)
    low, high = values[0], values[-1]
    assert isinstance(low, int)
    assert isinstance(high, int)
    doubled = {low, high} | {2**power for power in range(high.bit_length()) if low <= 2**power <= high}
    return [value for value in sorted(doubled) if value in values]


def _batches_around(reference: int, num_train_samples: int) -> Iterator[int]:
    most = max(1, num_train_samples // _MOST_OF_DATA)
    found: set[int] = {min(reference, num_train_samples)}
    for doublings in range(-_DOUBLINGS_DOWN, _DOUBLINGS_UP + 1):
        batch = round(reference * 2.0**doublings)
        if 1 <= batch <= most:
            found.add(batch)
    yield from sorted(found)
