from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workbench.data.cartpole import Pole
from workbench.foundation.errors import ExperimentError
from workbench.training.policy import (
    POLICY,
    generalised_advantages,
    load_policy,
    make_environment,
    train_policy,
)

POLE = {"environment": "workbench.data.cartpole:Pole"}


class Corridor:
    """Five places in a row.

    Walking to the last one is worth 1, and an episode is cut off after 20 steps.
    """

    action_space = SimpleNamespace(n=2)

    def reset(self, *, seed: int | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        self.place, self.steps = 0, 0
        return np.eye(5)[0], {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.place, self.steps = max(0, self.place + (1 if action == 1 else -1)), self.steps + 1
        is_there = self.place == 4
        return np.eye(5)[self.place], float(is_there), is_there, self.steps == 20, {}


CORRIDOR = {
    "environment": f"{__name__}:Corridor",
    "steps": 32,
    "copies": 4,
    "lr": 0.01,
    "rounds": 8,
}


def learn(
    config: dict[str, Any], folder: Path, *, stop_at: int | None = None
) -> list[dict[str, float]]:
    reports: list[dict[str, float]] = []

    def report(**values: float) -> bool:
        reports.append(values)
        return values["step"] == stop_at

    train_policy(config, report, folder, 3)
    return reports


def test_a_policy_learns_to_walk_and_acts_when_it_is_loaded(tmp_path: Path) -> None:
    reports = learn(CORRIDOR, tmp_path)
    assert reports[-1] == {"step": 8, "mean_return": 1.0, "frames": 8 * 32 * 4}
    act = load_policy(tmp_path / POLICY, CORRIDOR)
    assert [act(place) for place in np.eye(5)[:4]] == [1, 1, 1, 1]


@pytest.mark.slow
def test_a_pole_is_balanced_for_longer_than_by_chance(tmp_path: Path) -> None:
    reports = learn(POLE | {"rounds": 10, "lr": 0.005}, tmp_path)
    assert max(report["mean_return"] for report in reports) > 100  # 22 by chance


def test_a_policy_that_was_stopped_continues_from_its_file(tmp_path: Path) -> None:
    assert [report["step"] for report in learn(CORRIDOR, tmp_path, stop_at=3)] == [1, 2, 3]
    before = torch.load(tmp_path / POLICY, weights_only=True)
    assert before["rounds"] == 3
    assert [report["step"] for report in learn(CORRIDOR, tmp_path)] == [4, 5, 6, 7, 8]


@given(st.integers(0, 10**6), st.floats(0.5, 1.0), st.integers(2, 12))
def test_with_a_trace_of_one_an_advantage_is_the_discounted_return_less_what_was_expected(
    seed: int, discount: float, steps: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    rewards, values = (
        torch.randn(steps, 2, generator=random),
        torch.randn(steps + 1, 2, generator=random),
    )
    continues = (torch.rand(steps, 2, generator=random) > 0.3).float()
    advantages = generalised_advantages(rewards, values, continues, discount=discount, trace=1.0)
    returns = values[-1].clone()
    for step in reversed(range(steps)):
        returns = rewards[step] + discount * continues[step] * returns
        torch.testing.assert_close(advantages[step], returns - values[step], rtol=1e-4, atol=1e-4)
    surprises = generalised_advantages(rewards, values, continues, discount=discount, trace=0.0)
    torch.testing.assert_close(surprises, rewards + discount * continues * values[1:] - values[:-1])


def test_the_pole_behaves_as_that_of_gymnasium() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    theirs, mine = gymnasium.make("CartPole-v1").unwrapped, Pole()
    for seed in range(3):
        seen, _ = mine.reset(seed=seed)
        theirs.reset(seed=seed)
        theirs.state = np.array(seen, dtype=np.float64)
        mine._state = np.array(seen, dtype=np.float64)
        ended = False
        while not ended:
            action = int(seen[2] + 0.3 * seen[3] > 0.02)
            (seen, reward, ended, *_), expected = mine.step(action), theirs.step(action)
            np.testing.assert_allclose(seen, expected[0], rtol=1e-4, atol=1e-5)
            assert (reward, ended) == (expected[1], expected[2])
            if mine._num_steps >= 300:
                break


def test_an_environment_of_gymnasium_is_played(tmp_path: Path) -> None:
    pytest.importorskip("gymnasium")
    config = {"environment": "CartPole-v1", "rounds": 1, "steps": 16, "copies": 2, "episodes": 2}
    assert learn(config, tmp_path)[0]["mean_return"] >= 8
    with pytest.raises(ExperimentError, match="number of actions"):
        make_environment("Pendulum-v1")
    with pytest.raises(ExperimentError, match="NoSuchThing"):
        make_environment("NoSuchThing-v1")


def test_what_is_no_environment_and_an_unknown_setting_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match="has no method reset"):
        make_environment("types:SimpleNamespace")
    with pytest.raises(ExperimentError, match=r"search\.clipp"):
        learn(POLE | {"clipp": 0.1}, tmp_path)
    with pytest.raises(ExperimentError, match=r"search\.discount"):
        learn(POLE | {"discount": 1.5}, tmp_path)
