from __future__ import annotations

import pytest

from tests.advisor.test_plans import make_experiment
from tests.advisor.test_what_if import advice, measured
from tests.builders.recorded_runs import append
from tests.services.shell import Shell
from workbench.foundation.events import AdviceGiven, AdviceRequested, RunStateChanged
from workbench.store.database import Store


@pytest.fixture
def advised(shell: Shell) -> str:
    with Store.open(None) as store:
        run_id = store.create_run(make_experiment())
        asked, given = AdviceRequested(objective="time", host="here"), AdviceGiven(advice=advice())
        append(store, run_id, [asked, *measured(), given, RunStateChanged(state="complete")])
    return run_id


def test_a_stored_advice_is_asked_for_another_plan(shell: Shell, advised: str) -> None:
    told = shell.json("what-if", "plan", advised, "--workers", "2", "--global-batch", "256")
    assert told["plan"]["global_batch"] == 256
    assert told["plan"]["workers"] == 2
    assert told["fits"] is True
    code, out, err = shell("what-if", "plan", advised, "--workers", "4", "--global-batch", "256")
    assert code == 0
    assert "256 samples = 64 x 1 accumulated x 4 workers" in out
    assert "beyond what was measured" in err
    _, out, err = shell("what-if", "plan", advised, "--workers", "1024", "--global-batch", "4096")
    assert "a worker, estimated" in out
    assert "1024 workers need a larger one" in err


def test_the_last_run_is_the_newest_with_advice(shell: Shell, advised: str) -> None:
    with Store.open(None) as store:
        store.create_run(make_experiment())
    assert shell.json("what-if", "plan", "last", "--workers", "2")["plan"]["workers"] == 2


def test_a_run_without_advice_says_so(shell: Shell) -> None:
    with Store.open(None) as store:
        run_id = store.create_run(make_experiment())
    code, _, err = shell("what-if", "plan", run_id)
    assert code != 0
    assert "has no advice" in err


def test_following_advice_ends_with_the_advice(shell: Shell, advised: str) -> None:
    _, shown, _ = shell("show", advised)
    code, told, _ = shell("follow", advised)
    assert code == 0
    assert shown.strip() in told
    assert "no trial has ended" not in told
