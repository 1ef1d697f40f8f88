"""Scores of whole tables, from reading to the interval, against the score on fresh rows.

The model is a linear one for each fold, as a run of AutoML would take minutes for each table.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

from workbench.runs.automl.preparation import HeldOut, LearningData, prepare
from workbench.runs.automl.scores import score_intervals, scores_of
from workbench.runs.automl.task_detection import read_problem

COLUMNS = list("abcde")
FACTORS = np.array([1.0, -0.5, 0.3, 0.0, 0.0])
NUM_TABLES = 60


def made(random: np.random.Generator, num_rows: int, kind: str) -> pd.DataFrame:
    inputs = random.normal(size=(num_rows, 5))
    noise = random.normal(size=num_rows)
    more: dict[str, Any] = {}
    if "patients" in kind:
        num_groups = max(8, num_rows // 6)
        groups = random.integers(0, num_groups, num_rows)
        inputs = random.normal(size=(num_groups, 5))[groups] + 0.3 * inputs
        noise = 0.8 * random.normal(size=num_groups)[groups] + 0.4 * noise
        more = {"patient_id": groups}
    elif kind == "days":
        for row in range(1, num_rows):
            noise[row] = 0.8 * noise[row - 1] + 0.6 * noise[row]
        more = {"day": pd.date_range("2020-01-01", periods=num_rows)}
    target = inputs @ FACTORS + noise
    values = np.where(target > 0, "yes", "no") if kind.startswith("classes") else target
    return pd.DataFrame(inputs, columns=COLUMNS).assign(**more, y=values)


def fresh(seed: int, num_rows: int, kind: str) -> pd.DataFrame:
    """Return new rows of the same kind: for days, other courses of the same days."""
    random = np.random.default_rng(10_000 + seed)
    if kind != "days":
        return made(random, 4000, kind)
    num_tested = round(0.2 * num_rows)
    return pd.concat([made(random, num_rows, kind)[-num_tested:] for _ in range(40)])


def predictions(learning: LearningData, held_out: HeldOut, samples: Any) -> np.ndarray:
    answers = []
    for fold, reader in zip(learning.folds, held_out.interpreter.readers, strict=True):
        inputs = reader.encoder.encode(samples)
        if learning.class_names:
            model = LogisticRegression(C=0.3).fit(fold.train_inputs, fold.train_targets)
            answers.append(model.predict_proba(inputs))
        else:
            numbers = Ridge(3.0).fit(fold.train_inputs, fold.train_targets).predict(inputs)
            answers.append(reader.in_units(numbers[:, None], inputs))
    return np.mean(answers, axis=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["numbers", "classes", "numbers of patients", "classes of patients", "days"]
)
def test_scores_are_neither_too_good_nor_too_bad(kind):
    held: dict[str, list[bool]] = {}
    above: dict[str, list[bool]] = {}
    for seed in range(NUM_TABLES):
        random = np.random.default_rng(seed)
        num_rows = int(random.integers(150, 600))
        problem = read_problem(made(random, num_rows, kind), "y")
        learning, held_out = prepare(problem, seed, [1, 2, 3, 4, 5])
        tested = predictions(learning, held_out, held_out.samples)
        scores = scores_of(tested, held_out.targets, problem.task)
        intervals = score_intervals(
            tested, held_out.targets, problem.task, blocks=held_out.roles.blocks
        )
        new = fresh(seed, num_rows, kind)
        targets = new["y"].to_numpy()
        if learning.class_names:
            targets = np.searchsorted(np.array(learning.class_names), targets)
        truth = scores_of(predictions(learning, held_out, new), targets, problem.task)
        for name, score in scores.items():
            low, high = intervals[name]
            held.setdefault(name, []).append(low <= truth[name] <= high)
            above.setdefault(name, []).append(score > truth[name])
    for name, share in held.items():
        # Between 80 and 97 %, and half of the scores above the truth: two standard errors around.
        assert 0.71 <= np.mean(share) <= 1.0, name
        assert 0.37 <= np.mean(above[name]) <= 0.63, name
