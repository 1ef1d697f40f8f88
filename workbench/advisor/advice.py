"""Advice: a plan and a rate, what they should bring, how sure that is, and the alternatives.

Plain values that travel as JSON. How advice comes about is left to `recommend`, its wording to
`advice_lines`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from pydantic import JsonValue

from workbench.advisor.advice_card import html_of
from workbench.advisor.advice_lines import lines_of
from workbench.advisor.stored_advice import Estimate
from workbench.experiment import Experiment
from workbench.experiment.plan import SIZES, PartialPlan, Plan
from workbench.experiment.space import Space
from workbench.foundation.errors import ExperimentError

Goal = Literal["time", "money", "energy", "throughput"]
NoiseStatus = Literal["measured", "not estimable yet", "not measured"]


@dataclass(frozen=True)
class MemoryNeed:
    """What one worker will hold, of what it may hold, and whether that was measured."""

    value: float
    limit: float | None
    measured: bool


@dataclass(frozen=True)
class Candidate:
    """A plan with a learning rate, and what it should bring.

    Attributes:
        plan: The whole plan. For a function or program, which computes in its own way, only its
            sizes count.
        lr: The peak rate at the global batch of the plan, or None if there is none to choose.
        lr_rule: The rule that leads to it from the rate at the reference batch, or None if it
            stays.
        warmup_epochs: Epochs of warm-up.
        samples_per_s: Over all workers.
        step_time_s: Seconds per optimizer step.
        epoch_time_s: Seconds of the steps of one pass over the training data, or None if unknown.
        memory_bytes: What a worker holds, or None if it could not be known.
        power_w: What all its devices use, or None if nothing metered it.
        time_to_target_s: Seconds of training to the target, or, without one, to the end, or None if
            nothing is known about it.
        reasons: Why, in sentences.
    """

    plan: Plan
    lr: float | None
    lr_rule: str | None
    warmup_epochs: float
    samples_per_s: Estimate
    step_time_s: Estimate
    epoch_time_s: Estimate | None
    memory_bytes: MemoryNeed | None = None
    power_w: float | None = None
    time_to_target_s: Estimate | None = None
    is_by_speed: bool = False
    reasons: tuple[str, ...] = ()

    @property
    def written(self) -> str:
        """The plan written out: `256 samples = 64 x 2 accumulated x 2 workers`."""
        return self.plan.batch_text

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        plan = PartialPlan.of_plan(self.plan)
        if self.lr_rule is None:
            plan = plan.only(SIZES)
        return asdict(self) | {"plan": plan.to_json(), "written": self.written}


@dataclass(frozen=True)
class Rejected:
    """The plan that seemed the fastest, if another one is recommended.

    Attributes:
        written: Its global batch, written out.
        samples_per_s: Its throughput.
        is_measured: Whether that was measured.
        reason: Why it is not recommended.
    """

    written: str
    samples_per_s: float
    is_measured: bool
    reason: str


@dataclass(frozen=True)
class StepCost:
    """What an approximate exchange costs.

    Attributes:
        factor: How many times the steps of an exact one it needs to the same value of the
            objective.
        num_pairs: Pairs of trainings that differ in nothing but the exchange. They share the seed.
    """

    factor: Estimate
    num_pairs: int


@dataclass(frozen=True)
class ExchangeOffer:
    """What another exchange would bring.

    Attributes:
        exchange: Its name.
        batch_text: The global batch of the steps, written out.
        global_batch: The same, in samples.
        step_time_s: Seconds per step.
        sent_bytes: What a replica contributes per step, in the mean.
        is_exact: Whether it makes the step of one worker, up to rounding.
        is_measured: Whether exactly this was timed.
        cost: What it costs in steps, or None for an exact one, or one that was not raced.
    """

    exchange: str
    batch_text: str
    global_batch: int
    step_time_s: Estimate
    sent_bytes: float
    is_exact: bool
    is_measured: bool
    cost: StepCost | None = None


def _is_not_shown() -> bool:
    return False


@dataclass(frozen=True)
class Advice:
    """What to use, why, and the alternatives.

    Attributes:
        objective: What it is best for.
        has_target: Whether the experiment has a target, to which time, money and energy are then
            meant.
        choice: What to use.
        runner_up: The next best.
        others: Further candidates, the best first.
        reference: What the experiment does without advice.
        noise_scale_samples: The gradient noise scale.
        noise_status: Whether that was measured.
        measured: What was measured, in sentences.
        would_change: What would change the answer, in sentences.
        cost_s: Seconds that finding it took.
        overrun: By how much that was longer than allowed, and why, or None if it was not.
        settings: What to set in the experiment, by dotted path.
        curves: Step time, memory and time to target over the plans, for figures.
        exchanges: What other exchanges would bring, the fastest step first, or empty if no links
            were measured.
        rejected: The plan that seemed the fastest, if another one is recommended.
        is_shown: Returns whether the cell of a notebook that is being executed shows the card
            already.
    """

    objective: Goal
    has_target: bool
    choice: Candidate
    runner_up: Candidate | None
    others: tuple[Candidate, ...]
    reference: Candidate
    noise_scale_samples: float | None
    noise_status: NoiseStatus
    measured: tuple[str, ...]
    would_change: tuple[str, ...]
    cost_s: float
    settings: dict[str, JsonValue]
    curves: dict[str, Any] = field(default_factory=dict)
    exchanges: tuple[ExchangeOffer, ...] = ()
    overrun: str | None = None
    rejected: Rejected | None = None
    is_shown: Callable[[], bool] = field(default=_is_not_shown, compare=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values, as `AdviceGiven` stores them."""
        plain = asdict(self)
        del plain["is_shown"]
        plain["noise"] = {
            "scale_samples": plain.pop("noise_scale_samples"),
            "status": plain.pop("noise_status"),
        }
        for name in ("choice", "runner_up", "reference"):
            candidate: Candidate | None = getattr(self, name)
            plain[name] = None if candidate is None else candidate.to_json()
        plain["others"] = [candidate.to_json() for candidate in self.others]
        return json.loads(json.dumps(plain))

    def __str__(self) -> str:
        """The card, as the command line shows it."""
        return "\n".join(lines_of(self.to_json()))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        if self.is_shown():
            return {"text/plain": f"the advice above: {self.choice.written}"}
        return {"text/plain": str(self), "text/html": html_of(self.to_json())}

    def apply(self, experiment: Experiment) -> Experiment:
        """Return an experiment with the settings of this advice in place.

        What it decides is not searched.
        """
        return apply_settings(experiment, self.settings)


def apply_settings(experiment: Experiment, settings: Mapping[str, JsonValue]) -> Experiment:
    """Return an experiment with settings in place.

    Args:
        experiment: The experiment.
        settings: Values by dotted path, such as `plan.workers`. A parameter of the same name is no
            longer searched, and one below `search` keeps one value.

    Raises:
        ExperimentError: If the result is not a valid experiment.
    """
    if not isinstance(experiment, Experiment):
        raise ExperimentError(
            f"advice is applied to an experiment, not to {experiment!r}",
            next_step="Read a file first: Experiment.from_file(path).",
        )
    sections: dict[str, dict[str, JsonValue]] = {}
    for path, value in settings.items():
        section, _, name = path.partition(".")
        sections.setdefault(section, {})[name] = value
    decided = {path.partition(".")[2] for path in settings if not path.startswith("search.")}
    left = {name: domain for name, domain in experiment.search.root.items() if name not in decided}
    return experiment.model_copy(update={"search": Space(left)}).replace(**sections)
