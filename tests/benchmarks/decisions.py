"""How often edits are judged rightly, beside rules and tests that people use.

Run `python -m tests.benchmarks.decisions [--sessions N]`. It reads repeated trainings from
`repeated_runs/curves.csv` of the public measurements.

A session draws four runs of the baseline and up to six of the candidate, without replacement, from
a group with at least ten finished runs. Its edit changes nothing, or gains two standard deviations
of the group. The candidate is looked at after each run. The noise floor comes from the other
groups. A t-test and Wilcoxon's test look once, at six runs. "Keep if lower" compares one run each.
The numbers are averages over groups.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from scipy import stats

from tests.benchmarks.clocked import describe_machine
from tests.builders.measured import find_measured
from workbench.runs.decisions import read_floor
from workbench.store.history.noise_floor import NoiseFloor, RepeatedTrainings, noise_floor_of
from workbench.store.history.sequential_test import ERROR, MAX_RUNS, decide

RESULTS = Path(__file__).parent / "results" / "decisions.json"
NUM_BASELINE = 4
GAINS = (0.0, 2.0)

Judge = Callable[[Sequence[float], Sequence[float], NoiseFloor | None], tuple[bool, int]]
"""Returns whether an edit is accepted, and after how many runs. Larger values are better."""


@dataclass(frozen=True)
class Score:
    """What a way to judge does.

    Attributes:
        accepted: Share of accepted edits that change nothing.
        missed: Share of gains of two standard deviations that are not accepted.
        num_runs: Mean number of candidate runs, for edits that gain.
        num_runs_of_nothing: The same for edits that change nothing.
    """

    accepted: float
    missed: float
    num_runs: float
    num_runs_of_nothing: float


def sequential(
    baseline: Sequence[float], candidate: Sequence[float], floor: NoiseFloor | None
) -> tuple[bool, int]:
    """Look after each run."""
    for num in range(1, MAX_RUNS + 1):
        answer = decide(baseline, candidate[:num], floor)
        if answer.decision != "more":
            return answer.decision == "better", num
    raise AssertionError("the limit is always a decision")


def keep_if_better(
    baseline: Sequence[float], candidate: Sequence[float], floor: NoiseFloor | None
) -> tuple[bool, int]:
    """Compare one run with one run."""
    return candidate[0] > baseline[0], 1


def t_test(
    baseline: Sequence[float], candidate: Sequence[float], floor: NoiseFloor | None
) -> tuple[bool, int]:
    """Test the means once, with the spread of both sides."""
    answer = stats.ttest_ind(candidate, baseline, alternative="greater")
    return float(answer.pvalue) < ERROR, len(candidate)  # pyright: ignore


def wilcoxon(
    baseline: Sequence[float], candidate: Sequence[float], floor: NoiseFloor | None
) -> tuple[bool, int]:
    """Test the ranks once."""
    answer = stats.mannwhitneyu(candidate, baseline, alternative="greater")
    return float(answer.pvalue) < ERROR, len(candidate)


JUDGES: dict[str, Judge] = {
    "workbench": sequential,
    "keep if lower": keep_if_better,
    "t-test": t_test,
    "wilcoxon": wilcoxon,
}


def measure(groups: Sequence[RepeatedTrainings], num_sessions: int) -> dict[str, Score]:
    """Play sessions in all groups that are large enough."""
    rows: dict[str, list[list[tuple[float, float]]]] = {name: [] for name in JUDGES}
    for place, group in enumerate(groups):
        if len(group.values) < NUM_BASELINE + MAX_RUNS:
            continue
        others = [other for other in groups if other is not group]
        floor = noise_floor_of(others, group.budget)
        for name, judge in JUDGES.items():
            rows[name].append(
                [
                    _play(group, judge, floor, gain=gain, seed=place, num=num_sessions)
                    for gain in GAINS
                ]
            )
    return {name: _score(np.array(scores).mean(axis=0)) for name, scores in rows.items()}


def _play(
    group: RepeatedTrainings,
    judge: Judge,
    floor: NoiseFloor | None,
    *,
    gain: float,
    seed: int,
    num: int,
) -> tuple[float, float]:
    """Return the share of accepted edits, and the mean number of runs."""
    random = np.random.default_rng(seed)
    added = gain * float(np.std(group.values, ddof=1))
    answers: list[tuple[bool, int]] = []
    for _ in range(num):
        drawn = -random.permutation(group.values)[: NUM_BASELINE + MAX_RUNS]
        baseline, candidate = list(drawn[:NUM_BASELINE]), list(drawn[NUM_BASELINE:] + added)
        answers.append(judge(baseline, candidate, floor))
    return float(np.mean([accepted for accepted, _ in answers])), float(
        np.mean([num_runs for _, num_runs in answers])
    )


def _score(means: np.ndarray) -> Score:
    nothing, gain = means
    return Score(
        accepted=round(float(nothing[0]), 4),
        missed=round(1 - float(gain[0]), 4),
        num_runs=round(float(gain[1]), 2),
        num_runs_of_nothing=round(float(nothing[1]), 2),
    )


def main() -> None:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=300, help="sessions of a group")
    given = parser.parse_args()
    folder = find_measured("repeated_runs")
    if folder is None:
        parser.error("the public measurements are not here: set WORKBENCH_MEASURED to their folder")
    groups = read_floor(folder / "curves.csv")
    scores = measure(groups, given.sessions)
    for name, score in scores.items():
        print(
            f"{name:14} accepts {score.accepted:6.1%} without a gain, misses {score.missed:6.1%}"
            f" of the gains, {score.num_runs:.2f} runs"
        )
    RESULTS.write_text(
        json.dumps(
            {
                "machine": describe_machine(),
                "sessions": given.sessions,
                "scores": {name: asdict(score) for name, score in scores.items()},
            },
            indent=1,
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
