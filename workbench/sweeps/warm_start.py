"""Read what a new run takes from earlier ones: trials to learn from, proposals, or the noise."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from workbench.experiment import Experiment
from workbench.experiment.changes import CONFIRM
from workbench.experiment.goals import Goal
from workbench.experiment.space import Params
from workbench.experiment.trial_value import Mode, TrialValue, mode_of
from workbench.foundation.errors import ExperimentError, RunError, StoreError
from workbench.foundation.events import (
    PriorTrialAdded,
    RepeatedTraining,
    RepeatsInherited,
    ReplayPlanned,
    TrialPlanned,
    TrialProposed,
    TrialReported,
)
from workbench.store.database import RunRow, Store
from workbench.store.history import History, Trial

# Fewer complete trials teach a sampler nothing. Only the latest runs are read, to save time.
_MIN_TRIALS = 4
_MAX_LOOKED_AT = 30
_MAX_TAKEN = 5
# The events that tell how trainings ended, and which code they ran.
_OF_TRAININGS = frozenset({"program_kept", "trial_proposed", "trial_started", "trial_ended"})
# More repeated trainings than these would hardly change what is known about the noise.
_MAX_GROUPS = 100


@dataclass
class _Curve:
    """The values that a trial has reported at each rung."""

    reports: dict[int, float] = field(default_factory=dict)
    _last_seen: tuple[float, float] | None = None

    def add(self, report: TrialReported, value: float, experiment: Experiment) -> None:
        reached = experiment.early_stop.values_at_rungs(self._last_seen, report, value)
        self.reports = reached | self.reports
        self._last_seen = None if report.epoch is None else (report.epoch, value)


def prior_trials(store: Store, run_id: str, experiment: Experiment) -> list[PriorTrialAdded]:
    """Return the finished trials of an earlier run that are configurations of `experiment`.

    Their values are computed from their reports as in this experiment, even if the earlier run
    computed them differently.

    Args:
        store: The store that holds the earlier run.
        run_id: The earlier run.
        experiment: The experiment to teach.

    Raises:
        ExperimentError: If the objectives differ, or no trial of the earlier run is a
            configuration.
    """
    earlier = store.experiment(run_id)
    goals = _goals(experiment)
    if _goals(earlier) != goals:
        raise ExperimentError(
            f"{run_id} has other objectives",
            field="objectives",
            next_step="Warm-start from a run with the same metrics and goals.",
        )
    history = History(earlier)
    curves: defaultdict[int, _Curve] = defaultdict(_Curve)
    values: defaultdict[int, TrialValue] = defaultdict(lambda: TrialValue(experiment))
    metric = experiment.objectives[0].metric
    for stored in store.events(run_id):
        event = stored.event
        history.apply(event)
        if isinstance(event, TrialReported):
            values[event.trial].report(
                event.values, step=event.step, attempt=event.attempt, returned=event.returned
            )
            if metric in event.values:
                curves[event.trial].add(event, event.values[metric], experiment)
    is_read_alike = experiment.trains_model and _modes(earlier) == _modes(experiment)
    priors: list[PriorTrialAdded] = []
    for trial in history.in_state("complete", "pruned"):
        if trial.fidelity is not None or trial.inherits:
            continue
        read_values = trial.values if is_read_alike else values[trial.number].result()
        metrics = [name for name, _ in goals]
        if not (_are_finite(trial.values, metrics) and _are_finite(read_values, metrics)):
            continue
        try:
            params = experiment.search.check(_searched(history, trial, experiment))
        except ExperimentError:
            continue
        assert trial.state in ("complete", "pruned")
        priors.append(
            PriorTrialAdded(
                from_run_id=run_id,
                from_trial=trial.number,
                params=params,
                state=trial.state,  # type: ignore[arg-type]
                values=read_values,
                reports=sorted(curves[trial.number].reports.items()),
            )
        )
    if not priors:
        raise ExperimentError(
            f"no finished trial of {run_id} is a configuration of this search space",
            field="search",
            next_step="Warm-start from a run with the same parameters.",
        )
    return priors


def _searched(history: History, trial: Trial, experiment: Experiment) -> Params:
    """Return the parameters of an earlier trial that may be those of an experiment.

    Another tool also records what was never searched, such as a path, so the others are left out.
    """
    if not history.is_imported:
        return trial.params
    return {name: value for name, value in trial.params.items() if name in experiment.search.root}


def _are_finite(values: Mapping[str, float], metrics: Iterable[str]) -> bool:
    return all(math.isfinite(values.get(metric, math.nan)) for metric in metrics)


def similar_runs(store: Store, experiment: Experiment) -> list[str]:
    """Return earlier runs from which an experiment can learn, the best ones first.

    These are the latest runs with the same objectives and at least four complete trials that are
    configurations of its space. Runs with the same model and data, or the same function or command,
    come first.

    Args:
        store: The store that holds the earlier runs.
        experiment: The experiment to teach.
    """
    similar: list[tuple[bool, str]] = []
    candidates = 0
    for row, earlier in readable_experiments(store):
        run_id = row.run_id
        if candidates >= _MAX_LOOKED_AT:
            break
        if _goals(earlier) != _goals(experiment):
            continue
        if not set(experiment.search.root) & set(earlier.search.root):
            continue
        candidates += 1
        try:
            priors = prior_trials(store, run_id, experiment)
        except ExperimentError:
            continue
        if sum(prior.state == "complete" for prior in priors) >= _MIN_TRIALS:
            is_other = _what_is_trained(earlier) != _what_is_trained(experiment)
            similar.append((is_other, run_id))
    return [run_id for _, run_id in sorted(similar, key=itemgetter(0))[:_MAX_TAKEN]]


def inherited_repeats(store: Store, run_id: str, history: History) -> RepeatsInherited | None:
    """Return trainings of earlier runs that show the noise of a new one.

    These are configurations that were trained more than once by the latest runs with the same
    objective, the same model and data, or the same function or command, and with the same code.
    Other code may be much noisier, whatever it is called.

    Args:
        store: The store that holds the earlier runs.
        run_id: The new run.
        history: Its history, which knows its code.

    Returns:
        None with several objectives, or if nothing was trained more than once.
    """
    # It needs SciPy, which a launcher may lack.
    from workbench.store.history.noise_floor import budget_of, trainings_by_configuration

    experiment = history.experiment
    objective, *others = experiment.objectives
    code = {event.code_sha256 for event in history.programs}
    if others or len(code) != 1:
        return None
    metric = objective.metric
    groups: list[RepeatedTraining] = []
    seen: set[tuple[int, float]] = set()  # runs with the same settings have the same trainings
    run_ids: list[str] = []
    for row, earlier in readable_experiments(store, limit=_MAX_LOOKED_AT):
        earlier_id = row.run_id
        if earlier_id == run_id or not _has_same_noise(earlier, experiment):
            continue
        if not (earlier.repeats > 1 or earlier.confirm.best or _was_confirmed(store, earlier_id)):
            continue
        stored_events = store.events(earlier_id, types=_OF_TRAININGS)
        earlier_history = History.of(earlier, (stored.event for stored in stored_events))
        same_code = {
            event.version for event in earlier_history.programs if event.code_sha256 in code
        }
        repeated = [
            RepeatedTraining(
                values=[trial.values[metric] for trial in group],
                seeds=[trial.seed for trial in group],
                num_steps=budget_of(group),
            ).without(seen)
            for (_, version), group in trainings_by_configuration(earlier_history, metric).items()
            if version in same_code
        ]
        repeated = [group for group in repeated if len(group.values) > 1]
        if repeated:
            run_ids.append(earlier_id)
            groups += repeated
        for group in repeated:
            seen.update(zip(group.seeds, group.values, strict=True))
        if len(groups) >= _MAX_GROUPS or len(run_ids) == _MAX_TAKEN:
            break
    if not groups:
        return None
    return RepeatsInherited(from_run_ids=run_ids, groups=groups[:_MAX_GROUPS])


def readable_experiments(
    store: Store, limit: int | None = None
) -> Iterator[tuple[RunRow, Experiment]]:
    """Yield runs and their experiments, the newest first.

    Args:
        store: The store.
        limit: How many runs are looked at, or None for all.
    """
    for row in store.runs(limit=limit):
        try:
            yield row, store.experiment(row.run_id)
        except (StoreError, RunError):  # written by another version, or damaged
            continue


def _goals(experiment: Experiment) -> list[tuple[str, Goal]]:
    return [(item.metric, item.goal) for item in experiment.objectives]


def _was_confirmed(store: Store, run_id: str) -> bool:
    """Return whether a run was extended to train its best configurations again."""
    changes = store.events(run_id, types=["settings_changed"])
    return any(CONFIRM in stored.event.settings for stored in changes)  # type: ignore[union-attr]


def _has_same_noise(earlier: Experiment, experiment: Experiment) -> bool:
    """Return whether the trainings of an earlier experiment differ as those of this one."""
    return _goals(earlier) == _goals(experiment) and _what_is_trained(earlier) == _what_is_trained(
        experiment
    )


def _what_is_trained(experiment: Experiment) -> list[object]:
    return [experiment.model, experiment.data, experiment.train, experiment.command]


def _modes(experiment: Experiment) -> list[Mode]:
    return [mode_of(experiment, objective) for objective in experiment.objectives]


def recorded_proposals(store: Store, run_id: str) -> ReplayPlanned:
    """Return the proposals of a run in their order, as the plan of a replay.

    Args:
        store: The store that holds the run.
        run_id: The run.

    Raises:
        RunNotFoundError: If the store holds no such run.
        RunError: If it has proposed nothing.
    """
    run_id = store.run(run_id).run_id
    events = [stored.event for stored in store.events(run_id, types=["trial_proposed"])]
    proposals = [event for event in events if isinstance(event, TrialProposed)]
    if not proposals:
        raise RunError(f"run {run_id} has no proposals to try again")
    if any(event.clone is not None and event.clone.inherits for event in proposals):
        proposals = _with_branches(store, run_id, proposals)
    return ReplayPlanned(of_run_id=run_id, proposals=proposals)


def _with_branches(
    store: Store, run_id: str, proposals: Iterable[TrialProposed]
) -> list[TrialProposed]:
    """Return proposals whose clones name the step at which they really left their parents.

    When a clone was requested, its parent was training, and may have saved a later checkpoint.
    """
    begun: dict[int, TrialPlanned] = {}
    steps: defaultdict[int, list[int]] = defaultdict(list)
    for stored in store.events(run_id, types=["trial_planned", "trial_reported"]):
        event = stored.event
        if isinstance(event, TrialPlanned) and event.begins_step is not None:
            begun.setdefault(event.trial, event)
        elif isinstance(event, TrialReported):
            steps[event.trial].append(event.step)

    def correct(proposal: TrialProposed) -> TrialProposed:
        clone = proposal.clone
        if clone is None or not clone.inherits:
            return proposal
        if (planned := begun.get(proposal.trial)) is not None:
            begins: dict[str, Any] = {"step": planned.begins_step, "epoch": planned.begins_epoch}
        else:
            # A function or a program continues after the last step that it has saved.
            first = min(steps[proposal.trial], default=clone.step + 1)
            before = [step for step in steps[clone.of] if step < first]
            begins = {"step": max(before, default=clone.step)}
        begins["branch"] = begins["step"]
        return proposal.model_copy(update={"clone": clone.model_copy(update=begins)})

    return [correct(proposal) for proposal in proposals]
