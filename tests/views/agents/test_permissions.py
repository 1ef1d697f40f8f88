"""What an agent may do and spend, also if many calls come at once."""

from __future__ import annotations

import importlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.builders.studies import make_experiment
from workbench.foundation.errors import ArgumentError
from workbench.store.database import Store
from workbench.views.agents.jupyter import TOOLS, list_runs
from workbench.views.agents.permissions import Gate, Limits, check_agent


def test_limits_hold_under_concurrent_calls() -> None:
    gate = Gate(["propose"], Limits(trials=50))

    def take(_call: int) -> bool:
        try:
            gate.reserve_trials(3)
        except ArgumentError:
            return False
        return True

    with ThreadPoolExecutor(16) as threads:
        taken = sum(threads.map(take, range(200)))
    assert taken == 50 // 3
    assert gate.left_trials() == 50 - 3 * (50 // 3)


def test_a_run_gets_the_time_and_the_money_that_are_left() -> None:
    priced = make_experiment(budget={"trials": 4, "money": 3.0, "price": "2 EUR/h"})
    gate = Gate(["control"], Limits(trials=10, time_s=60, money=5.0))
    first = gate.reserve(priced)
    assert first.budget.money == 3.0
    assert first.budget.time is not None
    assert first.budget.time <= 60
    assert gate.reserve(priced).budget.money == 2.0
    with pytest.raises(ArgumentError, match="money is spent"):
        gate.reserve(priced)
    gate.release(first)
    assert gate.left_trials() == 6
    assert gate.reserve(priced).budget.money == 3.0


def test_what_has_no_limit_is_not_started_within_one() -> None:
    with pytest.raises(ArgumentError, match="no limit on them"):
        Gate(["control"], Limits(trials=10)).reserve(make_experiment(budget={"time": "1h"}))
    with pytest.raises(ArgumentError, match="has no price"):
        Gate(["control"], Limits(money=1.0)).reserve(make_experiment())
    with pytest.raises(ArgumentError, match="money of this run is not"):
        Gate(["control"], Limits(money=1.0)).check_money(make_experiment())
    Gate(["control"]).check_money(make_experiment())


def test_a_permission_that_is_missing_names_who_can_give_it() -> None:
    with pytest.raises(ArgumentError, match="--allow control,propose"):
        Gate(["propose"]).need("control")
    with pytest.raises(ArgumentError, match="time of 0 s"):
        Gate(["propose"], Limits(time_s=0)).need("propose")


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "\x1b[1m", "x" * 41])
def test_names_of_agents_can_be_shown(name: str) -> None:
    with pytest.raises(ArgumentError, match="cannot be the name"):
        check_agent(name)


def test_jupyter_ai_gets_tools_that_only_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_STORE", str(tmp_path / "store.sqlite"))
    with Store.open() as store:
        store.create_run(make_experiment(), run_id="small-1")
    for reference in TOOLS:
        module, _, name = reference.partition(":")
        assert callable(getattr(importlib.import_module(module), name))
    assert [line["run"] for line in list_runs()["runs"]] == ["small-1"]
    assert not {"enqueue", "start_run", "stop"} & {name.partition(":")[2] for name in TOOLS}
