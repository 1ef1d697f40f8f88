"""What no model knows is tried: rates in a range test, then candidates that are trained beside each other.

The range test says where rates begin to work; the race, whom the models believe in first, which plan and rate
reach the target first. Who trains is the bench, who ends early is decided by `race`.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence

from pydantic import JsonValue

from workbench.advisor.advice import Goal
from workbench.advisor.bench import Bench, Report
from workbench.advisor.choices import Choices
from workbench.advisor.measurements import noise_scale_of
from workbench.advisor.plans import PlanChoice, plan_of
from workbench.advisor.race import Race
from workbench.advisor.rivals import Proposer, Rival
from workbench.events import CandidateTried, PlanMeasured, RatesTested, Sink
from workbench.experiment import Experiment
from workbench.study.samplers import stable_seed
from workbench.training.learning_rate import default_lr
from workbench.training.settings import TrialSettings, reference_lr, resolve
from workbench.training.task import RateTest

# Of the time for an advice, how much may go into the range test.
_RATE_PART = 0.15
_RATE_TEST_STEPS, _RATE_TEST_SEEDS = 60, 2
# Rates are looked for within this factor around the one that is believed in.
_RATES_AROUND = 30.0
_NUM_RACED_BATCHES = 5
# One worker, whatever the batch: what is asked is the rate alone.
_FREE: dict[str, JsonValue] = {"workers": 1, "micro_batch": "auto", "accumulation": 1}


class Contest:
    """Trains candidates of one experiment.

    Attributes:
        noise_scale: The gradient noise scale as the last training told it, in samples.
    """

    def __init__(
        self, experiment: Experiment, bench: Bench, choices: Choices, reference: PlanMeasured,
        *, goal: Goal, setting: str, sink: Sink, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """Prepare a contest.

        Args:
            experiment: What is to be trained.
            bench: Where to train.
            choices: What may be chosen.
            reference: The experiment as it stands.
            goal: What the advice should be best for.
            setting: What the range test is stored under.
            sink: Told of each candidate that was tried.
            clock: Tells seconds.
        """
        self._experiment, self._bench, self._choices = experiment, bench, choices
        self._reference, self._goal, self._setting = reference, goal, setting
        self._sink, self._clock = sink, clock
        self._settings: TrialSettings = resolve(experiment, choices.params)
        self._objective = experiment.objectives[0]
        self._sign = 1.0 if self._objective.goal == "maximize" else -1.0
        self._num_trainings = itertools.count()
        self.noise_scale: float | None = None

    def test_rates(self, budget_s: float) -> RatesTested | None:
        """Test a range of rates at the batch of the reference.

        Args:
            budget_s: Seconds that the whole advice may take.

        Returns:
            What was found; None where there is no rate to choose, or the test would take too long.
        """
        choices, reference = self._choices, self._reference
        step_s = reference.step_time_s
        cost_s = _RATE_TEST_STEPS * _RATE_TEST_SEEDS * (step_s or 0.0)
        if not choices.is_rate_open or step_s is None or cost_s > _RATE_PART * budget_s:
            return None
        usual = default_lr(self._settings.training.optimizer)
        order = RateTest(
            lowest=max(choices.rates[0], usual / 1e3),
            highest=min(choices.rates[1], usual * 1e3),
            num_steps=_RATE_TEST_STEPS,
            num_seeds=_RATE_TEST_SEEDS,
            setting=self._setting,
        )
        params = {**choices.params, "global_batch": reference.plan["global_batch"]}
        plan = {name: value for name, value in reference.plan.items() if name != "global_batch"}
        return self._bench.test_rates(plan, params, order) if order.lowest < order.highest else None

    def race(
        self, plans: Sequence[PlanChoice], rates: RatesTested | None, budget_s: float
    ) -> Race[Rival] | None:
        """Train candidates beside each other.

        Args:
            plans: The best plan of each global batch, the one that the models believe in first.
            rates: The range test, where there was one.
            budget_s: Seconds that it may take.

        Returns:
            The race; None where there is no time for one.
        """
        if budget_s <= 0:
            return None
        choices, target = self._choices, self._objective.target
        race: Race[Rival] = Race(
            self._train, target=None if target is None else self._sign * target,
            budget_s=budget_s, clock=self._clock,
        )  # fmt: skip
        raced = self._raced_plans(plans)
        believed = choices.allowed_rate(self._believed_rate(rates))
        low = max(choices.rates[0], believed / _RATES_AROUND)
        high = min(choices.rates[1], believed * _RATES_AROUND)
        named = {str(index): plan for index, plan in enumerate(raced)}
        proposer = Proposer(
            self._experiment, choices, named, (low, high), _favourites(raced, believed, choices, (low, high))
        )
        while race.may_explore:
            proposed = proposer.ask()
            if proposed is None:
                break
            number, rival = proposed
            course = race.run(rival)
            proposer.tell(number, race.score(course))
            if not choices.is_rate_open and len({each.entrant for each in race.courses}) == len(raced):
                break
        race.confirm()
        return race

    def _raced_plans(self, plans: Sequence[PlanChoice]) -> list[PlanChoice]:
        """Return the plans to train: the best of the models, spread over the batches, and the reference's."""
        raced = list(plans[:_NUM_RACED_BATCHES])
        usual = plan_of(self._reference.plan)
        # What the experiment does without advice is held against the rest by training it, too.
        return [*raced[:1], *([usual] if usual not in raced else []), *raced[1:]]

    def _believed_rate(self, rates: RatesTested | None) -> float:
        """Return the rate at the reference batch that is believed in before any training."""
        if rates is not None and rates.suggested is not None:
            return rates.suggested / self._rate_factor(rates.global_batch)
        return reference_lr(self._settings.training)

    def _rate_factor(self, global_batch: int) -> float:
        """Return the rate at a global batch over that at the reference batch."""
        params = {**self._choices.params, "lr": 1e-3, "global_batch": global_batch}
        return resolve(self._experiment, params, decided=_FREE).lr / 1e-3

    def _train(self, rival: Rival, repeat: int, goes_on: Callable[[float, float | None], bool]) -> bool:
        """Train one rival, as a trial of a sweep would be, and keep what it tells."""
        metric, sign, target = self._objective.metric, self._sign, self._objective.target
        weight = rival.plan.workers if self._goal == "money" else 1.0
        last: Report | None = None

        def hear(report: Report) -> bool:
            nonlocal last
            last = report
            self.noise_scale = noise_scale_of(report.event) or self.noise_scale
            value = report.event.values.get(metric)
            return goes_on(weight * report.elapsed_s, None if value is None else sign * value)

        plan = rival.plan
        params = {**self._choices.params, "lr": rival.lr, "global_batch": plan.global_batch}
        is_whole = self._bench.train(
            next(self._num_trainings), plan.decided(), params,
            stable_seed("training", self._experiment.seed, repeat), hear,
        )  # fmt: skip
        if last is not None:
            value = last.event.values.get(metric)
            self._sink(
                CandidateTried(
                    plan=plan.written(),
                    lr=rival.lr * self._rate_factor(plan.global_batch),
                    elapsed_s=last.elapsed_s,
                    step=last.event.step,
                    epoch=last.event.epoch or 0.0,
                    values=last.event.values,
                    reached_target=target is not None and value is not None and sign * value >= sign * target,
                )
            )
        return is_whole


def _favourites(
    plans: Sequence[PlanChoice], believed: float, choices: Choices, bounds: tuple[float, float]
) -> Iterator[Rival]:
    """Yield what to try first: the best plans at the believed rate, then other rates around it."""
    seen: set[Rival] = set()
    for factor, count in ((1.0, len(plans)), (3.0, 2), (1 / 3.0, 2), (10.0, 2)):
        for plan in plans[:count]:
            lr = min(max(choices.allowed_rate(float(f"{believed * factor:.3g}")), bounds[0]), bounds[1])
            rival = Rival(plan, lr)
            if rival not in seen and math.isfinite(lr):
                seen.add(rival)
                yield rival
