from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.services.served import write_table_bundle
from tests.services.waiting import wait_until
from tests.services.web_and_mail import WebServer, web_server
from workbench.deploy.serving import drift_alerts
from workbench.deploy.serving.drift_alerts import DriftAlerts
from workbench.deploy.serving.served_models import Limits, ServedModel, Version
from workbench.store.alerts import Settings

USUAL = [
    {"age": age, "animal": animal, "note": "x", "born": None}
    for age in (1, 3, 5, 7)
    for animal in ("cat", "dog")
]
OTHER = [{"age": 3, "animal": "bird", "note": "x", "born": None}]
ANSWERS = [{"values": {"years": value}} for value in (40.0, 60.0)]


@pytest.fixture
def model(tmp_path: Path) -> Iterator[ServedModel]:
    folder, limits = write_table_bundle(tmp_path / "animals"), Limits(keep_share=1.0)
    model = ServedModel("animals", folder, Version.open(folder, limits), limits)
    yield model
    model.close()


@pytest.fixture
def sink() -> Iterator[WebServer]:
    with web_server() as server:
        yield server


def settings_with(sink: WebServer, *rules: dict[str, Any]) -> Settings:
    sinks = {"team": {"kind": "webhook", "url": sink.url}}
    return Settings.model_validate({"sinks": sinks, "alerts": rules})


def serve(model: ServedModel, num_rows: int, rows: list[dict[str, Any]]) -> None:
    given = [rows[number // 2 % len(rows)] for number in range(num_rows)]
    assert model.watch is not None
    answers = [ANSWERS[number % 2] for number in range(num_rows)]
    model.watch.add(given, model.version.reader.read(given), answers, 0.01)


def test_drift_is_an_alert_once_until_it_is_over(model: ServedModel, sink: WebServer) -> None:
    notes: list[str] = []
    alerts = DriftAlerts(
        settings_with(sink, {"on": "drift"}), url="http://here:1", notify=notes.append
    )
    serve(model, 600, USUAL)
    alerts.check([model])
    assert notes == []
    for _ in range(2):
        serve(model, 600, OTHER)
        alerts.check([model])
    assert notes == ["alert: animals: drift from the training data in animal, age (1,200 rows)"]
    serve(model, 12_000, USUAL)
    alerts.check([model])
    serve(model, 12_000, OTHER)
    alerts.close([model])
    assert len(notes) == 2
    assert [(posted["on"], posted["look"]) for posted in sink.posted] == [
        ("drift", "workbench drift http://here:1")
    ] * 2


def test_a_sink_that_cannot_be_reached_is_noted(model: ServedModel, sink: WebServer) -> None:
    notes: list[str] = []
    sink.answers = [404]
    alerts = DriftAlerts(
        settings_with(sink, {"on": "drift"}), url="http://here:1", notify=notes.append
    )
    serve(model, 600, OTHER)
    alerts.close([model])
    assert "an alert could not be sent to team: 127.0.0.1 answered with status 404" in notes


def test_models_are_checked_while_they_are_served(
    model: ServedModel, sink: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drift_alerts, "CHECK_S", 0.01)
    alerts = DriftAlerts(
        settings_with(sink, {"on": "drift"}), url="http://here:1", notify=lambda note: None
    )
    serve(model, 600, OTHER)

    async def watch() -> None:
        task = asyncio.create_task(alerts.watch([model]))
        await asyncio.to_thread(wait_until, lambda: sink.posted, what="the alert")
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(watch())
    assert sink.posted[0]["run_id"] == "20261123-digits"


def test_rules_about_runs_say_nothing_about_models(model: ServedModel, sink: WebServer) -> None:
    notes: list[str] = []
    settings = settings_with(sink, {"on": "run_ended"}, {"on": "disk"})
    alerts = DriftAlerts(settings, url="http://here:1", notify=notes.append)
    serve(model, 600, OTHER)
    asyncio.run(alerts.watch([model]))
    alerts.close([model])
    assert notes == []
