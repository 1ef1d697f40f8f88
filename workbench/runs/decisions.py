"""Decide whether a candidate is better than a baseline, from the curves of their trainings.

The trainings come from CSV files. The statistics are in `store.history.sequential_test`. What is
here says which trainings have finished, what a diverged one means, and what the curves of
unfinished ones tell.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from workbench.advisor.measurement_tables import Column, read_heads, read_objects, written_number
from workbench.experiment.goals import Goal, sign_of
from workbench.foundation.errors import ArgumentError, DataError
from workbench.foundation.formatting import format_count, format_number, format_percent
from workbench.store.decision_sessions import Proposal, enter_proposal, sessions_folder
from workbench.store.history.noise_floor import NoiseFloor, RepeatedTrainings, noise_floor_of
from workbench.store.history.sequential_test import (
    ERROR,
    MAX_RUNS,
    CurveEvidence,
    Decision,
    check_limits,
    decide,
)

_VALUE_NAMES = ("value", "val_loss")
# Degrees of freedom that a regression of the results on earlier values needs.
_MIN_REGRESSION_DEGREES = 3
_MAX_NAMED = 3
_UNLIKE_SPREADS = 0.01


@dataclass(frozen=True)
class Training:
    """One training of the baseline or of the candidate.

    Attributes:
        name: Its name for messages, such as `run 3`.
        curve: Values of the metric by step.
        result: Its last value. None if it has not finished, NaN if it diverged.
    """

    name: str
    curve: Mapping[int, float]
    result: float | None

    @property
    def is_diverged(self) -> bool:
        """Whether it ended without a finite value."""
        return self.result is not None and not math.isfinite(self.result)

    def shifted(self, exponent: int) -> Training:
        """Return the training with its values times a power of two."""
        curve = {step: _shifted(value, exponent) for step, value in self.curve.items()}
        result = None if self.result is None else _shifted(self.result, exponent)
        return replace(self, curve=curve, result=result)


@dataclass(frozen=True)
class Limits:
    """What a decision may cost.

    Attributes:
        error: Allowed probability of a wrong claim over all looks, above 0 and below 0.5. In a
            session, over all its proposals.
        max_runs: Limit for the candidate runs.
        session: The name of the session, or None.
        store: The address of the store next to which sessions are kept, or None for the default.

    Raises:
        ArgumentError: If one of them is not allowed.
    """

    error: float = ERROR
    max_runs: int = MAX_RUNS
    session: str | None = None
    store: str | None = None

    def __post_init__(self) -> None:
        check_limits(self.error, self.max_runs)

    def enter(
        self, baseline: Sequence[Training], candidate: Sequence[Training], budget: float | None
    ) -> Proposal:
        """Return the place of a proposal in the session, by the results of both sides."""
        results = [
            hashlib.sha256(
                repr((training.name, training.result, sorted(training.curve.items()))).encode()
            ).hexdigest()
            for training in (*baseline, *candidate)
            if training.result is not None
        ]
        assert self.session is not None
        return enter_proposal(
            self.session,
            results,
            RepeatedTrainings(_results(candidate, 1.0), budget),
            error=self.error,
            max_runs=self.max_runs,
            folder=sessions_folder(self.store),
        )


@dataclass(frozen=True)
class Judgement(Decision):
    """A decision, and what it is based on.

    Attributes:
        num_baseline: Number of results of the baseline, with those that diverged.
        num_candidate: Number of results of the candidate, with those that diverged, at most the
            limit.
        error: The allowed probability of a wrong claim.
        floor: The noise floor, or None.
        notes: What was not used, and why, as sentences without their full stops.
        broken: Constraints that the candidate breaks, in words. None if there are no constraints.
        needs_baseline: Whether no number of candidate runs could lead to a decision.
    """

    num_baseline: int
    num_candidate: int
    error: float
    floor: NoiseFloor | None
    notes: tuple[str, ...]
    broken: tuple[str, ...] | None = None
    needs_baseline: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return what `workbench decide --json` prints, as plain values."""
        plain = {item.name: getattr(self, item.name) for item in fields(Decision)}
        if self.broken is not None:
            plain["broken"] = list(self.broken)
        return plain

    def describe(self) -> list[str]:
        """Return lines of text: the decision, the numbers, and their basis."""
        lines = [_headline(self)]
        if self.effect is not None:
            lines.append(_describe_effect(self, self.effect))
        lines.append(self._describe_basis())
        return lines

    @property
    def sentence(self) -> str:
        """The decision and the improvement, without the last full stop."""
        lines = [_headline(self)]
        if self.effect is not None:
            lines.append(_describe_effect(self, self.effect))
        return " ".join(lines).removesuffix(".")

    def _describe_basis(self) -> str:
        basis = (
            f"Based on {format_count(self.num_baseline, 'run')} of the baseline and"
            f" {format_count(self.num_candidate, 'run')} of the candidate"
        )
        if self.floor is None and self.low is None:
            return f"{basis}, without a noise floor."
        if self.floor is None:
            return f"{basis}. Without a noise floor, the spread comes from these runs alone."
        return (
            f"{basis}, and on a noise floor of"
            f" {format_count(self.floor.num_groups, 'group')} with"
            f" {format_count(self.floor.num_trainings, 'run')}. A standard deviation of"
            f" {format_number(self.floor.deviation)} is typical there."
        )


def _headline(decision: Judgement) -> str:
    if decision.decision == "better" and decision.broken:
        return f"better, but {' and '.join(decision.broken)}."
    if decision.decision == "better":
        return "better: accept the candidate."
    if decision.decision == "not better":
        return "not better: keep the baseline."
    if decision.num_baseline == 0:
        return "more: no decision yet. The baseline has no result, so train it first."
    if decision.needs_baseline:
        return "more: no decision yet. The baseline diverged once, so train it again."
    if decision.effect is not None and decision.low is None:
        return "more: no decision yet. Repeat the baseline, or add a floor."
    expected = format_count(decision.more_runs, "more run")
    return f"more: no decision yet. Expect {expected} of the candidate."


def _describe_effect(judgement: Judgement, effect: float) -> str:
    text = f"Improvement: {format_number(effect)}"
    low, high = judgement.low, judgement.high
    if low is None or high is None:
        return f"{text}. One run does not show how much such runs differ."
    if low == high:
        return f"{text}. All runs of a side have the same result, so their spread is unknown."
    known = [
        f"{word} {format_number(bound)}"
        for word, bound in (("at least", low), ("at most", high))
        if math.isfinite(bound)
    ]
    confidence = f"with {format_percent(1 - judgement.error)} confidence at every look"
    bounds = f"{text}, {' and '.join(known)} {confidence}."
    if len(known) == 2:
        bounds = f"{text}, between {format_number(low)} and {format_number(high)} {confidence}."
    elif not known:
        bounds = f"{text}. So few runs give no bounds for it."
    return (
        f"{bounds} The candidate is better with a probability of {_percent(judgement.probability)}."
    )


def _percent(probability: float) -> str:
    if probability > 0.999:
        return "over 99.9%"
    if probability < 0.001:
        return "under 0.1%"
    return format_percent(probability, has_tenths=True)


def decide_from_files(
    baseline: Path,
    candidate: Path,
    floor: Path | None = None,
    *,
    goal: Goal = "minimize",
    limits: Limits | None = None,
) -> Judgement:
    """Decide whether a candidate is better than a baseline, from CSV files.

    The largest step of both files is the budget. A run that ends earlier is unfinished.

    Args:
        baseline: Trainings of the baseline, with the columns run, step and value.
        candidate: Trainings of the candidate, with the same columns.
        floor: Repeated trainings, with the columns group, run, step, and val_loss or value.
        goal: Whether smaller or larger values are better.
        limits: The error, the number of runs, and the session.

    Raises:
        DataError: If a file cannot be read. The error has the line and the column.
        ArgumentError: If `goal` is not allowed, or the session has other settings.
    """
    curves = [read_curves(baseline), read_curves(candidate)]
    budget = max(max(curve) for side in curves for curve in side.values())
    sides = [_trainings(side, budget) for side in curves]
    repeated = [] if floor is None else read_floor(floor)
    judgement = compare_trainings(
        sides[0], sides[1], repeated, budget=budget, goal=goal, limits=limits
    )
    if floor is None or noise_floor_of(repeated) is not None:
        return judgement
    note = f"{floor} is not used: no group has two finished runs with different results"
    return replace(judgement, notes=(note, *judgement.notes))


def read_curves(path: Path) -> dict[str, dict[int, float]]:
    """Read the curves of trainings from a CSV file.

    Args:
        path: A file with the columns run, step, and value or val_loss.

    Returns:
        The values by step, by run in the order of the file. NaN and infinity are allowed.

    Raises:
        DataError: If the file cannot be read, is empty, or has a step twice.
    """
    return {run: curve for (_, run), curve in _read(path).items()}


def read_floor(path: Path) -> list[RepeatedTrainings]:
    """Read groups of repeated trainings from a CSV file.

    The last step of a group is its budget. Only runs that reach it with a finite value count.

    Args:
        path: A file with the columns group, run, step, and val_loss or value.

    Raises:
        DataError: If the file cannot be read, is empty, or has a step twice.
    """
    groups: dict[str, list[dict[int, float]]] = {}
    for (group, _), curve in _read(path, _GROUP).items():
        groups.setdefault(group, []).append(curve)
    repeated: list[RepeatedTrainings] = []
    for curves in groups.values():
        last = max(max(curve) for curve in curves)
        values = [curve[last] for curve in curves if math.isfinite(curve.get(last, math.nan))]
        repeated.append(RepeatedTrainings(values, float(last)))
    return repeated


def _read(path: Path, *more: Column) -> dict[tuple[str, str], dict[int, float]]:
    """Return the values by step, by group and run."""
    name = _value_name(path)
    curves: dict[tuple[str, str], dict[int, float]] = {}

    def add(row: dict[str, Any]) -> None:
        curve = curves.setdefault((row.get("group", ""), row["run"]), {})
        if row["step"] in curve:
            raise DataError(
                f"run {row['run']} has step {row['step']} twice",
                field="step",
                allowed="one row for each step of a run",
            )
        curve[row["step"]] = row[name]

    read_objects(path, add, *more, _RUN, _STEP, Column(name, _value))
    if not curves:
        raise DataError(f"{path} contains no runs", allowed="at least one row")
    return curves


def _value_name(path: Path) -> str:
    heads = read_heads(path)
    present = [name for name in _VALUE_NAMES if name in heads]
    if len(present) > 1:
        raise DataError(
            f"{path} has both columns {' and '.join(present)}",
            field=present[0],
            allowed="one of them",
            next_step="Remove the column that is not compared.",
        )
    return present[0] if present else _VALUE_NAMES[0]


def _name(cell: str) -> str:
    if not cell:
        raise ValueError("a name or a number")
    return cell


def _step(cell: str) -> int:
    try:
        number = written_number(cell)
    except ValueError:
        number = math.nan
    if not (number >= 0 and number.is_integer()):
        raise ValueError("a whole number from 0")
    return int(number)


def _value(cell: str) -> float:
    try:
        return written_number(cell)
    except ValueError:
        raise ValueError("a number, or nan for a run that diverged") from None


_GROUP, _RUN = Column("group", _name), Column("run", _name)
_STEP = Column("step", _step)


def _trainings(curves: Mapping[str, Mapping[int, float]], budget: int) -> list[Training]:
    trainings: list[Training] = []
    for name, curve in curves.items():
        last = curve[max(curve)]
        # A run that ended with NaN is not continued, so it has its result before the budget.
        is_finished = max(curve) == budget or not math.isfinite(last)
        trainings.append(Training(f"run {name}", curve, last if is_finished else None))
    return trainings


def compare_trainings(
    baseline: Sequence[Training],
    candidate: Sequence[Training],
    repeated: Sequence[RepeatedTrainings],
    *,
    budget: float | None,
    goal: Goal,
    limits: Limits | None = None,
) -> Judgement:
    """Decide whether a candidate is better than a baseline.

    A training that diverged is worse than every result. The bounds describe the finite results. If
    the candidate diverges more often than the baseline, it is not better.

    Args:
        baseline: Trainings of the baseline.
        candidate: Trainings of the candidate in the order in which they were started.
        repeated: Trainings of other configurations for the noise floor.
        budget: The length of the trainings, or None if it is unknown.
        goal: Whether smaller or larger values are better.
        limits: The error, the number of runs, and the session.

    Raises:
        ArgumentError: If `goal` is not allowed, or the session has other settings.
    """
    if goal not in ("minimize", "maximize"):
        raise ArgumentError(f"{goal!r} is not valid", field="goal", allowed="minimize, maximize")
    limits = limits or Limits()
    max_runs = limits.max_runs
    sign = sign_of(goal)
    ended = [training for training in candidate if training.result is not None]
    notes = _notes(baseline, candidate, max_runs, budget)
    ended = ended[:max_runs]
    error = limits.error
    if limits.session is not None:
        proposal = limits.enter(baseline, ended, budget)
        error = proposal.error
        repeated = _with_others(repeated, proposal.others, [_results(baseline, 1.0)])
        notes.insert(
            0,
            f"proposal {proposal.number} of the session {limits.session} may spend"
            f" {format_number(error)} of its error {format_number(limits.error)}",
        )
    floor = noise_floor_of(repeated, budget)
    effect = _effect_of(*(_results(side, sign) for side in (baseline, ended)))
    exponent = _exponent_of([*baseline, *ended], floor)
    baseline, candidate, ended = (
        [training.shifted(-exponent) for training in trainings]
        for trainings in (baseline, candidate, ended)
    )
    values = [_results(side, sign) for side in (baseline, ended)]
    decision = decide(
        values[0],
        values[1],
        None if floor is None else _shifted_floor(floor, -exponent),
        error=error,
        max_runs=max_runs,
        curves=_evidence_of_curves(baseline, [*ended, *_unfinished(candidate)], sign),
    )
    failures = _Failures.of(baseline, ended, max_runs, error)
    decision = failures.change(decision)
    bounds = {
        name: _shifted(value, exponent)
        for name in ("low", "high")
        if (value := getattr(decision, name)) is not None
    }
    decision = replace(decision, **bounds, effect=effect)
    notes += _notes_on_spreads(*values, has_floor=floor is not None)
    return Judgement(
        **asdict(decision),
        num_baseline=failures.num_baseline,
        num_candidate=len(ended),
        error=error,
        floor=floor,
        notes=tuple(notes),
        needs_baseline=failures.needs_baseline,
    )


def _exponent_of(trainings: Sequence[Training], floor: NoiseFloor | None) -> int:
    """Return the power of two of the largest result, or of a floor that is larger.

    In its unit, squares are numbers, even if the results are as small as 1e-300 or as large as
    1e300.
    """
    sizes = [abs(result) for result in _results(trainings, 1.0)] or [1.0]
    return math.frexp(max(sizes if floor is None else [*sizes, floor.deviation]))[1]


def _effect_of(baseline: Sequence[float], candidate: Sequence[float]) -> float | None:
    """Return the difference of the means, even if it is tiny next to the floor."""
    if not baseline or not candidate:
        return None
    exponent = math.frexp(max(map(abs, (*baseline, *candidate))))[1]
    means = [
        math.fsum(_shifted(value, -exponent) for value in side) / len(side)
        for side in (baseline, candidate)
    ]
    return _shifted(means[1] - means[0], exponent)


def _shifted(value: float, exponent: int) -> float:
    """Return a value times a power of two, which changes none of its digits."""
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.copysign(math.inf, value)


def _shifted_floor(floor: NoiseFloor, exponent: int) -> NoiseFloor:
    """Return the floor in the unit of the results. It stays above 0."""
    deviation = max(_shifted(floor.deviation, exponent), sys.float_info.min)
    return replace(floor, deviation=deviation)


def _with_others(
    repeated: Sequence[RepeatedTrainings],
    others: Sequence[RepeatedTrainings],
    compared: Sequence[Sequence[float]],
) -> list[RepeatedTrainings]:
    """Add the other proposals of a session to the floor, unless their results are known already."""
    known = [set(group.values) for group in repeated] + [set(values) for values in compared]
    return [
        *repeated,
        *(other for other in others if not any(set(other.values) <= values for values in known)),
    ]


def _results(trainings: Sequence[Training], sign: float) -> list[float]:
    return [
        sign * training.result
        for training in trainings
        if training.result is not None and not training.is_diverged
    ]


def _unfinished(trainings: Sequence[Training]) -> list[Training]:
    return [training for training in trainings if training.result is None]


@dataclass(frozen=True)
class _Failures:
    """How often the trainings of both sides diverged, which is worse than every result.

    Attributes:
        num_baseline: Results of the baseline, with those that diverged.
        num_candidate: Results of the candidate, with those that diverged.
        baseline: How many of the baseline diverged.
        candidate: How many of the candidate diverged.
        max_runs: Limit for the candidate runs.
        error: Allowed probability of a wrong claim over all looks.
    """

    num_baseline: int
    num_candidate: int
    baseline: int
    candidate: int
    max_runs: int
    error: float

    @staticmethod
    def of(
        baseline: Sequence[Training], candidate: Sequence[Training], max_runs: int, error: float
    ) -> _Failures:
        """Count the trainings that diverged."""
        return _Failures(
            num_baseline=sum(training.result is not None for training in baseline),
            num_candidate=len(candidate),
            baseline=sum(training.is_diverged for training in baseline),
            candidate=sum(training.is_diverged for training in candidate),
            max_runs=max_runs,
            error=error,
        )

    @property
    def is_hopeless_baseline(self) -> bool:
        """Whether all runs of the baseline diverged, so that there is no effect to compare."""
        return 0 < self.num_baseline == self.baseline

    @property
    def needs_baseline(self) -> bool:
        """Whether the baseline has too few runs to show that a candidate diverges less often."""
        return self.is_hopeless_baseline and not self._shows_fewer(0, self.max_runs)

    def change(self, decision: Decision) -> Decision:
        """Return a decision about the finite results that also considers those that diverged.

        The candidate may not diverge in a larger part of its runs than the baseline.
        """
        if self.is_hopeless_baseline and self.num_candidate:
            return self._without_results(decision)
        if not self.candidate or not self.num_baseline:
            return decision
        allowed = self.baseline / self.num_baseline
        if self.candidate > allowed * self.max_runs:
            return replace(decision, decision="not better", probability=0.0, more_runs=0)
        if self.num_candidate == self.max_runs and decision.decision != "better":
            return replace(decision, decision="not better", more_runs=0)
        if decision.decision == "better" and self.candidate > allowed * self.num_candidate:
            # More runs without a failure are needed before the shares are equal.
            needed = math.ceil(self.candidate / allowed) - self.num_candidate
            return replace(decision, decision="more", more_runs=needed)
        return decision

    def _without_results(self, decision: Decision) -> Decision:
        """Decide by the numbers of failures alone."""
        probability = self._probability
        if self.needs_baseline:
            return replace(decision, probability=probability)
        enough = [
            runs
            for runs in range(self.num_candidate, self.max_runs + 1)
            if self._shows_fewer(self.candidate, runs)
        ]
        if not enough:
            return Decision(
                decision="not better",
                probability=probability,
                effect=None,
                low=None,
                high=None,
                more_runs=0,
            )
        more_runs = enough[0] - self.num_candidate
        verdict = "more" if more_runs else "better"
        return Decision(
            decision=verdict,
            probability=probability,
            effect=None,
            low=None,
            high=None,
            more_runs=more_runs,
        )

    def _shows_fewer(self, failures: int, runs: int) -> bool:
        """Return whether this many failures in these runs show that the candidate has fewer.

        If both sides diverged equally often, all runs of the baseline would diverge and so few of
        the candidate with a probability that is largest for one share of failures. It must be
        smaller than the part of the error for this number of failures: one half for none, a quarter
        for one, and so on. These parts hold at every look together, because a later look with the
        same number of failures contains the earlier one.
        """
        import numpy as np
        from scipy.special import bdtr

        shares = np.linspace(0, 1, 1001)
        chances = shares**self.num_baseline * bdtr(failures, runs, shares)
        return float(np.max(chances)) <= self.error / 2 ** (failures + 1)

    @property
    def _probability(self) -> float:
        """Probability that the candidate diverges less often, if all shares are equally likely.

        The shares of both sides are order statistics of uniform numbers: the largest of
        `num_baseline` + 1, and one of `num_candidate` + 1. This counts their orders.
        """
        orders = sum(
            math.comb(self.num_baseline + earlier, earlier) for earlier in range(self.candidate + 1)
        )
        total = math.comb(self.num_baseline + self.num_candidate + 2, self.num_baseline + 1)
        return 1 - orders / total


def _notes(
    baseline: Sequence[Training],
    candidate: Sequence[Training],
    max_runs: int,
    budget: float | None,
) -> list[str]:
    steps = "" if budget is None else f" of {format_count(int(budget), 'step')}"
    notes: list[str] = []
    for side, trainings in (("baseline", baseline), ("candidate", candidate)):
        if unfinished := _unfinished(trainings):
            notes.append(
                f"{side}: {_list(unfinished)} did not reach the budget{steps}. A curve sharpens"
                " the probability, but it is not a result"
            )
        if diverged := [training for training in trainings if training.is_diverged]:
            notes.append(
                f"{side}: {_list(diverged)} diverged, which is worse than every result. The effect"
                " and its bounds describe the other runs"
            )
    num_ended = sum(training.result is not None for training in candidate)
    if num_ended > max_runs:
        notes.append(
            f"the candidate has {num_ended} results. Only the first"
            f" {'is' if max_runs == 1 else f'{max_runs} are'} used, because the error is spent by"
            " then"
        )
    return notes


def _notes_on_spreads(
    baseline: Sequence[float], candidate: Sequence[float], *, has_floor: bool
) -> list[str]:
    """Return a note if the spread of the baseline is not known, or differs from the candidate's.

    Source: the F test.
    """
    if len(baseline) == 1 < len(candidate) and not has_floor:
        return [
            "the baseline has one run, so it is assumed to vary as much as the candidate. A"
            " noise floor or a second run of the baseline would show it"
        ]
    if min(len(baseline), len(candidate)) < 2:
        return []
    import numpy as np
    from scipy.special import betainc

    squares = [
        float(np.sum((np.array(side) - np.mean(side)) ** 2)) for side in (baseline, candidate)
    ]
    degrees = [len(side) - 1 for side in (baseline, candidate)]
    if sum(squares) == 0:
        return []
    share = float(betainc(degrees[1] / 2, degrees[0] / 2, squares[1] / sum(squares)))
    if min(share, 1 - share) >= _UNLIKE_SPREADS:
        return []
    wider, narrower = ("candidate", "baseline") if share > 0.5 else ("baseline", "candidate")
    return [
        f"the runs of the {wider} differ much more from each other than those of the {narrower}."
        " Each side counts with its own spread"
    ]


def _list(trainings: Sequence[Training]) -> str:
    names = [training.name for training in trainings[:_MAX_NAMED]]
    if more := len(trainings) - len(names):
        names.append(f"{more} more")
    return ", ".join(names)


def _evidence_of_curves(
    baseline: Sequence[Training], candidate: Sequence[Training], sign: float
) -> CurveEvidence | None:
    """Return what the curves of unfinished trainings say about the effect.

    A result is predicted from the value at the last step that the training shares with all finished
    ones, with their regression within both sides. The mean of results and predictions is the
    estimate with a control variate.

    Source: Lavenberg and Welch, A perspective on the use of control variables, 1981.
    """
    sides = (_Side.of(baseline), _Side.of(candidate))
    if not all(side.finished for side in sides) or not any(side.unfinished for side in sides):
        return None
    means: list[float] = []
    variance = 0.0
    for side in sides:
        mean, part = side.mean_with_curves(sides)
        means.append(mean)
        variance += part
    return CurveEvidence(sign * (means[1] - means[0]), variance)


@dataclass(frozen=True)
class _Side:
    finished: list[Training]
    unfinished: list[Training]

    @staticmethod
    def of(trainings: Sequence[Training]) -> _Side:
        finished = [
            training
            for training in trainings
            if training.result is not None and not training.is_diverged
        ]
        return _Side(finished, _unfinished(trainings))

    def mean_of(self, read: Callable[[Training], float]) -> float:
        return math.fsum(map(read, self.finished)) / len(self.finished)

    def mean_with_curves(self, sides: Sequence[_Side]) -> tuple[float, float]:
        """Return the mean result and its variance if a result had the variance 1."""
        mean = self.mean_of(_result)
        predictions: list[float] = []
        shares: list[float] = []
        for training in self.unfinished:
            step = _shared_step(training, sides)
            slope, share = (0.0, 0.0) if step is None else _regression(sides, step)
            if step is not None and share > 0:
                here = self.mean_of(lambda finished, step=step: finished.curve[step])
                predictions.append(mean + slope * (training.curve[step] - here))
                shares.append(share)
        num = len(self.finished)
        if not predictions:
            return mean, 1 / num
        total = num + len(predictions)
        share = math.fsum(shares) / len(shares)
        return (num * mean + math.fsum(predictions)) / total, (1 - share) / num + share / total


def _result(training: Training) -> float:
    assert training.result is not None
    return training.result


def _shared_step(training: Training, sides: Sequence[_Side]) -> int | None:
    """Return the last step at which an unfinished training and all finished ones have a value."""
    finished = [other.curve for side in sides for other in side.finished]
    for step in sorted(training.curve, reverse=True):
        values = [curve.get(step, math.nan) for curve in (training.curve, *finished)]
        if all(map(math.isfinite, values)):
            return step
    return None


def _regression(sides: Sequence[_Side], step: int) -> tuple[float, float]:
    """Return slope and explained share of variance of results on the values at a step.

    Both are shrunk for the number of trainings, so that chance explains nothing.
    """
    products = squares = results = 0.0
    degrees = -len(sides)
    for side in sides:
        mean, here = side.mean_of(_result), side.mean_of(lambda other: other.curve[step])
        degrees += len(side.finished)
        for training in side.finished:
            away = training.curve[step] - here
            products += away * (_result(training) - mean)
            squares += away**2
            results += (_result(training) - mean) ** 2
    if degrees < _MIN_REGRESSION_DEGREES or squares <= 0 or results <= 0:
        return 0.0, 0.0
    share = products**2 / (squares * results)
    shrunk = 1 - (1 - share) * degrees / (degrees - 1)
    if shrunk <= 0:
        return 0.0, 0.0
    return products / squares * shrunk / share, shrunk
