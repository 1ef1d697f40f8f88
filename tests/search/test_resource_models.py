"""Where a budget limits what trials cost together, cheap ones that promise as much come first."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import numpy as np
import pytest

from tests.builders.studies import Drive, make_experiment
from workbench.search.study_records import CostLimit

SEARCH = {"x": {"low": 0.0, "high": 1.0}, "size": {"low": 1.0, "high": 100.0, "log": True}}
FIVE_EUROS = {"money": "5 EUR", "price": "2.50 EUR/h"}


def limit_of(budget: Mapping[str, Any], **changes: Any) -> CostLimit | None:
    return CostLimit.of(make_experiment(budget=budget, **changes))


@pytest.mark.parametrize(
    ("budget", "run_s", "held_s"),
    [
        ({"time": "1h"}, 3600, math.inf),
        ({"gpu_time": "2h"}, math.inf, 7200),
        (FIVE_EUROS, 7200, math.inf),
        ({"money": "5 EUR", "price": "2.50 EUR/GPU-h", "gpu_time": "1h"}, math.inf, 3600),
        ({"energy": "2kWh"}, math.inf, math.inf),
    ],
)
def test_time_money_and_energy_limit_what_trials_cost(
    budget: dict[str, Any], run_s: float, held_s: float
) -> None:
    limit = limit_of(budget)
    assert limit is not None
    assert (limit.run_s, limit.held_s) == (run_s, held_s)
    assert limit.ends_first(1.0, 1), "nothing else ends the run"


@pytest.mark.parametrize(
    "budget", [{}, {"trials": 9}, {"plateau": 5}, {"trials": 9, "energy": "1kWh"}]
)
def test_a_number_of_trials_limits_no_cost(budget: dict[str, Any]) -> None:
    assert limit_of(budget) is None
    two = [{"metric": name, "goal": "minimize"} for name in ("loss", "other")]
    assert limit_of({"time": "1h"}, objectives=two) is None, "improvement has one meaning only"


def test_of_two_limits_the_one_counts_that_ends_the_run() -> None:
    limit = limit_of({"trials": 50, "time": 100.0}, repeats=2)
    assert limit is not None
    assert [limit.ends_first(seconds, 1) for seconds in (0.9, 1.1)] == [False, True]
    assert [limit.ends_first(1.1, num_at_once) for num_at_once in (1, 2)] == [True, False]
    held = limit_of({"trials": 50, "gpu_time": 100.0}, resources={"gpus_per_worker": 2})
    assert held is not None
    assert [held.ends_first(seconds, 9) for seconds in (0.9, 1.1)] == [False, True]


def search_until(
    budget_s: float, seconds: Callable[[Mapping[str, Any]], float], seed: int, **budget: Any
) -> list[Mapping[str, Any]]:
    """Return the configurations of a search in which only `x` decides how good one is."""
    drive, losses, spent_s = (
        Drive(make_experiment(search=SEARCH, seed=seed, budget=budget)),
        [],
        0.0,
    )
    while spent_s < budget_s:
        proposal = drive.ask()
        spent_s += (elapsed_s := seconds(proposal.params))
        drive.report(proposal.trial, 1, elapsed_s=elapsed_s, loss=loss(proposal.params))
        drive.end(proposal.trial)
        losses.append(proposal.params)
    return losses


def loss(params: Mapping[str, Any]) -> float:
    return math.sin(9 * params["x"]) + (params["x"] - 0.6) ** 2


@pytest.mark.slow
def test_the_same_seconds_try_more_where_costs_vary() -> None:
    by_time, by_number = [], []
    for seed in range(3):
        by_time.append(search_until(300.0, lambda params: params["size"], seed, time="1h"))
        by_number.append(search_until(300.0, lambda params: params["size"], seed, trials=1000))
    assert median(map(len, by_time)) > 1.5 * median(map(len, by_number))
    best_by_time, best_by_number = (
        median(min(map(loss, each)) for each in of) for of in (by_time, by_number)
    )
    assert best_by_time <= best_by_number + 0.01


@pytest.mark.parametrize("budget", [{"trials": 1000}, {"trials": 20, "time": "10h"}])
def test_costs_that_end_no_run_change_nothing(budget: dict[str, Any]) -> None:
    costly = search_until(400.0, lambda params: params["size"], 0, **budget)
    assert (
        costly[:12] == search_until(1200.0, lambda params: 100.0, 0, **budget)[: len(costly[:12])]
    )


def test_costs_without_a_pattern_count_for_little() -> None:
    """Large sizes are proposed as often as where all trials cost the same."""
    rng = random.Random(4)
    tried = search_until(3000.0, lambda params: math.exp(rng.gauss(4, 1)), 1, time="10h")
    sizes = [math.log(params["size"]) / math.log(100) for params in tried]
    assert 0.25 < np.mean(sizes) < 0.75, sizes


def test_a_stopped_trial_counts_as_a_whole_one_and_attempts_are_added() -> None:
    """Trials stopped after a fifth and continued ones teach the same costs as whole ones."""

    def next_one(share: float, attempts: int) -> Any:
        drive = Drive(
            make_experiment(search=SEARCH, budget={"time": "1h"}, early_stop={"pruner": "median"})
        )
        rng = random.Random(0)
        for number in range(8):
            params = {"x": rng.random(), "size": math.exp(rng.random() * math.log(100))}
            drive.study.enqueue(params)
            proposal, cut = drive.ask(), share if number % 2 else 1.0
            for attempt in range(attempts):
                elapsed_s = params["size"] * cut / attempts
                drive.report(
                    proposal.trial,
                    int(10 * cut),
                    elapsed_s=elapsed_s,
                    attempt=attempt,
                    loss=params["x"],
                )
            drive.end(proposal.trial, "pruned" if cut < 1 else "complete")
        knowledge = drive.study._learner._projection._knowledge  # pyright: ignore[reportPrivateUsage]
        return drive, knowledge

    drive, once = next_one(0.2, 1)
    _, twice = next_one(0.2, 2)
    assert [result.seconds for result in once.results] == pytest.approx(
        [result.seconds for result in twice.results]
    )
    assert drive.rebuilt().ask() == copy.deepcopy(drive.study).ask()


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_of_trials_that_are_stopped_early_the_cheap_ones_come_first(share: float) -> None:
    """Only as far as costs follow from the configuration: `share` of them does."""

    def mean_size(seed: int) -> float:
        drive = Drive(
            make_experiment(
                search=SEARCH,
                seed=seed,
                budget={"time": "1h"},
                early_stop={"pruner": "median", "grace": 1},
            )
        )
        rng, sizes = random.Random(seed), []
        for number in range(24):
            proposal = drive.ask()
            size = float(proposal.params["size"])  # type: ignore[arg-type]
            seconds = size if share else 100 ** rng.random()
            for rung in range(1, 5):
                elapsed_s = seconds * rung / 4
                if drive.report(
                    proposal.trial, rung, elapsed_s=elapsed_s, loss=loss(proposal.params) / rung
                ):
                    drive.end(proposal.trial, "pruned")
                    break
            else:
                drive.end(proposal.trial)
            if number >= 8:
                sizes.append(math.log(size) / math.log(100))
        return float(np.mean(sizes))

    found = float(np.mean([mean_size(seed) for seed in range(3)]))
    assert found < 0.3 if share else found > 0.3, found
