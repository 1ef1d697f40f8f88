from __future__ import annotations

import json
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.services.waiting import wait_until
from tests.services.web_and_mail import mail_server, web_server
from workbench.experiment.validation_errors import refusal
from workbench.foundation.errors import ExperimentError
from workbench.store.alerts import Delivery, Settings
from workbench.store.alerts.command import Command
from workbench.store.alerts.sinks import SINKS, Sink, SinkError, send

ALERT: dict[str, Any] = {
    "text": "mine (mine-1): trial 3 diverged",
    "run_id": "mine-1",
    "alert": 0,
    "on": "diverged",
    "level": "warning",
    "message": "trial 3 diverged",
    "trial": 3,
    "node": None,
}


def sink(**fields: Any) -> Sink:
    try:
        return Settings(sinks={"one": fields}).sinks["one"]  # type: ignore[dict-item]
    except ValidationError as error:
        raise refusal(error) from error


def test_a_webhook_is_posted_the_alert_with_the_headers_that_secrets_fill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_TOKEN", "Bearer t0ken")
    with web_server() as server:
        (tmp_path / "url").write_text(server.url + "\n")
        headers = {"Authorization": {"env": "HOOK_TOKEN"}}
        send(sink(kind="webhook", url={"file": str(tmp_path / "url")}, headers=headers), ALERT)
    assert server.posted == [ALERT]
    assert server.headers[0]["Authorization"] == "Bearer t0ken"
    assert server.headers[0]["Content-Type"] == "application/json"


@pytest.mark.parametrize("location", ["http://127.0.0.1:{port}/elsewhere", "file:///etc/hostname"])
def test_a_webhook_is_not_followed_elsewhere(location: str) -> None:
    with web_server() as server:
        server.location = location.format(port=server.port)
        server.answers = [302]
        with pytest.raises(
            SinkError, match=r"127\.0\.0\.1 answered with status 302, a redirect"
        ) as caught:
            send(sink(kind="webhook", url=server.url), ALERT)
    assert not caught.value.may_pass
    assert (len(server.posted), server.gets) == (1, 0)


@pytest.mark.parametrize(
    ("code", "may_pass"), [(404, False), (403, False), (429, True), (503, True)]
)
def test_an_answer_that_refuses_is_told_without_the_address(code: int, may_pass: bool) -> None:
    with web_server() as server:
        server.answers = [code]
        with pytest.raises(SinkError) as caught:
            send(sink(kind="webhook", url=server.url), ALERT)
    assert str(caught.value) == f"127.0.0.1 answered with status {code}"
    assert caught.value.may_pass is may_pass


def test_nobody_who_listens_is_told_without_the_address() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/s3cret"
    with pytest.raises(SinkError) as caught:
        send(sink(kind="webhook", url=url), ALERT)
    assert str(caught.value) == "ConnectionRefusedError: Connection refused"
    assert caught.value.may_pass


def test_an_address_in_a_secret_is_checked_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", "file:///etc/passwd")
    with pytest.raises(SinkError, match="not a web address"):
        send(sink(kind="webhook", url={"env": "HOOK"}), ALERT)


def test_a_mail_says_the_alert() -> None:
    with mail_server() as server:
        fields = {
            "host": "127.0.0.1",
            "port": server.port,
            "security": "none",
            "sender": "wb@example.org",
        }
        mail = sink(kind="email", recipients=["me@example.org", "you@example.org"], **fields)
        send(mail, ALERT | {"text": "two\nlines: trial 3 diverged"})
    assert server.recipients == ["me@example.org", "you@example.org"]
    assert "Subject: two lines: trial 3 diverged" in server.mails[0]
    assert "run_id: mine-1" in server.mails[0]


def test_a_mail_that_is_refused_is_told_without_what_the_server_repeats() -> None:
    with mail_server() as server:
        server.refuses = True
        fields = {
            "host": "127.0.0.1",
            "port": server.port,
            "security": "none",
            "sender": "wb@example.org",
        }
        with pytest.raises(SinkError) as caught:
            send(sink(kind="email", recipients=["s3cret@example.org"], **fields), ALERT)
    assert "s3cret" not in str(caught.value)
    assert not caught.value.may_pass


def test_mail_is_not_sent_unencrypted_to_a_server_that_offers_no_encryption() -> None:
    with mail_server() as server:
        fields = {"host": "127.0.0.1", "port": server.port, "sender": "wb@example.org"}
        with pytest.raises(SinkError, match="SMTPNotSupportedError"):
            send(sink(kind="email", recipients=["me@example.org"], **fields), ALERT)
    assert server.mails == []


def test_a_command_finds_the_alert_on_its_input_and_in_its_environment(tmp_path: Path) -> None:
    code = (
        f"import json, os, sys; open({str(tmp_path / 'told')!r},"
        " 'w').write(json.dumps([json.load(sys.stdin), os.environ['WORKBENCH_ALERT_MESSAGE'],"
        " os.environ['WORKBENCH_ALERT_TRIAL'], sys.argv[1:]]))"
    )
    alert = ALERT | {"message": "$(touch hacked); `id`"}
    send(sink(kind="command", command=[sys.executable, "-c", code, "$HOME; ls"]), alert)
    told = json.loads((tmp_path / "told").read_text())
    assert told == [alert, "$(touch hacked); `id`", "3", ["$HOME; ls"]]


def test_a_command_that_fails_hangs_or_is_not_there_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Command, "timeout_s", 0.5)
    for command, said in {
        (sys.executable, "-c", "raise SystemExit(3)"): "it ended with exit code 3",
        ("sh", "-c", "sleep 60 & wait"): "it was killed because it was still running after 500 ms",
        ("no-such-program",): "no-such-program cannot be started: No such file or directory",
    }.items():
        with pytest.raises(SinkError) as caught:
            send(sink(kind="command", command=list(command)), ALERT)
        assert (str(caught.value), caught.value.may_pass) == (said, False)


def test_what_may_pass_is_tried_again_and_the_outcome_kept() -> None:
    with web_server() as server:
        server.answers = [503, 503]
        delivery = Delivery({"team": sink(kind="webhook", url=server.url)}, waits_s=(0.01, 0.01))
        delivery.put("team", 4, ALERT)
        outcomes = delivery.close(timeout_s=120)
        assert [(told.alert, told.sink, told.sent, told.message) for told in outcomes] == [
            (4, "team", True, None)
        ]
        assert len(server.posted) == 3


def test_a_closed_delivery_leaves_no_thread() -> None:
    with web_server() as server:
        delivery = Delivery({"closed": sink(kind="webhook", url=server.url)})
        delivery.put("closed", 0, ALERT)
        assert [outcome.sent for outcome in delivery.close(120)] == [True]
    threads = [thread for thread in threading.enumerate() if thread.name == "alerts to closed"]
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)


def test_what_does_not_pass_is_given_up_and_what_nobody_knows_is_said() -> None:
    with web_server() as server:
        server.answers = [503, 503, 503, 503]
        delivery = Delivery({"team": sink(kind="webhook", url=server.url)}, waits_s=(0.01, 0.01))
        delivery.put("team", 0, ALERT)
        delivery.put("nobody", 1, ALERT)
        said = {(told.sink, told.sent, told.message) for told in delivery.close(timeout_s=120)}
    assert said == {
        ("team", False, "127.0.0.1 answered with status 503"),
        ("nobody", False, "the settings on this machine have no such sink"),
    }


def test_a_sink_that_hangs_holds_up_neither_the_run_nor_other_sinks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.store.alerts.delivery.MAX_WAITING", 3)
    quick = sink(kind="command", command=["touch", str(tmp_path / "told")])
    delivery = Delivery({"slow": sink(kind="command", command=["sleep", "600"]), "quick": quick})
    for number in range(10):
        delivery.put("slow", number, ALERT)
    delivery.put("quick", 10, ALERT)
    wait_until((tmp_path / "told").exists)
    outcomes = delivery.close(timeout_s=1)
    assert [told.sink for told in outcomes if told.sent] == ["quick"]
    given_up = [told for told in outcomes if not told.sent]
    assert {told.message for told in given_up} == {"dropped because 3 others are waiting"}
    assert 6 <= len(given_up) <= 7, "the others are told by the next driver"


PIGEON = """
from workbench.store.alerts.sinks import Secret, Sink

SENT = []


class Pigeon(Sink):
    name: str
    rings: dict[str, Secret] = {}

    def send(self, alert):
        SENT.append((self.name, alert["text"]))
"""


def test_another_package_adds_a_sink_in_one_file_and_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pigeons.py").write_text(PIGEON)
    information = tmp_path / "pigeons-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: pigeons\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[workbench.sinks]\npigeon = pigeons:Pigeon\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(SINKS, "_scanned_at_s", None)

    pigeon = sink(kind="pigeon", name="Paula", rings={"left": {"env": "RING"}})
    send(pigeon, ALERT)

    assert sys.modules["pigeons"].SENT == [("Paula", "mine (mine-1): trial 3 diverged")]
    assert [secret.env for secret in pigeon.secrets] == ["RING"]
    with pytest.raises(ExperimentError, match=r"sinks\.one\.name: missing"):
        sink(kind="pigeon")
    with pytest.raises(ExperimentError, match=r"allowed: .*\bpigeon\b"):
        sink(kind="owl")
    monkeypatch.setattr(SINKS, "_scanned_at_s", None)
