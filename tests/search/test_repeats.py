"""Several trainings of one configuration."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders.studies import Drive, make_experiment


def finish(drive: Drive, trial: int, loss: float) -> None:
    drive.report(trial, 1, loss=loss)
    drive.end(trial)


def test_repeats_wait_for_the_first_training_and_come_before_new_configurations() -> None:
    drive = Drive(make_experiment(repeats=3))
    first = drive.ask()
    assert drive.study.ask(repeats_only=True) is None
    other = drive.ask()
    finish(drive, first.trial, 0.5)
    asked = [drive.ask() for _ in range(3)]
    assert [(p.configuration, p.repeat) for p in asked] == [(0, 1), (0, 2), (2, 0)]
    assert all(p.params == first.params for p in asked[:2])
    assert len({p.seed for p in [first, *asked[:2]]}) == 3
    assert other.seed == first.seed == asked[2].seed


def test_the_mean_over_repeats_decides() -> None:
    drive = Drive(make_experiment(repeats=2))
    for losses in ([0.1, 0.9], [0.4, 0.3]):
        for loss in losses:
            finish(drive, drive.ask().trial, loss)
    assert drive.study.best_trials() == [3]


def test_failed_repeats_are_left_out_and_a_failed_first_one_ends_the_configuration() -> None:
    drive = Drive(make_experiment(repeats=2))
    finish(drive, drive.ask().trial, 0.5)
    drive.end(drive.ask().trial, "failed", reason="error")
    assert drive.study.best_trials() == [0]
    drive.end(drive.ask().trial, "failed", reason="error")
    assert drive.ask().configuration == 2


def test_pruning_looks_at_the_first_repeat_only() -> None:
    drive = Drive(make_experiment(repeats=2, early_stop={"pruner": "patience", "patience": 1}))
    finish(drive, drive.ask().trial, 0.5)
    second = drive.ask().trial
    assert not any(drive.report(second, rung, loss=float(rung)) for rung in range(1, 6))
    drive.end(second)
    third = drive.ask().trial
    assert [drive.report(third, rung, loss=float(rung)) for rung in (1, 2)] == [False, True]
    drive.end(third, "pruned")
    assert drive.ask().configuration == 2


def test_wilcoxon_forgoes_repeats_of_what_is_clearly_worse() -> None:
    settings: dict[str, Any] = {
        "repeats": 8,
        "early_stop": {"pruner": "wilcoxon", "p_threshold": 0.1},
    }
    drive = Drive(make_experiment(**settings))
    for repeat in range(8):
        finish(drive, drive.ask().trial, 0.1 + repeat / 1000)
    repeats = 0
    while (proposal := drive.ask()).configuration == 1:
        finish(drive, proposal.trial, 0.9 + repeats / 1000)
        repeats += 1
    assert 2 <= repeats < 8
    assert drive.study.best_trials() == [0]


def test_a_grid_is_not_exhausted_while_repeats_may_come() -> None:
    drive = Drive(make_experiment(search={"x": {"choices": [1]}}, sampler="grid", repeats=2))
    first = drive.ask()
    assert drive.study.ask() is None
    assert not drive.study.exhausted
    finish(drive, first.trial, 1.0)
    finish(drive, drive.ask().trial, 1.0)
    assert drive.study.exhausted


@pytest.mark.parametrize("sampler", ["random", "tpe", "auto"])
@pytest.mark.parametrize(
    ("search", "num"),
    [
        ({"x": {"choices": [1, 2]}}, 2),
        ({"x": {"low": 0.0, "high": 1.0, "step": 0.5}, "y": {"low": 1, "high": 2}}, 6),
        ({"kind": {"choices": ["a", "b"]}, "x": {"choices": [1, 2], "when": {"kind": "a"}}}, 3),
    ],
    ids=["choices", "steps", "conditional"],
)
def test_a_finite_space_is_used_up_under_every_sampler(
    search: dict[str, Any], num: int, sampler: str
) -> None:
    drive = Drive(make_experiment(search=search, sampler=sampler))
    asked: list[str] = []
    while not drive.study.exhausted:
        proposal = drive.ask()
        asked.append(repr(sorted(proposal.params.items())))
        finish(drive, proposal.trial, 1.0)
        assert len(asked) <= 2 * num, "at most every other training is a repeat"
    assert len(set(asked)) == num
    assert drive.study.ask() is None
    assert drive.rebuilt().exhausted


def test_a_space_without_steps_is_never_used_up() -> None:
    drive = Drive(make_experiment(search={"x": {"low": 0.0, "high": 1.0}, "y": {"choices": [1]}}))
    for _ in range(5):
        finish(drive, drive.ask().trial, 1.0)
    assert not drive.study.exhausted
