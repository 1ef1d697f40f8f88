"""Write the orders of a run: everything that a coordinator needs to start a trial.

The driver decides which trial is next, and when. If trials train in turns, `Turns` says which of
those that wait between two turns continues.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Collection
from statistics import fmean

from workbench.cluster.workers.admission import Request
from workbench.experiment import Experiment
from workbench.experiment.domain import Choice, Float
from workbench.experiment.goals import sign_of
from workbench.experiment.plan import PartialPlan
from workbench.experiment.schedules import DECAY, WSD, stable_epochs
from workbench.experiment.space import Params
from workbench.experiment.trainings import turn_ends
from workbench.foundation.artifacts import Artifacts
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import steady_unix_s
from workbench.store.database.run_files import trial_folder
from workbench.store.history import Trial, cost_of
from workbench.sweeps.code_versions import Program
from workbench.sweeps.coordinator import Order
from workbench.sweeps.ledger import Ledger
from workbench.sweeps.run_alerts import Alerting
from workbench.sweeps.trial_plans import TrialPlans
from workbench.sweeps.trial_resources import known_plan
from workbench.training.mirrored_folder import TRUNK, branch_at, read_trunk, trunk_at
from workbench.training.planning.equivalent_plans import changeable_ways
from workbench.training.planning.settings import searched_training
from workbench.training.worker_task import TrialTask, Turn

_MARGIN = 1.25
"""How much longer than usual the remaining turns may take."""


class Orders:
    """Writes the orders of one run."""

    def __init__(
        self,
        ledger: Ledger,
        artifacts: Artifacts,
        plans: TrialPlans,
        alerting: Alerting,
        program: Program,
    ) -> None:
        """Prepare to write orders.

        Args:
            ledger: The run's events, experiment and alerts.
            artifacts: The place of the run's files.
            plans: Decides the parts of a plan that the experiment leaves open.
            alerting: Knows which nodes are excluded by rules.
            program: Knows which version of the code a trial runs.
        """
        self._ledger = ledger
        self._artifacts = artifacts
        self._plans = plans
        self._alerting = alerting
        self._program = program
        self._trunks = Trunks(ledger, artifacts)
        self._written: tuple[object, str] | None = None
        self._known: dict[int, tuple[PartialPlan, PartialPlan]] = {}

    def order(self, trial: Trial, request: Request) -> Order:
        """Return the order that starts the next attempt of a trial.

        Args:
            trial: The trial.
            request: The workers that each trial leases.
        """
        experiment, settings = self._ledger.experiment, self._ledger.experiment.resources
        decided = self._plans.plan_for(trial.params) | trial.decided_plan
        task = TrialTask(
            run_id=self._ledger.run_id,
            trial=trial.number,
            attempt=trial.attempts,
            experiment_json=self._experiment_json(),
            objects=self._artifacts.below("objects").url if experiment.payload_hashes() else None,
            params=dict(trial.params),
            seed=trial.seed,
            folder=self._artifacts.below(trial_folder(trial.number)).url,
            resume=True,
            plan=decided,
            patterns=self._ledger.alerts.patterns,
            turn=turn_of(experiment, trial),
        )
        before = trial.resumes
        if trial.segment is not None:
            before = trial.segment.continues
        if experiment.fidelity is not None and not experiment.continues_levels:
            before = None
        task = self._trunks.share(self._with_clones(task, trial), trial, self._program.version_of)
        if trial.segment is not None or before is not None:
            continued = None
            if before is not None:
                continued = self._artifacts.below(trial_folder(before)).url
            task = dataclasses.replace(task, segment=trial.segment, continued=continued)
        limit_s, version = settings.trial_time, self._program.version_of(trial)
        plan = self._known_plan(trial, decided)
        return Order(
            task=task,
            request=self._alerting.allowed(
                dataclasses.replace(request, trial=trial.number, num_workers=plan.workers or 1)
            ),
            blocking=experiment.early_stop.pruner != "none",
            origin=self._program.origin_of(version, trial.params),
            program=version,
            plan=plan,
            max_retries=max(0, settings.max_retries - trial.num_retries),
            changeable=changeable_ways(experiment, trial.params),
            tried=trial.ways_tried,
            time_limit_s=limit_s,
            trained_s=trial.trained_s,
        )

    def tidy(self) -> None:
        """Delete what was kept for further trials."""
        self._trunks.tidy()

    def _with_clones(self, task: TrialTask, trial: Trial) -> TrialTask:
        """Return a task that knows which checkpoints its clones need, and its own if it is one."""
        task = dataclasses.replace(task, branches=tuple(self._ledger.study.branches(trial.number)))
        clone = trial.clone
        if clone is None or not clone.inherits:
            return task
        parent = self._artifacts.below(trial_folder(clone.of))
        return dataclasses.replace(task, clone=clone, continued=branch_at(parent, clone.branch).url)

    def _known_plan(self, trial: Trial, decided: PartialPlan) -> PartialPlan:
        """Return what is certain about the plan of a trial. It is the same in all of its turns."""
        cached = self._known.get(trial.number)
        if cached is not None and cached[0] == decided:
            return cached[1]
        experiment = self._ledger.experiment
        plan = known_plan(experiment, trial.params, decided)
        if experiment.early_stop.turns is not None:
            self._known[trial.number] = decided, plan
        return plan

    def _experiment_json(self) -> str:
        """Return the experiment for the workers, with the number of trials that share a GPU."""
        per_gpu = self._ledger.history.in_force.resources.per_gpu
        if self._written is None or self._written[0] != per_gpu:
            experiment = self._ledger.experiment.replace(resources={"per_gpu": per_gpu})
            self._written = per_gpu, experiment.model_dump_json()
        return self._written[1]


def turn_of(experiment: Experiment, trial: Trial) -> Turn | None:
    """Return the next turn of a trial, or None if it trains to its end at once.

    Repeats of a configuration are not divided: they only start once a first training is complete.
    """
    ends: list[int] = []
    if trial.repeat == 0:
        # A length that only some configurations have, or that is too short in one of them.
        with contextlib.suppress(ExperimentError):
            ends = turn_ends(experiment, trial.params)
    if not ends:
        return None
    number = min(trial.turn + 1, len(ends))
    return Turn(
        number=number,
        num_turns=len(ends),
        end=None if number == len(ends) else ends[number - 1],
        first_step=trial.first_step,
        known_step=max(trial.last_step, trial.clone.step if trial.clone else 0),
    )


class Trunks:
    """Lets trials that differ only in how wsd decays share the training before.

    They have the same seed, so they are equal until the first of them decays. A trial keeps its
    checkpoints there, and a later one begins with them. While both train at once, nothing is
    shared.
    """

    def __init__(self, ledger: Ledger, artifacts: Artifacts) -> None:
        """Share the checkpoints of the trials in `ledger`."""
        self._ledger = ledger
        self._artifacts = artifacts

    def share(self, task: TrialTask, trial: Trial, version_of: Callable[[Trial], int]) -> TrialTask:
        """Return a task that knows what to keep, and with what it begins.

        Args:
            task: The task of the next attempt of a trial.
            trial: The trial.
            version_of: Returns the version of the code that a trial runs.
        """
        if not self._is_stable(trial):
            return task
        task = dataclasses.replace(task, kept_epochs=tuple(sorted(self._kept_epochs(trial))))
        if trial.attempts:  # it has its own checkpoints
            return task
        most = max(task.kept_epochs, default=0)
        equal = [
            other
            for other in self._ledger.history.trials.values()
            if other.number != trial.number
            and other.attempts
            and other.seed == trial.seed
            and self._is_stable(other)
            and _without_decay(other.params) == _without_decay(trial.params)
            and version_of(other) == version_of(trial)
        ]
        places = [
            (-epochs, other.number)
            for other in equal
            for epochs in self._kept_epochs(other)
            if epochs <= most
        ]
        for epochs, number in sorted(places):
            trunk = trunk_at(self._artifacts.below(trial_folder(number)), -epochs)
            if read_trunk(trunk) is not None:
                return dataclasses.replace(task, continued=trunk.url, trunk_of=number)
        return task

    def tidy(self) -> None:
        """Delete the checkpoints, when no further trial begins."""
        for trial in self._ledger.history.trials.values():
            if self._is_stable(trial):
                self._artifacts.below(trial_folder(trial.number)).below(TRUNK).delete("")

    def _is_stable(self, trial: Trial) -> bool:
        """Return whether a trial trains a model from its start by wsd, and others decay otherwise.

        Trials in turns wait for each other, so they could rarely share anything.
        """
        experiment = self._ledger.experiment
        return (
            experiment.trains_model
            and experiment.federated is None
            and experiment.fidelity is None
            and experiment.early_stop.turns is None
            and trial.continued is None
            and DECAY in trial.params
            and trial.params.get("schedule", experiment.training.schedule) == WSD
        )

    def _kept_epochs(self, trial: Trial) -> set[int]:
        """Return after how many epochs a trial keeps its checkpoints.

        This is where it decays itself, and where others may that decay for longer.
        """
        training = searched_training(self._ledger.experiment, trial.params)
        own = stable_epochs(training)
        domain = self._ledger.history.searched.root.get(DECAY)
        decays: list[float] = []
        if isinstance(domain, Choice):
            decays = [float(choice) for choice in domain.choices if isinstance(choice, int | float)]
        elif isinstance(domain, Float):
            decays = [domain.high]
        others = {stable_epochs(training, decay) for decay in decays}
        return {epochs for epochs in (own, *others) if 0 < epochs <= own}


def _without_decay(params: Params) -> Params:
    return {name: value for name, value in params.items() if name != DECAY}


class Turns:
    """Chooses who continues if trials train in turns.

    A turn goes to every trial before the next one goes to any. The most promising trials come
    first. If time would run out before all are trained, those that are furthest come first, so that
    some of them are complete at the end.
    """

    def __init__(self, ledger: Ledger) -> None:
        """Choose by the events in `ledger`."""
        self._ledger = ledger
        self._num_turns = ledger.experiment.early_stop.turns or 1

    def waiting(self, running: Collection[int]) -> list[Trial]:
        """Return the trials that wait for their next turn.

        Args:
            running: The trials that have been given one already.
        """
        return [
            trial
            for trial in self._ledger.history.trials.values()
            if trial.between_turns and not trial.finished and trial.number not in running
        ]

    def next(self, running: Collection[int]) -> int | None:
        """Return the trial that continues now, or None if none waits.

        Args:
            running: The trials that have been given a turn already.
        """
        waiting = self.waiting(running)
        if not waiting:
            return None
        worth = {trial.number: self._worth(trial) for trial in waiting}
        furthest = max(trial.turn for trial in waiting)
        is_short = self._is_short(self._num_turns - furthest)

        def order(trial: Trial) -> tuple[int, float, int]:
            turn = -trial.turn if is_short else trial.turn
            return turn, -worth[trial.number], trial.number

        chosen = min(waiting, key=order)
        trials = self._ledger.history.trials
        # A free worker goes to a trial that still waits for one in an earlier turn.
        if any(trials[n].state == "waiting" and trials[n].turn < chosen.turn for n in running):
            return None
        return chosen.number

    def may_begin(self, num_places: int) -> bool:
        """Return whether a new configuration may still start.

        If the number of trials is limited, all of them start. If only time, energy or money is, as
        many start as finish their first turn in their share of it.

        Args:
            num_places: How many trials run at once.
        """
        history = self._ledger.history
        if history.in_force.max_configurations() is not None:
            return True
        firsts = [trial for trial in history.trials.values() if trial.turn or trial.finished]
        if not firsts:
            return len(history.trials) < num_places
        now_unix_s = steady_unix_s()
        share, budget = 1.0 / self._num_turns, history.in_force.budget
        num_more = len(history.trials) - len(firsts) + 1
        used = [
            (budget.gpu_time, history.gpu_s(now_unix_s)),
            (budget.energy, history.energy_wh or 0.0),
            (budget.money, cost_of(history, now_unix_s) or 0.0),
        ]
        if budget.time is not None:
            after_s = history.limited_s(now_unix_s) + self._turn_s()
            if after_s > share * budget.time:
                return False
        return all(
            limit is None or amount * (1.0 + num_more / len(firsts)) <= share * limit
            for limit, amount in used
        )

    def _worth(self, trial: Trial) -> float:
        """Return how promising a trial is. With several objectives: minus how many are better."""
        turn, trials = trial.turn, self._ledger.history.trials.values()
        result = self._result_at(trial, turn)
        if len(result) == 1:
            return result[0]
        others = [self._result_at(other, turn) for other in trials if turn in other.turn_values]
        return -float(sum(other != result and _is_at_least(other, result) for other in others))

    def _result_at(self, trial: Trial, turn: int) -> list[float]:
        """Return the values of the objectives after a turn. Larger is better."""
        result = trial.turn_values.get(turn, {})
        return [
            value if math.isfinite(value := sign_of(item.goal) * result[item.metric]) else -math.inf
            for item in self._ledger.experiment.objectives
            if item.metric in result
        ] or [-math.inf]

    def _turn_s(self) -> float:
        """Return how long a turn takes, in seconds."""
        trained = [trial for trial in self._ledger.history.trials.values() if trial.turn]
        if not trained:
            return 0.0
        return fmean(trial.trained_s / trial.turn for trial in trained)

    def _is_short(self, num_turns: int) -> bool:
        """Return whether the time is only enough for the trials that are furthest."""
        history = self._ledger.history
        budget_s = history.in_force.budget.time
        if budget_s is None:
            return False
        left_s = budget_s - history.limited_s(steady_unix_s())
        return left_s < _MARGIN * num_turns * self._turn_s()


def _is_at_least(first: list[float], second: list[float]) -> bool:
    return all(mine >= theirs for mine, theirs in zip(first, second, strict=True))
