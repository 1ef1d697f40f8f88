from __future__ import annotations

import pytest

from tests.advisor.test_plans import make_experiment
from tests.advisor.test_worker_scaling import CHEAP, timed
from tests.builders.recorded_runs import append
from tests.services.shell import Shell
from workbench.cli.errors import BAD_INPUT, FAILED
from workbench.foundation.events import AdviceRequested, DriverStarted, RunStateChanged
from workbench.store.database import Store


@pytest.fixture
def measured_run(shell: Shell) -> str:
    with Store.open(None) as store:
        run_id = store.create_run(make_experiment())
        append(store, run_id, [*CHEAP, RunStateChanged(state="complete")])
    return run_id


def test_a_run_shows_the_workers_and_servers_that_pay(shell: Shell, measured_run: str) -> None:
    answer = shell.json("what-if", "scale", measured_run, "--efficiency", "0.9")
    assert 4 <= answer["pays_up_to"] < 8
    assert answer["bends_at"] is None
    assert answer["curve"][7]["efficiency"] == pytest.approx(1 / 1.2)
    code, out, err = shell("what-if", "scale", measured_run, "--servers")
    assert code == 0
    assert [
        word
        for word in ("workers", "efficiency", "servers", "measured", "No slowdown")
        if word not in out
    ] == []
    assert "The larger number is also enough in that case" in " ".join(err.split())


def test_two_workers_do_not_speak_about_many(shell: Shell) -> None:
    with Store.open(None) as store:
        run_id = store.create_run(make_experiment())
        driver = DriverStarted(pid=1, host="here", num_cpus=2)
        append(store, run_id, [driver, *CHEAP[:2], RunStateChanged(state="complete")])
    answer = shell.json("what-if", "scale", run_id, "--up-to", "32")
    assert [point["workers"] for point in answer["curve"]] == [1, 2]
    _, _, err = shell("what-if", "scale", run_id, "--up-to", "32")
    assert "ends at 2 workers: more than 2 workers need another machine" in " ".join(err.split())


def test_impossible_speed_is_called_doubtful(shell: Shell) -> None:
    with Store.open(None) as store:
        run_id = store.create_run(make_experiment())
        slow = timed(1, 0.0, computing_s=0.2)
        append(store, run_id, [slow, *CHEAP[1:], RunStateChanged(state="complete")])
    out = " ".join(shell("what-if", "scale", run_id)[1].split())
    assert "2 workers seem to be 3.81x as fast as one, which is not possible" in out
    assert "--set plan.micro_batch=64" in out
    assert "an efficiency of 80% or more" not in out
    assert shell.json("what-if", "scale", run_id)["pays_up_to"] is None


def test_workers_that_are_slower_than_one_are_named_with_their_wait(shell: Shell) -> None:
    with Store.open(None) as store:
        run_id = store.create_run(make_experiment())
        append(store, run_id, [timed(1, 0.0), timed(2, 0.3), RunStateChanged(state="complete")])
    _, out, _ = shell("what-if", "scale", run_id)
    expected = (
        "2 workers are slower than one: a step takes 400 ms instead of 100 ms."
        " 300 ms of it waits for gradients."
    )
    assert expected in " ".join(out.split())


def test_a_global_batch_is_shown_beside_the_micro_batch(shell: Shell, measured_run: str) -> None:
    answer = shell.json("what-if", "scale", measured_run, "--global-batch", "256")
    assert (answer["curve"][1]["divided"]["micro_batch"], answer["curve"][2]["divided"]) == (
        64,
        None,
    )
    code, out, _ = shell("what-if", "scale", measured_run, "--global-batch", "256")
    assert code == 0
    assert "with 64 samples each, and with 256 samples in total" in out
    assert "64 x 2 accumulated x 2" in out
    assert "cannot be divided" in out


@pytest.mark.parametrize("question", ["scale", "plan", "exchange"])
def test_a_run_without_measurements_fails_every_question_alike_and_states_what_to_do(
    shell: Shell, question: str
) -> None:
    with Store.open(None) as store:
        run_id = store.create_run(make_experiment())
    code, _, err = shell("what-if", question, run_id)
    assert code == FAILED
    assert "workbench advise" in err
    assert shell("what-if", question, "absent")[0] == BAD_INPUT


def test_the_last_run_is_the_newest_that_timed_steps_advice_or_not(shell: Shell) -> None:
    with Store.open(None) as store:
        sweep = store.create_run(make_experiment())
        advice = store.create_run(make_experiment())
        append(store, sweep, [RunStateChanged(state="complete")])
        request = AdviceRequested(objective="time", host="here")
        append(store, advice, [request, *CHEAP, RunStateChanged(state="complete")])
    assert shell.json("what-if", "scale", "last") == shell.json("what-if", "scale", advice)
    assert shell("what-if", "scale", sweep)[0] == FAILED
    with Store.open(None) as store:
        alone = [event for event in CHEAP if event.plan["workers"] == 1]
        append(
            store, store.create_run(make_experiment()), [*alone, RunStateChanged(state="complete")]
        )
    assert shell.json("what-if", "scale", "last") == shell.json("what-if", "scale", advice)
