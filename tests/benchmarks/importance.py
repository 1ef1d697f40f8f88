"""How true the shares of parameters are, beside Optuna's fANOVA and PED-ANOVA.

Run `python -m tests.benchmarks.importance`. Twenty spaces are generated, with 3 to 12 parameters of
all kinds, some of which have no effect at all. A study tries 300 configurations of each as a run
does: TPE proposes them, and a pruner stops many. Noise is 1 % of the variance of the true values
over the space. The true share of a parameter is its total effect, computed from the function
itself. The method was tuned with seeds from 5000 on. The results are of those from 9000 on.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.importance_spaces import KINDS, Space, make_space, search
from tests.builders.studies import Drive
from workbench.foundation.events import TrialEnded, TrialProposed
from workbench.search.importance import NO_EFFECT, Importance

RESULTS = Path(__file__).parent / "results" / "importance.json"
NUM_SPACES, NUM_TRIALS, FIRST_SEED = 20, 300, 9000
APART = 0.05
"""How far two effects are apart whose order counts."""


@dataclass(frozen=True)
class Answer:
    """What was said of one space.

    Attributes:
        true: The true share of each parameter.
        said: The share and the ends of its interval, for each parameter.
        duration_s: How long it took, in seconds of the processor.
    """

    true: Mapping[str, float]
    said: Importance
    duration_s: float


@dataclass(frozen=True)
class Score:
    """How true answers are.

    Attributes:
        num_pairs: Pairs of parameters whose effects are more than 5 points apart.
        right_order: Share of them whose larger one comes first.
        mean_error: Mean distance of a share from the true one.
        longest_s: The longest time for one space, in seconds of the processor.
        num_effects: Effects above 1 %.
        num_called_nothing: How many of them are called none; None without intervals.
        num_zeros: Parameters without any effect.
        zeros_bounded: Share of them that are bounded below 1 %; None without intervals.
        held: Share of the 90 % intervals that hold the true share; None without intervals.
        mean_width: Mean width of the intervals; None without any.
    """

    num_pairs: int
    right_order: float
    mean_error: float
    longest_s: float
    num_effects: int
    num_zeros: int
    num_called_nothing: int | None = None
    zeros_bounded: float | None = None
    held: float | None = None
    mean_width: float | None = None


def score(answers: Sequence[Answer], *, has_intervals: bool) -> Score:
    """Compare answers with the truth.

    Args:
        answers: Of the spaces.
        has_intervals: Whether the ends of intervals mean anything.
    """
    order: list[bool] = []
    rows: list[tuple[float, float, float, float]] = []
    for answer in answers:
        for first, second in combinations(answer.true, 2):
            gap = answer.true[first] - answer.true[second]
            if abs(gap) > APART:
                order.append((answer.said[first][0] - answer.said[second][0]) * gap > 0)
        rows += [(answer.true[name], *answer.said[name]) for name in answer.true]
    true, share, low, high = np.array(rows).T
    scored = Score(
        num_pairs=len(order),
        right_order=float(np.mean(order)),
        mean_error=float(np.abs(share - true).mean()),
        longest_s=max(answer.duration_s for answer in answers),
        num_effects=int((true > NO_EFFECT).sum()),
        num_zeros=int((true == 0).sum()),
    )
    if not has_intervals:
        return scored
    return Score(
        **asdict(scored)
        | {
            "num_called_nothing": int(((share == 0) & (true > NO_EFFECT)).sum()),
            "zeros_bounded": float((high[true == 0] < NO_EFFECT).mean()),
            "held": float(((low <= true) & (true <= high)).mean()),
            "mean_width": float((high - low).mean()),
        }
    )


def spaces(first_seed: int, num: int) -> Iterator[tuple[Space, Drive]]:
    """Yield spaces, all kinds of them in turn, and studies that have searched them."""
    for seed in range(first_seed, first_seed + num):
        space = make_space(KINDS[seed % len(KINDS)], seed)
        yield space, search(space, seed, NUM_TRIALS)


def answer_of(space: Space, drive: Drive) -> Answer:
    """Return what the workbench says."""
    began = time.process_time()
    said = drive.study.importance()
    return Answer(space.effects, said, time.process_time() - began)


def rivals_of(space: Space, drive: Drive) -> dict[str, Answer]:
    """Return what Optuna's evaluators say of the complete trials, on their scales."""
    import optuna
    from optuna.importance import FanovaImportanceEvaluator, PedAnovaImportanceEvaluator

    study = optuna.create_study()
    proposed = {event.trial: event for event in drive.events if isinstance(event, TrialProposed)}
    for event in drive.events:
        if isinstance(event, TrialEnded) and event.state == "complete":
            params = space.parameters.to_optuna(proposed[event.trial].params)
            study.add_trial(
                optuna.trial.create_trial(
                    params=params,
                    distributions={name: space.parameters.searched[name] for name in params},
                    value=event.values["loss"],
                )
            )
    answers: dict[str, Answer] = {}
    for name, evaluator in (
        ("fanova", FanovaImportanceEvaluator(seed=0)),
        ("ped_anova", PedAnovaImportanceEvaluator()),
    ):
        began = time.process_time()
        # Both leave out parameters that some trials do not have.
        said = optuna.importance.get_param_importances(study, evaluator=evaluator)
        shares = {key: (said.get(key, 0.0), 0.0, 1.0) for key in space.effects}
        answers[name] = Answer(space.effects, shares, time.process_time() - began)
    return answers


def main() -> None:
    """Measure and write the results."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--first", type=int, default=FIRST_SEED, help="seed of the first space")
    asked.add_argument("--spaces", type=int, default=NUM_SPACES)
    asked.add_argument("--to", type=Path, default=RESULTS)
    options = asked.parse_args()
    answers: dict[str, list[Answer]] = {}
    num_pruned = 0
    for number, (space, drive) in enumerate(spaces(options.first, options.spaces)):
        num_pruned += sum(
            isinstance(event, TrialEnded) and event.state == "pruned" for event in drive.events
        )
        for name, answer in {
            "workbench": answer_of(space, drive),
            **rivals_of(space, drive),
        }.items():
            answers.setdefault(name, []).append(answer)
        print(f"space {number + 1} of {options.spaces}", flush=True)
    results: dict[str, Any] = {
        "spaces": options.spaces,
        "first_seed": options.first,
        "trials": NUM_TRIALS,
        "pruned": num_pruned / options.spaces / NUM_TRIALS,
    }
    for name, given in answers.items():
        results[name] = asdict(score(given, has_intervals=name == "workbench"))
    options.to.write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
