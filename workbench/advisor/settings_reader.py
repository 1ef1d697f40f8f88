"""What an experiment allows of each setting that the advisor decides.

What may be combined is left to `choices`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import JsonValue

from workbench.experiment import Experiment
from workbench.experiment.module_inspection import method_parameters_of
from workbench.experiment.plan import EXCHANGE_OPTIONS, Dimension, Hardware, PlanValue
from workbench.experiment.plan import NAMES as PLAN_DIMENSIONS
from workbench.experiment.space import Domain, describe_condition
from workbench.models import MODELS
from workbench.training.planning.learning_rate import default_lr
from workbench.training.planning.settings import reference_lr
from workbench.training.strategies.capabilities import capabilities_of

# How far from the usual rate an open one is searched.
_RATE_RANGE = 100.0
_MAX_VALUES = 64


class SettingsReader:
    """Reads settings from the search where they are searched, else from their section."""

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self._search = experiment.search.root

    def numbers(self, section: str, name: str) -> tuple[int, ...] | None:
        """Return the whole numbers that a field may have, rising; None where it is open."""
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
                each for each in candidates if capabilities_of(str(each)).has_whole_step
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
        """Return whether own code takes part in a step, which may compute something else each
        time.
        """
        named = (self._experiment.model, self._experiment.loss, self._experiment.train)
        return "model" in self._search or any(
            each and (each.payload_hash or ":" in each.name) for each in named
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

        None where it is decided, or fixed.
        """
        domain = self._search.get("lr")
        if domain is None or len(domain.values() or (0, 1)) == 1:
            return None
        if not self._takes_rate():
            return "configure of the train class has no parameter lr"
        if domain.when:
            return f"it exists only where {describe_condition(domain.when)}"
        if "optimizer" in self._search:
            return "the optimizer is searched too, and each one needs a rate of its own"
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
