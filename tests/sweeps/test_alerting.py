from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.sweeps import Driving, Sweep, make_experiment
from tests.services.waiting import wait_until
from tests.services.web_and_mail import WebServer, web_server
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import (
    AlertDelivered,
    AlertRaised,
    AlertsArmed,
    AttemptEnded,
    DriverStarted,
    LogMatched,
    Noted,
    TrialReported,
    TrialStarted,
)
from workbench.runs.run import attach
from workbench.store.database import Store
from workbench.sweeps.preflight import find_problems

pytestmark = pytest.mark.ray


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    """A sink of that name, in settings of the test's own."""
    with web_server() as server:
        settings = tmp_path / "settings.yaml"
        (tmp_path / "url").write_text(server.url)
        settings.write_text(
            f"sinks: {{team: {{kind: webhook, url: {{file: {tmp_path / 'url'}}}}}}}"
        )
        monkeypatch.setenv("WORKBENCH_SETTINGS", str(settings))
        yield server


@pytest.mark.usefixtures("free_pool")
@pytest.mark.slow
def test_rules_act_on_what_workers_print_and_on_what_becomes_of_trials(
    store: Store, team: WebServer
) -> None:
    ways = ["once", "always", "stop", "dies", "nan"]
    sweep = Sweep.create(
        store,
        "talk",
        search={"how": {"choices": ways}},
        sampler="grid",
        resources={"concurrency": 2, "max_retries": 1},
        alerts=[
            {"on": "log", "pattern": r"please (once|always) \d+", "action": "retry"},
            {"on": "log", "pattern": "last words$", "action": "retry", "to": ["jupyter"]},
            {"on": "log", "pattern": "please stop", "action": "stop"},
            {"on": "diverged"},
            {"on": "run_ended"},
        ],
    ).launch("inline")
    sweep.assert_sound()
    trials = {way: sweep.trial_with(how=way) for way in ways}
    assert {way: (trial.state, trial.attempts) for way, trial in trials.items()} == {
        "once": ("complete", 2),
        "always": ("complete", 2),
        "stop": ("stopped", 1),
        "dies": ("complete", 2),
        "nan": ("failed", 1),
    }
    assert str(trials["stop"].message).startswith("stopped by a rule: trial")
    for way in ("once", "always", "dies"):
        number = trials[way].number
        (ended,) = sweep.of(AttemptEnded, number)
        assert (ended.reason, ended.is_retry) == ("alert", True)
        steps = [report.step for report in sweep.of(TrialReported, number)]
        assert steps == sorted(steps), "it went on from what it had saved"
        assert steps[-1] == 30
    (noted,) = sweep.of(Noted)
    assert (noted.trial, noted.message) == (
        trials["always"].number,
        "an alert rule wants to restart it, but resources.max_retries is used up",
    )
    raised = {(alert.on, alert.cause): alert for alert in sweep.of(AlertRaised)}
    assert len(raised) == len(sweep.of(AlertRaised)) == 7
    assert ("diverged", f"trial {trials['nan'].number}") in raised
    assert ("run_ended", "complete under driver 1") in raised
    always = trials["always"].number
    assert {("log", f"trial {always} attempt {attempt}") for attempt in (0, 1)} <= raised.keys()
    assert all(len(match.line) <= 300 for match in sweep.of(LogMatched))
    told = {(delivery.alert, delivery.sink, delivery.sent) for delivery in sweep.of(AlertDelivered)}
    to_team = {alert.alert for alert in raised.values() if "team" in alert.to}
    assert told == {(number, "team", True) for number in to_team}
    assert sorted(post["alert"] for post in team.posted) == sorted(to_team)
    assert team.posted[-1]["message"] == "the run is complete: every combination was tried"
    assert "s3cret" not in "".join(map(str, sweep.events))


@pytest.mark.usefixtures("free_pool")
@pytest.mark.slow
def test_every_worker_is_listened_to_and_the_only_node_is_used_all_the_same(
    store: Store, team: WebServer
) -> None:
    sweep = Sweep.create(
        store,
        "talk_on_all",
        budget={"trials": 1},
        plan={"workers": 2},
        alerts=[
            {"on": "log", "pattern": "said by rank", "action": "exclude_node", "to": ["jupyter"]}
        ],
        resources={"concurrency": 1, "max_retries": 1},
    ).launch("inline")
    (trial,) = sweep.trials
    assert (trial.state, trial.attempts) == ("complete", 2)
    assert {(match.rank, match.line) for match in sweep.of(LogMatched)} == {(1, "said by rank 1")}
    assert [note.message for note in sweep.of(Noted)] == [
        "a node that a rule excludes is still used: the others have no room for a trial",
        "an alert rule wants to restart it, but resources.max_retries is used up",
    ]


@pytest.mark.usefixtures("free_pool")
@pytest.mark.slow
def test_a_driver_that_is_killed_before_a_sink_answers_is_followed_by_one_that_tells_it(
    store: Store, team: WebServer, tmp_path: Path, notes: Path
) -> None:
    began, killed, told = tmp_path / "began", tmp_path / "killed", tmp_path / "told"
    (tmp_path / "desk.sh").write_text(
        f"if [ -e {began} ]; then cat >> {told}; echo >> {told}; else touch {began}; "
        f"until [ -e {killed} ]; do sleep 0.1; done; fi"
    )
    settings = tmp_path / "settings.yaml"  # of whoever starts the run, not of whoever started Ray
    rules = (
        "[{on: run_ended, states: [stopped, lost]}, {on: disk, above: 0.0000001, to: [desk],"
        " at_most: 1}]"
    )
    desk = f", desk: {{kind: command, command: [sh, {tmp_path / 'desk.sh'}]}}}}\nalerts: {rules}"
    settings.write_text(settings.read_text().removesuffix("}") + desk)
    sweep = Sweep.create(store, "hold", options={"notes": str(notes)}).launch()
    wait_until(began.exists)
    os.kill(sweep.of(DriverStarted)[-1].pid, signal.SIGKILL)
    killed.touch()
    assert sweep.wait_for(AlertDelivered, lambda answer: answer.sink == "desk").sent
    assert json.loads(told.read_text().splitlines()[0])["on"] == "disk"
    sweep.wait_for(AlertRaised, lambda alert: "Another driver continues" in alert.message)
    sweep.wait_for(TrialStarted)
    store.command(sweep.run_id, "stop", {})
    sweep.wait()
    ended = sweep.wait_for(AlertRaised, lambda alert: "stopped: by the user" in alert.message)
    assert sweep.wait_for(AlertDelivered, lambda answer: answer.alert == ended.alert).sent
    assert [alert.on for alert in sweep.of(AlertRaised)] == ["disk", "run_ended", "run_ended"]
    assert [post["message"] for post in team.posted] == [
        alert.message for alert in sweep.of(AlertRaised)[1:]
    ]
    armed = sweep.of(AlertsArmed)
    assert [rule["to"] for rule in armed[0].rules] == [["team", "desk", "jupyter"], ["desk"]]
    assert len(armed) == 2


@pytest.mark.usefixtures("free_pool")
@pytest.mark.slow
def test_settings_that_cannot_be_used_cost_the_sinks_and_not_the_run(
    store: Store, tmp_path: Path, team: WebServer
) -> None:
    (tmp_path / "settings.yaml").write_text("sinks: {team: {kind: webhook, url: 's3cret'}}")
    driving = Driving(
        Sweep.create(store, "curve", budget={"trials": 1}, alerts=[{"on": "run_ended"}])
    )
    assert driving.join() is None
    sweep = Sweep(store, store.run("last").run_id)
    assert sweep.state == "complete"
    (noted,) = sweep.of(Noted)
    assert "cannot be used (sinks.team.url): alerts are not delivered" in noted.message
    assert [alert.to for alert in sweep.of(AlertRaised)] == [["jupyter"]]


def test_a_rule_for_a_sink_that_there_is_not_is_refused_before_anything_starts(
    team: WebServer,
) -> None:
    experiment = make_experiment(
        "curve", alerts=[{"on": "diverged"}, {"on": "run_ended", "to": ["mail"]}]
    )
    (problem,) = find_problems(experiment)
    assert isinstance(problem, ExperimentError)
    assert (problem.field, problem.allowed) == ("alerts.1.to", "team, jupyter")
    assert list(find_problems(experiment, on_this_machine=False)) == []


@pytest.mark.slow
@pytest.mark.usefixtures("free_pool")
def test_a_run_is_resumed_also_while_its_driver_still_waits_for_a_slow_sink(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("sinks: {slow: {kind: command, command: [sleep, '4']}}")
    monkeypatch.setenv("WORKBENCH_SETTINGS", str(settings))
    sweep = Sweep.create(
        store,
        "curve",
        options={"steps": 30, "pause_s": 0.1},
        budget={"trials": 2},
        alerts=[{"on": "run_ended", "to": ["slow"]}],
    )
    driving = Driving(sweep)
    sweep.wait_for(TrialReported)
    run = attach(sweep.run_id, store=store)
    run.stop()
    sweep.wait("stopped")
    assert run.driven, "it tells of the end"
    run.resume(launcher="inline")
    assert driving.join() is None
    assert [trial.state for trial in sweep.trials] == ["complete"] * 2
    assert len(sweep.of(DriverStarted)) == 2
    assert [told.sent for told in sweep.of(AlertDelivered)] == [True, True]
