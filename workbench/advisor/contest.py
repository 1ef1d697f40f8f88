"""What no model knows is tried: rates in a range test, then candidates that are trained beside each other.

The range test says where rates begin to work; the race, whom the models believe in first, which plan and rate
reach the target first. Who trains is the bench, who ends early is decided by `race`.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence

from workbench.advisor.advice import Goal
from workbench.advisor.bench import Bench, Report
from workbench.advisor.choices import Choices, believed_rate, rate_factor
from workbench.advisor.measurements import noise_scale_of
from workbench.advisor.plans import Knowledge, PlanChoice, plan_of
from workbench.advisor.race import Race
from workbench.advisor.rivals import Proposer, Rival
from workbench.events import CandidateTried, PlanMeasured, RatesTested, Sink
from workbench.experiment import Experiment
from workbench.study.samplers import training_seed
from workbench.training.learning_rate import default_lr
from workbench.training.settings import TrialSettings, resolve
from workbench.training.task import RateTest

# Of the time for an advice, how much may go into the range test; the first of these that fits is made.
_RATE_PART = 0.12
_RATE_TESTS = ((60, 2), (60, 1), (30, 1))
"""Steps and seeds."""
# Rates are looked for within this factor around the one that is believed in.
_RATES_AROUND = 30.0
_NUM_RACED_BATCHES = 5
# What to try first: which of the plans, at which rate over the one that is believed in.
# A range test, or a default, rather says too little than too much.
_FIRST = ((0, 1.0), (0, 3.0), (0, 10.0), (1, 3.0), (2, 3.0), (1, 1.0))
# How far from the best rate to look for a better one.
_STEPS_OF_RATE = (2.0, 0.5)
# Rates within this factor of each other are the same.
_SAME_RATE = 1.3


class Contest:
    """Trains candidates of one experiment.

    Attributes:
        noise_scale: The gradient noise scale as the last training told it, in samples.
    """

    def __init__(
        self, experiment: Experiment, bench: Bench, choices: Choices, reference: PlanMeasured,
        knowledge: Knowledge, *, goal: Goal, setting: str, sink: Sink,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """Prepare a contest.

        Args:
            experiment: What is to be trained.
            bench: Where to train.
            choices: What may be chosen.
            reference: The experiment as it stands.
            knowledge: What was measured, which says what a second costs.
            goal: What the advice should be best for.
            setting: What the range test is stored under.
            sink: Told of each candidate that was tried.
            clock: Tells seconds.
        """
        self._experiment, self._bench, self._choices = experiment, bench, choices
        self._reference, self._setting = reference, setting
        self._goal: Goal = goal
        self._knowledge = knowledge
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
        if not choices.is_rate_open or step_s is None:
            return None
        affordable = [each for each in _RATE_TESTS if math.prod(each) * step_s <= _RATE_PART * budget_s]
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
        believed = believed_rate(self._experiment, choices, rates)
        usual = believed_rate(self._experiment, choices)
        # The experiment as it stands is held against the rest by training it, too.
        bounds = (
            max(choices.rates[0], min(believed / _RATES_AROUND, usual)),
            min(choices.rates[1], max(believed * _RATES_AROUND, usual)),
        )
        named = {str(index): plan for index, plan in enumerate(raced)}
        proposer = Proposer(
            self._experiment, choices, named, bounds, self._favourites(race, raced, believed, bounds)
        )
        while self._explore(race, proposer):
            race.confirm()
        race.confirm()
        return race

    def _explore(self, race: Race[Rival], proposer: Proposer) -> bool:
        """Try candidates while there is time; return whether confirming them may leave time for more."""
        has_more, has_run = True, False
        while race.may_explore:
            rival, number = race.again(has_more=has_more), None
            if rival is None and not has_more:
                return False
            if rival is None:
                number, rival = proposer.ask() or (None, None)
                # Without a rate to choose there is nothing to search beyond the plans themselves.
                is_new = all(each.entrant != rival for each in race.courses)
                has_more = rival is not None and (self._choices.is_rate_open or is_new)
                if rival is None or not has_more:
                    continue
            course = race.run(rival)
            has_run = True
            if number is not None:
                proposer.tell(number, race.score(course))
        return has_run

    def _favourites(
        self, race: Race[Rival], plans: Sequence[PlanChoice], believed: float, bounds: tuple[float, float]
    ) -> Iterator[Rival]:
        """Yield what to try before a search that knows nothing: rates, then what is near the best so far.

        Args:
            race: Its courses say what was tried, and how it went.
            plans: The plans that are raced, the one that the models believe in first.
            believed: The rate at the reference batch that is believed in.
            bounds: The least and the most rate to try.
        """
        as_it_stands = Rival(plan_of(self._reference.plan), believed_rate(self._experiment, self._choices))
        by_batch = sorted(plans, key=lambda plan: (plan.global_batch, plan.workers))

        def rival(plan: PlanChoice, lr: float) -> Rival:
            allowed = self._choices.allowed_rate(float(f"{lr:.3g}"))
            return Rival(plan, min(max(allowed, bounds[0]), bounds[1]))

        def is_new(other: Rival) -> bool:
            return not any(
                each.entrant.plan == other.plan
                and abs(math.log(each.entrant.lr / other.lr)) < math.log(_SAME_RATE)
                for each in race.courses
            )

        def near(best: Rival) -> Iterator[Rival]:
            index = by_batch.index(best.plan)
            for factor in _STEPS_OF_RATE:
                yield rival(best.plan, best.lr * factor)
            for plan in (*by_batch[index + 1 : index + 2], *by_batch[max(0, index - 1) : index]):
                yield rival(plan, best.lr)

        others = [rival(plan, believed) for plan in plans]
        first = [rival(plans[index], believed * factor) for index, factor in _FIRST if index < len(plans)]
        for each in [*first, as_it_stands] if self._choices.is_rate_open else others:
            if is_new(each):
                yield each
        while fresh := [each for each in near(race.standings()[0].entrant) if is_new(each)]:
            yield fresh[0]
        yield from (each for each in others if is_new(each))

    def _raced_plans(self, plans: Sequence[PlanChoice]) -> list[PlanChoice]:
        """Return the plans to train: the best by the models, one a batch, the reference's last."""
        raced = list(plans[:_NUM_RACED_BATCHES])
        usual = plan_of(self._reference.plan)
        return raced if usual in raced else [*raced, usual]

    def _train(self, rival: Rival, repeat: int, goes_on: Callable[[float, float | None], bool]) -> bool:
        """Train one rival, as a trial of a sweep would be, and keep what it tells."""
        metric, sign, target = self._objective.metric, self._sign, self._objective.target
        weight = self._knowledge.price_over(rival.plan, plan_of(self._reference.plan), self._goal)
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
            training_seed(self._experiment.seed, repeat), hear,
        )  # fmt: skip
        if last is not None:
            value = last.event.values.get(metric)
            self._sink(
                CandidateTried(
                    plan=plan.written(),
                    lr=rival.lr * rate_factor(self._experiment, self._choices.params, plan.global_batch),
                    elapsed_s=last.elapsed_s,
                    step=last.event.step,
                    epoch=last.event.epoch or 0.0,
                    values=last.event.values,
                    reached_target=target is not None and value is not None and sign * value >= sign * target,
                )
            )
        return is_whole
