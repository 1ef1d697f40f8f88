"""Trials of several objectives are stopped when they will hardly extend the front."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from tests.builders.studies import Drive, make_experiment
from workbench.search.front_growth import ExpectedGain, gains, is_on_front

OBJECTIVES = [{"metric": "loss", "goal": "minimize"}, {"metric": "speed", "goal": "maximize"}]
SPACE = {"x": {"low": 0.0, "high": 1.0}, "y": {"low": 0.0, "high": 1.0}}
RUNGS = 16


def covered(points: np.ndarray) -> float:
    """Return the hypervolume of points of the unit square over its origin, by sweeping along the
    front.
    """
    area = height = 0.0
    for x, y in sorted(points.tolist(), reverse=True):
        area += x * max(y - height, 0.0)
        height = max(y, height)
    return area


@given(st.integers(0, 10_000), st.integers(5, 30))
def test_gains_are_those_of_the_exact_hypervolume(seed: int, num: int) -> None:
    random = np.random.default_rng(seed)
    even = np.linspace(0.0, 0.9, num)  # the worst of each objective is 0, and no outlier
    known = np.column_stack([random.permutation(even), random.permutation(even)])
    ends = random.random((5, 2))
    before = covered(known)
    exact = [(covered(np.vstack([known, end])) - before) / before for end in ends]
    np.testing.assert_allclose(gains(ends, known), exact, atol=0.03 / before)


def excess(mean: float, bound: float) -> float:
    """Return by how much a normal value of deviation 0.2 is expected to exceed a bound."""
    scaled = (mean - bound) / 0.2
    return 0.2 * float(scaled * norm.cdf(scaled) + norm.pdf(scaled))


def exact_gain(front: np.ndarray, mean: np.ndarray) -> float:
    """Return the expected gain over a front of two objectives and (-1, -1), by strips between its
    points.
    """
    across, above = [-1.0, *front[:, 0], np.inf], [*front[:, 1], -1.0]
    ends = [excess(mean[0], left) - excess(mean[0], right) for left, right in pairwise(across[:-1])]
    widths = [*ends, excess(mean[0], across[-2])]
    return sum(width * excess(mean[1], height) for width, height in zip(widths, above, strict=True))


@given(st.integers(0, 10_000), st.integers(1, 20))
def test_the_expected_gain_is_that_of_the_closed_form(seed: int, num: int) -> None:
    random = np.random.default_rng(seed)
    known = np.vstack([random.random((num, 2)), [[1.0, 0.0], [0.0, 1.0]]])
    front = known[is_on_front(known)]
    front, means = front[np.argsort(front[:, 0])], random.random((4, 2))
    exact = np.array([exact_gain(front, mean) for mean in means])
    gains = np.exp(ExpectedGain(known).log_of(means, np.full((4, 2), 0.2)))
    np.testing.assert_allclose(gains / gains.sum(), exact / exact.sum(), atol=0.06)


@given(st.integers(0, 10_000), st.integers(2, 4))
def test_a_better_mean_is_expected_to_gain_more(seed: int, num_objectives: int) -> None:
    random = np.random.default_rng(seed)
    gain = ExpectedGain(random.random((12, num_objectives)))
    means, deviations = random.random((5, num_objectives)), np.full((5, num_objectives), 0.3)
    assert (gain.log_of(means + 0.1, deviations) > gain.log_of(means, deviations)).all()


@given(st.integers(0, 10_000), st.integers(2, 4))
def test_what_is_beaten_adds_nothing(seed: int, num_objectives: int) -> None:
    known = np.random.default_rng(seed).random((12, num_objectives))
    assert (gains(known - 1e-3, known) == 0).all()
    assert gains(known.max(0, keepdims=True) + 0.5, known)[0] > 0


@given(st.integers(0, 10_000), st.integers(1, 4))
def test_the_front_is_what_nothing_beats(seed: int, num_objectives: int) -> None:
    values = np.random.default_rng(seed).integers(0, 5, (15, num_objectives))
    expected = [
        not any((other >= value).all() and (other > value).any() for other in values)
        for value in values
    ]
    assert is_on_front(values).tolist() == expected


def metrics(params: Mapping[str, Any], rung: int) -> dict[str, float]:
    """Return metrics in conflict along x.

    Y makes both of them worse, as the first rungs show already.
    """
    x, y = params["x"], params["y"]
    return {"loss": x**2 + y + 1 / rung, "speed": x - y - 1 / rung}


def train(drive: Drive, params: dict[str, float], *, late: bool = False) -> int:
    """Train a configuration until it ends or is stopped; return how many rungs it was trained."""
    drive.study.enqueue(params)
    trial = drive.ask().trial
    for rung in range(1, RUNGS + 1):
        shown = metrics(params, rung)
        if late and rung < RUNGS:
            del shown["speed"]
        if drive.report(trial, rung, **shown):
            drive.end(trial, "pruned")
            return rung
    drive.end(trial)
    return RUNGS


def driven(**changes: Any) -> Drive:
    """Return a run with a front from both ends of the conflict."""
    early_stop = {"pruner": "curves", "grace": 2}
    drive = Drive(
        make_experiment(search=SPACE, objectives=OBJECTIVES, early_stop=early_stop, **changes)
    )
    for place in range(8):
        train(drive, {"x": place / 7, "y": 0.1})
    return drive


def test_what_is_far_behind_the_front_is_stopped_and_what_extends_it_is_not() -> None:
    drive = driven()
    assert train(drive, {"x": 0.5, "y": 0.9}) < RUNGS / 2
    assert train(drive, {"x": 0.5, "y": 0.0}) == RUNGS
    assert train(drive, {"x": 0.0, "y": 0.05}) == RUNGS, (
        "the best in one objective, the worst in the other"
    )


def test_an_objective_that_only_the_end_shows_may_still_become_the_best() -> None:
    drive = driven()
    assert train(drive, {"x": 0.1, "y": 0.2}, late=True) == RUNGS


def test_without_a_pruner_nothing_is_stopped() -> None:
    drive = Drive(make_experiment(search=SPACE, objectives=OBJECTIVES))
    for place in range(8):
        train(drive, {"x": place / 7, "y": 0.1})
    assert train(drive, {"x": 0.5, "y": 0.9}) == RUNGS


def explore(sampler: str, seed: int, num: int) -> float:
    """Return the hypervolume that a search finds."""
    drive = Drive(make_experiment(search=SPACE, sampler=sampler, objectives=OBJECTIVES, seed=seed))
    explored = []
    for _ in range(num):
        proposal = drive.ask()
        shown = metrics(proposal.params, 10)
        drive.report(proposal.trial, 1, **shown)
        drive.end(proposal.trial)
        explored.append((max(1.2 - shown["loss"], 0.0), max(shown["speed"] + 0.2, 0.0)))
    return covered(np.array(explored))


@pytest.mark.slow
def test_the_front_is_found_in_fewer_trials_than_by_tpe_and_genes() -> None:
    ours = [explore("auto", seed, 20) for seed in range(3)]
    for rival in ("tpe", "nsga2", "random"):
        assert np.mean(ours) > 1.1 * np.mean([explore(rival, seed, 20) for seed in range(3)])


@pytest.mark.slow
def test_a_rebuilt_study_of_several_objectives_proposes_the_same() -> None:
    drive = driven()
    lengths = []
    for _ in range(5):
        lengths.append(train(drive, {"x": 0.5, "y": 0.9}))
        running = drive.ask()
        drive.report(running.trial, 1, **metrics(running.params, 1))
        rebuilt, live = drive.rebuilt().ask(), copy.deepcopy(drive.study).ask()
        assert rebuilt is not None
        assert live is not None
        assert rebuilt.params == live.params
        drive.end(running.trial, "failed", reason="oom")
    assert min(lengths) < RUNGS, "the forecasts of stopped trials take part"


def test_limits_are_kept_away_from_with_several_objectives() -> None:
    limit = {"metric": "cost", "at_most": 0.4}
    drive = Drive(make_experiment(search=SPACE, objectives=OBJECTIVES, constraints=[limit]))
    kept = []
    for _ in range(24):
        proposal = drive.ask()
        cost = proposal.params["x"]
        assert isinstance(cost, float)
        drive.report(proposal.trial, 1, **metrics(proposal.params, 10), cost=cost)
        drive.end(proposal.trial)
        kept.append(cost <= 0.42)
    assert sum(kept[10:]) > 9
