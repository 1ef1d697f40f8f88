"""Advice: a plan and a learning rate, their predicted effect with intervals, and alternatives.

These are plain values that are stored as JSON. `recommend` computes them, and `advice_lines` puts
them into words.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
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
    """The memory that one worker needs, its limit, and whether the need was measured."""

    value: float
    limit: float | None
    measured: bool


@dataclass(frozen=True)
class Candidate:
    """A plan with a learning rate, and the speed, memory and time that are predicted for it.

    Attributes:
        plan: The complete plan. Functions and programs decide themselves how they compute, so only
            the sizes of their plan count.
        lr: The peak learning rate at the plan's global batch, or None if there is none to choose.
        lr_rule: The rule that scales the rate from the reference batch to the global batch, or None
            if the rate is not scaled.
        warmup_epochs: Epochs of warm-up.
        samples_per_s: The throughput of all workers together.
        step_time_s: Seconds per optimizer step.
        epoch_time_s: Seconds for one pass over the training data, or None if unknown.
        memory_bytes: The memory of one worker, or None if it is unknown.
        power_w: The power of all devices together, or None if it was not metered.
        time_to_target_s: Seconds of training until the target is reached, or until the end if there
            is no target. None if it cannot be predicted.
        is_by_speed: Whether it was chosen by its speed alone.
        reasons: Why it is recommended, in sentences.
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
        is_measured: Whether the throughput was measured.
        reason: Why it is not recommended.
    """

    written: str
    samples_per_s: float
    is_measured: bool
    reason: str


@dataclass(frozen=True)
class StepCost:
    """The price of an approximate exchange: it needs more steps than an exact one.

    Attributes:
        factor: Steps to a value of the objective, divided by the steps of an exact exchange to the
            same value.
        num_pairs: Pairs of trainings with the same seed that differ only in the exchange.
    """

    factor: Estimate
    num_pairs: int


@dataclass(frozen=True)
class ExchangeOffer:
    """The speed of another exchange, and its price in steps.

    Attributes:
        exchange: The name of the exchange.
        batch_text: The global batch of a step, written out.
        global_batch: The global batch in samples.
        step_time_s: Seconds per step.
        sent_bytes: The mean bytes that a replica sends per step.
        is_exact: Whether a step equals the step of one worker, except for rounding.
        is_measured: Whether this plan was timed with this exchange.
        cost: The additional steps, or None if the exchange is exact or was not raced.
    """

    exchange: str
    batch_text: str
    global_batch: int
    step_time_s: Estimate
    sent_bytes: float
    is_exact: bool
    is_measured: bool
    cost: StepCost | None = None


@dataclass(frozen=True)
class PowerStep:
    """The speed and the energy of the recommended plan under a power limit.

    Attributes:
        limit_w: The limit of each GPU.
        step_time_s: Seconds per step.
        step_j: Joules of all GPUs per step.
    """

    limit_w: float
    step_time_s: float
    step_j: float


@dataclass(frozen=True)
class PowerAdvice:
    """The power limit that saves the most energy under a bound on the slow-down.

    Attributes:
        limit_w: The limit of each GPU.
        now_w: The limit of now.
        slowdown: By what part steps take longer under it.
        saved: The part of the energy of a step that it saves.
        max_slowdown: The bound.
        steps: What was measured, from the present limit down.
    """

    limit_w: float
    now_w: float
    slowdown: float
    saved: float
    max_slowdown: float
    steps: tuple[PowerStep, ...]

    @classmethod
    def of(cls, steps: Sequence[PowerStep], max_slowdown: float) -> PowerAdvice:
        """Choose the limit whose steps take the least energy within the bound.

        Args:
            steps: Measurements, of the present limit first.
            max_slowdown: By what part steps may take longer than under the present limit.

        Example:
            >>> steps = [PowerStep(300, 1.0, 290), PowerStep(200, 1.1, 210), PowerStep(100, 2, 190)]
            >>> PowerAdvice.of(steps, 0.15).limit_w
            200

        Source: You et al., Zeus (2023), with a bound on the slow-down instead of a price of time.
        """
        now = steps[0]
        allowed = [
            step for step in steps if step.step_time_s <= (1 + max_slowdown) * now.step_time_s
        ]
        # At equal energy, the higher limit is faster.
        best = min(allowed, key=lambda step: (step.step_j, -step.limit_w))
        return cls(
            limit_w=best.limit_w,
            now_w=now.limit_w,
            slowdown=best.step_time_s / now.step_time_s - 1.0,
            saved=1.0 - best.step_j / now.step_j,
            max_slowdown=max_slowdown,
            steps=tuple(steps),
        )


def _is_not_shown() -> bool:
    return False


@dataclass(frozen=True)
class Advice:
    """The recommended plan, the reasons, and the alternatives.

    Attributes:
        objective: The goal that the recommendation is best for.
        has_target: Whether the experiment has a target. Time, money and energy are then counted up
            to the target.
        choice: The recommended candidate.
        runner_up: The second best candidate.
        others: Further candidates, the best first.
        reference: The experiment without advice.
        noise_scale_samples: The gradient noise scale.
        noise_status: Whether the noise scale was measured.
        measured: The measurements, in sentences.
        would_change: The uncertainties that could change the answer, in sentences.
        cost_s: Seconds that it took to find the advice.
        overrun: By how much the limit on that time was exceeded, and why. None if it was kept.
        settings: The settings for the experiment, by dotted path.
        curves: Step time, memory and time to target over the plans, for figures.
        exchanges: Other exchanges, the fastest step first. Empty if no links were measured.
        rejected: The plan that seemed the fastest, if another one is recommended.
        power: The recommended power limit, or None if it was not requested.
        run_id: The run that measured it, whose figures show the evidence, or empty.
        is_shown: Returns whether the running notebook cell already shows the card.
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
    power: PowerAdvice | None = None
    run_id: str = field(default="", compare=False)
    is_shown: Callable[[], bool] = field(default=_is_not_shown, compare=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values, as `AdviceGiven` stores them."""
        plain = asdict(self)
        del plain["is_shown"], plain["run_id"]
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
        """Return the experiment with the settings of this advice.

        The search no longer varies the parameters that the advice decides.
        """
        return apply_settings(experiment, self.settings)


def apply_settings(experiment: Experiment, settings: Mapping[str, JsonValue]) -> Experiment:
    """Return an experiment with these settings.

    Args:
        experiment: The experiment.
        settings: Values by dotted path, such as `plan.workers`. A parameter of the same name is no
            longer searched. A path below `search` fixes that parameter to one value.

    Raises:
        ExperimentError: If the result is not a valid experiment.
    """
    if not isinstance(experiment, Experiment):
        raise ExperimentError(
            f"advice can only be applied to an experiment, not to {experiment!r}",
            next_step="Read the file first: Experiment.from_file(path).",
        )
    sections: dict[str, dict[str, JsonValue]] = {}
    for path, value in settings.items():
        section, _, name = path.partition(".")
        sections.setdefault(section, {})[name] = value
    decided = {path.partition(".")[2] for path in settings if not path.startswith("search.")}
    left = {name: domain for name, domain in experiment.search.root.items() if name not in decided}
    return experiment.model_copy(update={"search": Space(left)}).replace(**sections)
