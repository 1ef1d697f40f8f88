"""The time that is left: over whole runs whose trials take known times, and at limits."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from tests.builders.timed_runs import START_UNIX_S, Shape, timed_run
from workbench.experiment import Budget
from workbench.foundation.events import (
    DriverStarted,
    EnergyMetered,
    RunStateChanged,
    TrialProposed,
    TrialStarted,
)
from workbench.runs.progress import TimeLeft, progress_of
from workbench.store.history import History

STEADY = {
    "epochs": Shape(),
    "a function": Shape(epochs=None),
    "slow starts": Shape(startup_s=5.0, first_wait_s=8.0, wait_s=0.3),
    "a function with slow starts": Shape(
        num_trials=30, at_once=4, epochs=None, startup_s=5.0, first_wait_s=8.0, wait_s=0.3
    ),
    "quick trials": Shape(num_trials=100, duration_s=lambda _: 0.8, wait_s=0.2),
    "proposed long before": Shape(num_trials=30, is_queued=True),
    "more places than trials": Shape(num_trials=3, at_once=8),
}
UNSTEADY = {
    "different": Shape(num_trials=30, duration_s=lambda chance: chance.uniform(10.0, 30.0)),
    "no reports on the way": Shape(
        num_trials=30,
        duration_s=lambda chance: chance.uniform(10.0, 30.0),
        epochs=None,
        report_s=1000.0,
    ),
    "pruned": Shape(num_trials=40, at_once=4, epochs=9, pruned=0.6),
    "long tails": Shape(
        num_trials=40, at_once=4, duration_s=lambda chance: chance.lognormvariate(3.0, 0.7)
    ),
}


def estimates(shape: Shape, seed: int = 0) -> Iterator[tuple[float, TimeLeft | None]]:
    """The true time that is left, and the estimate, once a second."""
    events, end_unix_s = timed_run(shape, seed)
    history, now_unix_s = History(shape.experiment), START_UNIX_S
    while now_unix_s < end_unix_s:
        while events and events[0].time_unix_s <= now_unix_s:
            history.apply(events.pop(0))
        yield end_unix_s - now_unix_s, progress_of(history, now_unix_s).left
        now_unix_s += 1.0


@pytest.mark.parametrize("name", STEADY)
def test_in_a_steady_run_the_estimate_is_right_and_falls_by_a_second_each_second(name: str) -> None:
    shown = [(true_s, left) for true_s, left in estimates(STEADY[name]) if left is not None]
    assert len(shown) > 15
    for true_s, left in shown:
        assert left.low_s - 1.0 <= true_s <= left.high_s + 1.0
        assert left.seconds == pytest.approx(true_s, rel=0.1, abs=2.0)
    for (_, before), (_, after) in itertools.pairwise(shown):
        assert before.seconds - after.seconds == pytest.approx(
            1.0, abs=max(1.0, 0.05 * before.seconds)
        )


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", UNSTEADY)
def test_an_estimate_never_moves_by_more_than_its_interval_which_holds_most_of_the_time(
    name: str, seed: int
) -> None:
    shown = [(true_s, left) for true_s, left in estimates(UNSTEADY[name], seed) if left is not None]
    held = [left.low_s - 1.0 <= true_s <= left.high_s + 1.0 for true_s, left in shown]
    assert sum(held) / len(held) > 0.6
    for (_, before), (_, after) in itertools.pairwise(shown):
        widest_s = max(before.high_s - before.low_s, after.high_s - after.low_s, 1.0)
        assert abs(after.seconds - (before.seconds - 1.0)) <= widest_s


def test_epochs_give_an_estimate_before_the_first_trial_ends() -> None:
    def first_known(shape: Shape) -> float:
        return next(true_s for true_s, left in estimates(shape) if left is not None)

    assert first_known(Shape()) > 110.0
    assert first_known(Shape(epochs=None)) == 100.0


@pytest.mark.parametrize(
    ("budget", "at_s", "part", "left"),
    [
        ({"trials": 12}, 40.0, 4 / 12, 80.0),
        ({"trials": 12, "time": 60}, 40.0, 40 / 60, 20.0),
        ({"trials": 12, "time": 600}, 40.0, 4 / 12, 80.0),
        ({"time": 60}, 40.0, 40 / 60, 20.0),
        ({"time": 30}, 40.0, 1.0, 0.0),
        ({"plateau": 3}, 40.0, None, None),
    ],
)
def test_time_left_follows_from_the_limit_that_comes_first(
    budget: dict[str, Any], at_s: float, part: float | None, left: float | None
) -> None:
    shape = Shape()
    history = History(shape.experiment.model_copy(update={"budget": Budget(**budget)}))
    for event in timed_run(shape)[0]:
        if event.time_unix_s <= START_UNIX_S + at_s:
            history.apply(event)
    progress = progress_of(history, START_UNIX_S + at_s)
    assert progress.part == pytest.approx(part)
    assert (progress.left and progress.left.seconds) == pytest.approx(left)
    words = progress.describe_left()
    assert words is None if left is None else str(words).startswith(("1 min 20 s", "20 s", "0 s"))


def test_the_rest_of_energy_lasts_as_long_as_it_is_used_as_before() -> None:
    history = History(Shape().experiment.model_copy(update={"budget": Budget(energy=100.0)}))
    history.apply(DriverStarted(pid=1, host="a", num_cpus=2, time_unix_s=START_UNIX_S))
    assert progress_of(history, START_UNIX_S + 10.0).left is None
    history.apply(EnergyMetered(total_wh=25.0, time_unix_s=START_UNIX_S + 10.0))
    progress = progress_of(history, START_UNIX_S + 10.0)
    assert progress.part == pytest.approx(0.25)
    assert progress.left is not None
    assert progress.left.seconds == pytest.approx(30.0)


def test_the_rest_of_the_money_lasts_as_long_as_the_price_says() -> None:
    budget = Budget(money=1.0, price="36 EUR/h")
    history = History(Shape().experiment.model_copy(update={"budget": budget}))
    history.apply(DriverStarted(pid=1, host="a", num_cpus=2, time_unix_s=START_UNIX_S))
    history.apply(RunStateChanged(state="running", time_unix_s=START_UNIX_S))
    progress = progress_of(history, START_UNIX_S + 25.0)
    assert progress.part == pytest.approx(0.25)
    assert progress.left is not None
    assert progress.left.seconds == pytest.approx(75.0)


def test_the_rest_of_gpu_time_is_used_by_the_gpus_that_are_in_use() -> None:
    history = History(Shape().experiment.model_copy(update={"budget": Budget(gpu_time=60.0)}))
    for trial, gpus in enumerate([[["0"], ["1"]], [["2"]]]):
        history.apply(TrialProposed(trial=trial, params={}, configuration=trial, seed=1))
        history.apply(
            TrialStarted(
                trial=trial, attempt=0, worker_pids=[], gpus=gpus, time_unix_s=START_UNIX_S
            )
        )
    progress = progress_of(history, START_UNIX_S + 10.0)
    assert progress.part == pytest.approx(30.0 / 60.0)
    assert progress.left is not None
    assert progress.left.seconds == pytest.approx(30.0 / 3)
