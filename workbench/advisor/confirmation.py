"""Trainings that answer what no model predicts: a range test of rates, then a race of candidates.

The range test finds the rates at which the loss falls. The race finds the plan and rate that reach
the target first. It starts with the plans that the models prefer. `measuring` trains, and `race`
decides which candidates end early.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence

from workbench.advisor.advice import Goal
from workbench.advisor.measuring import Bench, Report
from workbench.advisor.open_settings import Choices, believed_rate, rate_factor
from workbench.advisor.plan_study import Proposer, RatedPlan
from workbench.advisor.plan_variants import plan_of
from workbench.advisor.plans import Knowledge
from workbench.advisor.race import Race
from workbench.advisor.speed_history import noise_scale_of
from workbench.experiment import Experiment
from workbench.experiment.goals import sign_of
from workbench.experiment.plan import Plan
from workbench.foundation.events import CandidateTried, PlanMeasured, RatesTested, Sink
from workbench.search.samplers import training_seed
from workbench.training.planning.learning_rate import default_lr
from workbench.training.planning.settings import TrialSettings, resolve
from workbench.training.probes.measurements import RateTest

# The part of the time for advice that the range test may take.
_RATE_PART = 0.12
_RATE_TESTS = ((60, 2), (60, 1), (30, 1))
"""Numbers of steps and seeds. The first pair that the time allows is used."""
# The race tries rates within this factor of the expected one.
_RATES_AROUND = 30.0
_NUM_RACED_BATCHES = 5
# The first candidates: the position of a plan, and a multiple of the expected rate. The multiples
# are above 1 because range tests and defaults are more often too low than too high.
_FIRST = ((0, 1.0), (0, 3.0), (0, 10.0), (1, 3.0), (2, 3.0), (1, 1.0))
# Multiples of the best rate that are tried next.
_STEPS_OF_RATE = (2.0, 0.5)
# Rates within this factor of each other count as the same.
_SAME_RATE = 1.3


class Confirmation:
    """Trains candidates of one experiment.

    Attributes:
        noise_scale: The gradient noise scale as the last training reported it, in samples.
        progress: Pairs of seconds, as the race counts them, and steps, for each training.
    """

    def __init__(
        self,
        experiment: Experiment,
        bench: Bench,
        choices: Choices,
        reference: PlanMeasured,
        knowledge: Knowledge,
        *,
        goal: Goal,
        setting: str,
        sink: Sink,
        clock: Callable[[], float] = time.monotonic,
        until_s: float = math.inf,
    ) -> None:
        """Prepare to train candidates.

        Args:
            experiment: The experiment.
            bench: Executes the trainings.
            choices: The allowed settings.
            reference: The measurement of the experiment without advice.
            knowledge: The measurements. They determine the price of a second.
            goal: The goal of the advice.
            setting: The key under which the range test is stored.
            sink: Receives each candidate that was tried.
            clock: Returns seconds.
            until_s: The time on `Bench.clock_s` at which a training is cut short, even between its
                reports.
        """
        self._experiment, self._bench, self._choices = experiment, bench, choices
        self._reference, self._setting = reference, setting
        self._goal: Goal = goal
        self._knowledge = knowledge
        self._sink, self._clock, self._until_s = sink, clock, until_s
        self._settings: TrialSettings = resolve(experiment, choices.params)
        self._objective = experiment.objectives[0]
        self._sign = sign_of(self._objective.goal)
        self._num_trainings = itertools.count()
        self.noise_scale: float | None = None
        self.progress: dict[tuple[RatedPlan, int], list[tuple[float, int]]] = {}

    def test_rates(self, budget_s: float) -> RatesTested | None:
        """Test a range of rates at the batch of the reference.

        Args:
            budget_s: Seconds that the whole advice may take.

        Returns:
            The result, or None if there is no rate to choose or the test would take too long.
        """
        choices, reference = self._choices, self._reference
        step_s = reference.step_time_s
        if not choices.is_rate_open or step_s is None or not self._experiment.trains_model:
            return None
        affordable = [
            sizes for sizes in _RATE_TESTS if math.prod(sizes) * step_s <= _RATE_PART * budget_s
        ]
        if not affordable:
            return None
        num_steps, num_seeds = affordable[0]
        usual = default_lr(self._settings.training.optimizer)
        order = RateTest(
            lowest=max(choices.rates[0], usual / 1e3),
            highest=min(choices.rates[1], usual * 1e3),
            num_steps=num_steps,
            num_seeds=num_seeds,
            setting=self._setting,
        )
        plan = plan_of(reference.plan)
        params = {**choices.params, "global_batch": plan.global_batch}
        if order.lowest >= order.highest:
            return None
        return self._bench.test_rates(plan, params, order, until_s=self._until_s)

    def race(
        self, plans: Sequence[Plan], rates: RatesTested | None, budget_s: float
    ) -> Race[RatedPlan] | None:
        """Train candidates in competition with each other.

        Args:
            plans: The best plans of each global batch, in the order in which the models rank them.
            rates: The range test, or None if there was none.
            budget_s: Seconds that the race may take.

        Returns:
            The race, or None if there is no time for one.
        """
        if budget_s <= 0:
            return None
        choices, target = self._choices, self._objective.target
        race: Race[RatedPlan] = Race(
            self._train,
            target=None if target is None else self._sign * target,
            budget_s=budget_s,
            clock=self._clock,
        )
        raced = self._raced_plans(plans)
        believed = believed_rate(self._experiment, choices, rates)
        usual = believed_rate(self._experiment, choices)
        # The experiment without advice also takes part, so its rate must be within the bounds.
        bounds = (
            max(choices.rates[0], min(believed / _RATES_AROUND, usual)),
            min(choices.rates[1], max(believed * _RATES_AROUND, usual)),
        )
        named = {str(index): plan for index, plan in enumerate(raced)}
        proposer = Proposer(
            self._experiment,
            choices,
            named,
            bounds,
            self._favourites(race, raced, believed, bounds),
        )
        # Confirmations may disprove the leader and leave time for more candidates.
        while self._explore(race, proposer):
            race.confirm()
        race.confirm()
        return race

    def _explore(self, race: Race[RatedPlan], proposer: Proposer) -> bool:
        """Try candidates while there is time.

        Returns:
            Whether to explore again after the candidates were confirmed.
        """
        has_more, has_run = True, False
        while race.may_explore:
            rated, number = race.again(has_more=has_more), None
            if rated is None and not has_more:
                return False
            if rated is None:
                number, rated = proposer.ask() or (None, None)
                # Without a rate to choose there is nothing to search beyond the plans themselves.
                is_new = all(course.entrant != rated for course in race.courses)
                has_more = rated is not None and (self._choices.is_rate_open or is_new)
                if rated is None or not has_more:
                    continue
            course = race.run(rated)
            has_run = True
            if number is not None:
                proposer.tell(number, race.score(course))
        return has_run

    def _favourites(
        self,
        race: Race[RatedPlan],
        plans: Sequence[Plan],
        believed: float,
        bounds: tuple[float, float],
    ) -> Iterator[RatedPlan]:
        """Yield candidates to try before a sampler proposes any.

        They are the first rates, the experiment without advice, and then neighbours of the best
        candidate so far.

        Args:
            race: The trainings so far.
            plans: The plans in the race, in the order in which the models rank them.
            believed: The expected rate at the reference batch.
            bounds: The lowest and the highest rate to try.
        """
        as_it_stands = RatedPlan(
            plan_of(self._reference.plan), believed_rate(self._experiment, self._choices)
        )
        by_batch = sorted(plans, key=lambda plan: (plan.global_batch, plan.workers))

        def rated(plan: Plan, lr: float) -> RatedPlan:
            allowed = self._choices.allowed_rate(float(f"{lr:.3g}"))
            return RatedPlan(plan, min(max(allowed, bounds[0]), bounds[1]))

        def is_new(other: RatedPlan) -> bool:
            return not any(
                course.entrant.plan == other.plan
                and abs(math.log(course.entrant.lr / other.lr)) < math.log(_SAME_RATE)
                for course in race.courses
            )

        def near(best: RatedPlan) -> Iterator[RatedPlan]:
            index = by_batch.index(best.plan)
            for factor in _STEPS_OF_RATE:
                yield rated(best.plan, best.lr * factor)
            for plan in (*by_batch[index + 1 : index + 2], *by_batch[max(0, index - 1) : index]):
                yield rated(plan, best.lr)

        others = [rated(plan, believed) for plan in plans]
        first = [
            rated(plans[index], believed * factor) for index, factor in _FIRST if index < len(plans)
        ]
        for favourite in [*first, as_it_stands] if self._choices.is_rate_open else others:
            if is_new(favourite):
                yield favourite
        while fresh := [
            neighbour for neighbour in near(race.standings()[0].entrant) if is_new(neighbour)
        ]:
            yield fresh[0]
        yield from (other for other in others if is_new(other))

    def _raced_plans(self, plans: Sequence[Plan]) -> list[Plan]:
        """Return the plans to train: those of the best batches by the models, and the reference."""
        batches = list(dict.fromkeys(plan.global_batch for plan in plans))[:_NUM_RACED_BATCHES]
        raced = [plan for plan in plans if plan.global_batch in batches]
        usual = plan_of(self._reference.plan)
        return raced if usual in raced else [*raced, usual]

    def _train(
        self, rated: RatedPlan, repeat: int, continues: Callable[[float, float | None], bool]
    ) -> bool:
        """Train a candidate as a sweep would train a trial, and keep its last report."""
        metric, sign, target = self._objective.metric, self._sign, self._objective.target
        # A second on twice the workers costs twice as much. With the weight, the race compares
        # prices instead of seconds.
        weight = self._knowledge.price_over(rated.plan, plan_of(self._reference.plan), self._goal)
        last: Report | None = None

        def on_report(report: Report) -> bool:
            nonlocal last
            last = report
            self.noise_scale = noise_scale_of(report.event) or self.noise_scale
            value = report.event.values.get(metric)
            steps = self.progress.setdefault((rated, repeat), [])
            steps.append((weight * report.elapsed_s, report.event.step))
            return continues(weight * report.elapsed_s, None if value is None else sign * value)

        plan = rated.plan
        params = {**self._choices.params, "lr": rated.lr, "global_batch": plan.global_batch}
        is_whole = self._bench.train(
            next(self._num_trainings),
            plan,
            params,
            training_seed(self._experiment.seed, repeat),
            on_report,
            until_s=self._until_s,
        )
        if last is not None:
            value = last.event.values.get(metric)
            self._sink(
                CandidateTried(
                    plan=plan.to_json(),
                    lr=rated.lr
                    * rate_factor(self._experiment, self._choices.params, plan.global_batch),
                    elapsed_s=last.elapsed_s,
                    step=last.event.step,
                    epoch=last.event.epoch or 0.0,
                    values=last.event.values,
                    reached_target=target is not None
                    and value is not None
                    and sign * value >= sign * target,
                )
            )
        return is_whole
