"""The intervals of scores hold the true score about as often as they say.

Test sets are drawn from models whose true scores come from a large sample.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from workbench.data.row_splits import RowBlocks
from workbench.runs.automl.score_intervals import Judged, interval_of, parts_of, with_more_rows
from workbench.runs.automl.scores import METRICS, score_intervals
from workbench.runs.automl.targets import Task

Drawn = tuple[np.ndarray, np.ndarray, RowBlocks]
TASKS: tuple[Task, ...] = ("classification", "regression")


def effects(random: np.random.Generator, blocks: RowBlocks, num_rows: int) -> np.ndarray:
    """Return what neighbours in time or in a group have in common, with variance 1."""
    if blocks.groups is not None:
        return random.normal(size=blocks.groups.max() + 1)[blocks.groups]
    noise = random.normal(size=num_rows)
    if blocks.times is None:
        return noise
    for row in range(1, num_rows):
        noise[row] = 0.7 * noise[row - 1] + 0.51**0.5 * noise[row]
    return noise


def blocks_of(random: np.random.Generator, kind: str, num_rows: int) -> RowBlocks:
    if kind == "groups":
        groups = np.repeat(np.arange(num_rows), random.integers(1, 8, num_rows))[:num_rows]
        return RowBlocks(np.unique(groups, return_inverse=True)[1])
    return RowBlocks(None, np.arange(float(num_rows)) if kind == "times" else None)


def draw(random: np.random.Generator, task: Task, kind: str, num_rows: int) -> Drawn:
    blocks = blocks_of(random, kind, num_rows)
    common = effects(random, blocks, num_rows)
    noise = 0.6**0.5 * common + 0.4**0.5 * random.normal(size=num_rows)
    if task == "regression":
        # Far from 0, where a relative error has no mean.
        signal = 10.0 + random.normal(size=num_rows)
        return signal[:, None], signal + 0.7 * noise, blocks
    classes = (random.random(num_rows) < 0.35).astype(int)
    score = 1.4 * (classes - 0.5) + noise - 0.6
    probability = 1 / (1 + np.exp(-1.4 * score))
    return np.stack([1 - probability, probability], axis=1), classes, blocks


def coverage(task: Task, kind: str, num_rows: int, num_sets: int, names: list[str]) -> list[float]:
    random = np.random.default_rng(num_rows)
    large = [draw(random, task, kind, 20_000) for _ in range(4)]
    held = dict.fromkeys(names, 0)
    truth = {
        name: np.mean([METRICS[task][name].score(*drawn[:2]) for drawn in large]) for name in names
    }
    for _ in range(num_sets):
        predicted, targets, blocks = draw(random, task, kind, num_rows)
        parts = parts_of(num_rows, blocks)
        for name in names:
            measure = METRICS[task][name]
            ends = interval_of(measure.score, predicted, targets, scale=measure.scale, parts=parts)
            assert ends is not None
            assert ends[0] <= measure.score(predicted, targets) <= ends[1]
            held[name] += int(ends[0] <= truth[name] <= ends[1])
    return [number / num_sets for number in held.values()]


@pytest.mark.parametrize("kind", ["rows", "groups", "times"])
def test_an_interval_holds_the_true_score(kind):
    for coverages in coverage("regression", kind, 80, 60, ["rmse"]):
        assert 0.75 <= coverages <= 1.0
    for coverages in coverage("classification", kind, 80, 60, ["accuracy"]):
        assert 0.75 <= coverages <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("num_rows", [60, 300, 2000])
@pytest.mark.parametrize("kind", ["rows", "groups", "times"])
@pytest.mark.parametrize("task", TASKS)
def test_intervals_of_all_scores_hold_the_true_score_in_80_to_97_percent(task, kind, num_rows):
    names = list(METRICS[task])
    for name, covered in zip(names, coverage(task, kind, num_rows, 300, names), strict=True):
        # Three standard errors of 300 sets around the bounds.
        assert 0.78 <= covered <= 0.985, name


def test_validation_rows_show_the_large_errors_that_few_test_rows_miss():
    """Squared errors of a skewed target: a test of 20 rows has rarely any of the largest."""
    random = np.random.default_rng(0)
    score = METRICS["regression"]["rmse"].score
    truth = float(np.exp(1.0))  # the root of the second moment of a lognormal number
    held = {"test": 0, "both": 0}
    for _ in range(300):
        errors = random.lognormal(size=100)
        rows = (np.zeros((100, 1)), errors, RowBlocks())
        test, validation = (
            Judged(rows[0][part], errors[part], RowBlocks()) for part in (slice(20), slice(20, 100))
        )
        more = with_more_rows(test, validation)
        assert more is not None
        assert more.ratio == 5
        for name, given in (("test", None), ("both", more)):
            ends = interval_of(
                score, *test[:2], scale="error", parts=parts_of(20, RowBlocks()), more=given
            )
            assert ends is not None
            assert ends[0] <= score(*test[:2]) <= ends[1]
            held[name] += int(ends[0] <= truth <= ends[1])
    assert held["test"] < 0.75 * 300
    assert held["both"] >= 0.83 * 300


def test_groups_of_validation_rows_count_as_groups():
    groups = np.arange(60) // 6
    test = Judged(np.zeros((24, 1)), np.ones(24), RowBlocks(groups[:24]))
    validation = Judged(np.zeros((36, 1)), np.ones(36), RowBlocks(groups[24:]))
    more = with_more_rows(test, validation)
    assert more is not None
    assert more.ratio == pytest.approx(10 / 4)
    assert len(np.unique(more.parts)) == 10
    for group in range(10):
        assert len(np.unique(more.parts[groups == group])) == 1


def test_stretches_of_validation_rows_are_as_long_as_those_of_the_test():
    test = Judged(np.zeros((100, 1)), np.ones(100), RowBlocks(None, np.arange(200.0, 300.0)))
    validation = Judged(np.zeros((200, 1)), np.ones(200), RowBlocks(None, np.arange(200.0)))
    more = with_more_rows(test, validation)
    assert more is not None
    alone = parts_of(100, test[2])
    assert alone is not None
    lengths = {len(np.flatnonzero(parts == 0)) for parts in (alone, more.parts)}
    assert max(lengths) - min(lengths) <= 3


def test_rows_of_one_group_are_no_independent_evidence():
    random = np.random.default_rng(0)
    right = np.repeat(random.random(12) < 0.7, 20)
    predicted = np.stack([1.0 - right, right], axis=1).astype(float)
    targets = np.ones(240, dtype=int)

    def width(blocks: RowBlocks) -> float:
        low, high = interval_of(
            METRICS["classification"]["accuracy"].score,
            predicted,
            targets,
            scale="share",
            parts=parts_of(240, blocks),
        ) or (0.0, 0.0)
        return high - low

    assert width(RowBlocks(np.arange(240) // 20)) > 3 * width(RowBlocks())


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_test_without_a_mistake_does_not_prove_a_perfect_model(value):
    predicted = np.tile([value, 1.0 - value], (30, 1))
    low, high = interval_of(
        METRICS["classification"]["accuracy"].score,
        predicted,
        np.zeros(30, dtype=int),
        scale="share",
        parts=parts_of(30, RowBlocks()),
    ) or (0.0, 0.0)
    assert high - low == pytest.approx(0.085, abs=0.02)
    assert low == value or high == value


@pytest.mark.parametrize(
    ("num_rows", "blocks"), [(1, RowBlocks()), (9, RowBlocks(np.zeros(9, dtype=int)))]
)
def test_one_part_says_nothing_about_the_spread(num_rows, blocks):
    assert parts_of(num_rows, blocks) is None


def test_a_score_that_is_not_defined_has_no_interval():
    score: Callable[[np.ndarray, np.ndarray], float] = METRICS["regression"]["r2"].score
    same = np.ones(20)
    interval = interval_of(
        score, same[:, None], same, scale="explained", parts=parts_of(20, RowBlocks())
    )
    assert interval is None


def test_a_class_of_which_all_or_none_are_right_widens_the_interval_of_the_mean_recall() -> None:
    random = np.random.default_rng(0)
    sizes, recalls = np.array([110, 80, 5, 4]), np.array([0.95, 0.55, 0.2, 0.2])
    targets = np.repeat(np.arange(4), sizes)
    held = 0
    for _ in range(60):
        is_right = random.random(len(targets)) < recalls[targets]
        predicted = np.eye(4)[np.where(is_right, targets, (targets + 1) % 4)]
        blocks = RowBlocks(None, None)
        intervals = score_intervals(predicted, targets, "classification", blocks=blocks)
        low, high = intervals["balanced_accuracy"]
        held += low <= recalls.mean() <= high
    assert 0.85 <= held / 60 <= 0.99


def answers_of(
    random: np.random.Generator, shares: list[float], answers: list[list[float]], num_rows: int
) -> tuple[np.ndarray, np.ndarray]:
    """Predictions and targets of a model that answers each class as often as a row says."""
    classes = random.choice(len(shares), num_rows, p=shares)
    classes[: len(shares)] = np.arange(len(shares))  # test rows are held out by class
    drawn = random.random(num_rows)
    chosen = (drawn[:, None] > np.cumsum(answers, axis=1)[classes]).sum(axis=1)
    return np.eye(len(shares))[np.minimum(chosen, len(shares) - 1)], classes


ALWAYS_NO = [[1.0, 0.0], [1.0, 0.0]]


@pytest.mark.parametrize("num_rows", [60, 240, 2_000])
def test_the_interval_of_a_model_that_always_says_no_is_possible(num_rows: int) -> None:
    """Its balanced accuracy is 0.5 in every population, and more only if it can say yes."""
    random = np.random.default_rng(num_rows)
    predicted, targets = answers_of(random, [0.975, 0.025], ALWAYS_NO, num_rows)
    num_yes = int(targets.sum())
    # With a probability of 0.5 %, no yes of so many is seen at this share (Clopper and Pearson).
    most_recall = 1.0 - 0.005 ** (1.0 / num_yes)
    least_recall = 0.005 ** (1.0 / (num_rows - num_yes))  # of the no
    for metric in ("balanced_accuracy", "macro_f1", "mcc"):
        intervals = score_intervals(
            predicted, targets, "classification", metric, blocks=RowBlocks(None, None)
        )
        low, high = intervals["balanced_accuracy"]
        assert least_recall / 2 <= low <= 0.5 < high <= (1.0 + most_recall) / 2
        if metric == "macro_f1":
            low, high = intervals[metric]
            assert 0.4 < low < 0.5 < high < 0.5 + most_recall / 2 + 0.1
        if metric == "mcc":
            low, high = intervals[metric]
            assert -0.15 < low <= 0.0 < high


@pytest.mark.parametrize("metric", ["mcc", "f1", "macro_f1", "balanced_accuracy"])
def test_an_interval_of_a_score_of_classes_contains_the_score(metric: str) -> None:
    random = np.random.default_rng(1)
    for answers in (np.eye(2).tolist(), ALWAYS_NO, [[0.9, 0.1], [0.4, 0.6]]):
        for num_rows in (20, 300):
            predicted, targets = answers_of(random, [0.8, 0.2], answers, num_rows)
            value = METRICS["classification"][metric].score(predicted, targets)
            intervals = score_intervals(
                predicted, targets, "classification", metric, blocks=RowBlocks(None, None)
            )
            low, high = intervals[metric]
            assert low <= value <= high


@pytest.mark.slow
@pytest.mark.parametrize("num_rows", [60, 240, 1_000])
@pytest.mark.parametrize(
    ("shares", "answers"),
    [
        ([0.975, 0.025], [[0.998, 0.002], [0.9, 0.1]]),
        ([0.975, 0.025], [[0.99, 0.01], [0.3, 0.7]]),
        ([0.9, 0.1], [[0.95, 0.05], [0.5, 0.5]]),
        ([0.5, 0.5], [[0.8, 0.2], [0.2, 0.8]]),
        ([0.95, 0.05], [[1.0, 0.0], [0.0, 1.0]]),
        ([0.6, 0.2, 0.1, 0.06, 0.04], (0.6 * np.eye(5) + 0.08).tolist()),
        ([0.05] * 20, (0.7 * np.eye(20) + 0.015).tolist()),
    ],
)
def test_scores_of_rare_classes_hold_those_of_the_population(
    shares: list[float], answers: list[list[float]], num_rows: int
) -> None:
    joint = np.array(shares)[:, None] * np.array(answers)
    counts = np.stack([np.diagonal(joint), joint.sum(axis=0), joint.sum(axis=1)])
    for metric in ("balanced_accuracy", "macro_f1", "f1", "mcc"):
        random = np.random.default_rng(num_rows)
        of_counts = METRICS["classification"][metric].of_counts
        assert of_counts is not None
        truth, held = of_counts(counts), 0
        for _ in range(60):
            predicted, targets = answers_of(random, shares, answers, num_rows)
            intervals = score_intervals(
                predicted, targets, "classification", metric, blocks=RowBlocks(None, None)
            )
            low, high = intervals[metric]
            held += low - 1e-9 <= truth <= high + 1e-9
        assert held >= 45, (metric, held)  # 80 % of 60, less one standard error


def test_copies_of_a_sample_do_not_make_a_score_more_certain() -> None:
    random = np.random.default_rng(0)
    targets = np.repeat([0, 1], [60, 8])
    predicted = np.eye(2)[np.where(random.random(68) < 0.8, targets, 1 - targets)]
    predicted[-8:] = [1.0, 0.0]
    rows = np.repeat(np.arange(68), 30)
    alone = score_intervals(
        predicted, targets, "classification", "f1", blocks=RowBlocks(np.arange(68))
    )
    copied = score_intervals(
        predicted[rows], targets[rows], "classification", "f1", blocks=RowBlocks(rows)
    )
    for name in ("f1", "recall", "balanced_accuracy", "accuracy"):
        assert copied[name] == pytest.approx(alone[name], abs=1e-9)


@pytest.mark.parametrize("kind", ["heavy rows are noisy", "many are light"])
def test_intervals_of_rows_with_weights_hold_the_score_of_their_population(kind: str) -> None:
    """Large weights are no sign of small errors: a few rows may decide the score."""

    def drawn_rows(random: np.random.Generator, num: int) -> Judged:
        if kind == "many are light":
            weights, size = random.gamma(0.5, 1.0, num) + 1e-3, np.ones(num)
        else:
            weights = random.choice([1.0, 10.0], num, p=[0.9, 0.1])
            size = np.where(weights > 1.0, 3.0, 1.0)
        errors = size * random.normal(size=num)
        weights /= weights.mean()
        return Judged(errors[:, None], np.zeros(num), RowBlocks(), weights)

    score = METRICS["regression"]["mae"].score
    population = drawn_rows(np.random.default_rng(0), 400_000)
    truth = np.average(np.abs(population.predicted[:, 0]), weights=population.weights)
    held = 0
    for seed in range(150):
        random = np.random.default_rng(seed + 1)
        test, validation = drawn_rows(random, 40), drawn_rows(random, 160)
        ends = interval_of(
            score,
            *test[:2],
            scale="error",
            parts=parts_of(40, RowBlocks()),
            more=with_more_rows(test, validation),
            weights=test.weights,
        )
        assert ends is not None
        held += int(ends[0] <= truth <= ends[1])
    assert 0.82 <= held / 150 <= 0.99


def test_the_explained_share_of_few_groups_holds_that_of_their_population() -> None:
    """Targets of four groups vary less than those of all groups, so they seem harder to explain."""
    random = np.random.default_rng(1)

    def drawn_rows(num_groups: int) -> Judged:
        groups = np.repeat(np.arange(num_groups), 15)
        targets = random.normal(size=num_groups)[groups] + 0.3 * random.normal(size=len(groups))
        predicted = targets + 0.7 * random.normal(size=len(groups))
        return Judged(predicted[:, None], targets, RowBlocks(groups))

    truth = 1.0 - 0.7**2 / (1.0 + 0.3**2)
    num_held = 0
    for _ in range(60):
        test, validation = drawn_rows(4), drawn_rows(16)
        low, high = interval_of(
            METRICS["regression"]["r2"].score,
            test.predicted,
            test.targets,
            scale="explained",
            parts=parts_of(60, test.blocks),
            more=with_more_rows(test, validation),
        ) or (0.0, 0.0)
        num_held += low <= truth <= high
    assert num_held >= 54, "without their variance it would be 52"


def test_the_explained_share_of_independent_rows_is_held_as_often_as_said() -> None:
    """A share of 0.5 by construction, on 60 test and 240 validation rows."""
    random = np.random.default_rng(3)

    def drawn_rows(num_rows: int) -> Judged:
        known = random.normal(size=num_rows)
        targets = known + random.normal(size=num_rows)
        return Judged(known[:, None], targets, RowBlocks())

    num_held = 0
    for _ in range(120):
        test, validation = drawn_rows(60), drawn_rows(240)
        low, high = interval_of(
            METRICS["regression"]["r2"].score,
            test.predicted,
            test.targets,
            scale="explained",
            parts=parts_of(60, test.blocks),
            more=with_more_rows(test, validation),
        ) or (0.0, 0.0)
        num_held += low <= 0.5 <= high
    assert 98 <= num_held <= 116, "also compared with the variance of all rows, it would be 117"
