from __future__ import annotations

from pathlib import Path

import pytest

import workbench as wb
from workbench.foundation.errors import ExperimentError
from workbench.store.alerts import Settings, read_settings, settings_path
from workbench.store.alerts.sinks import SINKS

MINE = """
sinks:
  team: {kind: webhook, url: {env: TEAM_URL}}
  mail: {kind: email, host: smtp.example.org, sender: a@example.org, recipients: [b@example.org]}
  desk: {kind: command, command: [notify-send, Workbench]}
alerts:
  - {on: run_ended, states: [failed, lost], to: [team]}
  - {on: no_progress, within: 1h}
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "settings.yaml"
    monkeypatch.setenv("WORKBENCH_SETTINGS", str(path))
    return path


def test_settings_name_sinks_and_rules(path: Path) -> None:
    path.write_text(MINE)
    settings = read_settings()
    assert settings.names == ("team", "mail", "desk", "jupyter")
    assert [rule.on for rule in settings.alerts] == ["run_ended", "no_progress"]


def test_rules_about_served_models_are_for_no_run(path: Path) -> None:
    path.write_text(MINE + "  - {on: drift}\n  - {on: drift, to: [mail]}\n")
    settings = read_settings()
    assert [rule.on for rule in settings.run_rules] == ["run_ended", "no_progress"]
    assert [rule.to for rule in settings.drift_rules] == [("team", "mail", "desk"), ("mail",)]
    with pytest.raises(ExperimentError, match=r"alerts\.0\.on: unknown or missing"):
        wb.Experiment(train={"name": "tests:nothing"}, alerts=[{"on": "drift"}])


def test_without_a_file_there_are_no_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WORKBENCH_SETTINGS", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert settings_path() == tmp_path / "workbench" / "settings.yaml"
    assert read_settings() == Settings()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "alerts: [{on: diverged, to: [team]}]",
            r"alerts\.0\.to: there is no sink 'team' .*allowed: jupyter",
        ),
        (
            "alerts: [{on: no_progress, within: soon}]",
            r"alerts\.0\.within: 'soon' is not a duration",
        ),
        ("alerts: [{on: earthquake}]", r"alerts\.0\.on: unknown or missing"),
        ("sinks: {jupyter: {kind: command, command: [x]}}", r"sinks\.jupyter: already exists"),
        ("sinks: {'a b': {kind: command, command: [x]}}", r"sinks\.a b: not a valid name"),
        ("sinks: {a: {kind: webhook, url: 'ftp://s3cret'}}", r"sinks\.a\.url: not a web address"),
        (
            "sinks: {a: {kind: pigeon}}",
            r"sinks\.a\.kind: unknown or missing .*allowed: " + ", ".join(sorted(SINKS.names())),
        ),
        ("sinks: {a: {kind: command, command: []}}", r"sinks\.a\.command"),
        (
            "sinks: {a: {kind: command, command: 'send it'}}",
            r"sinks\.a\.command: .*allowed: a list, such as \[",
        ),
        (
            "alerts: [{on: drift, to: [jupyter]}]",
            r"alerts\.0\.to: JupyterLab shows alerts of runs, .*; allowed: none",
        ),
        ("alerts: [{on: drift, within: 1h}]", r"alerts\.0\.within: unknown key"),
        (
            "# nothing yet",
            r"is empty; allowed: sinks and alerts, or \{\} for neither$",
        ),
        (
            (
                "sinks: {a: {kind: email, host: h, sender: s, recipients: [r], user: u, password:"
                " {env: P}, security: none}}"
            ),
            r"sinks\.a\.security: a password would travel unencrypted",
        ),
        (
            (
                "sinks: {a: {kind: email, host: h, sender: s, recipients: [r], user: u, password:"
                " s3cret}}"
            ),
            r"sinks\.a\.password",
        ),
        ("sink: {}", "sink: unknown key"),
    ],
)
def test_what_cannot_be_meant_is_refused_where_it_stands(path: Path, text: str, said: str) -> None:
    path.write_text(text)
    with pytest.raises(ExperimentError, match=said) as caught:
        read_settings()
    assert "s3cret" not in str(caught.value)


def test_a_file_that_is_named_and_not_there_is_missed(path: Path) -> None:
    with pytest.raises(ExperimentError, match="cannot read"):
        read_settings()


def test_a_secret_is_nowhere_but_where_it_is_said_to_be(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEAM_URL", "https://example.org/s3cret")
    path.write_text(MINE)
    assert "s3cret" not in repr(read_settings())
    monkeypatch.delenv("TEAM_URL")
    with pytest.raises(ExperimentError, match="TEAM_URL is not set"):
        read_settings().sinks["team"].url.read()  # type: ignore[union-attr]
