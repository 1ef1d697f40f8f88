from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path

import pytest

from tests.builders.recorded_runs import EXPERIMENT, append, begin
from tests.services.shell import Shell
from tests.services.waiting import wait_until
from tests.services.web_and_mail import web_server
from workbench.experiment import Experiment
from workbench.foundation.events import (
    AlertCleared,
    AlertDelivered,
    AlertRaised,
    AlertsArmed,
    RunStateChanged,
)
from workbench.store.database import Store


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "settings.yaml"
    monkeypatch.setenv("WORKBENCH_SETTINGS", str(path))
    return path


def test_a_sink_is_tried_and_the_exit_code_says_whether_it_works(
    shell: Shell, settings: Path
) -> None:
    with web_server() as server:
        settings.write_text(f"sinks: {{team: {{kind: webhook, url: '{server.url}'}}}}")
        assert shell("alerts", "--try", "team")[:2] == (0, "team received the message\n")
        assert server.posted[0]["text"] == "workbench: this is a test of the sink"
        server.answers = [404]
        assert shell("alerts", "--try", "team")[:2] == (
            1,
            "team could not be reached: 127.0.0.1 answered with status 404\n",
        )
    code, _, said = shell("alerts", "--try", "mail")
    assert code == 2
    assert "--try: there is no sink mail; allowed: team" in said


def test_sinks_and_rules_are_shown_without_secrets(shell: Shell, settings: Path) -> None:
    settings.write_text(
        "sinks: {team: {kind: webhook, url: 'https://example.org/s3cret'}}\n"
        "alerts: [{on: no_progress, within: 1h}]"
    )
    code, out, _ = shell("alerts")
    assert code == 0
    assert "team (webhook). To test it: workbench alerts --try team" in out
    assert "no_progress (within: 3600.0), for every run" in out
    assert "s3cret" not in out + str(shell.json("alerts"))


def test_a_missing_secret_is_said_and_fails(shell: Shell, settings: Path) -> None:
    settings.write_text("sinks: {team: {kind: webhook, url: {env: NOBODY_SET_THIS}}}")
    code, out, err = shell("alerts")
    assert code == 1
    assert "team (webhook)" in out
    assert (
        err == "error: sinks.team: cannot be used: the environment variable NOBODY_SET_THIS is not"
        " set\n"
    )
    code, out, _ = shell("alerts", "--json")
    assert (code, list(json.loads(out)["problems"])) == (1, ["team"])
    findings = {
        item["subject"]: item for item in json.loads(shell("doctor", "--json")[1])["findings"]
    }
    assert "Submitted runs use the settings of their cluster" in findings["settings"]["message"]
    assert "NOBODY_SET_THIS is not set" in findings["sink"]["message"]


def test_show_lists_alerts_with_who_was_told(shell: Shell) -> None:
    with Store.open() as store:
        run_id = store.create_run(Experiment(**EXPERIMENT))
        raised = {"level": "warning", "rule": "r", "cause": "c", "to": ["team", "mail"]}
        events = [
            AlertRaised(alert=0, on="diverged", message="trial 3 diverged", trial=3, **raised),
            AlertDelivered(alert=0, sink="team", sent=True),
            AlertDelivered(alert=0, sink="mail", sent=False, message="TimeoutError"),
            AlertRaised(alert=1, on="queue", message="the run waits", **raised),
            AlertCleared(alert=1, message="a trial has workers"),
        ]
        append(store, run_id, [*begin(), *events])
    _, out, _ = shell("show", run_id)
    assert "0: trial 3 diverged (sent to team) (not sent to mail: TimeoutError)" in " ".join(
        out.split()
    )
    assert "1: the run waits (cleared: a trial has workers)" in " ".join(out.split())
    shown = shell.json("show", run_id)["alerts"]
    assert [(alert["message"], alert["cleared"]) for alert in shown] == [
        ("trial 3 diverged", False),
        ("the run waits", True),
    ]
    assert shown[0]["deliveries"]["mail"] == {"sent": False, "message": "TimeoutError"}


def test_a_run_whose_driver_is_gone_is_told_of_once(shell: Shell, settings: Path) -> None:
    rule = {"on": "run_ended", "states": ["lost"], "to": ["team"]}
    with web_server() as server, Store.open() as store:
        settings.write_text(f"sinks: {{team: {{kind: webhook, url: '{server.url}'}}}}")
        ended, lost = (
            store.create_run(Experiment(**EXPERIMENT)),
            store.create_run(Experiment(**EXPERIMENT)),
        )
        for run_id, rest in (
            (ended, [RunStateChanged(state="stopped", reason="person")]),
            (lost, []),
        ):
            gone = subprocess.Popen(["true"])
            with store.writer(
                run_id, owner_pid=gone.pid, owner_host=socket.gethostname(), lease_timeout_s=0.5
            ) as writer:
                writer.append(AlertsArmed(rules=[rule]), *begin(), *rest)
            gone.wait()
        wait_until(lambda: store.run(lost).state == "lost")
        assert shell("alerts", "--lost")[:2] == (0, f"{lost} is lost\n{lost}: team was notified\n")
        assert [post["message"] for post in server.posted] == [
            "the driver, process 4711 on somewhere, is gone. Resume the run to continue it"
        ]
        wait_until(lambda: store.run(lost).state == "lost")
        assert shell.json("alerts", "--lost") == {"run_ids": [], "notified": []}
        assert len(server.posted) == 1
        raised, delivered = store.events(lost, types=["alert_raised", "alert_delivered"])
        assert (raised.event.trial, delivered.event.sent) == (None, True)  # type: ignore[union-attr]
