"""Which trainings of stored runs show whether a candidate is better than a baseline.

A side is a trial with all repeats of its configuration. What chose a configuration among others
does not count as a result, because the best of many was also lucky. The noise floor comes from all
runs of the store that optimize the same metric on the same data.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from workbench.experiment.code_versions import CODE
from workbench.experiment.goals import LATENCY, SIZE, Goal
from workbench.foundation.errors import ArgumentError, ExperimentError, RunError, StoreError
from workbench.foundation.events import TrialReported, VersionJudged
from workbench.foundation.formatting import (
    duration_argument_s,
    format_bytes,
    format_count,
    format_duration,
    format_percent,
    parse_bytes,
)
from workbench.runs.decisions import (
    Judgement,
    Limits,
    Training,
    compare_trainings,
    decide_from_files,
    read_floor,
)
from workbench.runs.descriptions import find_trial
from workbench.runs.run import Run, attach
from workbench.store.database import Store
from workbench.store.history import History, Trial
from workbench.store.history.noise_floor import (
    RepeatedTrainings,
    budget_of,
    trainings_by_configuration,
)
from workbench.store.history.sequential_test import ERROR, MAX_RUNS, Verdict

_MAX_RUNS_READ = 50
"""The floor comes from the newest runs only, to save time."""


def decide(
    baseline: Run | str | Path,
    candidate: Run | str | Path,
    floor: str | Path | None = None,
    *,
    metric: str | None = None,
    goal: Goal | None = None,
    error: float = ERROR,
    max_runs: int = MAX_RUNS,
    session: str | None = None,
    constraints: Mapping[str, str] | None = None,
    store: Store | str | None = None,
) -> Judgement:
    """Decide whether a candidate is better than a baseline, or whether it needs more runs.

    You may call it after every run of the candidate, up to `max_runs`. Over all calls, a wrong
    claim has at most the probability `error`.

    Args:
        baseline: A run, or RUN, RUN/best, RUN/NUMBER or RUN/VERSION of the code. Without a trial,
            the best one is meant. Or a CSV file with the columns run, step and value.
        candidate: The same for the candidate.
        floor: A CSV file of repeated runs for the noise floor, with the columns group, run, step,
            and val_loss or value. Runs of a store also have the repeats in the store.
        metric: Runs: what is compared. By default the objective, if there is only one.
        goal: Files: whether smaller or larger values are better. By default `minimize`.
        error: Allowed probability of a wrong claim over all looks, above 0 and below 0.5.
        max_runs: Limit for the runs of the candidate.
        session: The name of a session. Its proposals share the error.
        constraints: Runs: what the candidate may cost, such as `{"slower": "5%", "size": "1GB"}`.
            See `decide_from_runs`.
        store: The store of the runs, or None for the default one.

    Raises:
        ArgumentError: If an argument is not allowed.
        DataError: If a file cannot be read. The error has the line and the column.
        RunNotFoundError: If there is no such run.

    Example:
        >>> wb.decide(f"{run.run_id}/0", f"{run.run_id}/1").decision
        'more'
    """
    repeated = None if floor is None else Path(floor)
    address = store.url if isinstance(store, Store) else store
    limits = Limits(error, max_runs, session, address)
    first, second = _file_of(baseline), _file_of(candidate)
    if first is not None and second is not None:
        for field, value in (("metric", metric), ("constraints", constraints)):
            if value:
                raise ArgumentError(
                    "a file has one column of values", field=field, allowed="only for runs"
                )
        return decide_from_files(first, second, repeated, goal=goal or "minimize", limits=limits)
    if isinstance(baseline, Path) or isinstance(candidate, Path) or first or second:
        raise ArgumentError(
            "one side is a file, and the other one is a run",
            field="candidate",
            allowed="two runs, or two CSV files",
        )
    if goal is not None:
        raise ArgumentError("runs have their own goal", field="goal", allowed="only for files")
    return decide_from_runs(
        baseline,
        candidate,
        repeated,
        metric=metric,
        limits=limits,
        constraints=constraints,
        store=store,
    )


def _file_of(side: Run | str | Path) -> Path | None:
    if isinstance(side, Path):
        return side
    if isinstance(side, str) and side.lower().endswith(".csv"):
        return Path(side)
    return None


@dataclass(frozen=True)
class _Side:
    """One of the trials that are compared."""

    label: str
    run: Run
    history: History
    trial: Trial
    version: str | None = None
    """The version of the code whose best configuration the trial has, or None."""

    @property
    def name(self) -> str:
        if self.version is not None:
            return f"{self.version} of {self.run.name}"
        return f"trial {self.trial.number} of {self.run.name}"

    def trainings(self) -> tuple[list[Trial], list[str]]:
        """Return the trainings that count, and notes about the others."""
        trial, history = self.trial, self.history
        same = [
            other
            for other in history.trainings_of(trial.configuration)
            if other.program == trial.program and other.fidelity is None
        ]
        notes: list[str] = []
        inherited = [other for other in same if other.inherits]
        if inherited:
            same = [other for other in same if other not in inherited]
            notes.append(
                f"{self.label}: {format_count(len(inherited), 'clone')} continued from the weights"
                " of another trial, so the result is not that of this configuration and does not"
                " count"
            )
        failed = [other for other in same if other.state == "failed" and not _is_diverged(other)]
        if failed:
            notes.append(
                f"{self.label}: {format_count(len(failed), 'training')} failed with an error, which"
                " is no result"
            )
        if not self._was_chosen():
            return [other for other in same if other not in failed], notes
        later = [
            other
            for other in same
            if other.repeat >= history.experiment.repeats and other not in failed
        ]
        if not later:
            tried = format_count(history.num_different_configurations(), "configuration")
            notes.append(
                f"{self.label}: {self.name} was chosen as the best of {tried}, so its own result"
                " was also lucky and does not count."
                + (
                    " Train it again in its own program with another seed, and import the result"
                    if history.is_imported
                    else " Train it again with extend --confirm 1"
                )
            )
        return later, notes

    def _was_chosen(self) -> bool:
        """Whether it is the best of several configurations."""
        if self.version is not None:
            groups = _of_version(self.history, self.version).values()
            return len({self.history.key_of(trials[0]) for trials in groups}) > 1
        best, key_of = self.history.best(), self.history.key_of
        if best is None or key_of(best) != key_of(self.trial):
            return False
        return len({key_of(trial) for trial in self.history.in_state("complete")}) > 1


def decide_from_runs(
    baseline: Run | str,
    candidate: Run | str,
    floor: Path | None = None,
    *,
    metric: str | None = None,
    limits: Limits | None = None,
    constraints: Mapping[str, str] | None = None,
    store: Store | str | None = None,
) -> Judgement:
    """Decide whether a trial is better than another one, from all their trainings.

    Args:
        baseline: A run, or RUN, RUN/best or RUN/NUMBER. Without a trial, the best one is meant.
        candidate: The other one. Both may be trials of the same run.
        floor: A CSV file with more repeated trainings for the noise floor.
        metric: What is compared. By default the objective, if there is only one.
        limits: The error, the number of runs, and the session.
        constraints: What the candidate may cost: `slower` than the baseline (such as 5%), `size`
            of the model (such as 1GB), and `latency` (such as 5ms). They do not change the
            decision: a candidate that is better and costs more is reported as that.
        store: The store of the runs.

    Raises:
        ArgumentError: If there is no such trial, the metrics differ, or a limit is not allowed.
        RunNotFoundError: If there is no such run.
    """
    sides = [
        _find_side("baseline", baseline, store),
        _find_side("candidate", candidate, store),
    ]
    name, goal = _shared_objective(sides, metric)
    if all(_key(side) == _key(sides[0]) for side in sides):
        raise ArgumentError(
            "both are trainings of the same configuration",
            field="candidate",
            allowed="a trial with another configuration",
        )
    counted = [side.trainings() for side in sides]
    trainings = [_trainings(side, used[0], name) for side, used in zip(sides, counted, strict=True)]
    budgets = [budget_of(used[0]) for used in counted]
    repeated = _repeated(sides, name, goal)
    if floor is not None:
        repeated += read_floor(floor)
    budget = max((length for length in budgets if length), default=None)
    judgement = compare_trainings(
        trainings[0],
        trainings[1],
        repeated,
        budget=budget,
        goal=goal,
        limits=limits,
    )
    notes = [note for used in counted for note in used[1]]
    notes += _differences(sides, [used[0] for used in counted])
    return replace(
        judgement,
        notes=(*notes, *judgement.notes),
        broken=_broken([used[0] for used in counted], constraints or {}),
    )


def _broken(
    trials: Sequence[Sequence[Trial]], constraints: Mapping[str, str]
) -> tuple[str, ...] | None:
    """Return which constraints the candidate breaks, in words. None without constraints."""
    if not constraints:
        return None
    broken = [_check(name, text, trials) for name, text in constraints.items()]
    return tuple(words for words in broken if words is not None)


def _check(name: str, text: str, trials: Sequence[Sequence[Trial]]) -> str | None:
    field = f"constraints.{name}"
    if name not in _COSTS:
        raise ArgumentError("this is not a limit", field=field, allowed=_COSTS)
    allowed = _COSTS[name](str(text), field)
    trials = [[trial for trial in side if trial.state == "complete"] for side in trials]
    if not all(trials):  # there is no decision yet either
        return None
    if name == "slower":
        speeds = [_median([trial.samples_per_s for trial in side], field) for side in trials]
        slower = speeds[0] / speeds[1] - 1
        if slower <= allowed:
            return None
        return f"it is {format_percent(slower)} slower than the baseline (allowed: {text})"
    metric, write = _METRICS[name]
    cost = _median([trial.values.get(metric) for trial in trials[1]], field)
    if cost <= allowed:
        return None
    return f"its {name} is {write(cost)} (allowed: {text})"


def _median(values: Iterable[float | None], field: str) -> float:
    known = [value for value in values if value is not None and math.isfinite(value) and value > 0]
    if not known:
        raise ArgumentError(
            "this was not measured in the trainings",
            field=field,
            next_step="Size and latency are measured if the experiment has a constraint on them.",
        )
    return median(known)


def _share(text: str, field: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", text.strip())
    if match is None:
        raise ArgumentError(f"{text!r} is not valid", field=field, allowed="a share such as 5%")
    return float(match[1]) / 100


def _bytes(text: str, field: str) -> float:
    try:
        return float(parse_bytes(text))
    except ExperimentError as error:
        raise error.about(field) from error


def _seconds(text: str, field: str) -> float:
    return duration_argument_s(text, field=field)


_COSTS: dict[str, Callable[[str, str], float]] = {
    "slower": _share,
    "size": _bytes,
    "latency": _seconds,
}
"""The limits that a candidate may have, and how their texts are read."""
_METRICS: dict[str, tuple[str, Callable[[float], str]]] = {
    "size": (SIZE, format_bytes),
    "latency": (LATENCY, format_duration),
}


def _find_side(label: str, given: Run | str, store: Store | str | None) -> _Side:
    number: int | None = None
    if isinstance(given, Run):
        run = given
    else:
        name, separator, trial = given.partition("/")
        run = attach(name, store=store)
        versions = run.experiment.search.code_versions
        if trial in versions:
            return _side_of_version(label, run, trial)
        if separator and trial != "best" and not trial.isdecimal():
            names = "".join(f", {name}/{version}" for version in versions)
            raise ArgumentError(
                f"{trial!r} is not a trial",
                field=label,
                allowed=f"RUN, RUN/best, or RUN/NUMBER{names}",
            )
        if separator and trial != "best":
            number = int(trial)
    history = run.history
    best = run.best if number is None else find_trial(history, number, field=label)
    if best is None:
        raise ArgumentError(
            f"{run.name} has no complete trial yet",
            field=label,
            next_step="Name a trial as RUN/NUMBER, or wait for the first one.",
        )
    return _Side(label, run, history, best)


def _side_of_version(label: str, run: Run, version: str) -> _Side:
    """Return the side of a version: the configuration that was its best in the search.

    Later repeats do not choose it, because they decide.
    """
    history, objective = run.history, run.history.objectives[0]
    means = {
        trials[0].configuration: sum(trial.values[objective.metric] for trial in trials)
        / len(trials)
        for trials in _of_version(history, version).values()
    }
    if not means:
        raise ArgumentError(
            f"{version} has no complete trial yet",
            field=label,
            next_step="Wait for the first one, or add one: workbench enqueue.",
        )
    choose = min if objective.goal == "minimize" else max
    best = choose(means, key=lambda number: means[number])
    return _Side(label, run, history, history.trainings_of(best)[0], version)


def _of_version(history: History, version: str) -> dict[int, list[Trial]]:
    """Return the complete, feasible trials of the search by configuration, of one version."""
    metric = history.objectives[0].metric
    trials: dict[int, list[Trial]] = {}
    for trial in history.in_state("complete"):
        if trial.params.get(CODE) != version or trial.repeat >= history.experiment.repeats:
            continue
        if history.is_feasible(trial) and math.isfinite(trial.values.get(metric, math.nan)):
            trials.setdefault(trial.configuration, []).append(trial)
    return trials


@dataclass(frozen=True)
class VersionDecision:
    """The decision about a version of the code.

    Attributes:
        baseline: The name of the version with which it is compared.
        candidate: The name of the version.
        words: The decision in words, or why there is none, without a full stop.
        decision: Its value. None if one of them has no complete trial.
        effect: The improvement, or None.
        low: Its lower bound, or None.
        high: Its upper bound, or None.
        verdict: What a person decided last. None if nobody has.
    """

    baseline: str
    candidate: str
    words: str
    decision: Verdict | None = None
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: VersionJudged | None = None

    def describe(self) -> str:
        """Describe the decision, and what a person decided, in one line."""
        text = f"{self.candidate} compared with {self.baseline}: {self.words}"
        if self.verdict is not None:
            text += f". {self.verdict.by} {self.verdict.verdict} it"
        return text


def decide_versions(run: Run, *, error: float = ERROR) -> list[VersionDecision]:
    """Decide for each version of the code of a run whether it is better than the first one.

    Only fresh trainings of the best configurations count. The versions share the error. Decisions
    about the proposals of an agent are those that it asked for.

    Args:
        run: A run that searches versions of its code. Without versions, the list is empty.
        error: Allowed probability of a wrong claim over all versions.

    Example:
        >>> from workbench.runs.trial_decisions import decide_versions
        >>> decide_versions(run)
        []
    """
    names, history = list(run.experiment.search.code_versions), run.history
    judged = history.judged_versions
    decisions = [
        VersionDecision(
            event.baseline,
            event.version,
            event.words,
            event.decision,
            event.effect,
            low=event.low,
            high=event.high,
            verdict=judged.get(event.version),
        )
        for event in history.decided_versions.values()
    ]
    if len(run.experiment.objectives) > 1:
        return decisions
    for name in names[1:]:
        decision = VersionDecision(names[0], name, "", verdict=judged.get(name))
        try:
            judgement = decide_from_runs(
                f"{run.run_id}/{names[0]}",
                f"{run.run_id}/{name}",
                limits=Limits(error / (len(names) - 1)),
                store=run.store,
            )
        except ArgumentError as problem:
            decisions.append(replace(decision, words=problem.problem))
            continue
        decisions.append(
            replace(
                decision,
                words=judgement.sentence,
                decision=judgement.decision,
                effect=judgement.effect,
                low=judgement.low,
                high=judgement.high,
            )
        )
    return decisions


def describe_decisions(store: Store, run_id: str) -> list[str]:
    """Return a line for the decision about each version of the code of a run.

    Args:
        store: The store of the run.
        run_id: The run.
    """
    return [decision.describe() for decision in decide_versions(Run(store, run_id))]


def _key(side: _Side) -> tuple[str, int, int]:
    return side.run.run_id, side.trial.configuration, side.trial.program


def _shared_objective(sides: Sequence[_Side], metric: str | None) -> tuple[str, Goal]:
    """Return the compared metric and its goal, which both sides must share."""
    goals: list[dict[str, Goal]] = [
        {item.metric: item.goal for item in side.history.objectives} for side in sides
    ]
    shared = [name for name, goal in goals[0].items() if goals[1].get(name) == goal]
    allowed = ", ".join(shared) or "runs with an objective in common"
    if metric is not None and metric not in shared:
        raise ArgumentError(
            f"{metric!r} is not an objective of both runs", field="metric", allowed=allowed
        )
    if metric is None and len(shared) != 1:
        problem = "choose one of several objectives" if shared else "the objectives differ"
        raise ArgumentError(problem, field="metric", allowed=allowed)
    name = metric or shared[0]
    return name, goals[0][name]


def _is_diverged(trial: Trial) -> bool:
    return trial.state == "failed" and trial.reason == "diverged"


def _trainings(side: _Side, trials: Iterable[Trial], metric: str) -> list[Training]:
    trainings: list[Training] = []
    for trial in trials:
        result: float | None = None
        if trial.state == "complete":
            result = trial.values.get(metric, math.nan)
        elif _is_diverged(trial):
            result = math.nan
        elif trial.state == "waiting":
            continue
        curve = _curve(side.run, trial.number, metric)
        trainings.append(Training(f"trial {trial.number}", curve, result))
    return trainings


def _curve(run: Run, number: int, metric: str) -> dict[int, float]:
    reports = run.store.events(run.run_id, trial=number, types=["trial_reported"])
    return {
        stored.event.step: stored.event.values[metric]
        for stored in reports
        if isinstance(stored.event, TrialReported) and metric in stored.event.values
    }


def _repeated(sides: Sequence[_Side], metric: str, goal: Goal) -> list[RepeatedTrainings]:
    """Return the repeated trainings of comparable runs, without those that are compared."""
    compared = {_key(side) for side in sides}
    data = [side.history.experiment.data for side in sides]
    read = {side.run.run_id: side.history for side in sides}
    store = sides[0].run.store
    for row in store.runs(limit=_MAX_RUNS_READ):
        try:
            experiment = store.experiment(row.run_id)
        except (StoreError, RunError):  # written by another version, or damaged
            continue
        goals = {item.metric: item.goal for item in experiment.objectives}
        if row.run_id not in read and goals.get(metric) == goal and experiment.data in data:
            read[row.run_id] = Run(store, row.run_id).history
    return [
        RepeatedTrainings([trial.values[metric] for trial in group], budget_of(group))
        for run_id, history in read.items()
        for key, group in trainings_by_configuration(history, metric).items()
        if (run_id, *key) not in compared
    ]


def _differences(sides: Sequence[_Side], trials: Sequence[Sequence[Trial]]) -> list[str]:
    """Return notes on differences between both sides other than the candidate's change."""
    notes: list[str] = []
    first, second = (side.history.experiment for side in sides)
    if first.data != second.data:
        notes.append("the data of both runs differ, so their metrics may not be comparable")
    lengths = [budget_of(used) for used in trials]
    if all(lengths) and lengths[0] != lengths[1]:
        notes.append(
            f"the baseline trained for {lengths[0]:,} steps and the candidate for {lengths[1]:,}"
        )
    hosts = [_hosts(side, used) for side, used in zip(sides, trials, strict=True)]
    if all(hosts) and hosts[0] != hosts[1]:
        notes.append(
            f"the machines differ: {', '.join(sorted(hosts[0]))} for the baseline,"
            f" {', '.join(sorted(hosts[1]))} for the candidate"
        )
    versions = [side.history.drivers[-1].versions if side.history.drivers else {} for side in sides]
    changed = [
        f"{name} {versions[0][name]} and {versions[1][name]}"
        for name in sorted(versions[0].keys() & versions[1].keys())
        if versions[0][name] != versions[1][name]
    ]
    if changed:
        notes.append(f"library versions differ: {', '.join(changed)}")
    return notes


def _hosts(side: _Side, trials: Iterable[Trial]) -> set[str]:
    """Return the machines of the trainings, or of the driver if they are unknown."""
    return {host for trial in trials for host in trial.hosts} or {
        driver.host for driver in side.history.drivers
    }
